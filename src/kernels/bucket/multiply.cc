#include "kernels/bucket/multiply.h"

#include <algorithm>
#include <vector>

#include "base/simd.h"
#include "kernels/bucket/codelet.h"
#include "kernels/bucket/metadata.h"
#include "kernels/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bucket/multiply.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/convert-inl.h"
#include "kernels/row_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace {

using program::FieldView;
using program::Vertex;

// One block row of a subgroup: its blocks, of which `first` is the first in the bucket, times X.
template <class In, class Out>
void add_row(const Vertex& v, uint32_t row, uint32_t first, std::span<const uint16_t> columns, RowSums& sums) {
  using namespace bucket_product_field;
  const auto b = static_cast<uint32_t>(v.params[0]);
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
        sums.add(widened(w[c]), reinterpret_cast<const In*>(address_of(in, from + c, 0)));
    }
    sums.store(to);
  }
}

template <class In, class Out>
void add_bucket(const Vertex& v) {
  using namespace bucket_product_field;
  const auto b = static_cast<uint32_t>(v.params[0]);
  const FieldView& out = v.fields[y];
  if (v.params[2] != 0)
    for (uint32_t r = 0; r < out.rows; ++r)
      std::fill_n(reinterpret_cast<Out*>(address_of(out, r, 0)), out.cols, Out{});
  if (v.fields[metadata].empty()) return;
  RowSums sums(out.cols);
  const BucketView bucket(v.fields[metadata].as<const uint16_t>());
  bucket.each_subgroup([&](const Subgroup& subgroup, uint32_t first) {
    if (subgroup.partition() != static_cast<uint32_t>(v.params[1])) return;
    subgroup.each_row(b, [&](uint32_t row, uint32_t value, std::span<const uint16_t> columns) {
      add_row<In, Out>(v, row, first + value, columns, sums);
    });
  });
}

}  // namespace

void bucket_product(const Vertex& v) {
  using namespace bucket_product_field;
  with_float_type(v.fields[x].type, [&]<class In>(In) HWY_ATTR {
    with_float_type(v.fields[y].type, [&]<class Out>(Out) HWY_ATTR { add_bucket<In, Out>(v); });
  });
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(bucket_product);

bool apply_bucket_product(const program::Vertex& v) {
  using namespace bucket_product_field;
  for (size_t f : {values, x, y})
    if (v.fields[f].col_stride != 1 && v.fields[f].cols > 1) return false;
  HWY_DYNAMIC_DISPATCH(bucket_product)(v);
  return true;
}

}  // namespace tessera::kernels
#endif
