#include "kernels/map/dropout/codelet.h"

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/map/dropout/dropout.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

DropoutMask mask_of(const Vertex& v) {
  const auto param = [&](size_t i) { return static_cast<uint64_t>(v.params[i]); };
  using namespace dropout_param;
  return {
      .draws = draws_at(v.fields[dropout_field::step], param(seed), static_cast<uint32_t>(param(operation))),
      .keep = float_of(v.params[keep]),
      .first = param(row) * param(row_step) + param(col) * param(col_step),
      .row_step = param(row_step),
      .col_step = param(col_step)};
}

void dropout_reference(const Vertex& v) {
  const FieldView& in = v.fields[dropout_field::in];
  const FieldView& out = v.fields[dropout_field::out];
  if (in.empty()) return;
  const DropoutMask mask = mask_of(v);
  const base::RandomStream stream = mask.draws.stream();
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) {
      const bool kept = stream.uniform(mask.first + r * mask.row_step + c * mask.col_step) < mask.keep;
      set_number(out, r, c, kept ? f32_at(in, r, c) / mask.keep : 0);
    }
}

void dropout_simd(const Vertex& v) {
  const FieldView& in = v.fields[dropout_field::in];
  if (!in.empty()) apply_dropout(mask_of(v), in, v.fields[dropout_field::out]);
}

// Vector operations for each element on a host, measured with bench_kernels: a quarter of a block of Philox,
// a division and a selection.
constexpr double kHostOperations = 48;
constexpr double kHostTransposedOperations = 120;  // of elements that are stored across their order
// Cycles on a tile, W = workers: as an elementwise operation (11 + W · 29, PopLibs), and for each element an
// estimate of a quarter of a block: 10 rounds of two products of 32 bits, each of four of 16, and a
// selection.
constexpr double kTileSupervisorCycles = 11;
constexpr double kTileWorkerCycles = 29;
constexpr double kTileElementCycles = 60;

program::PhaseTimes dropout_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& in = v.fields[dropout_field::in];
  const auto elements = static_cast<double>(in.elements());
  if (m.kind == machine::Kind::host) {
    const bool transposed = v.params[dropout_param::col_step] != 1;
    const double operations = (transposed ? kHostTransposedOperations : kHostOperations) +
                              widen_operations(in.type) + round_operations(in.type);
    return in_phase(Phase::compute, host_cycles(m, {bytes_of(in), bytes_of(in), operations * elements}));
  }
  const double worker = kTileWorkerCycles + kTileElementCycles * worker_slice(m, elements);
  return in_phase(Phase::compute, kTileSupervisorCycles + m.workers_per_tile * worker);
}

}  // namespace

TESSERA_DEFINE_FAMILY(dropout, TESSERA_DROPOUT_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
