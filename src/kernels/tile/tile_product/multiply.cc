// SIMD forms of products on a tile.
#include <algorithm>
#include <array>
#include <vector>

#include "base/simd.h"
#include "kernels/common/element.h"
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

template <class In, class Out>
void sparse_rows(const Vertex& v) {
  using namespace sparse_product_field;
  const auto b = static_cast<uint32_t>(v.params[sparse_product_param::block_size]);
  const FieldView& in = v.fields[x];
  const FieldView& out = v.fields[y];
  const bool transposed = v.params[sparse_product_param::transposed] != 0;
  const uint32_t row_step = transposed ? 1 : b;
  const uint32_t col_step = transposed ? b : 1;
  RowSums sums(out.cols);
  uint32_t block = 0;
  for (uint32_t at = 0, row = 0; row < out.rows; row += b) {
    const uint32_t blocks = entry(v.fields[lists], at++);
    for (uint32_t r = 0; r < std::min(b, out.rows - row); ++r) {
      sums.clear();
      for (uint32_t i = 0; i < blocks; ++i) {
        const uint32_t first = entry(v.fields[lists], at + i) * b;
        const auto* w =
            reinterpret_cast<const In*>(address_of(v.fields[values], block + i, int64_t{r} * row_step));
        for (uint32_t c = 0; c < std::min(b, in.rows - first); ++c)
          sums.add(widened(w[c * col_step]), reinterpret_cast<const In*>(address_of(in, first + c, 0)));
      }
      sums.store(reinterpret_cast<Out*>(address_of(out, row + r, 0)));
    }
    block += blocks;
    at += blocks;
  }
}

template <class In, class Out>
void sparse_transposed_rows(const Vertex& v) {
  using namespace sparse_transposed_product_field;
  const auto b = static_cast<uint32_t>(v.params[sparse_transposed_product_param::block_size]);
  const FieldView& in = v.fields[x];
  const FieldView& out = v.fields[y];
  RowSums sums(out.cols);
  for (uint32_t at = 0, row = 0; row < out.rows; row += b) {
    const uint32_t blocks = entry(v.fields[lists], at++);
    for (uint32_t r = 0; r < std::min(b, out.rows - row); ++r) {
      sums.clear();
      for (uint32_t i = 0; i < blocks; ++i) {
        const uint32_t first = entry(v.fields[lists], at + 2 * i + 1) * b;
        const auto* w =
            reinterpret_cast<const In*>(address_of(v.fields[values], entry(v.fields[lists], at + 2 * i), r));
        for (uint32_t c = 0; c < std::min(b, in.rows - first); ++c)
          sums.add(widened(w[c * b]), reinterpret_cast<const In*>(address_of(in, first + c, 0)));
      }
      sums.store(reinterpret_cast<Out*>(address_of(out, row + r, 0)));
    }
    at += 2 * blocks;
  }
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
      sums.add(widened(v.fields[0].as<const In>()[i * row_step + j * col_step]),
               v.fields[1].as<const In>() + j * cols);
    sums.store(v.fields[2].as<Out>() + i * cols);
  }
}

template <class In, class Out>
void weight_gradient_rows(const Vertex& v) {
  const auto [m, k, n] = std::array{v.params[dense_product_param::m], v.params[dense_product_param::k],
                                    v.params[dense_product_param::n]};
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < k; ++j)
      store_one(v.fields[2].as<Out>() + i * k + j,
                dot(v.fields[0].as<const In>() + i * n, v.fields[1].as<const In>() + j * n,
                    static_cast<size_t>(n)));
}

}  // namespace

void sparse_product(const Vertex& v) {
  using namespace sparse_product_field;
  with_float_types(v.fields[x].type, v.fields[y].type,
                   [&]<class In, class Out>(In, Out) { sparse_rows<In, Out>(v); });
}

void sparse_transposed_product(const Vertex& v) {
  using namespace sparse_transposed_product_field;
  with_float_types(v.fields[x].type, v.fields[y].type,
                   [&]<class In, class Out>(In, Out) { sparse_transposed_rows<In, Out>(v); });
}

void tile_sddmm(const Vertex& v) {
  using namespace tile_sddmm_field;
  with_float_types(v.fields[x].type, v.fields[dw].type,
                   [&]<class In, class Out>(In, Out) { sample_rows<In, Out>(v); });
}

void dense_product(const Vertex& v) {
  const auto [m, k, n] = std::array{v.params[dense_product_param::m], v.params[dense_product_param::k],
                                    v.params[dense_product_param::n]};
  with_float_types(v.fields[0].type, v.fields[2].type,
                   [&]<class In, class Out>(In, Out) { multiply_rows<In, Out>(v, m, k, n, k, 1); });
}

void dense_input_gradient(const Vertex& v) {
  const auto [m, k, n] = std::array{v.params[dense_product_param::m], v.params[dense_product_param::k],
                                    v.params[dense_product_param::n]};
  with_float_types(v.fields[0].type, v.fields[2].type,
                   [&]<class In, class Out>(In, Out) { multiply_rows<In, Out>(v, k, m, n, 1, k); });
}

void dense_weight_gradient(const Vertex& v) {
  with_float_types(v.fields[0].type, v.fields[2].type,
                   [&]<class In, class Out>(In, Out) { weight_gradient_rows<In, Out>(v); });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(sparse_product);
HWY_EXPORT(sparse_transposed_product);
HWY_EXPORT(tile_sddmm);
HWY_EXPORT(dense_product);
HWY_EXPORT(dense_input_gradient);
HWY_EXPORT(dense_weight_gradient);

void sparse_product_simd(const program::Vertex& v) {
  if (!std::ranges::all_of(v.fields, has_contiguous_rows)) return sparse_product_reference(v);
  HWY_DYNAMIC_DISPATCH(sparse_product)(v);
}

void sparse_transposed_product_simd(const program::Vertex& v) {
  if (!std::ranges::all_of(v.fields, has_contiguous_rows)) return sparse_transposed_product_reference(v);
  HWY_DYNAMIC_DISPATCH(sparse_transposed_product)(v);
}

void tile_sddmm_simd(const program::Vertex& v) {
  if (!std::ranges::all_of(v.fields, has_contiguous_rows)) return tile_sddmm_reference(v);
  HWY_DYNAMIC_DISPATCH(tile_sddmm)(v);
}

void dense_product_simd(const program::Vertex& v) {
  if (!std::ranges::all_of(v.fields, has_contiguous_rows)) return dense_product_reference(v);
  HWY_DYNAMIC_DISPATCH(dense_product)(v);
}

void dense_input_gradient_simd(const program::Vertex& v) {
  if (!std::ranges::all_of(v.fields, has_contiguous_rows)) return dense_input_gradient_reference(v);
  HWY_DYNAMIC_DISPATCH(dense_input_gradient)(v);
}

void dense_weight_gradient_simd(const program::Vertex& v) {
  if (!std::ranges::all_of(v.fields, has_contiguous_rows)) return dense_weight_gradient_reference(v);
  HWY_DYNAMIC_DISPATCH(dense_weight_gradient)(v);
}

}  // namespace tessera::kernels
#endif
