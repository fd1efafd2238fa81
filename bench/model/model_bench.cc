// A training step of a classifier, and every operation alone.
//
//   bench_model [--layers 1024,1024,10] [--batch 50] [--density 1] [--block 16] [--dynamic]
//               [--replicas 1] [--machine host] [--threads 0] [--steps 200] [--rounds 9] [--operations]
//
// Prints the time to build and compile the step, the time of a step (on a tiled machine, the model's
// prediction), its parts, and for dense layers on a host the limit: operations at the processor's peak, and
// bytes of parameters. bench_dense compares single dense products, also of BERT-base, with other libraries.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/graph.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/integer_types.h"
#include "base/median.h"
#include "graph/operation.h"
#include "sparse/generate.h"

namespace {

using namespace tessera;
using namespace tessera::graph;

struct Options {
  std::vector<uint32_t> layers = {1024, 1024, 10};
  uint32_t batch = 50;
  double density = 1;
  uint32_t block = 16;
  bool dynamic = false;
  uint32_t replicas = 1;
  std::string machine = "host";
  uint32_t threads = 0;
  uint32_t steps = 200;
  uint32_t rounds = 9;
  bool operations = false;
};

Value layer(Graph& g, const Options& options, uint32_t index, Value x) {
  const uint32_t m = options.layers[index + 1], k = x.shape().back();
  const std::string name = fmt::format("layer{}", index);
  const bool is_last = index + 2 == options.layers.size();
  const Value bias = g.parameter(name + ".bias", {m});
  if (options.density == 1 || is_last)
    return linear(x, g.parameter(name + ".weight", {m, k}, Initial::normal(1 / std::sqrt(k))), bias);
  const Pattern pattern =
      sparse::generate_pattern({PatternKind::random, m, k, options.density, options.block, 1 + index});
  return linear(
      x,
      g.sparse_parameter(name + ".weight", pattern, Initial::normal(1 / std::sqrt(options.density * k)),
                         Type::f32, options.dynamic ? std::optional(pattern.blocks()) : std::nullopt),
      bias);
}

Graph classifier(const Options& options) {
  Graph g;
  Value h = g.input("x", {options.batch, options.layers[0]});
  for (uint32_t i = 0; i + 1 < options.layers.size(); ++i) {
    h = layer(g, options, i, h);
    if (i + 2 < options.layers.size()) h = relu(h);
  }
  const Value loss = cross_entropy(h, g.input("labels", {options.batch}, Type::u32));
  g.output("loss", loss);
  add_training(loss, {.optimizer = Sgd{.momentum = 0.9}, .replicas = options.replicas});
  return g;
}

/// The caller's arrays of a step.
struct Data {
  explicit Data(const Options& options)
      : x(size_t{options.batch} * options.layers[0]), labels(options.batch) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(std::sin(static_cast<double>(i)));
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<uint32_t>(i % options.layers.back());
  }
  std::vector<Tensor> tensors() {
    return {{"x", x.data()}, {"labels", labels.data()}, {"lr", &lr}, {"loss", &loss}};
  }
  std::vector<float> x;
  std::vector<uint32_t> labels;
  float lr = 1e-3F;
  float loss = 0;
};

double seconds_of_a_step(Session& session, const Options& options) {
  Data data(options);
  const std::vector<Tensor> tensors = data.tensors();
  std::vector<double> rounds;
  for (uint32_t round = 0; round < options.rounds; ++round) {
    const double seconds = base::seconds_of([&] {
      for (uint32_t step = 0; step < options.steps; ++step) session.run(tensors);
    });
    rounds.push_back(seconds / options.steps);
  }
  fmt::print("measured:\n");
  for (const OperationCost& operation : session.measure(tensors).operations)
    fmt::print("  {:<24} {:<28} {:9.2f} us\n", operation.operation, operation.value, 1e6 * operation.seconds);
  fmt::print("loss after the last step: {:.4g}\n", data.loss);
  return base::median(rounds);
}

