#include "studies/paper/product_cell.h"

#include <tessera/io.h>

#include <vector>

#include "base/memory.h"
#include "base/random.h"
#include "check/verification.h"
#include "engine/median_run.h"
#include "product/product.h"
#include "sparse/blocks/packed_blocks.h"
#include "studies/paper/program_size.h"

namespace tessera::studies {
namespace {

constexpr uint64_t kSeed = 1;
// Executing this much on tiles takes about a second.
constexpr double kMostExecutedFlops = 0.1e9;

std::vector<float> random_numbers(uint64_t count, uint64_t stream) {
  base::require_memory(4 * count, "an activation matrix");
  std::vector<float> numbers(count);
  base::RandomStream(kSeed, 0, stream).fill_symmetric(numbers);
  return numbers;
}

SparseMatrix weight_of(const ProductCase& what) {
  const bool dense = what.density == 1;
  return generate(
      {PatternKind::random, what.m, what.k, what.density, dense ? sparse::kDenseBlockSize : 1, kSeed});
}

ops::ProductProblem problem_of(const ProductCase& what) {
  ops::ProductProblem problem{.n = what.n};
  problem.planner = what.planner;
  problem.dense = what.density == 1;
  return problem;
}

void execute(product::Product& product, const SparseMatrix& weight, const Setting& setting, Result& result) {
  const uint32_t n = product.problem().n;
  std::vector<float> x = random_numbers(uint64_t{weight.pattern.cols} * n, 1);
  std::vector<float> y = random_numbers(uint64_t{weight.pattern.rows} * n, 2);
  const MatrixView<float> x_view{x.data(), n, 1}, y_view{y.data(), n, 1};
  if (setting.on_host()) {
    const engine::TimedRun timed =
        engine::median_run([&](std::vector<engine::TraceEvent>&) { return product.run(x_view, y_view); });
    result.values["seconds"] = timed.seconds;
  } else {
    product.run(x_view, y_view);
  }
  if (!setting.verify) return;
  const check::Verification v = check::verify_product(
      {weight, {x.data(), n, 1}, {y.data(), n, 1}, n, Type::f32, Type::f32, Type::f32, product.roundings()},
      check::Extent::sample, kSeed, setting.threads);
  result.verified = v.verified;
  result.max_rel_error = v.max_rel_error;
  result.tolerance = v.tolerance;
}

}  // namespace

void enter_rate(double flops, Result& result) {
  if (const auto seconds = result.value("seconds")) result.values["gflops"] = 1e-9 * flops / *seconds;
  if (const auto seconds = result.value("seconds_with_transfers"))
    result.values["gflops_with_transfers"] = 1e-9 * flops / *seconds;
}

void enter_transfers(const machine::Machine& machine, uint64_t bytes_in, uint64_t bytes_out, Result& result) {
  const auto seconds = result.value("seconds");
  if (!machine.has_host_link() || !seconds) return;
  const double transfer = machine.host_transfer_seconds(bytes_in) + machine.host_transfer_seconds(bytes_out);
  result.values["transfer_seconds"] = transfer;
  result.values["seconds_with_transfers"] = *seconds + transfer;
}

Result run_product(const ProductCase& what, const Setting& setting) {
  const SparseMatrix weight = weight_of(what);
  product::Product product(weight, problem_of(what), setting.machine);
  Result result;
  result.fits = product.fits();
  if (!setting.on_host()) enter_size(product.executable(), result);
  if (!result.fits) {
    result.reason = "it exceeds tile memory, or no plan is within the limits";
    return result;
  }
  if (!setting.on_host()) {
    const double cycles = product.estimate().cycles.total();
    result.values["cycles"] = cycles;
    result.values["seconds"] = setting.machine.seconds(cycles);
  }
  if (setting.on_host() || (setting.verify && what.flops() * what.density <= kMostExecutedFlops))
    execute(product, weight, setting, result);
  const uint64_t size = size_of(Type::f32);
  if (!setting.on_host())
    enter_transfers(setting.machine, size * (weight.values.size() + uint64_t{what.k} * what.n),
                    size * what.m * what.n, result);
  enter_rate(what.flops(), result);
  return result;
}

}  // namespace tessera::studies
