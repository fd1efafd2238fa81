// Dense products of training with activations [batch, features], beside OpenBLAS, MKL and oneDNN, and a
// training step of two layers.
//
//   bench_dense [THREADS] [M K N...]
//   bench_dense bert [THREADS]
//
// Without sizes, 1024 × 1024 and batches of 16 to 256; with "bert", the products of BERT-base's encoder with
// 512 to 4,096 tokens.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bound/bound_program.h"
#include "dense/contest.h"
#include "dense/step.h"
#include "machine/host/measure.h"
#include "ops/dense/host/host_dense.h"
#include "peers/peer.h"
#include "spmm/pinning.h"

namespace tessera::bench {
namespace {

/// Operands of all three products.
struct Operands {
  uint32_t m, k, n;
  SparseMatrix shape = {};
  std::vector<float> w = random_floats(size_t{m} * k, 1), dw = std::vector<float>(w.size());
  std::vector<float> x = random_floats(size_t{n} * k, 2), dx = std::vector<float>(x.size());
  std::vector<float> y = random_floats(size_t{n} * m, 3), dy = y;
  std::vector<float> panels = {}, gradient = {};

  Operands(uint32_t rows, uint32_t cols, uint32_t batch) : m(rows), k(cols), n(batch) {
    shape.pattern.rows = m;
    shape.pattern.cols = k;
    const ops::PanelLayout layout{m, k};
    panels.resize(layout.elements());
    gradient.resize(layout.elements());
    layout.store(row_major(static_cast<const float*>(w.data()), k), panels.data());
  }
};

ProductKind product_of(Task task) {
  if (task == Task::forward) return ProductKind::forward;
  return task == Task::input_gradient ? ProductKind::input_gradient : ProductKind::sddmm;
}

Contestant tessera_product(Operands& o, Task task, unsigned threads) {
  using program::Role;
  const ops::HostDenseProblem problem{.m = o.m, .k = o.k, .n = o.n, .product = product_of(task)};
  const machine::Machine machine = machine::host(threads);
  const ops::HostDensePlan plan = plan_host_dense(problem, machine);
  const ops::PanelLayout layout = problem.layout();
  const bool is_sddmm = task == Task::sddmm, is_forward = task == Task::forward;
  const bool is_input = task == Task::input_gradient;
  program::Program program;
  const ops::Builder b(program, machine);
  const auto add = [&](const char* name, bool written, uint32_t rows, uint32_t cols) {
    return b.external(name, written ? Role::output : Role::input, Type::f32, rows, cols);
  };
  const ops::HostDenseOperands operands = {.w = add("w", is_sddmm, layout.rows(), layout.cols()),
                                           .x = add("x", is_input, o.n, o.k),
                                           .y = add("y", is_forward, o.n, o.m)};
  program.set_main(build_host_dense(b, problem, plan, operands));
  const auto product = std::make_shared<bound::BoundProgram>(std::move(program), machine);
  product->bind(0, is_sddmm ? o.gradient.data() : o.panels.data());
  product->bind(1, is_input ? o.dx.data() : o.x.data());
  product->bind(2, is_forward ? o.y.data() : o.dy.data());
  return {"tessera", [product] { product->run(bound::Arrays(*product)); }, 0, plan.chosen.total()};
}

Contestant peer_product(Peer& peer, Operands& o, Task task) {
  const std::shared_ptr<PreparedProduct> product =
      peer.prepare({o.shape, o.w, o.n, Layout::column_major, Type::f32, task});
  const Arrays arrays = {o.x.data(), o.dy.data(), o.y.data(), o.dx.data(), o.dw.data()};
  return {std::string(peer.name()), [product, arrays] { product->run(arrays); }};
}

class Bench {
 public:
  explicit Bench(unsigned threads)
      : threads_(threads),
        pinning_(threads),
        peers_(load_peers({active_isa(), threads}, {"mkl", "onednn", "openblas"})) {
    const machine::Machine machine = machine::host(threads);
    peak_ = machine::measure_peak_gflops(threads);
    fmt::print("{}, {} threads, {}, peak {:.0f} GFLOP/s\n", machine.facts.cpu, threads, name_of(active_isa()),
               peak_);
    for (const std::string& line : peers_.missing) fmt::print("without {}\n", line);
    print_header();
  }

