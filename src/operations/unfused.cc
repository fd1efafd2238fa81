#include "operations/unfused.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace tessera::graph {
namespace {

using Indices = std::vector<int64_t>;

/// `neighbours`: number of neighbouring results that are used together.
Value take_from_parts(const std::vector<Value>& parts, Indices places, int64_t neighbours = 1) {
  Attributes attributes = {{"places", std::move(places)}};
  if (neighbours > 1) attributes["neighbours"] = neighbours;
  return parts[0].owner().apply("select_features", parts, std::move(attributes))[0];
}

uint32_t last(Value x) { return static_cast<uint32_t>(x.shape().size() - 1); }

Value first_features(Value x, uint32_t count) {
  return x.type().cols() == count ? x : slice(x, last(x), 0, count);
}

/// Row `index` of a matrix, as a vector.
Value row_of(Value matrix, uint32_t index) {
  const uint32_t cols = matrix.type().cols();
  const Value rows = reshape(matrix, {matrix.type().rows(), cols});
  return reshape(rows.shape()[0] == 1 ? rows : slice(rows, 0, index, index + 1), {cols});
}

/// The results of stacked maps, one after the other.
Value stacked(const std::vector<Value>& stacks, uint32_t outputs) {
  return first_features(stacks.size() == 1 ? stacks[0] : concatenate(stacks, last(stacks[0])), outputs);
}

/// y = the factor of a stride applied to x. `first`: position of its 2 × 2 matrices, one per pair of
/// features, or tied.
Value butterfly_factor(Value x, Value matrices, uint32_t first, uint32_t stride, bool tied) {
  constexpr int64_t kElements = 4;
  Indices of_x, of_matrices;
  const int64_t size = x.type().cols(), s = stride;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t low = i % s, row = i / s % 2, group = i / (2 * s);
    const int64_t pair = first + (tied ? low : group * s + low);
    for (int64_t col = 0; col < 2; ++col) {
      of_x.push_back(group * 2 * s + col * s + low);
      of_matrices.push_back(pair * kElements + 2 * row + col);
    }
  }
  return sum_neighbours(
      take_from_parts({x}, std::move(of_x), 2) * take_from_parts({matrices}, std::move(of_matrices), 2), 2);
}

/// Features during a Hadamard transform: the halves that the last step made, and the position of each feature
/// in them.
struct Mixed {
  std::vector<Value> halves;
  Indices place;
};

Mixed unmixed(Value x) {
  Indices place(x.type().cols());
  std::iota(place.begin(), place.end(), 0);
  return {{x}, std::move(place)};
}

/// The Hadamard matrix times x, not normalised.
Mixed hadamard(Value x) {
  Mixed mixed = unmixed(x);
  const auto size = static_cast<int64_t>(mixed.place.size());
  for (int64_t stride = 1; stride < size; stride *= 2) {
    Indices first, second, place(mixed.place.size());
    for (int64_t i = 0; i < size; ++i) {
      if (i / stride % 2 == 1) continue;
      place[i] = static_cast<int64_t>(first.size());
      place[i + stride] = place[i] + size / 2;
      first.push_back(mixed.place[i]);
      second.push_back(mixed.place[i + stride]);
    }
    const Value a = take_from_parts(mixed.halves, std::move(first)),
                b = take_from_parts(mixed.halves, std::move(second));
    mixed = {{a + b, a - b}, std::move(place)};
  }
  return mixed;
}

/// Features in the order of a permutation; without one, in their own order.
Value in_order(const Mixed& mixed, std::span<const uint32_t> permutation = {}) {
  Indices places = mixed.place;
  for (size_t i = 0; i < permutation.size(); ++i) places[i] = mixed.place[permutation[i]];
  return take_from_parts(mixed.halves, std::move(places));
}

/// Blocks in each row, or column, of a pattern; the same in all.
uint32_t equal_count(std::span<const uint32_t> counts, std::string_view of_what) {
  const auto [least, most] = std::ranges::minmax(counts);
  if (least != most || least == 0)
    throw UsageError(
        fmt::format("the unfused form of pixelfly needs equally many blocks in each {}; there are {} to {}: "
                    "use the fused form, or sizes that are powers of two",
                    of_what, least, most));
  return least;
}

struct BlockCounts {
  uint32_t of_row = 0;
  uint32_t of_column = 0;
};

BlockCounts counts_of(const Pattern& p) {
  const uint32_t b = p.block_size;
  if (p.rows % b != 0 || p.cols % b != 0)
    throw UsageError(
        fmt::format("the unfused form of pixelfly needs sizes that are multiples of the block "
                    "size, {}; they are {} and {}: use the fused form",
                    b, p.cols, p.rows));
  std::vector<uint32_t> of_rows, of_columns(p.block_cols());
  for (uint32_t row = 0; row < p.block_rows(); ++row)
    of_rows.push_back(static_cast<uint32_t>(p.crow_indices[row + 1] - p.crow_indices[row]));
  for (uint32_t column : p.col_indices) ++of_columns[column];
  return {equal_count(of_rows, "row"), equal_count(of_columns, "column")};
}

/// By block: its number among the blocks of its column.
std::vector<uint32_t> numbers_in_columns(const Pattern& p) {
  std::vector<uint32_t> next(p.block_cols()), numbers;
  for (uint32_t column : p.col_indices) numbers.push_back(next[column]++);
  return numbers;
}

