#include "kernels/map/optimizer/codelet.h"

#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/map/optimizer/optimizer.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

constexpr program::FieldSpec kFields[] = {TESSERA_MOMENTUM_FIELDS(TESSERA_FIELD)};

enum : int64_t { kRate, kMomentum };  // columns of "rates"

float rate_at(const Vertex& v, int64_t i) {
  return static_cast<float>(number_at(v.fields[momentum_field::rates], 0, i));
}

void reference(const Vertex& v) {
  const FieldView& velocity = v.fields[momentum_field::velocity];
  const FieldView& weight = v.fields[momentum_field::weight];
  for (uint32_t r = 0; r < weight.rows; ++r)
    for (uint32_t c = 0; c < weight.cols; ++c) {
      const auto at = [&](const FieldView& field) { return static_cast<float>(number_at(field, r, c)); };
      const float step =
          std::fma(rate_at(v, kMomentum), at(velocity), at(v.fields[momentum_field::gradient]));
      set_number(velocity, r, c, step);
      set_number(weight, r, c, std::fma(-rate_at(v, kRate), step, at(weight)));
    }
}

void simd(const Vertex& v) {
  using namespace momentum_field;
  for (size_t f : {gradient, velocity, weight})
    if (v.fields[f].type != Type::f32 || !has_contiguous_rows(v.fields[f])) return reference(v);
  if (!v.fields[weight].empty())
    apply_momentum(rate_at(v, kRate), rate_at(v, kMomentum), v.fields[gradient], v.fields[velocity],
                   v.fields[weight]);
}

constexpr double kHostOperations = 2;
// Cycles on a tile: those of the vendor's scaled addition, taken for two of the binary operations (11 + W(29
// + 3 a vector), PopLibs).
constexpr double kTileSupervisorCycles = 11;
constexpr double kTileWorkerCycles = 29;
constexpr double kTileVectorCycles = 6;

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& weight = v.fields[momentum_field::weight];
  const auto elements = static_cast<double>(weight.elements());
  if (m.kind == machine::Kind::host) {
    const double state = bytes_of(weight) + bytes_of(v.fields[momentum_field::velocity]);
    return in_phase(Phase::compute, host_cycles(m, {bytes_of(v.fields[momentum_field::gradient]) + state,
                                                    state, kHostOperations * elements}));
  }
  const double vectors = std::ceil(worker_slice(m, elements) / tile_vector_width(weight.type));
  return in_phase(Phase::compute, kTileSupervisorCycles +
                                      m.workers_per_tile * (kTileWorkerCycles + kTileVectorCycles * vectors));
}

}  // namespace

constexpr program::Codelet momentum_codelet = {
    .name = "momentum",
    .fields = kFields,
    .params = {},
    .reference = reference,
    .simd = simd,
    .cost = cost,
    .code_bytes = 256,
};

std::span<const ListedCodelet> optimizer_codelets() {
  static constexpr ListedCodelet kListed[] = {momentum_codelet};
  return kListed;
}

}  // namespace tessera::kernels
