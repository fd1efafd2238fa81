#include "kernels/tile/tile_product/codelet.h"

#include <algorithm>
#include <array>

#include "kernels/common/element.h"
#include "kernels/tile/tile_product/cost.h"
#include "kernels/tile/tile_product/multiply.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldSpec;
using program::FieldView;
using program::Vertex;

// As PopLibs' vertices require: weights and X are loaded in units of 8 bytes; blocks are in units of 16 bytes
// and interleaved; loops over-read X by 16 bytes, and Y by up to 128 (blocks of 16).
constexpr std::array<FieldSpec, sparse_product_field::count> kSparseFields = {{
    {.name = "values", .alignment = 8},
    {.name = "lists"},
    {.name = "x", .alignment = 8, .over_read = 16},
    {.name = "y", .access = Access::out, .alignment = 16, .interleaved = true, .over_read = 128},
}};
constexpr std::array<std::string_view, 2> kSparseParams = {"block_size", "transposed"};

constexpr std::array<FieldSpec, tile_sddmm_field::count> kSddmmFields = {{
    {.name = "dy", .alignment = 8, .over_read = 16},
    {.name = "lists"},
    {.name = "x", .alignment = 8, .over_read = 16},
    {.name = "dw", .access = Access::out, .alignment = 16, .interleaved = true, .over_read = 128},
}};
constexpr std::array<std::string_view, 1> kBlockSizeParam = {"block_size"};

constexpr std::array<FieldSpec, dense_product_field::count> kDenseFields = {{
    {.name = "w", .alignment = 8},
    {.name = "x", .alignment = 8, .over_read = 16},
    {.name = "y", .access = Access::out, .alignment = 16, .interleaved = true},
}};
constexpr std::array<std::string_view, 3> kDenseParams = {"m", "k", "n"};

constexpr std::array<FieldSpec, dense_input_gradient_field::count> kInputGradientFields = {{
    {.name = "w", .alignment = 8},
    {.name = "dy", .alignment = 8, .over_read = 16},
    {.name = "dx", .access = Access::out, .alignment = 16, .interleaved = true},
}};
constexpr std::array<FieldSpec, dense_weight_gradient_field::count> kWeightGradientFields = {{
    {.name = "dy", .alignment = 8},
    {.name = "x", .alignment = 8, .over_read = 16},
    {.name = "dw", .access = Access::out, .alignment = 16, .interleaved = true},
}};

float f32_at(const FieldView& field, int64_t row, int64_t col) {
  return static_cast<float>(number_at(field, row, col));
}

/// Entry i of a work list.
uint32_t entry_at(const FieldView& lists, uint32_t i) {
  return static_cast<uint32_t>(number_at(lists, i, 0));
}

void sparse_reference(const Vertex& v) {
  using namespace sparse_product_field;
  const auto b = static_cast<uint32_t>(v.params[0]);
  const bool transposed = v.params[1] != 0;
  const FieldView& out = v.fields[y];
  const auto entry = [&](uint32_t i) { return entry_at(v.fields[lists], i); };
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
            sum += f32_at(v.fields[values], block + i, transposed ? c * b + r : r * b + c) *
                   f32_at(v.fields[x], first + c, j);
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

void sparse_transposed_reference(const Vertex& v) {
  using namespace sparse_transposed_product_field;
  const auto b = static_cast<uint32_t>(v.params[0]);
  const FieldView& out = v.fields[y];
  const auto entry = [&](uint32_t i) { return entry_at(v.fields[lists], i); };
  uint32_t at = 0;
  for (uint32_t row = 0; row < out.rows; row += b) {
    const uint32_t blocks = entry(at++);
    for (uint32_t r = 0; r < std::min(b, out.rows - row); ++r)
      for (uint32_t j = 0; j < out.cols; ++j) {
        float sum = 0;
        for (uint32_t i = 0; i < blocks; ++i) {
          const uint32_t first = entry(at + 2 * i + 1) * b;
          for (uint32_t c = 0; c < b && first + c < v.fields[x].rows; ++c)
            sum += f32_at(v.fields[values], entry(at + 2 * i), c * b + r) * f32_at(v.fields[x], first + c, j);
        }
        set_number(out, row + r, j, sum);
      }
    at += 2 * blocks;
  }
}

void sparse_transposed_simd(const Vertex& v) {
  if (!apply_sparse_transposed_product(v)) sparse_transposed_reference(v);
}

void sddmm_reference(const Vertex& v) {
  using namespace tile_sddmm_field;
  const auto b = static_cast<uint32_t>(v.params[0]);
  uint32_t block = 0;
  uint32_t at = 0;
  for (uint32_t row = 0; block < v.fields[dw].rows; row += b)
    for (uint32_t blocks = entry_at(v.fields[lists], at++); blocks > 0; --blocks, ++block, ++at)
      for (uint32_t i = 0; i < b * b; ++i)
        set_number(
            v.fields[dw], block, i,
            row_product(v.fields[dy], row + i / b, v.fields[x], entry_at(v.fields[lists], at) * b + i % b));
}

void sddmm_simd(const Vertex& v) {
  if (!apply_tile_sddmm(v)) sddmm_reference(v);
}

/// Element (i, j) of the left factor is number i · left.row + j · left.col of its field; of the right so.
struct Strides {
  int64_t row;
  int64_t col;
};
void multiply_reference(const Vertex& v, int64_t rows, int64_t inner, int64_t cols, Strides left,
                        Strides right) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) {
      float sum = 0;
      for (int64_t c = 0; c < inner; ++c)
        sum += f32_at(v.fields[0], 0, i * left.row + c * left.col) *
               f32_at(v.fields[1], 0, c * right.row + j * right.col);
      set_number(v.fields[2], 0, i * cols + j, sum);
    }
}

