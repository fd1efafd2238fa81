#include "kernels/host/butterfly/codelet.h"

#include "kernels/host/butterfly/butterfly.h"
#include "kernels/host/butterfly/cost.h"
#include "kernels/host/butterfly/layout.h"
#include "kernels/host/host_codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;

constexpr FieldSpec kForwardFields[] = {TESSERA_BUTTERFLY_FORWARD_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kGradientsFields[] = {TESSERA_BUTTERFLY_GRADIENTS_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kParams[] = {TESSERA_BUTTERFLY_PARAMS(TESSERA_NAME)};

constexpr uint32_t kCodeBytes = 16384;

}  // namespace

constexpr program::Codelet butterfly_forward_codelet =
    host_codelet("butterfly_forward", kForwardFields, kParams, butterfly_forward_reference, butterfly_forward,
                 butterfly_forward_cost, kCodeBytes);
constexpr program::Codelet butterfly_gradients_codelet =
    host_codelet("butterfly_gradients", kGradientsFields, kParams, butterfly_gradients_reference,
                 butterfly_gradients, butterfly_gradients_cost, kCodeBytes);

size_t butterfly_forward_scratch(const ButterflyShape& shape, uint32_t /*samples*/) {
  return ButterflyColumns(shape, kButterflyLanes).size(shape.n());
}

size_t butterfly_gradients_scratch(const ButterflyShape& shape, uint32_t samples) {
  const uint32_t lanes = butterfly_gradient_lanes(shape, samples);
  return butterfly_gradient_buffers(shape) * ButterflyColumns(shape, lanes).size(shape.n());
}

std::span<const ListedCodelet> butterfly_codelets() {
  static constexpr ListedCodelet kListed[] = {butterfly_forward_codelet, butterfly_gradients_codelet};
  return kListed;
}

}  // namespace tessera::kernels
