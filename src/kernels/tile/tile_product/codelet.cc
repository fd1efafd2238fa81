#include "kernels/tile/tile_product/codelet.h"

#include <algorithm>

#include "kernels/common/element.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Vertex;

/// Entry i of a work list.
uint32_t entry_at(const FieldView& lists, uint32_t i) {
  return static_cast<uint32_t>(number_at(lists, i, 0));
}

/// Element (i, j) of the left factor is number i · left.row + j · left.col of its field; likewise for the
/// right one.
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

/// Blocks that are numbered in the order of the lists, or whose number stands before their column.
void multiply_blocks(const Vertex& v, uint32_t b, bool numbered, bool transposed) {
  using namespace sparse_product_field;
  const FieldView& out = v.fields[y];
  const auto entry = [&](uint32_t i) { return entry_at(v.fields[lists], i); };
  const uint32_t words = numbered ? 2 : 1;
  uint32_t block = 0;
  uint32_t at = 0;
  for (uint32_t row = 0; row < out.rows; row += b) {
    const uint32_t blocks = entry(at++);
    for (uint32_t r = 0; r < std::min(b, out.rows - row); ++r)
      for (uint32_t j = 0; j < out.cols; ++j) {
        float sum = 0;
        for (uint32_t i = 0; i < blocks; ++i) {
          const uint32_t value = numbered ? entry(at + 2 * i) : block + i;
          const uint32_t first = entry(at + words * (i + 1) - 1) * b;
          for (uint32_t c = 0; c < b && first + c < v.fields[x].rows; ++c)
            sum += f32_at(v.fields[values], value, transposed ? c * b + r : r * b + c) *
                   f32_at(v.fields[x], first + c, j);
        }
        set_number(out, row + r, j, sum);
      }
    block += blocks;
    at += words * blocks;
  }
}

}  // namespace

void sparse_product_reference(const Vertex& v) {
  using namespace sparse_product_param;
  multiply_blocks(v, static_cast<uint32_t>(v.params[block_size]), false, v.params[transposed] != 0);
}

void sparse_transposed_product_reference(const Vertex& v) {
  multiply_blocks(v, static_cast<uint32_t>(v.params[sparse_transposed_product_param::block_size]), true,
                  true);
}

void tile_sddmm_reference(const Vertex& v) {
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

void dense_product_reference(const Vertex& v) {
  const auto [m, k, n] = dense_sizes(v);
  multiply_reference(v, m, k, n, {k, 1}, {n, 1});
}

void dense_input_gradient_reference(const Vertex& v) {
  const auto [m, k, n] = dense_sizes(v);
  multiply_reference(v, k, m, n, {1, k}, {n, 1});
}

void dense_weight_gradient_reference(const Vertex& v) {
  const auto [m, k, n] = dense_sizes(v);
  multiply_reference(v, m, n, k, {n, 1}, {1, n});
}

TESSERA_DEFINE_FAMILY(tile_product, TESSERA_TILE_PRODUCT_CODELETS, TESSERA_TILE_CODELET)

}  // namespace tessera::kernels
