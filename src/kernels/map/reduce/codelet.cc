#include "kernels/map/reduce/codelet.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/map/reduce/reduce.h"

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
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) {
      float sum = 0;
      for (uint32_t row = r; row < partials.rows; row += out.rows)
        sum += static_cast<float>(number_at(partials, row, c));
      set_number(out, r, c, float_of(v.params[0]) * sum);
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

double tile_cycles(const machine::Machine& m, Type from, Type to, double partials, double elements) {
  const double accumulators = 2 * tile_vector_width(from);  // half8, float4
  const double vectors = std::ceil(worker_slice(m, elements) / accumulators);
  const double per_vector = tile_store_cycles(from, to) + kTileVectorCycles + partials - 1;
  return m.workers_per_tile * (kTileWorkerCycles + vectors * per_vector);
}

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  if (m.kind != machine::Kind::host)
    return in_phase(Phase::reduce, tile_cycles(m, v.fields[0].type, v.fields[1].type,
                                               v.fields[0].rows / std::max(1U, v.fields[1].rows),
                                               static_cast<double>(v.fields[1].elements())));
  const double operations = 1 + widen_operations(v.fields[0].type);  // per partial
  const HostWork work{bytes_of(v.fields[0]), bytes_of(v.fields[1]),
                      operations * static_cast<double>(v.fields[0].elements())};
  return in_phase(Phase::reduce, host_cycles(m, work));
}

// The same additions in the same order: the same bits.
template <Type from, Type to, uint32_t rows = 1>
Sample sample(uint32_t scale, uint64_t seed) {
  const uint32_t partials = scale == 0 ? 0 : 4 + scale / 4;
  const uint32_t elements = 83 * scale * scale;
  Sample sample(reduce_sum_codelet);
  sample.random(from, partials * rows, elements, seed, 1, true).unset(to, rows, elements);
  return sample.param(param_of(0.75F)).flops(double{1} * partials * rows * elements);
}

constexpr NamedSample kSamples[] = {
    {"f32-f32", sample<Type::f32, Type::f32>},     {"f16-f16", sample<Type::f16, Type::f16>},
    {"f16-f32", sample<Type::f16, Type::f32>},     {"f32-f16", sample<Type::f32, Type::f16>},
    {"bf16-bf16", sample<Type::bf16, Type::bf16>}, {"rows-f32-f16", sample<Type::f32, Type::f16, 3>},
};

// Sums of rows that are assigned by a list.

constexpr program::FieldSpec kRowsFields[] = {{"partials", Access::in, 8}, {"rows"}, {"out", Access::out, 8}};

uint32_t target_of(const FieldView& rows, uint32_t i) { return static_cast<uint32_t>(number_at(rows, i, 0)); }

void rows_reference(const Vertex& v) {
  const FieldView& partials = v.fields[0];
  const FieldView& out = v.fields[2];
  std::vector<float> sums(out.elements());
  for (uint32_t i = 0; i < partials.rows; ++i) {
    float* sum = &sums[uint64_t{target_of(v.fields[1], i)} * out.cols];
    for (uint32_t c = 0; c < out.cols; ++c) sum[c] += static_cast<float>(number_at(partials, i, c));
  }
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) set_number(out, r, c, sums[uint64_t{r} * out.cols + c]);
}

void rows_simd(const Vertex& v) {
  if (!apply_reduce_rows(v.fields[0], v.fields[1], v.fields[2])) rows_reference(v);
}

/// Rows with equal numbers of partials form one reduction.
program::PhaseTimes rows_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& out = v.fields[2];
  std::vector<uint32_t> partials(out.rows);
  for (uint32_t i = 0; i < v.fields[1].rows; ++i) ++partials[target_of(v.fields[1], i)];
  std::map<uint32_t, uint32_t> rows_with;
  for (uint32_t count : partials) ++rows_with[count];
  double cycles = 0;
  for (const auto& [count, rows] : rows_with)
    cycles += tile_cycles(m, v.fields[0].type, out.type, std::max(1U, count), double{1} * rows * out.cols);
  return in_phase(Phase::reduce, cycles);
}

/// Row r gets r mod 3 partials plus one.
template <Type from, Type to>
Sample rows_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 3 * scale;
  const uint32_t cols = 13 * scale;
  const uint32_t partials = 6 * scale;
  constexpr uint32_t kTarget[] = {0, 1, 2, 1, 2, 2};
  Sample sample(reduce_rows_codelet);
  sample.random(from, partials, cols, seed, 1, true);
  sample.values(Type::u16, partials, 1,
                [&](uint64_t i) { return static_cast<double>(i / 6 * 3 + kTarget[i % 6]); });
  return sample.unset(to, rows, cols).flops(double{1} * partials * cols);
}

constexpr NamedSample kRowsSamples[] = {{"f32-f32", rows_sample<Type::f32, Type::f32>},
                                        {"f16-f16", rows_sample<Type::f16, Type::f16>},
                                        {"f32-f16", rows_sample<Type::f32, Type::f16>}};

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

constexpr program::Codelet reduce_rows_codelet = {
    .name = "reduce_rows",
    .fields = kRowsFields,
    .params = {},
    .reference = rows_reference,
    .simd = rows_simd,
    .cost = rows_cost,
    .code_bytes = 384,
    .runs_on = program::RunsOn::tiles,
};

std::span<const ListedCodelet> reduce_codelets() {
  static constexpr ListedCodelet kListed[] = {{reduce_sum_codelet, kSamples},
                                              {reduce_rows_codelet, kRowsSamples}};
  return kListed;
}

}  // namespace tessera::kernels
