#include "kernels/reduce/codelet.h"

#include <cmath>

#include "kernels/cost.h"
#include "kernels/element.h"
#include "kernels/reduce/reduce.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldView;
using program::Phase;
using program::Vertex;

constexpr program::FieldSpec kFields[] = {{"partials"}, {"out", Access::out}};
constexpr std::string_view kParams[] = {"scale"};

void reference(const Vertex& v) {
  const FieldView& partials = v.fields[0];
  const FieldView& out = v.fields[1];
  for (uint32_t c = 0; c < out.cols; ++c) {
    float sum = 0;
    for (uint32_t p = 0; p < partials.rows; ++p)
      sum += static_cast<float>(number_at(partials, p, c));
    set_number(out, 0, c, float_of(v.params[0]) * sum);
  }
}

void simd(const Vertex& v) {
  if (!apply_reduce_sum(v.fields[0], float_of(v.params[0]), v.fields[1])) reference(v);
}

// Cycles on a tile, W = workers: W(16 + ⌈⌈out/W⌉/vacc⌉(c + 6 + p − 1)), c = 8 half→half,
// 7 half→float, 5 float (PopLibs).
constexpr double kTileWorkerCycles = 16;
constexpr double kTileVectorCycles = 6;

double tile_store_cycles(Type partials, Type out) {
  if (partials == Type::f32) return 5;
  return out == Type::f32 ? 7 : 8;
}

double tile_cycles(const Vertex& v, const machine::Machine& m) {
  const FieldView& partials = v.fields[0];
  const FieldView& out = v.fields[1];
  const double accumulators = 2 * tile_vector_width(partials.type);  // half8, float4
  const double vectors = std::ceil(worker_share(m, out.cols) / accumulators);
  const double per_vector = tile_store_cycles(partials.type, out.type) + kTileVectorCycles +
                            static_cast<double>(partials.rows) - 1;
  return m.workers_per_tile * (kTileWorkerCycles + vectors * per_vector);
}

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  if (m.kind != machine::Kind::host) return in_phase(Phase::reduce, tile_cycles(v, m));
  const double operations = 1 + widen_operations(v.fields[0].type);  // for each partial
  const HostWork work{bytes_of(v.fields[0]), bytes_of(v.fields[1]),
                      operations * static_cast<double>(v.fields[0].elements())};
  return in_phase(Phase::reduce, host_cycles(m, work));
}

// The same additions in the same order: the same bits.
template <Type from, Type to>
Sample sample(uint32_t scale, uint64_t seed) {
  const uint32_t partials = scale == 0 ? 0 : 4 + scale / 4;
  const uint32_t elements = 83 * scale * scale;
  Sample sample(reduce_sum_codelet);
  sample.random(from, partials, elements, seed, 1, true).unset(to, 1, elements);
  return sample.param(param_of(0.75F)).flops(double{1} * partials * elements);
}

constexpr NamedSample kSamples[] = {
    {"f32-f32", sample<Type::f32, Type::f32>},     {"f16-f16", sample<Type::f16, Type::f16>},
    {"f16-f32", sample<Type::f16, Type::f32>},     {"f32-f16", sample<Type::f32, Type::f16>},
    {"bf16-bf16", sample<Type::bf16, Type::bf16>},
};

}  // namespace

constexpr program::Codelet reduce_sum_codelet = {
    .name = "reduce_sum",
    .fields = kFields,
    .params = kParams,
    .reference = reference,
    .simd = simd,
    .cost = cost,
    .code_bytes = 384,
};

std::span<const ListedCodelet> reduce_codelets() {
  static constexpr ListedCodelet kListed[] = {{reduce_sum_codelet, kSamples}};
  return kListed;
}

}  // namespace tessera::kernels
