#include "kernels/host/kronecker/codelet.h"

#include "kernels/host/kronecker/cost.h"
#include "kernels/host/kronecker/kronecker.h"
#include "kernels/host/kronecker/layout.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;

constexpr FieldSpec kForwardFields[] = {TESSERA_KRONECKER_FORWARD_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kGradientsFields[] = {TESSERA_KRONECKER_GRADIENTS_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kParams[] = {TESSERA_KRONECKER_PARAMS(TESSERA_NAME)};

}  // namespace

constexpr program::Codelet kronecker_forward_codelet = {
    .name = "kronecker_forward",
    .workers = program::Workers::whole_tile,
    .fields = kForwardFields,
    .params = kParams,
    .reference = kronecker_forward_reference,
    .simd = kronecker_forward,
    .cost = kronecker_forward_cost,
    .code_bytes = 4096,
    .runs_on = program::RunsOn::hosts,
};

constexpr program::Codelet kronecker_gradients_codelet = {
    .name = "kronecker_gradients",
    .workers = program::Workers::whole_tile,
    .fields = kGradientsFields,
    .params = kParams,
    .reference = kronecker_gradients_reference,
    .simd = kronecker_gradients,
    .cost = kronecker_gradients_cost,
    .code_bytes = 4096,
    .runs_on = program::RunsOn::hosts,
};

size_t kronecker_forward_scratch(const KroneckerFactor& factor) {
  return KroneckerColumns(factor).forward_total;
}
size_t kronecker_gradients_scratch(const KroneckerFactor& factor) { return KroneckerColumns(factor).total; }

std::span<const ListedCodelet> kronecker_codelets() {
  static constexpr ListedCodelet kListed[] = {kronecker_forward_codelet, kronecker_gradients_codelet};
  return kListed;
}

}  // namespace tessera::kernels
