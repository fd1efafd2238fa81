#include "kernels/host/dense/codelet.h"

#include <array>

#include "kernels/host/dense/cost.h"
#include "kernels/host/dense/dense.h"
#include "kernels/host/dense/layout.h"
#include "kernels/host/host_codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;
using program::Vertex;

constexpr FieldSpec kForwardFields[] = {TESSERA_PANEL_FORWARD_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kForwardParams[] = {TESSERA_PANEL_FORWARD_PARAMS(TESSERA_NAME)};
constexpr FieldSpec kInputFields[] = {TESSERA_PANEL_INPUT_GRADIENT_FIELDS(TESSERA_FIELD)};
constexpr auto kWeightAddFields =
    std::to_array<FieldSpec>({TESSERA_PANEL_WEIGHT_GRADIENT_FIELDS(TESSERA_FIELD)});
constexpr auto kWeightFields = write_only(kWeightAddFields, panel_weight_gradient_field::dw);

template <bool adds>
void weight_gradient(const Vertex& v) {
  panel_weight_gradient(v, adds);
}
template <bool adds>
void weight_gradient_reference(const Vertex& v) {
  panel_weight_gradient_reference(v, adds);
}

constexpr uint32_t kCodeBytes = 4096;

}  // namespace

constexpr program::Codelet panel_forward_codelet =
    host_codelet("panel_forward", kForwardFields, kForwardParams, panel_forward_reference, panel_forward,
                 panel_forward_cost, kCodeBytes);
constexpr program::Codelet panel_input_gradient_codelet =
    host_codelet("panel_input_gradient", kInputFields, {}, panel_input_gradient_reference,
                 panel_input_gradient, panel_input_gradient_cost, kCodeBytes);
constexpr program::Codelet panel_weight_gradient_codelet =
    host_codelet("panel_weight_gradient", kWeightFields, {}, weight_gradient_reference<false>,
                 weight_gradient<false>, panel_weight_gradient_cost, kCodeBytes);
constexpr program::Codelet panel_weight_gradient_add_codelet =
    host_codelet("panel_weight_gradient_add", kWeightAddFields, {}, weight_gradient_reference<true>,
                 weight_gradient<true>, panel_weight_gradient_cost, kCodeBytes);

size_t panel_forward_scratch(uint32_t n, uint32_t k) { return DenseRowScratch(n, k, false).total; }
size_t panel_input_gradient_scratch(uint32_t n, uint32_t m) { return DenseRowScratch(n, m, true).total; }
size_t panel_weight_gradient_scratch(uint32_t n, uint32_t k, bool copies_x) {
  return DenseGradientScratch(n, k, copies_x).total;
}

std::span<const ListedCodelet> dense_codelets() {
  static constexpr ListedCodelet kListed[] = {panel_forward_codelet, panel_input_gradient_codelet,
                                              panel_weight_gradient_codelet,
                                              panel_weight_gradient_add_codelet};
  return kListed;
}

}  // namespace tessera::kernels
