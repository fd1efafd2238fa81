#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

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

/// Every row gets the same number of partials.
template <Type from, Type to, uint32_t partials>
Sample worker_rows_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 3 * scale;
  const uint32_t cols = 13 * scale;
  Sample sample(worker_reduce_rows_codelet);
  sample.random(from, partials * rows, cols, seed, 1, true);
  sample.values(Type::u16, partials * rows, 1, [=](uint64_t i) { return static_cast<double>(i % rows); });
  return sample.unset(to, rows, cols).flops(double{1} * partials * rows * cols);
}

constexpr NamedSample kWorkerRowsSamples[] = {{"5-f16-f16", worker_rows_sample<Type::f16, Type::f16, 5>},
                                              {"2-f32-f16", worker_rows_sample<Type::f32, Type::f16, 2>},
                                              {"1-f32-f16", worker_rows_sample<Type::f32, Type::f16, 1>}};

// The same additions in the same order: the same bits.
template <Type from, Type to, uint32_t neighbours>
Sample neighbours_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 5 * scale, cols = 13 * scale;
  Sample sample(reduce_neighbours_codelet);
  sample.random(from, rows * neighbours, cols, seed, 1, true).unset(to, rows, cols);
  return sample.flops(double{1} * rows * neighbours * cols);
}

constexpr NamedSample kNeighboursSamples[] = {{"2-f32-f32", neighbours_sample<Type::f32, Type::f32, 2>},
                                              {"2-f16-f16", neighbours_sample<Type::f16, Type::f16, 2>},
                                              {"6-bf16-f32", neighbours_sample<Type::bf16, Type::f32, 6>}};

int64_t axis_of(bool over_rows) {
  return static_cast<int64_t>(over_rows ? ReduceOver::columns : ReduceOver::rows);
}

// Sums in another order: each addition rounds a sum of at most `terms`.
template <Reduction op, Type from, Type to, bool over_rows, uint32_t long_by = 1>
Sample axis_sample(uint32_t scale, uint64_t seed) {
  const uint32_t results = (long_by == 1 || over_rows ? 19 : 1) * scale;
  const uint32_t terms = 7 * long_by * scale;
  Sample sample(codelet_of(op));
  sample.random(from, over_rows ? terms : results, over_rows ? results : terms, seed, 1,
                op == Reduction::maximum);
  sample.unset(to, over_rows ? 1 : results, over_rows ? results : 1);
  sample.param(axis_of(over_rows)).param(param_of(0.75F)).flops(double{1} * results * terms);
  const double rounding = op == Reduction::maximum ? 0 : epsilon_of(to) + terms * epsilon_of(Type::f32);
  return sample.tolerance({rounding, rounding});
}

template <Reduction op, Type type, bool over_rows>
Sample integer_axis_sample(uint32_t scale, uint64_t seed) {
  const uint32_t results = 19 * scale, terms = 7 * scale;
  const double least = type == Type::i32 ? -350 : 0;
  Sample sample(codelet_of(op));
  sample.values(type, over_rows ? terms : results, over_rows ? results : terms,
                [=](uint64_t i) { return static_cast<double>((i + seed) * 977 % 700) + least; });
  sample.unset(type, over_rows ? 1 : results, over_rows ? results : 1);
  return sample.param(axis_of(over_rows)).param(param_of(1)).flops(double{1} * results * terms);
}

/// Of all elements.
template <Reduction op, Type from, Type to, uint32_t rows>
Sample total_sample(uint32_t scale, uint64_t seed) {
  const uint32_t cols = 67 * scale, terms = rows * cols;
  Sample sample(codelet_of(op));
  sample.random(from, rows, cols, seed, 1, op == Reduction::maximum).unset(to, 1, 1);
  sample.param(static_cast<int64_t>(ReduceOver::all)).param(param_of(0.75F)).flops(terms);
  const double rounding = op == Reduction::maximum ? 0 : epsilon_of(to) + terms * epsilon_of(Type::f32);
  return sample.tolerance({rounding, rounding});
}

template <Reduction op>
constexpr NamedSample kAxisSamples[] = {
    {"rows-f32-f32", axis_sample<op, Type::f32, Type::f32, true>},
    {"rows-f16-f16", axis_sample<op, Type::f16, Type::f16, true>},
    {"rows-bf16-f32", axis_sample<op, Type::bf16, Type::f32, true>},
    {"long-rows-f32-f32", axis_sample<op, Type::f32, Type::f32, true, 20>},
    {"rows-u32", integer_axis_sample<op, Type::u32, true>},
    {"cols-i32", integer_axis_sample<op, Type::i32, false>},
    {"cols-f32-f32", axis_sample<op, Type::f32, Type::f32, false>},
    {"cols-f32-bf16", axis_sample<op, Type::f32, Type::bf16, false>},
    {"cols-f16-f32", axis_sample<op, Type::f16, Type::f32, false>},
    {"long-cols-f32-f32", axis_sample<op, Type::f32, Type::f32, false, 250>},
    {"all-f32-f32", total_sample<op, Type::f32, Type::f32, 5>},
    {"all-f16-f32", total_sample<op, Type::f16, Type::f32, 3>},
    {"all-bf16-bf16", total_sample<op, Type::bf16, Type::bf16, 1>}};

}  // namespace

std::span<const CodeletSamples> reduce_samples() {
  static const CodeletSamples kAll[] = {{reduce_sum_codelet, kSamples},
                                        {reduce_rows_codelet, kRowsSamples},
                                        {worker_reduce_rows_codelet, kWorkerRowsSamples},
                                        {reduce_neighbours_codelet, kNeighboursSamples},
#define TESSERA_LIST(op) {codelet_of(Reduction::op), kAxisSamples<Reduction::op>},
                                        TESSERA_REDUCTIONS(TESSERA_LIST)
#undef TESSERA_LIST
  };
  return kAll;
}

}  // namespace tessera::kernels