void print_cost(const RunCost& cost) {
  fmt::print("predicted: {:.3f} ms, {:.1f} MiB\n", 1e3 * cost.seconds,
             static_cast<double>(cost.total_bytes) / (1 << 20));
  for (const PlacementCost& placement : cost.placements)
    fmt::print("  {}: {:.3f} ms{}{}\n", placement.placement, 1e3 * placement.seconds,
               placement.overflow.empty() ? "" : ", does not fit", placement.chosen ? ", chosen" : "");
  for (const auto& [purpose, bytes] : cost.bytes) fmt::print("  {:<12} {:>12} bytes\n", purpose, bytes);
  for (const OperationCost& operation : cost.operations)
    fmt::print("  {:<24} {:<28} {:9.2f} us\n", operation.operation, operation.value, 1e6 * operation.seconds);
  for (const ConversionCost& conversion : cost.conversions)
    fmt::print("  converted: {}, {} bytes\n", conversion.value, conversion.bytes);
  if (!cost.overflow.empty()) fmt::print("  {}\n", cost.overflow);
}

void time_step(const Options& options) {
  const Machine machine = Machine::find(options.machine, options.threads);
  const base::Clock::time_point start = base::Clock::now();
  const Graph graph = classifier(options);
  Session session(graph, machine);
  fmt::print("built and compiled for {} in {:.3f} s, {} compute sets\n", machine.name(),
             base::seconds_since(start), session.compute_sets());
  print_cost(session.cost());
  if (machine.is_host()) fmt::print("a step takes {:.4f} ms\n", 1e3 * seconds_of_a_step(session, options));
}

/// An operation's case as a graph.
Graph alone(const Operation& operation, const Case& c) {
  Graph g;
  std::vector<Value> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const std::string name = fmt::format("x{}", i);
    const TensorType& type = c.inputs[i];
    if (type.pattern)
      inputs.push_back(g.sparse_parameter(name, *type.pattern, {}, type.type, type.capacity));
    else if (const auto given = c.given.find(i); given != c.given.end())
      inputs.push_back(g.constant(name, type.shape, {given->second.begin(), given->second.end()}, type.type));
    else if (is_integer(type.type))
      inputs.push_back(g.constant(name, type.shape, std::vector<float>(type.elements()), type.type));
    else
      inputs.push_back(g.parameter(name, type.shape, Initial::constant(0.5), type.type));
  }
  g.output("y", g.apply({.operation = &operation, .attributes = c.attributes, .body = c.body}, inputs)[0]);
  return g;
}

/// Every case of every operation alone: its predicted cost, and on a host the least time of a run.
void time_operations(const Options& options) {
  const Machine machine = Machine::find(options.machine, options.threads);
  for (const Operation* operation : all_operations()) {
    for (const Case& c : operation->cases()) {
      Session session(alone(*operation, c), machine);
      const TensorType out = session.graph().type(session.graph().outputs().at("y"));
      std::vector<double> y(out.elements());
      const std::vector<Tensor> tensors = {{"y", y.data()}};
      double least = INFINITY;
      for (uint32_t run = 0; machine.is_host() && run < options.steps; ++run) {
        least = std::min(least, base::seconds_of([&] { session.run(tensors); }));
      }
      fmt::print("{:<24} {:<28} {:9.2f} us predicted", operation->name, to_string(c.inputs[0]),
                 1e6 * session.cost().seconds);
      if (machine.is_host()) fmt::print(" {:9.2f} us measured", 1e6 * least);
      fmt::print("\n");
    }
  }
}

uint32_t whole(const std::string& text) { return static_cast<uint32_t>(std::stoul(text)); }

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string option = argv[i];
    if (option == "--dynamic") {
      options.dynamic = true;
      continue;
    }
    if (option == "--operations") {
      options.operations = true;
      continue;
    }
    if (i + 1 == argc) throw UsageError(fmt::format("{} needs a value", option));
    const std::string value = argv[++i];
    if (option == "--layers") {
      options.layers.clear();
      for (size_t at = 0; at < value.size(); at = std::min(value.size(), value.find(',', at)) + 1)
        options.layers.push_back(whole(value.substr(at)));
    } else if (option == "--batch")
      options.batch = whole(value);
    else if (option == "--density")
      options.density = std::stod(value);
    else if (option == "--block")
      options.block = whole(value);
    else if (option == "--replicas")
      options.replicas = whole(value);
    else if (option == "--machine")
      options.machine = value;
    else if (option == "--threads")
      options.threads = whole(value);
    else if (option == "--steps")
      options.steps = whole(value);
    else if (option == "--rounds")
      options.rounds = whole(value);
    else
      throw UsageError(fmt::format("there is no option {}", option));
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    options.operations ? time_operations(options) : time_step(options);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return dynamic_cast<const UsageError*>(&e) != nullptr ? 2 : 1;
  }
}
