#include "kernels/map/cast/codelet.h"

#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/map/cast/cast.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldView;
using program::Phase;
using program::Vertex;

constexpr program::FieldSpec kFields[] = {{"in"}, {"out", Access::out}};

void reference(const Vertex& v) {
  const FieldView& in = v.fields[0];
  const FieldView& out = v.fields[1];
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) set_number(out, r, c, number_at(in, r, c));
}

void simd(const Vertex& v) { apply_cast(v.fields[0], v.fields[1]); }

// Cycles on a tile, W = workers: 12 + W(37 + 1 per 2 elements) (PopLibs).
constexpr double kTileSupervisorCycles = 12;
constexpr double kTileWorkerCycles = 37;
constexpr double kTileElementsPerCycle = 2;

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& in = v.fields[0];
  const FieldView& out = v.fields[1];
  const double elements = static_cast<double>(in.elements());
  if (m.kind == machine::Kind::host) {
    const double operations = 1 + widen_operations(in.type) + round_operations(out.type);
    return in_phase(Phase::compute, host_cycles(m, {bytes_of(in), bytes_of(out), operations * elements}));
  }
  const double worker = kTileWorkerCycles + std::ceil(worker_slice(m, elements) / kTileElementsPerCycle);
  return in_phase(Phase::compute, kTileSupervisorCycles + m.workers_per_tile * worker);
}

// Conversion is exact or rounds one number once: the same in both forms.
template <Type from, Type to>
Sample sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 3 * scale;
  const uint32_t cols = 41 * scale;
  Sample sample(cast_codelet);
  return sample.random(from, rows, cols, seed, 2, true).unset(to, rows, cols);
}

constexpr NamedSample kSamples[] = {
    {"f32-f16", sample<Type::f32, Type::f16>},   {"f32-bf16", sample<Type::f32, Type::bf16>},
    {"f16-f32", sample<Type::f16, Type::f32>},   {"bf16-f32", sample<Type::bf16, Type::f32>},
    {"f16-bf16", sample<Type::f16, Type::bf16>}, {"bf16-f16", sample<Type::bf16, Type::f16>},
};

}  // namespace

constexpr program::Codelet cast_codelet = {
    .name = "cast",
    .fields = kFields,
    .params = {},
    .reference = reference,
    .simd = simd,
    .cost = cost,
    .code_bytes = 384,
};

std::span<const ListedCodelet> cast_codelets() {
  static constexpr ListedCodelet kListed[] = {{cast_codelet, kSamples}};
  return kListed;
}

}  // namespace tessera::kernels
