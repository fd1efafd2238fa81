#include <array>

#include "kernels/map/rearrange/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

using Sizes = std::array<uint32_t, 5>;

/// An array [a, b, c, d, e · scale], stored as a matrix, with its dimensions in another order.
template <Type type, int... order>
Sample permuted(uint32_t scale, uint64_t seed) {
  const Sizes sizes = {2, 3 * scale, 4, 5, 19 * scale};
  const Sizes to = {order...};
  std::array<int64_t, 5> row_steps = {}, col_steps = {};
  for (size_t d = 0; d < 4; ++d) {
    row_steps[d] = 1;
    for (size_t later = d + 1; later < 4; ++later) row_steps[d] *= sizes[later];
  }
  col_steps[4] = 1;
  Sample sample(rearrange_codelet);
  sample.random(type, sizes[0] * sizes[1] * sizes[2] * sizes[3], sizes[4], seed, 2);
  const Sizes out = {sizes[to[0]], sizes[to[1]], sizes[to[2]], sizes[to[3]], sizes[to[4]]};
  // All but the first three rows and two columns.
  const uint32_t rows = out[0] * out[1] * out[2] * out[3], cols = out[4];
  sample.unset(type, rows < 3 ? 0 : rows - 3, cols < 2 ? 0 : cols - 2);
  for (size_t d = 1; d < out.size(); ++d) sample.param(out[d]);
  for (uint32_t d : to) sample.param(row_steps[d]);
  for (uint32_t d : to) sample.param(col_steps[d]);
  return sample.param(3).param(2);
}

/// Rows [b, 1] repeated as [a, b, c, d, e].
Sample repeated(uint32_t scale, uint64_t seed) {
  const Sizes sizes = {2, 3 * scale, 2, 2, 23 * scale};
  Sample sample(rearrange_codelet);
  sample.random(Type::f32, sizes[1], 1, seed, 2);
  sample.unset(Type::f32, sizes[0] * sizes[1] * sizes[2] * sizes[3], sizes[4]);
  for (size_t d = 1; d < sizes.size(); ++d) sample.param(sizes[d]);
  for (int64_t step : {0, 1, 0, 0, 0, 0, 0, 0, 0, 0}) sample.param(step);
  return sample.param(0).param(0);
}

/// Rows of [a, b, c · d, e] as [a, c, b, d, e], whose last two dimensions are columns: all rows but the
/// first.
Sample several_columns(uint32_t scale, uint64_t seed) {
  const Sizes sizes = {2, 4, 3 * scale, 5, 17};
  const uint32_t a = sizes[0], c = sizes[1], b = sizes[2], d = sizes[3], e = sizes[4];
  Sample sample(rearrange_codelet);
  sample.random(Type::f32, a * b, c * d * e, seed, 2);
  sample.unset(Type::f32, scale == 0 ? 0 : a * c * b - 1, d * e);
  for (size_t i = 1; i < sizes.size(); ++i) sample.param(sizes[i]);
  for (int64_t step : {int64_t{b}, int64_t{0}, int64_t{1}, int64_t{0}, int64_t{0}}) sample.param(step);
  for (int64_t step : {int64_t{0}, int64_t{d} * e, int64_t{0}, int64_t{e}, int64_t{1}}) sample.param(step);
  return sample.param(1).param(0);
}

constexpr NamedSample rearrange_uses[] = {
    {"f32-rows", permuted<Type::f32, 0, 2, 1, 3, 4>},
    {"f16-rows", permuted<Type::f16, 3, 2, 1, 0, 4>},
    {"f32-last", permuted<Type::f32, 0, 1, 2, 4, 3>},
    {"bf16-last", permuted<Type::bf16, 0, 4, 2, 3, 1>},
    {"u32-first", permuted<Type::u32, 4, 0, 1, 2, 3>},
    {"f32-repeated", repeated},
    {"f32-columns", several_columns},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(rearrange, TESSERA_REARRANGE_CODELETS)

}  // namespace tessera::kernels
