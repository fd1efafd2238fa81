// SIMD forms of products on a tile.
#include <algorithm>

#include "base/simd.h"
#include "kernels/common/dispatch.h"
#include "kernels/tile/tile_product/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tile/tile_product/multiply.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/common/convert-inl.h"
#include "kernels/common/dot-inl.h"
#include "kernels/common/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

using program::FieldView;
using program::Vertex;

// Entry i of a work list.
HWY_INLINE uint32_t entry(const FieldView& lists, uint32_t i) {
  const std::byte* at = address_of(lists, i, 0);
  return lists.type == Type::u16 ? load<uint16_t>(at) : load<uint32_t>(at);
}

// Blocks that are numbered in the order of the lists, or whose number stands before their column.
template <bool numbered, class In, class Out>
void multiply_block_rows(const Vertex& v, uint32_t b, bool transposed) {
  using namespace sparse_product_field;
  const FieldView& in = v.fields[x];
  const FieldView& out = v.fields[y];
  constexpr uint32_t kWords = numbered ? 2 : 1;
  const uint32_t row_step = transposed ? 1 : b;
  const uint32_t col_step = transposed ? b : 1;
  RowSums sums(out.cols);
  uint32_t block = 0;
  for (uint32_t at = 0, row = 0; row < out.rows; row += b) {
    const uint32_t blocks = entry(v.fields[lists], at++);
    for (uint32_t r = 0; r < std::min(b, out.rows - row); ++r) {
      sums.clear();
      for (uint32_t i = 0; i < blocks; ++i) {
        const uint32_t value = numbered ? entry(v.fields[lists], at + kWords * i) : block + i;
        const uint32_t first = entry(v.fields[lists], at + kWords * (i + 1) - 1) * b;
        const auto* w =
            reinterpret_cast<const In*>(address_of(v.fields[values], value, int64_t{r} * row_step));
        for (uint32_t c = 0; c < std::min(b, in.rows - first); ++c)
          sums.add(base::to_float(w[c * col_step]),
                   reinterpret_cast<const In*>(address_of(in, first + c, 0)));
      }
      sums.store(reinterpret_cast<Out*>(address_of(out, row + r, 0)));
    }
    block += blocks;
    at += kWords * blocks;
  }
}

template <class In, class Out>
void sparse_rows(const Vertex& v) {
  multiply_block_rows<false, In, Out>(v, static_cast<uint32_t>(v.params[sparse_product_param::block_size]),
                                      v.params[sparse_product_param::transposed] != 0);
}

template <class In, class Out>
void sparse_transposed_rows(const Vertex& v) {
  multiply_block_rows<true, In, Out>(
      v, static_cast<uint32_t>(v.params[sparse_transposed_product_param::block_size]), true);
}

template <class In, class Out>
void sample_rows(const Vertex& v) {
  using namespace tile_sddmm_field;
  const auto b = static_cast<uint32_t>(v.params[tile_sddmm_param::block_size]);
  uint32_t block = 0;
  for (uint32_t at = 0, row = 0; block < v.fields[dw].rows; row += b)
    for (uint32_t left = entry(v.fields[lists], at++); left > 0; --left, ++at, ++block)
      sample_block<In>(v.fields[dy], row, v.fields[x], entry(v.fields[lists], at) * b, b,
                       reinterpret_cast<Out*>(address_of(v.fields[dw], block, 0)));
}

// A product of `rows` × `inner` by `inner` × `cols`, the right factor row by row. Element (i, j) of the left
// one is number i · row_step + j · col_step of its field.
template <class In, class Out>
void multiply_rows(const Vertex& v, int64_t rows, int64_t inner, int64_t cols, int64_t row_step,
                   int64_t col_step) {
  RowSums sums(static_cast<size_t>(cols));
  for (int64_t i = 0; i < rows; ++i) {
    sums.clear();
    for (int64_t j = 0; j < inner; ++j)
      sums.add(base::to_float(v.fields[0].as<const In>()[i * row_step + j * col_step]),
               v.fields[1].as<const In>() + j * cols);
    sums.store(v.fields[2].as<Out>() + i * cols);
  }
}

template <class In, class Out>
void weight_gradient_rows(const Vertex& v) {
  const auto [m, k, n] = dense_sizes(v);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j)
      store_one(v.fields[2].as<Out>() + i * k + j,
                dot(v.fields[0].as<const In>() + i * n, v.fields[1].as<const In>() + j * n,
                    static_cast<size_t>(n)));
}

}  // namespace

TESSERA_RUN_FLOATS(sparse_product, x, y, sparse_rows)
TESSERA_RUN_FLOATS(sparse_transposed_product, x, y, sparse_transposed_rows)
TESSERA_RUN_FLOATS(tile_sddmm, x, dw, sample_rows)

void run_dense_product(const Vertex& v) {
  const auto [m, k, n] = dense_sizes(v);
  with_float_types(v.fields[0].type, v.fields[2].type,
                   [&]<class In, class Out>(In, Out) { multiply_rows<In, Out>(v, m, k, n, k, 1); });
}

void run_dense_input_gradient(const Vertex& v) {
  const auto [m, k, n] = dense_sizes(v);
  with_float_types(v.fields[0].type, v.fields[2].type,
                   [&]<class In, class Out>(In, Out) { multiply_rows<In, Out>(v, k, m, n, 1, k); });
}

void run_dense_weight_gradient(const Vertex& v) {
  with_float_types(v.fields[0].type, v.fields[2].type,
                   [&]<class In, class Out>(In, Out) { weight_gradient_rows<In, Out>(v); });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_TILE_PRODUCT_CODELETS(TESSERA_DISPATCH_RUN)

}  // namespace tessera::kernels
#endif
