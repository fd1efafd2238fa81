// Plans, builds and estimates a training step of equal layers, each with four products of the hidden size and
// two of the feed-forward size, in a function that every layer calls.
//
//   bench_encoder [--layers 24] [--hidden 1024] [--inner 4096] [--rows 1024] [--micro-batches 2] [--stages 4]
//                 [--machine m2000] [--type f16]
//
// Prints the seconds of each pass and in all, the memory that was needed, and the predicted time of the
// step.
#include <fmt/format.h>
#include <sys/resource.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/gradients.h>
#include <tessera/graph.h>

#include <chrono>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using namespace tessera::graph;

struct Options {
  uint32_t layers = 24, hidden = 1024, inner = 4096, rows = 1024, micro_batches = 2, stages = 4;
  std::string machine = "m2000";
  std::string type = "f16";
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::shared_ptr<const Graph> layer(const Options& o, Type type) {
  auto f = std::make_shared<Graph>();
  const auto weight = [&](const char* name, uint32_t m, uint32_t k) { return f->input(name, {m, k}, type); };
  const auto bias = [&](const char* name, uint32_t m) { return f->input(name, {m}, type); };
  const Value x = f->input("x", {o.rows, o.hidden}, type);
  const Value q = linear(x, weight("q", o.hidden, o.hidden), bias("q.bias", o.hidden));
  const Value k = linear(x, weight("k", o.hidden, o.hidden), bias("k.bias", o.hidden));
  const Value v = linear(x, weight("v", o.hidden, o.hidden), bias("v.bias", o.hidden));
  const Value h = x + linear(tanh(q) * k + v, weight("o", o.hidden, o.hidden), bias("o.bias", o.hidden));
  const Value up = gelu(linear(h, weight("up", o.inner, o.hidden), bias("up.bias", o.inner)));
  f->output("y", h + linear(up, weight("down", o.hidden, o.inner), bias("down.bias", o.hidden)));
  return f;
}

void encode(const Options& o, Graph& g) {
  const Type type = o.type == "f16" ? Type::f16 : Type::f32;
  const std::shared_ptr<const Graph> function = layer(o, type);
  Value x = g.input("x", {o.rows, o.hidden}, type);
  for (uint32_t l = 0; l < o.layers; ++l) {
    std::vector<Value> operands;
    for (ValueId id : function->inputs()) {
      const TensorType& given = function->type(id);
      const std::string& name = function->info(id).name;
      operands.push_back(name == "x" ? x
                                     : g.parameter(fmt::format("{}.{}", l, name), given.shape,
                                                   Initial::normal(0.02), given.type));
    }
    x = g.call(function, operands, {.stage = l * o.stages / o.layers})[0];
  }
  const Value loss = mean(square(cast(x, Type::f32)));
  g.output("loss", loss);
  add_training(loss, {.optimizer = Sgd{.momentum = 0.9}, .micro_batches = o.micro_batches});
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  const std::map<std::string, uint32_t*> numbers = {
      {"--layers", &o.layers}, {"--hidden", &o.hidden}, {"--inner", &o.inner},
      {"--rows", &o.rows},     {"--stages", &o.stages}, {"--micro-batches", &o.micro_batches}};
  const std::map<std::string, std::string*> names = {{"--machine", &o.machine}, {"--type", &o.type}};
  try {
    for (int i = 1; i < argc; i += 2) {
      if (i + 1 < argc && numbers.contains(argv[i]))
        *numbers.at(argv[i]) = static_cast<uint32_t>(std::stoul(argv[i + 1]));
      else if (i + 1 < argc && names.contains(argv[i]))
        *names.at(argv[i]) = argv[i + 1];
      else
        throw std::invalid_argument(argv[i]);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "bench_encoder: {}: see its first lines\n", error.what());
    return 2;
  }
  try {
    const double start = now();
    Graph g;
    encode(o, g);
    const double graph = now() - start;
    const RunCost cost = estimate(g, Machine::find(o.machine));
    const double all = now() - start;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    for (const PassRecord& pass : cost.passes)
      fmt::print("{:<16}{:>8.2f} s  {}\n", pass.name, pass.seconds, pass.did);
    fmt::print("graph {:.2f} s, estimate {:.2f} s, {:.2f} GB\n", graph, all - graph, usage.ru_maxrss / 1e6);
    fmt::print("step {:.6g} ms, {}\n", cost.seconds * 1e3, cost.overflow.empty() ? "fits" : cost.overflow);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
