#include "kernels/tile/rounded_product/codelet.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "kernels/map/cast/cast.h"
#include "kernels/map/cast/stochastic.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldView;
using program::Vertex;

enum class Form : uint8_t { reference, simd };

/// Runs the product with its result in FP32, and rounds that.
void run_rounded(const Vertex& v, const program::Codelet& product, Form form) {
  const auto result =
      std::ranges::find_if(product.fields, [](const auto& field) { return field.access != Access::in; });
  const auto at = static_cast<size_t>(result - product.fields.begin());
  const FieldView& to = v.fields[at];
  if (to.empty()) return;
  std::vector<float> sums(to.elements());
  std::array<FieldView, program::kMaxFields> fields;
  std::ranges::copy(v.fields, fields.begin());
  FieldView& wide = fields[at];
  wide = {reinterpret_cast<std::byte*>(sums.data()), Type::f32, to.rows, to.cols, to.cols, 1};
  if (result->access == Access::inout) apply_cast(to, wide);
  const Vertex of_product{{fields.data(), v.fields.size()}, v.params, v.clock, v.helpers};
  form == Form::simd ? product.simd(of_product) : product.reference(of_product);
  const uint64_t sum = base::checksum(std::as_bytes(std::span(sums)));
  const StochasticCast cast{.draws = {.seed = static_cast<uint64_t>(v.params.back()),
                                      .step = static_cast<uint32_t>(sum ^ sum >> 32)},
                            .order = ElementOrder::strided(to.cols, 1)};
  form == Form::simd ? apply_stochastic_cast(cast, wide, to) : stochastic_cast_by_elements(cast, wide, to);
}

}  // namespace

#define TESSERA_ROUNDED_PRODUCTS(X) \
  X(sparse_product)                 \
  X(sparse_transposed_product)      \
  X(tile_sddmm)                     \
  X(dense_product)                  \
  X(dense_input_gradient)           \
  X(dense_weight_gradient)          \
  X(bucket_product)                 \
  X(bucket_sddmm)

// The instructions of a tile round stochastically at no cost (stochastic_cast_cost()).
#define TESSERA_DEFINE_ROUNDED(product)                                                             \
  void rounded_##product##_reference(const Vertex& v) {                                             \
    run_rounded(v, product##_codelet, Form::reference);                                             \
  }                                                                                                 \
  void rounded_##product##_simd(const Vertex& v) { run_rounded(v, product##_codelet, Form::simd); } \
  program::PhaseTimes rounded_##product##_cost(const Vertex& v, const machine::Machine& m) {        \
    return product##_codelet.cost(v, m);                                                            \
  }
TESSERA_ROUNDED_PRODUCTS(TESSERA_DEFINE_ROUNDED)

TESSERA_DEFINE_FAMILY(rounded_product, TESSERA_ROUNDED_PRODUCT_CODELETS, TESSERA_TILE_CODELET)

const program::Codelet* rounded_form(const program::Codelet& product) {
#define TESSERA_ROUNDED_FORM(product) {&product##_codelet, &rounded_##product##_codelet},
  static constexpr std::pair<const program::Codelet*, const program::Codelet*> kForms[] = {
      TESSERA_ROUNDED_PRODUCTS(TESSERA_ROUNDED_FORM)};
#undef TESSERA_ROUNDED_FORM
  const auto* const found = std::ranges::find(kForms, &product, [](const auto& form) { return form.first; });
  return found == std::end(kForms) ? nullptr : found->second;
}

}  // namespace tessera::kernels
