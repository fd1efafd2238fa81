#include "kernels/tile/kronecker/codelet.h"

#include "kernels/common/element.h"
#include "kernels/tile/kronecker/butterfly.h"
#include "kernels/tile/kronecker/cost.h"
#include "kernels/tile/kronecker/multiply.h"
#include "kernels/tile/tile_codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;
using program::FieldView;
using program::Vertex;

constexpr FieldSpec kProductFields[] = {TESSERA_KRONECKER_PRODUCT_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kProductParams[] = {TESSERA_KRONECKER_PRODUCT_PARAMS(TESSERA_NAME)};
constexpr FieldSpec kGradientFields[] = {TESSERA_KRONECKER_WEIGHT_GRADIENT_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kGradientParams[] = {TESSERA_KRONECKER_WEIGHT_GRADIENT_PARAMS(TESSERA_NAME)};
constexpr std::string_view kPassParams[] = {TESSERA_BUTTERFLY_PASS_PARAMS(TESSERA_NAME)};
constexpr FieldSpec kPassGradientsFields[] = {TESSERA_BUTTERFLY_PASS_GRADIENTS_FIELDS(TESSERA_FIELD)};

float f32_at(const FieldView& field, int64_t row, int64_t col) {
  return static_cast<float>(number_at(field, row, col));
}

void product_reference(const Vertex& v) {
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

void weight_gradient_reference(const Vertex& v) {
  using namespace kronecker_weight_gradient_field;
  const auto rows = static_cast<uint32_t>(v.params[kronecker_weight_gradient_param::outputs]);
  const auto cols = static_cast<uint32_t>(v.params[kronecker_weight_gradient_param::inputs]);
  for (uint32_t g = 0; g < v.fields[dy].rows / rows; ++g)
    for (uint32_t r = 0; r < rows; ++r)
      for (uint32_t q = 0; q < cols; ++q)
        set_number(v.fields[dw], 0, (g * rows + r) * cols + q,
                   row_product(v.fields[dy], g * rows + r, v.fields[x], g * cols + q));
}

void product_simd(const Vertex& v) {
  if (!apply_kronecker_product(v)) product_reference(v);
}
void weight_gradient_simd(const Vertex& v) {
  if (!apply_kronecker_weight_gradient(v)) weight_gradient_reference(v);
}

}  // namespace

constexpr program::Codelet kronecker_product_codelet =
    tile_codelet("kronecker_product", kProductFields, kProductParams,
                 {product_reference, product_simd, kronecker_product_cost}, 600);
constexpr program::Codelet kronecker_weight_gradient_codelet =
    tile_codelet("kronecker_weight_gradient", kGradientFields, kGradientParams,
                 {weight_gradient_reference, weight_gradient_simd, kronecker_weight_gradient_cost}, 600);
constexpr program::Codelet butterfly_pass_codelet =
    tile_codelet("butterfly_pass", kProductFields, kPassParams,
                 {butterfly_pass_reference, nullptr, butterfly_pass_cost}, 400);
constexpr program::Codelet butterfly_pass_gradients_codelet =
    tile_codelet("butterfly_pass_gradients", kPassGradientsFields, kPassParams,
                 {butterfly_pass_gradients_reference, nullptr, butterfly_pass_gradients_cost}, 600);

std::span<const ListedCodelet> tile_kronecker_codelets() {
  static constexpr ListedCodelet kListed[] = {kronecker_product_codelet, kronecker_weight_gradient_codelet,
                                              butterfly_pass_codelet, butterfly_pass_gradients_codelet};
  return kListed;
}

}  // namespace tessera::kernels