void dense_reference(const Vertex& v) {
  const auto [m, k, n] = std::array{v.params[0], v.params[1], v.params[2]};
  multiply_reference(v, m, k, n, {k, 1}, {n, 1});
}

void input_gradient_reference(const Vertex& v) {
  const auto [m, k, n] = std::array{v.params[0], v.params[1], v.params[2]};
  multiply_reference(v, k, m, n, {1, k}, {n, 1});
}

void input_gradient_simd(const Vertex& v) {
  if (!apply_dense_input_gradient(v)) input_gradient_reference(v);
}

void weight_gradient_reference(const Vertex& v) {
  const auto [m, k, n] = std::array{v.params[0], v.params[1], v.params[2]};
  multiply_reference(v, m, n, k, {n, 1}, {1, n});
}

void weight_gradient_simd(const Vertex& v) {
  if (!apply_dense_weight_gradient(v)) weight_gradient_reference(v);
}

void dense_simd(const Vertex& v) {
  if (!apply_dense_product(v)) dense_reference(v);
}

// Defined here, where the list sees its definition.
program::PhaseTimes sparse_cost(const Vertex& v, const machine::Machine& m) {
  return sparse_product_cost(v, m);
}
program::PhaseTimes sparse_transposed_cost(const Vertex& v, const machine::Machine& m) {
  return sparse_transposed_product_cost(v, m);
}
program::PhaseTimes sddmm_cost(const Vertex& v, const machine::Machine& m) { return tile_sddmm_cost(v, m); }
program::PhaseTimes dense_cost(const Vertex& v, const machine::Machine& m) {
  return dense_product_cost(v, m);
}

program::PhaseTimes input_gradient_cost(const Vertex& v, const machine::Machine& m) {
  return dense_input_gradient_cost(v, m);
}
program::PhaseTimes weight_gradient_cost(const Vertex& v, const machine::Machine& m) {
  return dense_weight_gradient_cost(v, m);
}

/// Every third block of a square of blocks; the last of X and of Y are short by one row where possible.
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

/// Vectors of the fast form add in another order than the reference.
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

constexpr NamedSample kSparseSamples[] = {{"b1-f32", sparse_sample<Type::f32, Type::f32, 1>},
                                          {"b1-f16", sparse_sample<Type::f16, Type::f16, 1>},
                                          {"b4-f16", sparse_sample<Type::f16, Type::f16, 4>},
                                          {"b8-f16-f32", sparse_sample<Type::f16, Type::f32, 8>},
                                          {"b16-f16", sparse_sample<Type::f16, Type::f16, 16>},
                                          {"b16-f32", sparse_sample<Type::f32, Type::f32, 16>},
                                          {"b4-f32-t", sparse_sample<Type::f32, Type::f32, 4, true>},
                                          {"b16-f16-t", sparse_sample<Type::f16, Type::f16, 16, true>}};

