#include "studies/spmm/run.h"

#include <fmt/format.h>

#include "base/memory.h"
#include "check/verification.h"
#include "machine/host/detect.h"
#include "report/run_report.h"

namespace tessera::studies::spmm {
namespace {

check::Extent run_extent_of(Verify verify) {
  switch (verify) {
    case Verify::full: return check::Extent::full;
    case Verify::sample: return check::Extent::sample;
    default: return check::Extent::automatic;
  }
}

uint32_t threads_of(const SpmmRequest& request) {
  return request.threads != 0 ? request.threads : machine::default_threads(machine::detect_host());
}

void enter(const check::Verification& v, SpmmResult& result) {
  result.verified = v.verified;
  result.max_abs_error = v.max_abs_error;
  result.max_rel_error = v.max_rel_error;
  result.tolerance = v.tolerance;
}

std::string printed(const std::string& what, const bound::BoundProduct& product) {
  if (what == "plan") return product.plan() + "\n";
  if (what == "candidates") return ops::to_string(std::span<const ops::PlanCandidate>(product.candidates()));
  if (what == "program") return program::to_string(*product.executable().program);
  if (what == "passes") return report::passes_table(product.executable().passes).text();
  return "";
}

}  // namespace

Activations::Activations(uint32_t height, uint32_t width, Layout order)
    : rows(height), cols(width), layout(order) {
  base::require_memory(4 * uint64_t{rows} * cols, fmt::format("an activation matrix of {} × {}", rows, cols));
  elements.resize(uint64_t{rows} * cols);
}

SpmmResult start(const bound::BoundProduct& product, const SpmmRequest& request) {
  SpmmResult result;
  result.printed = printed(request.print, product);
  result.memory = product.memory();
  result.partition = product.chosen().partition;
  result.tiles_used = product.tiles_used();
  result.predicted_seconds = product.predicted_seconds();
  result.fits = product.fits();
  if (!request.keeps_runs()) return result;
  result.candidates = product.candidates();
  result.run = report::summarize(product.executable(), {}, {}, report::Times::accounted);
  return result;
}

void estimate(const bound::BoundProduct& product, SpmmResult& result) {
  const machine::Machine& machine = product.machine();
  std::vector<engine::TraceEvent> trace;
  const engine::Profile profile = product.estimate(result.run ? &trace : nullptr);
  if (result.run)
    result.run = report::summarize(product.executable(), profile, trace, report::Times::accounted);
  result.chips = report::chips_of(product.executable(), profile);
  result.links = report::links_of(product.executable(), profile);
  result.phases = profile.cycles.scaled(1 / machine.clock_hz);
  result.seconds = result.phases.total();
  if (machine.kind == machine::Kind::tiled) result.cycles = profile.cycles.total();
}

void verify(const SpmmRequest& request, const SparseMatrix& matrix, const Rounding& types,
            const Activations& x, const Activations& y, SpmmResult& result) {
  if (request.verify == Verify::none) return;
  const SparseMatrix w = check::rounded(matrix, types.weights);
  enter(check::verify_product(
            {w, x.view(), y.view(), x.cols, types.result, Type::f32, types.partials, types.roundings},
            run_extent_of(request.verify), request.seed, threads_of(request)),
        result);
}

void verify_sddmm(const SpmmRequest& request, const SparseMatrix& dw, const Rounding& types,
                  const Activations& x, const Activations& dy, SpmmResult& result) {
  if (request.verify == Verify::none) return;
  enter(check::verify_sddmm({dw, x.view(), dy.view(), x.cols, types.result, Type::f32, types.partials},
                            run_extent_of(request.verify), request.seed, threads_of(request)),
        result);
}

}  // namespace tessera::studies::spmm
