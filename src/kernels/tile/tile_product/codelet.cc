#include "kernels/tile/tile_product/codelet.h"

#include <algorithm>
#include <array>

#include "kernels/common/element.h"
#include "kernels/tile/tile_codelet.h"
#include "kernels/tile/tile_product/cost.h"
#include "kernels/tile/tile_product/multiply.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;
using program::FieldView;
using program::Vertex;

constexpr FieldSpec kSparseFields[] = {TESSERA_SPARSE_PRODUCT_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kSparseParams[] = {TESSERA_SPARSE_PRODUCT_PARAMS(TESSERA_NAME)};
constexpr std::string_view kSparseTransposedParams[] = {
    TESSERA_SPARSE_TRANSPOSED_PRODUCT_PARAMS(TESSERA_NAME)};
constexpr FieldSpec kSddmmFields[] = {TESSERA_TILE_SDDMM_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kSddmmParams[] = {TESSERA_TILE_SDDMM_PARAMS(TESSERA_NAME)};
constexpr FieldSpec kDenseFields[] = {TESSERA_DENSE_PRODUCT_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kDenseParams[] = {TESSERA_DENSE_PRODUCT_PARAMS(TESSERA_NAME)};
constexpr FieldSpec kInputGradientFields[] = {TESSERA_DENSE_INPUT_GRADIENT_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kWeightGradientFields[] = {TESSERA_DENSE_WEIGHT_GRADIENT_FIELDS(TESSERA_FIELD)};

float f32_at(const FieldView& field, int64_t row, int64_t col) {
  return static_cast<float>(number_at(field, row, col));
}

/// Entry i of a work list.
uint32_t entry_at(const FieldView& lists, uint32_t i) {
  return static_cast<uint32_t>(number_at(lists, i, 0));
}

void sparse_reference(const Vertex& v) {
  using namespace sparse_product_field;
  const auto b = static_cast<uint32_t>(v.params[sparse_product_param::block_size]);
  const bool transposed = v.params[sparse_product_param::transposed] != 0;
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
  const auto b = static_cast<uint32_t>(v.params[sparse_transposed_product_param::block_size]);
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
  const auto b = static_cast<uint32_t>(v.params[tile_sddmm_param::block_size]);
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
  const auto [m, k, n] = std::array{v.params[dense_product_param::m], v.params[dense_product_param::k],
                                    v.params[dense_product_param::n]};
  multiply_reference(v, m, k, n, {k, 1}, {n, 1});
}

void input_gradient_reference(const Vertex& v) {
  const auto [m, k, n] = std::array{v.params[dense_product_param::m], v.params[dense_product_param::k],
                                    v.params[dense_product_param::n]};
  multiply_reference(v, k, m, n, {1, k}, {n, 1});
}

void input_gradient_simd(const Vertex& v) {
  if (!apply_dense_input_gradient(v)) input_gradient_reference(v);
}

void weight_gradient_reference(const Vertex& v) {
  const auto [m, k, n] = std::array{v.params[dense_product_param::m], v.params[dense_product_param::k],
                                    v.params[dense_product_param::n]};
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

}  // namespace

constexpr program::Codelet sparse_product_codelet = tile_codelet(
    "sparse_product", kSparseFields, kSparseParams, {sparse_reference, sparse_simd, sparse_cost}, 600);
constexpr program::Codelet sparse_transposed_product_codelet =
    tile_codelet("sparse_transposed_product", kSparseFields, kSparseTransposedParams,
                 {sparse_transposed_reference, sparse_transposed_simd, sparse_transposed_cost}, 600);
constexpr program::Codelet tile_sddmm_codelet =
    tile_codelet("tile_sddmm", kSddmmFields, kSddmmParams, {sddmm_reference, sddmm_simd, sddmm_cost}, 600);
constexpr program::Codelet dense_product_codelet =
    tile_codelet("dense_product", kDenseFields, kDenseParams, {dense_reference, dense_simd, dense_cost}, 600);
constexpr program::Codelet dense_input_gradient_codelet =
    tile_codelet("dense_input_gradient", kInputGradientFields, kDenseParams,
                 {input_gradient_reference, input_gradient_simd, input_gradient_cost}, 600);
constexpr program::Codelet dense_weight_gradient_codelet =
    tile_codelet("dense_weight_gradient", kWeightGradientFields, kDenseParams,
                 {weight_gradient_reference, weight_gradient_simd, weight_gradient_cost}, 600);

std::span<const ListedCodelet> tile_product_codelets() {
  static constexpr ListedCodelet kListed[] = {sparse_product_codelet,       sparse_transposed_product_codelet,
                                              tile_sddmm_codelet,           dense_product_codelet,
                                              dense_input_gradient_codelet, dense_weight_gradient_codelet};
  return kListed;
}

}  // namespace tessera::kernels