constexpr NamedSample kSparseTransposedSamples[] = {
    {"b1-f32", sparse_transposed_sample<Type::f32, Type::f32, 1>},
    {"b1-f16", sparse_transposed_sample<Type::f16, Type::f16, 1>},
    {"b4-f32", sparse_transposed_sample<Type::f32, Type::f32, 4>},
    {"b8-f16-f32", sparse_transposed_sample<Type::f16, Type::f32, 8>},
    {"b16-f16", sparse_transposed_sample<Type::f16, Type::f16, 16>}};

constexpr NamedSample kSddmmSamples[] = {{"b1-f32", sddmm_sample<Type::f32, Type::f32, 1>},
                                         {"b1-f16", sddmm_sample<Type::f16, Type::f16, 1>},
                                         {"b4-f16", sddmm_sample<Type::f16, Type::f16, 4>},
                                         {"b8-f16-f32", sddmm_sample<Type::f16, Type::f32, 8>},
                                         {"b16-f16", sddmm_sample<Type::f16, Type::f16, 16>},
                                         {"b16-f32", sddmm_sample<Type::f32, Type::f32, 16>}};

constexpr NamedSample kDenseSamples[] = {{"f32", dense_sample<Type::f32, Type::f32>},
                                         {"f16", dense_sample<Type::f16, Type::f16>},
                                         {"f16-f32", dense_sample<Type::f16, Type::f32>}};

constexpr NamedSample kInputGradientSamples[] = {{"f32", input_gradient_sample<Type::f32, Type::f32>},
                                                 {"f16", input_gradient_sample<Type::f16, Type::f16>},
                                                 {"f16-f32", input_gradient_sample<Type::f16, Type::f32>}};

constexpr NamedSample kWeightGradientSamples[] = {{"f32", weight_gradient_sample<Type::f32, Type::f32>},
                                                  {"f16", weight_gradient_sample<Type::f16, Type::f16>},
                                                  {"f16-f32", weight_gradient_sample<Type::f16, Type::f32>}};

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

constexpr program::Codelet sparse_transposed_product_codelet = {
    .name = "sparse_transposed_product",
    .workers = program::Workers::whole_tile,
    .fields = kSparseFields,
    .params = kBlockSizeParam,
    .reference = sparse_transposed_reference,
    .simd = sparse_transposed_simd,
    .cost = sparse_transposed_cost,
    .code_bytes = 600,
    .runs_on = program::RunsOn::tiles,
};

constexpr program::Codelet tile_sddmm_codelet = {
    .name = "tile_sddmm",
    .workers = program::Workers::whole_tile,
    .fields = kSddmmFields,
    .params = kBlockSizeParam,
    .reference = sddmm_reference,
    .simd = sddmm_simd,
    .cost = sddmm_cost,
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

constexpr program::Codelet dense_input_gradient_codelet = {
    .name = "dense_input_gradient",
    .workers = program::Workers::whole_tile,
    .fields = kInputGradientFields,
    .params = kDenseParams,
    .reference = input_gradient_reference,
    .simd = input_gradient_simd,
    .cost = input_gradient_cost,
    .code_bytes = 600,
    .runs_on = program::RunsOn::tiles,
};

constexpr program::Codelet dense_weight_gradient_codelet = {
    .name = "dense_weight_gradient",
    .workers = program::Workers::whole_tile,
    .fields = kWeightGradientFields,
    .params = kDenseParams,
    .reference = weight_gradient_reference,
    .simd = weight_gradient_simd,
    .cost = weight_gradient_cost,
    .code_bytes = 600,
    .runs_on = program::RunsOn::tiles,
};

std::span<const ListedCodelet> tile_product_codelets() {
  static constexpr ListedCodelet kListed[] = {{sparse_product_codelet, kSparseSamples},
                                              {sparse_transposed_product_codelet, kSparseTransposedSamples},
                                              {tile_sddmm_codelet, kSddmmSamples},
                                              {dense_product_codelet, kDenseSamples},
                                              {dense_input_gradient_codelet, kInputGradientSamples},
                                              {dense_weight_gradient_codelet, kWeightGradientSamples}};
  return kListed;
}

}  // namespace tessera::kernels
