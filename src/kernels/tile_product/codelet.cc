#include "kernels/tile_product/codelet.h"

#include <algorithm>
#include <array>

#include "kernels/element.h"
#include "kernels/tile_product/cost.h"
#include "kernels/tile_product/multiply.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldSpec;
using program::FieldView;
using program::Vertex;

// As PopLibs' vertices demand: weights and X are loaded in 8 bytes, blocks stored in 16 and
// interleaved; loops run ahead by 16 bytes of X, and by up to 128 of Y (blocks of 16).
constexpr std::array<FieldSpec, sparse_product_field::count> kSparseFields = {{
    {.name = "values", .alignment = 8},
    {.name = "lists"},
    {.name = "x", .alignment = 8, .over_read = 16},
    {.name = "y", .access = Access::out, .alignment = 16, .interleaved = true, .over_read = 128},
}};
constexpr std::array<std::string_view, 1> kSparseParams = {"block_size"};

constexpr std::array<FieldSpec, dense_product_field::count> kDenseFields = {{
    {.name = "w", .alignment = 8},
    {.name = "x", .alignment = 8, .over_read = 16},
    {.name = "y", .access = Access::out, .alignment = 16, .interleaved = true},
}};
constexpr std::array<std::string_view, 3> kDenseParams = {"m", "k", "n"};

float f32_at(const FieldView& field, int64_t row, int64_t col) {
  return static_cast<float>(number_at(field, row, col));
}

void sparse_reference(const Vertex& v) {
  using namespace sparse_product_field;
  const auto b = static_cast<uint32_t>(v.params[0]);
  const FieldView& out = v.fields[y];
  const auto entry = [&](uint32_t i) {
    return static_cast<uint32_t>(number_at(v.fields[lists], i, 0));
  };
  uint32_t block = 0;
  uint32_t at = 0;
  for (uint32_t row = 0; row < out.rows; row += b) {
    const uint32_t blocks = entry(at++);
    for (uint32_t r = 0; r < std::min(b, out.rows - row); ++r)
      for (uint32_t j = 0; j < out.cols; ++j) {
        float sum = 0;
        for (uint32_t i = 0; i < blocks; ++i) {
          const uint32_t first = entry(at + i) * b;
          for (uint32_t c = 0; c < b && first + c < v.fields[x].rows; ++c)
            sum +=
                f32_at(v.fields[values], block + i, r * b + c) * f32_at(v.fields[x], first + c, j);
        }
        set_number(out, row + r, j, sum);
      }
    block += blocks;
    at += blocks;
  }
}

void sparse_simd(const Vertex& v) {
  if (!apply_sparse_product(v)) sparse_reference(v);
}

void dense_reference(const Vertex& v) {
  using namespace dense_product_field;
  const auto [m, k, n] = std::array{v.params[0], v.params[1], v.params[2]};
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t c = 0; c < k; ++c)
        sum += f32_at(v.fields[w], 0, i * k + c) * f32_at(v.fields[x], 0, c * n + j);
      set_number(v.fields[y], 0, i * n + j, sum);
    }
}

void dense_simd(const Vertex& v) {
  if (!apply_dense_product(v)) dense_reference(v);
}

// Defined here, where the list sees that they are there.
program::PhaseTimes sparse_cost(const Vertex& v, const machine::Machine& m) {
  return sparse_product_cost(v, m);
}
program::PhaseTimes dense_cost(const Vertex& v, const machine::Machine& m) {
  return dense_product_cost(v, m);
}

/// FP16 products are exact in FP32, and both forms add in one order. In FP32 one rounds each
/// product and the other does not; results of FP16 may then fall to either side of a tie.
Tolerance tolerance_of(Type in, Type out, double terms) {
  if (in == Type::f16) return {};
  return {epsilon_of(out), terms * epsilon_of(Type::f32)};
}

/// Every third block of a square of blocks, the last of X and of Y short by one row where they can
/// be.
template <Type in, Type out, uint32_t block_size>
Sample sparse_sample(uint32_t scale, uint64_t seed) {
  constexpr uint32_t kCols = 9;
  const uint32_t side = 2 * scale;
  std::vector<double> lists;
  uint32_t blocks = 0;
  for (uint32_t r = 0; r < side; ++r) {
    const size_t count_at = lists.size();
    lists.push_back(0);
    for (uint32_t c = r % 3; c < side; c += 3, ++blocks) {
      lists.push_back(c);
      ++lists[count_at];
    }
  }
  const uint32_t rows = side * block_size - (side > 0 && block_size > 1 ? 1 : 0);
  Sample s(sparse_product_codelet);
  s.random(in, blocks, block_size * block_size, seed);
  s.values(Type::u16, static_cast<uint32_t>(lists.size()), 1, [&](uint64_t i) { return lists[i]; });
  s.random(in, rows, kCols, seed + 1).unset(out, rows, kCols);
  return s.param(block_size)
      .tolerance(tolerance_of(in, out, side * block_size))
      .flops(2.0 * blocks * block_size * block_size * kCols);
}

template <Type in, Type out>
Sample dense_sample(uint32_t scale, uint64_t seed) {
  const uint32_t m = 5 * scale;
  const uint32_t k = 7 * scale;
  const uint32_t n = 6 * scale + (scale > 0 ? 1 : 0);
  Sample s(dense_product_codelet);
  s.random(in, 1, m * k, seed).random(in, 1, k * n, seed + 1).unset(out, 1, m * n);
  s.param(m).param(k).param(n);
  return s.tolerance(tolerance_of(in, out, k)).flops(2.0 * m * k * n);
}

constexpr NamedSample kSparseSamples[] = {{"b1-f32", sparse_sample<Type::f32, Type::f32, 1>},
                                          {"b1-f16", sparse_sample<Type::f16, Type::f16, 1>},
                                          {"b4-f16", sparse_sample<Type::f16, Type::f16, 4>},
                                          {"b8-f16-f32", sparse_sample<Type::f16, Type::f32, 8>},
                                          {"b16-f16", sparse_sample<Type::f16, Type::f16, 16>},
                                          {"b16-f32", sparse_sample<Type::f32, Type::f32, 16>}};

constexpr NamedSample kDenseSamples[] = {{"f32", dense_sample<Type::f32, Type::f32>},
                                         {"f16", dense_sample<Type::f16, Type::f16>},
                                         {"f16-f32", dense_sample<Type::f16, Type::f32>}};

}  // namespace

constexpr program::Codelet sparse_product_codelet = {
    .name = "sparse_product",
    .workers = program::Workers::whole_tile,
    .fields = kSparseFields,
    .params = kSparseParams,
    .reference = sparse_reference,
    .simd = sparse_simd,
    .cost = sparse_cost,
    .code_bytes = 600,
    .runs_on = program::RunsOn::tiles,
};

constexpr program::Codelet dense_product_codelet = {
    .name = "dense_product",
    .workers = program::Workers::whole_tile,
    .fields = kDenseFields,
    .params = kDenseParams,
    .reference = dense_reference,
    .simd = dense_simd,
    .cost = dense_cost,
    .code_bytes = 600,
    .runs_on = program::RunsOn::tiles,
};

std::span<const ListedCodelet> tile_product_codelets() {
  static constexpr ListedCodelet kListed[] = {{sparse_product_codelet, kSparseSamples},
                                              {dense_product_codelet, kDenseSamples}};
  return kListed;
}

}  // namespace tessera::kernels
