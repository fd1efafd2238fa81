// SIMD forms of dynamic sparse products on a tile.
#include <algorithm>

#include "base/simd.h"
#include "kernels/common/dispatch.h"
#include "kernels/common/element.h"
#include "kernels/tile/bucket/codelet.h"
#include "kernels/tile/bucket/metadata.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tile/bucket/multiply.cc"
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

// One block row of a subgroup: its blocks, of which `first` is the first in the bucket, times X.
template <class In, class Out>
void add_row(const Vertex& v, uint32_t row, uint32_t first, std::span<const uint16_t> columns,
             RowSums& sums) {
  using namespace bucket_product_field;
  const auto b = static_cast<uint32_t>(v.params[bucket_product_param::block_size]);
  const FieldView& in = v.fields[x];
  const FieldView& out = v.fields[y];
  for (uint32_t r = row * b; r < std::min((row + 1) * b, out.rows); ++r) {
    auto* to = reinterpret_cast<Out*>(address_of(out, r, 0));
    sums.load(to);
    for (size_t i = 0; i < columns.size(); ++i) {
      const uint32_t from = columns[i] * b;
      const auto* w = reinterpret_cast<const In*>(
          address_of(v.fields[values], first + static_cast<int64_t>(i), int64_t{r - row * b} * b));
      for (uint32_t c = 0; c < std::min(b, in.rows - from); ++c)
        sums.add(base::to_float(w[c]), reinterpret_cast<const In*>(address_of(in, from + c, 0)));
    }
    sums.store(to);
  }
}

// Multiplies the transposes of a row's blocks: each adds to its rows of dX, from the block row's rows of dY.
template <class In, class Out>
void add_row_transposed(const Vertex& v, uint32_t row, uint32_t first, std::span<const uint16_t> columns,
                        RowSums& sums) {
  using namespace bucket_product_field;
  const auto b = static_cast<uint32_t>(v.params[bucket_product_param::block_size]);
  const FieldView& in = v.fields[x];
  const FieldView& out = v.fields[y];
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto* w =
        reinterpret_cast<const In*>(address_of(v.fields[values], first + static_cast<int64_t>(i), 0));
    for (uint32_t c = 0; c < std::min(b, out.rows - columns[i] * b); ++c) {
      auto* to = reinterpret_cast<Out*>(address_of(out, columns[i] * b + c, 0));
      sums.load(to);
      for (uint32_t r = 0; r < std::min(b, in.rows - row * b); ++r)
        sums.add(base::to_float(w[r * b + c]), reinterpret_cast<const In*>(address_of(in, row * b + r, 0)));
      sums.store(to);
    }
  }
}

template <class In, class Out>
void add_bucket(const Vertex& v) {
  using namespace bucket_product_field;
  const auto b = static_cast<uint32_t>(v.params[bucket_product_param::block_size]);
  const FieldView& out = v.fields[y];
  if (v.params[bucket_product_param::is_first] != 0) clear(out);
  const bool transposed = v.params[bucket_product_param::transposed] != 0;
  RowSums sums(out.cols);
  each_row_of(v.fields[metadata], static_cast<uint32_t>(v.params[bucket_product_param::partition]), b,
              [&](uint32_t row, uint32_t first, std::span<const uint16_t> columns) {
                if (transposed)
                  add_row_transposed<In, Out>(v, row, first, columns, sums);
                else
                  add_row<In, Out>(v, row, first, columns, sums);
              });
}

template <class In, class Out>
void sample_bucket(const Vertex& v) {
  using namespace bucket_sddmm_field;
  const auto b = static_cast<uint32_t>(v.params[bucket_sddmm_param::block_size]);
  if (v.params[bucket_sddmm_param::is_first] != 0) clear(v.fields[dw]);
  each_row_of(v.fields[metadata], static_cast<uint32_t>(v.params[bucket_sddmm_param::partition]), b,
              [&](uint32_t row, uint32_t first, std::span<const uint16_t> columns) {
                for (uint32_t column : columns)
                  sample_block<In>(v.fields[dy], row * b, v.fields[x], column * b, b,
                                   reinterpret_cast<Out*>(address_of(v.fields[dw], first++, 0)));
              });
}

}  // namespace

TESSERA_RUN_FLOATS(bucket_product, x, y, add_bucket)
TESSERA_RUN_FLOATS(bucket_sddmm, x, dw, sample_bucket)

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_DISPATCH_RUN(bucket_product)
TESSERA_DISPATCH_RUN(bucket_sddmm)

}  // namespace tessera::kernels
#endif
