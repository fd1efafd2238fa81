#include "kernels/tile/kronecker/codelet.h"

#include "kernels/common/element.h"

namespace tessera::kernels {

using program::Vertex;

void kronecker_product_reference(const Vertex& v) {
  using namespace kronecker_product_field;
  using namespace kronecker_product_param;
  const int64_t rows = v.params[outputs], inner = v.params[terms];
  const int64_t groups = v.fields[y].rows / rows;
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t i = 0; i < rows; ++i)
      for (uint32_t j = 0; j < v.fields[y].cols; ++j) {
        float sum = 0;
        for (int64_t t = 0; t < inner; ++t)
          sum += f32_at(v.fields[w], 0,
                        v.fields[w].cols / groups * g + v.params[first] + i * v.params[output_stride] +
                            t * v.params[term_stride]) *
                 f32_at(v.fields[x], g * inner + t, j);
        set_number(v.fields[y], g * rows + i, j, sum);
      }
}

void kronecker_weight_gradient_reference(const Vertex& v) {
  using namespace kronecker_weight_gradient_field;
  const auto rows = static_cast<uint32_t>(v.params[kronecker_weight_gradient_param::outputs]);
  const auto cols = static_cast<uint32_t>(v.params[kronecker_weight_gradient_param::inputs]);
  for (uint32_t g = 0; g < v.fields[dy].rows / rows; ++g)
    for (uint32_t r = 0; r < rows; ++r)
      for (uint32_t q = 0; q < cols; ++q)
        set_number(v.fields[dw], 0, (g * rows + r) * cols + q,
                   row_product(v.fields[dy], g * rows + r, v.fields[x], g * cols + q));
}

TESSERA_DEFINE_FAMILY(tile_kronecker, TESSERA_TILE_KRONECKER_CODELETS, TESSERA_TILE_CODELET)

}  // namespace tessera::kernels
