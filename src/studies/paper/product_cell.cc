#include "studies/paper/product_cell.h"

#include <tessera/io.h>

#include "sparse/blocks/packed_blocks.h"
#include "studies/paper/program_size.h"
#include "studies/spmm/product.h"

namespace tessera::studies {
namespace {

// Executing this much on tiles takes about a second.
constexpr double kMostExecutedFlops = 0.1e9;

}  // namespace

Result result_of(const spmm::SpmmResult& found) {
  Result result;
  result.fits = found.fits;
  if (!found.fits) result.reason = "it exceeds tile memory, or no plan is within the limits";
  if (found.seconds) result.values["seconds"] = *found.seconds;
  if (found.cycles) result.values["cycles"] = *found.cycles;
  result.verified = found.verified;
  result.max_rel_error = found.max_rel_error;
  result.tolerance = found.tolerance;
  return result;
}

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
  const bool dense = what.density == 1;
  const bool executes =
      setting.on_host() || (setting.verify && what.flops() * what.density <= kMostExecutedFlops);
  spmm::SpmmRequest request;
  request.threads = setting.threads;
  request.planner = what.planner;
  request.estimate = !executes;
  request.verify = setting.verify ? spmm::Verify::sample : spmm::Verify::none;
  spmm::SpmmCase one;
  one.mode = dense ? ops::Mode::dense : ops::Mode::static_sparse;
  one.block = dense ? sparse::kDenseBlockSize : 1;
  one.n = what.n;
  const SparseMatrix weight =
      generate({PatternKind::random, what.m, what.k, what.density, one.block, request.seed});
  Result size;
  spmm::ProductRuns runs([&](const bound::BoundProduct& product) {
    if (!setting.on_host()) enter_size(product.executable(), size);
  });
  Result result = result_of(runs.run(request, one, weight, setting.machine, {}));
  result.values.merge(size.values);
  if (!result.fits) return result;
  const uint64_t bytes = size_of(Type::f32);
  if (!setting.on_host())
    enter_transfers(setting.machine, bytes * (weight.values.size() + uint64_t{what.k} * what.n),
                    bytes * what.m * what.n, result);
  enter_rate(what.flops(), result);
  return result;
}

}  // namespace tessera::studies
