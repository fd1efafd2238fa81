#include "kernels/tile/spiking/codelet.h"

#include "kernels/tile/spiking/cost.h"
#include "kernels/tile/spiking/reference.h"
#include "kernels/tile/tile_codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;

constexpr FieldSpec kForwardFields[] = {TESSERA_SPIKING_TILE_FORWARD_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kListsFields[] = {TESSERA_SPIKING_TILE_LISTS_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kBackwardFields[] = {TESSERA_SPIKING_TILE_BACKWARD_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kRowsFields[] = {TESSERA_SPIKING_TILE_ROWS_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kParams[] = {TESSERA_SPIKING_TILE_PARAMS(TESSERA_NAME)};
constexpr std::string_view kListsParams[] = {TESSERA_SPIKING_TILE_LISTS_PARAMS(TESSERA_NAME)};
constexpr std::string_view kRowsParams[] = {TESSERA_SPIKING_TILE_ROWS_PARAMS(TESSERA_NAME)};

}  // namespace

constexpr program::Codelet spiking_tile_forward_codelet =
    tile_codelet("spiking_tile_forward", kForwardFields, kParams,
                 {spiking_tile_forward_reference, nullptr, spiking_tile_forward_cost}, 900);
constexpr program::Codelet spiking_tile_lists_codelet =
    integer_codelet("spiking_tile_lists", kListsFields, kListsParams,
                    {spiking_tile_lists_reference, nullptr, spiking_tile_lists_cost}, 700);
constexpr program::Codelet spiking_tile_backward_codelet =
    tile_codelet("spiking_tile_backward", kBackwardFields, kParams,
                 {spiking_tile_backward_reference, nullptr, spiking_tile_backward_cost}, 900);
constexpr program::Codelet spiking_tile_rows_codelet =
    tile_codelet("spiking_tile_rows", kRowsFields, kRowsParams,
                 {spiking_tile_rows_reference, nullptr, spiking_tile_rows_cost}, 700);

std::span<const ListedCodelet> tile_spiking_codelets() {
  static constexpr ListedCodelet kListed[] = {spiking_tile_forward_codelet, spiking_tile_lists_codelet,
                                              spiking_tile_backward_codelet, spiking_tile_rows_codelet};
  return kListed;
}

}  // namespace tessera::kernels