/// [outer, inner] features as [inner, outer].
std::vector<uint32_t> transposition(uint32_t outer, uint32_t inner) {
  std::vector<uint32_t> places;
  for (uint32_t i = 0; i < inner; ++i)
    for (uint32_t o = 0; o < outer; ++o) places.push_back(o * inner + i);
  return places;
}

/// The same within each of `groups` groups.
std::vector<uint32_t> transposition(uint32_t groups, uint32_t outer, uint32_t inner) {
  std::vector<uint32_t> places;
  for (uint32_t g = 0; g < groups; ++g)
    for (uint32_t place : transposition(outer, inner)) places.push_back(g * outer * inner + place);
  return places;
}

}  // namespace

Value with_features(Value x, uint32_t features) {
  TensorType zeros = x.type();
  zeros.shape.back() = features - x.type().cols();
  if (zeros.shape.back() == 0) return x;
  return concatenate(
      {x, x.graph->constant("", zeros.shape, std::vector<float>(zeros.elements()), zeros.type)}, last(x));
}

Value unfused_butterfly(Value x, Value twiddle, const Butterfly& of) {
  if (of.complex)
    throw UsageError("the unfused form of butterflies has no complex numbers: use the fused form");
  const Value padded = with_features(x, of.size());
  std::vector<Value> stacks;
  for (uint32_t stack = 0; stack < of.stacks(); ++stack) {
    Value y = padded;
    const Value matrices = of.tied ? row_of(twiddle, stack) : twiddle;
    for (uint32_t block = 0; block < of.nblocks; ++block)
      for (uint32_t level = 0; level < of.levels(); ++level) {
        const bool decreasing = of.decreasing != (block % 2 == 1);
        const uint32_t stride = 1U << (decreasing ? of.levels() - 1 - level : level);
        y = of.tied
                ? butterfly_factor(y, matrices, stride - 1, stride, true)
                : butterfly_factor(y, row_of(matrices, (stack * of.nblocks + block) * of.levels() + level), 0,
                                   stride, false);
      }
    stacks.push_back(y);
  }
  return stacked(stacks, of.outputs);
}

Value unfused_fastfood(Value x, Value s, Value g, Value b, const Fastfood& of) {
  const uint32_t size = of.size();
  const double scale = 1 / std::sqrt(size);
  const Value padded = with_features(x, size);
  std::vector<Value> stacks;
  for (uint32_t stack = 0; stack < of.stacks(); ++stack) {
    const std::span<const uint32_t> permutation =
        std::span(of.permutation).subspan(uint64_t{stack} * size, size);
    const Value first = in_order(hadamard(padded * row_of(b, stack)), permutation) * scale;
    const Value second = in_order(hadamard(first * row_of(g, stack))) * scale;
    stacks.push_back(second * row_of(s, stack));
  }
  return stacked(stacks, of.outputs);
}

Shape unfused_block_shape(const Pattern& pattern) {
  const uint32_t b = pattern.block_size;
  return {pattern.block_cols(), 1, counts_of(pattern).of_column * b * b};
}

std::vector<float> unfused_block_values(const Pattern& pattern, std::span<const float> blocks) {
  const uint64_t elements = uint64_t{pattern.block_size} * pattern.block_size;
  const uint32_t of_column = counts_of(pattern).of_column;
  const std::vector<uint32_t> numbers = numbers_in_columns(pattern);
  std::vector<float> values(blocks.size());
  for (uint64_t i = 0; i < pattern.blocks(); ++i)
    std::ranges::copy(
        blocks.subspan(i * elements, elements),
        values.begin() +
            static_cast<int64_t>((uint64_t{pattern.col_indices[i]} * of_column + numbers[i]) * elements));
  return values;
}

Value unfused_block_product(Value x, Value weight, const Pattern& pattern) {
  const BlockCounts counts = counts_of(pattern);
  const uint32_t b = pattern.block_size;
  const Value products = kronecker(x, weight, {pattern.block_cols(), counts.of_column * b, b, 1});
  const std::vector<uint32_t> numbers = numbers_in_columns(pattern);
  Indices places;
  for (uint32_t row = 0; row < pattern.block_rows(); ++row)
    for (uint32_t i = 0; i < b; ++i)
      for (uint64_t block = pattern.crow_indices[row]; block < pattern.crow_indices[row + 1]; ++block)
        places.push_back((int64_t{pattern.col_indices[block]} * counts.of_column + numbers[block]) * b + i);
  return sum_neighbours(take_from_parts({products}, std::move(places), counts.of_row), counts.of_row);
}

Value unfused_kronecker(Value x, Value weight, const Kronecker& of) {
  const uint32_t inputs = of.a * of.c * of.d, outputs = of.outputs == 0 ? of.a * of.b * of.d : of.outputs;
  if (of.d == 1) return kronecker(x, weight, of);
  const Value groups = permute_features(with_features(x, inputs), transposition(of.a, of.c, of.d));
  const Value products = kronecker(groups, weight, {of.a * of.d, of.b, of.c, 1});
  return first_features(permute_features(products, transposition(of.a, of.d, of.b)), outputs);
}

}  // namespace tessera::graph
