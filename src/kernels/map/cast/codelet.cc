#include "kernels/map/cast/codelet.h"

#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/map/cast/cast.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

void cast_reference(const Vertex& v) {
  const FieldView& in = v.fields[cast_field::in];
  const FieldView& out = v.fields[cast_field::out];
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c)
      set_number(out, r, c, converted(in.type, out.type, number_at(in, r, c)));
}

void cast_simd(const Vertex& v) { apply_cast(v.fields[cast_field::in], v.fields[cast_field::out]); }

// Cycles on a tile, W = workers: 12 + W(37 + 1 per 2 elements) (PopLibs).
constexpr double kTileSupervisorCycles = 12;
constexpr double kTileWorkerCycles = 37;
constexpr double kTileElementsPerCycle = 2;

program::PhaseTimes cast_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& in = v.fields[cast_field::in];
  const FieldView& out = v.fields[cast_field::out];
  const double elements = static_cast<double>(in.elements());
  if (m.kind == machine::Kind::host) {
    const double operations = 1 + widen_operations(in.type) + round_operations(out.type);
    return in_phase(Phase::compute, host_cycles(m, {bytes_of(in), bytes_of(out), operations * elements}));
  }
  const double worker = kTileWorkerCycles + std::ceil(worker_slice(m, elements) / kTileElementsPerCycle);
  return in_phase(Phase::compute, kTileSupervisorCycles + m.workers_per_tile * worker);
}

}  // namespace

TESSERA_DEFINE_FAMILY(cast, TESSERA_CAST_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
