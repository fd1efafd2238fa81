// SIMD forms of products with groups on a tile.
#include "base/simd.h"
#include "kernels/common/dispatch.h"
#include "kernels/tile/kronecker/codelet.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/tile/kronecker/multiply.cc"
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

template <class T>
T* row_at(const FieldView& field, uint32_t row) {
  return reinterpret_cast<T*>(address_of(field, row, 0));
}

template <class In, class Out>
void group_products(const Vertex& v) {
  using namespace kronecker_product_field;
  using namespace kronecker_product_param;
  const auto rows = static_cast<uint32_t>(v.params[outputs]), inner = static_cast<uint32_t>(v.params[terms]);
  const uint32_t groups = v.fields[y].rows / rows;
  RowSums sums(v.fields[y].cols);
  for (uint32_t g = 0; g < groups; ++g)
    for (uint32_t i = 0; i < rows; ++i) {
      const In* weights = v.fields[w].as<const In>() + v.fields[w].cols / groups * g + v.params[first] +
                          i * v.params[output_stride];
      sums.clear();
      for (uint32_t t = 0; t < inner; ++t)
        sums.add(base::to_float(weights[t * v.params[term_stride]]),
                 row_at<const In>(v.fields[x], g * inner + t));
      sums.store(row_at<Out>(v.fields[y], g * rows + i));
    }
}

template <class In, class Out>
void group_dots(const Vertex& v) {
  using namespace kronecker_weight_gradient_field;
  const auto rows = static_cast<uint32_t>(v.params[kronecker_weight_gradient_param::outputs]);
  const auto cols = static_cast<uint32_t>(v.params[kronecker_weight_gradient_param::inputs]);
  const uint32_t groups = v.fields[dy].rows / rows;
  Out* to = v.fields[dw].as<Out>();
  for (uint32_t g = 0; g < groups; ++g)
    for (uint32_t r = 0; r < rows; ++r)
      for (uint32_t q = 0; q < cols; ++q)
        store_one(to++, dot(row_at<const In>(v.fields[dy], g * rows + r),
                            row_at<const In>(v.fields[x], g * cols + q), v.fields[x].cols));
}

}  // namespace

TESSERA_RUN_FLOATS(kronecker_product, x, y, group_products)
TESSERA_RUN_FLOATS(kronecker_weight_gradient, x, dw, group_dots)

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

TESSERA_DISPATCH_RUN(kronecker_product)
TESSERA_DISPATCH_RUN(kronecker_weight_gradient)

}  // namespace tessera::kernels
#endif
