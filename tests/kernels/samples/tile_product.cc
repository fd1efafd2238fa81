#include <vector>

#include "kernels/samples/list.h"
#include "kernels/tile/tile_product/codelet.h"

namespace tessera::kernels {
namespace {

/// Every third block of a square of blocks; the last blocks of X and of Y are short by one row where
/// possible.
struct SddmmPattern {
  std::vector<double> lists;
  uint32_t blocks = 0;
  uint32_t rows = 0;

  SddmmPattern(uint32_t side, uint32_t block_size)
      : rows(side * block_size - (side > 0 && block_size > 1 ? 1 : 0)) {
    for (uint32_t r = 0; r < side; ++r) {
      const size_t count_at = lists.size();
      lists.push_back(0);
      for (uint32_t c = r % 3; c < side; c += 3, ++blocks) {
        lists.push_back(c);
        ++lists[count_at];
      }
    }
  }

  void add_lists(Sample& s) const {
    s.values(Type::u16, static_cast<uint32_t>(lists.size()), 1, [&](uint64_t i) { return lists[i]; });
  }
};

template <Type in, Type out, uint32_t block_size, bool transposed = false>
Sample sparse_sample(uint32_t scale, uint64_t seed) {
  constexpr uint32_t kCols = 9;
  const SddmmPattern p(2 * scale, block_size);
  Sample s(sparse_product_codelet);
  s.random(in, p.blocks, block_size * block_size, seed);
  p.add_lists(s);
  s.random(in, p.rows, kCols, seed + 1).unset(out, p.rows, kCols);
  return s.param(block_size)
      .param(transposed)
      .tolerance(product_tolerance(in, out, 2.0 * scale * block_size))
      .flops(2.0 * p.blocks * block_size * block_size * kCols);
}

/// The same blocks by columns.
template <Type in, Type out, uint32_t block_size>
Sample sparse_transposed_sample(uint32_t scale, uint64_t seed) {
  constexpr uint32_t kCols = 9;
  const uint32_t side = 2 * scale;
  const SddmmPattern p(side, block_size);
  std::vector<double> lists;
  for (uint32_t column = 0; column < side; ++column) {
    const size_t count_at = lists.size();
    lists.push_back(0);
    uint32_t block = 0;
    for (uint32_t r = 0; r < side; ++r)
      for (uint32_t c = r % 3; c < side; c += 3, ++block)
        if (c == column) {
          lists.push_back(block);
          lists.push_back(r);
          ++lists[count_at];
        }
  }
  Sample s(sparse_transposed_product_codelet);
  s.random(in, p.blocks, block_size * block_size, seed);
  s.values(Type::u16, static_cast<uint32_t>(lists.size()), 1, [&](uint64_t i) { return lists[i]; });
  s.random(in, p.rows, kCols, seed + 1).unset(out, p.rows, kCols);
  return s.param(block_size)
      .tolerance(product_tolerance(in, out, 2.0 * scale * block_size))
      .flops(2.0 * p.blocks * block_size * block_size * kCols);
}

/// The SIMD form adds in another order than the reference.
template <Type in, Type out, uint32_t block_size>
Sample sddmm_sample(uint32_t scale, uint64_t seed) {
  const SddmmPattern p(2 * scale, block_size);
  const uint32_t cols = 13 * scale;
  Sample s(tile_sddmm_codelet);
  s.random(in, p.rows, cols, seed);
  p.add_lists(s);
  s.random(in, p.rows, cols, seed + 1).unset(out, p.blocks, block_size * block_size);
  return s.param(block_size)
      .tolerance({epsilon_of(out), cols * epsilon_of(Type::f32)})
      .flops(2.0 * p.blocks * block_size * block_size * cols);
}

template <Type in, Type out>
Sample dense_sample(uint32_t scale, uint64_t seed) {
  const uint32_t m = 5 * scale;
  const uint32_t k = 7 * scale;
  const uint32_t n = 6 * scale + (scale > 0 ? 1 : 0);
  Sample s(dense_product_codelet);
  s.random(in, 1, m * k, seed).random(in, 1, k * n, seed + 1).unset(out, 1, m * n);
  s.param(m).param(k).param(n);
  return s.tolerance(product_tolerance(in, out, k)).flops(2.0 * m * k * n);
}

template <Type in, Type out>
Sample input_gradient_sample(uint32_t scale, uint64_t seed) {
  const uint32_t m = 5 * scale;
  const uint32_t k = 7 * scale;
  const uint32_t n = 6 * scale + (scale > 0 ? 1 : 0);
  Sample s(dense_input_gradient_codelet);
  s.random(in, 1, m * k, seed).random(in, 1, m * n, seed + 1).unset(out, 1, k * n);
  s.param(m).param(k).param(n);
  return s.tolerance(product_tolerance(in, out, m)).flops(2.0 * m * k * n);
}

/// The SIMD form adds in another order than the reference.
template <Type in, Type out>
Sample weight_gradient_sample(uint32_t scale, uint64_t seed) {
  const uint32_t m = 5 * scale;
  const uint32_t k = 7 * scale;
  const uint32_t n = 13 * scale;
  Sample s(dense_weight_gradient_codelet);
  s.random(in, 1, m * n, seed).random(in, 1, k * n, seed + 1).unset(out, 1, m * k);
  s.param(m).param(k).param(n);
  return s.tolerance({epsilon_of(out), n * epsilon_of(Type::f32)}).flops(2.0 * m * k * n);
}

constexpr NamedSample sparse_product_uses[] = {{"b1-f32", sparse_sample<Type::f32, Type::f32, 1>},
                                               {"b1-f16", sparse_sample<Type::f16, Type::f16, 1>},
                                               {"b4-f16", sparse_sample<Type::f16, Type::f16, 4>},
                                               {"b8-f16-f32", sparse_sample<Type::f16, Type::f32, 8>},
                                               {"b16-f16", sparse_sample<Type::f16, Type::f16, 16>},
                                               {"b16-f32", sparse_sample<Type::f32, Type::f32, 16>},
                                               {"b4-f32-t", sparse_sample<Type::f32, Type::f32, 4, true>},
                                               {"b16-f16-t", sparse_sample<Type::f16, Type::f16, 16, true>}};

constexpr NamedSample sparse_transposed_product_uses[] = {
    {"b1-f32", sparse_transposed_sample<Type::f32, Type::f32, 1>},
    {"b1-f16", sparse_transposed_sample<Type::f16, Type::f16, 1>},
    {"b4-f32", sparse_transposed_sample<Type::f32, Type::f32, 4>},
    {"b8-f16-f32", sparse_transposed_sample<Type::f16, Type::f32, 8>},
    {"b16-f16", sparse_transposed_sample<Type::f16, Type::f16, 16>}};

constexpr NamedSample tile_sddmm_uses[] = {{"b1-f32", sddmm_sample<Type::f32, Type::f32, 1>},
                                           {"b1-f16", sddmm_sample<Type::f16, Type::f16, 1>},
                                           {"b4-f16", sddmm_sample<Type::f16, Type::f16, 4>},
                                           {"b8-f16-f32", sddmm_sample<Type::f16, Type::f32, 8>},
                                           {"b16-f16", sddmm_sample<Type::f16, Type::f16, 16>},
                                           {"b16-f32", sddmm_sample<Type::f32, Type::f32, 16>}};

constexpr NamedSample dense_product_uses[] = {{"f32", dense_sample<Type::f32, Type::f32>},
                                              {"f16", dense_sample<Type::f16, Type::f16>},
                                              {"f16-f32", dense_sample<Type::f16, Type::f32>}};

constexpr NamedSample dense_input_gradient_uses[] = {
    {"f32", input_gradient_sample<Type::f32, Type::f32>},
    {"f16", input_gradient_sample<Type::f16, Type::f16>},
    {"f16-f32", input_gradient_sample<Type::f16, Type::f32>}};

constexpr NamedSample dense_weight_gradient_uses[] = {
    {"f32", weight_gradient_sample<Type::f32, Type::f32>},
    {"f16", weight_gradient_sample<Type::f16, Type::f16>},
    {"f16-f32", weight_gradient_sample<Type::f16, Type::f32>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(tile_product, TESSERA_TILE_PRODUCT_CODELETS)

}  // namespace tessera::kernels