  void products(uint32_t m, uint32_t k, uint32_t n, int rounds = kRounds) {
    Operands operands(m, k, n);
    for (Task task : kProducts) {
      std::vector<Contestant> contestants = {tessera_product(operands, task, threads_)};
      for (const auto& peer : peers_.loaded) contestants.push_back(peer_product(*peer, operands, task));
      compare(fmt::format("{} {}x{} n={}", name_of(task), m, k, n), 2.0 * m * k * n, contestants, rounds);
    }
  }

  void step(const StepShape& shape, bool with_momentum) {
    std::vector<Contestant> contestants = {tessera_step(shape, threads_, with_momentum)};
    for (const auto& peer : peers_.loaded) contestants.push_back(peer_step(*peer, shape, with_momentum));
    compare(with_momentum ? "step with momentum" : "step", shape.flops(), contestants, kRounds);
  }

  /// The ratios to the best library of all products so far.
  void print_ratios() const {
    if (ratios_.empty() || ratios_.front().of_medians == 0) return;
    const auto print_mean = [&](const char* by, double Ratio::*member) {
      double logarithms = 0;
      for (const Ratio& ratio : ratios_) logarithms += std::log(ratio.*member);
      fmt::print("{} products, {}: {:.3f} of the best library's rate (geometric mean), the lowest {:.3f}\n",
                 ratios_.size(), by, std::exp(logarithms / static_cast<double>(ratios_.size())),
                 std::ranges::min(ratios_, {}, member).*member);
    };
    print_mean("medians", &Ratio::of_medians);
    print_mean("least times", &Ratio::of_least);
  }

 private:
  void compare(const std::string& work, double flops, std::vector<Contestant>& contestants, int rounds) {
    for (const Contestant& contestant : contestants) {
      contestant.run();
      pinning_.bind_new_threads();
    }
    compete(contestants, rounds);
    print(work, flops, peak_, contestants);
    ratios_.push_back(ratio_to_best(contestants));
    if (const Ratio& ratio = ratios_.back(); ratio.of_medians > 0)
      fmt::print("{:<28} {:.3f} of the best library's rate, {:.3f} by least times\n", work, ratio.of_medians,
                 ratio.of_least);
  }

  unsigned threads_;
  Pinning pinning_;
  Peers peers_;
  double peak_ = 0;
  std::vector<Ratio> ratios_;
};

/// The products of attention, and both products of the feed-forward part.
void run_bert(unsigned threads) {
  constexpr uint32_t kHidden = 768, kIntermediate = 3072;
  constexpr int kFewRounds = 7;  // a call takes up to a fifth of a second
  Bench bench(threads);
  for (const uint32_t n : {512U, 1024U, 2048U, 4096U})
    for (const auto& [m, k] :
         {std::pair(kHidden, kHidden), {kIntermediate, kHidden}, {kHidden, kIntermediate}})
      bench.products(m, k, n, kFewRounds);
  bench.print_ratios();
}

void run(const std::vector<uint32_t>& numbers) {
  Bench bench(numbers.empty() ? machine::host().tiles : numbers[0]);
  const uint32_t m = numbers.size() > 2 ? numbers[1] : 1024, k = numbers.size() > 2 ? numbers[2] : 1024;
  std::vector<uint32_t> batches = {16, 50, 64, 128, 256};
  if (numbers.size() > 3) batches.assign(numbers.begin() + 3, numbers.end());
  for (uint32_t n : batches) bench.products(m, k, n);
  bench.step({.k = k, .m = m}, false);
  bench.step({.k = k, .m = m}, true);
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) try {
  const bool is_bert = argc > 1 && std::string_view(argv[1]) == "bert";
  std::vector<uint32_t> numbers;
  for (int i = is_bert ? 2 : 1; i < argc; ++i) numbers.push_back(static_cast<uint32_t>(std::stoul(argv[i])));
  if (is_bert)
    tessera::bench::run_bert(numbers.empty() ? tessera::machine::host().tiles : numbers[0]);
  else
    tessera::bench::run(numbers);
} catch (const std::exception& error) {
  fmt::print(stderr, "{}\n", error.what());
  return 1;
}
