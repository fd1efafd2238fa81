#include "kernels/host/element_sparse/codelet.h"

#include <array>

#include "kernels/host/element_sparse/cost.h"
#include "kernels/host/host_codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;
using program::Vertex;

constexpr auto kFields = std::to_array<FieldSpec>({TESSERA_ELEMENT_SPMM_FIELDS(TESSERA_FIELD)});
constexpr auto kAssignFields = write_only(kFields, element_field::y);
constexpr std::string_view kParams[] = {TESSERA_ELEMENT_SPMM_PARAMS(TESSERA_NAME)
                                            TESSERA_ELEMENT_KNOBS(TESSERA_NAME)};

/// The slice's weight and its Y begin with its first chunk.
ElementSlice slice_of(const Vertex& v) {
  using namespace element_field;
  ElementSlice slice;
  ElementWeight& w = slice.weight;
  w.cols = v.fields[x].rows;
  w.k_block = static_cast<uint32_t>(v.params[element_param::k_block]);
  w.chunks = v.fields[chunk_begin].cols - 1;
  w.type = v.fields[values].type;
  w.values = v.fields[values].data;
  w.chunk_begin = v.fields[chunk_begin].as<const uint32_t>();
  w.rows = w.chunk_begin[w.chunks];
  w.blocks = v.fields[blocks].as<const sparse::ElementBlock>();
  if (w.blocks != nullptr)
    w.blocks += static_cast<uint64_t>(v.params[element_param::first_chunk]) * w.k_blocks();
  w.row_groups = v.fields[row_groups].as<const sparse::RowGroup>();
  w.indices = v.fields[indices].as<const uint32_t>();
  w.capacity = static_cast<uint64_t>(v.params[element_param::capacity]);
  slice.chunk_end = w.chunks;
  slice.col_end = v.fields[y].cols;
  slice.x = v.fields[x].matrix<const float>();
  slice.y = v.fields[y].matrix<float>();
  const auto first_row = static_cast<int64_t>(w.chunk_begin[0]);
  if (slice.y.data != nullptr) slice.y.data -= first_row * slice.y.row_stride;
  slice.epilogue = epilogue_of(v.fields[scalars], v.fields[bias], v.params[element_param::activation]);
  if (slice.epilogue.bias != nullptr) slice.epilogue.bias -= first_row;
  slice.scratch = v.fields[scratch].as<float>();
  slice.clock = v.clock;
  slice.helpers = v.helpers;
  take_knobs(v.params.subspan(element_param::first_knob), slice.schedule,
             [](auto& schedule, const auto& visit) { visit_element_knobs(schedule, visit); });
  return slice;
}

struct ElementSpmm {
  static ElementSlice slice_of(const Vertex& v) { return kernels::slice_of(v); }
  static float& beta(ElementSlice& slice) { return slice.epilogue.beta; }
  static void run(const ElementSlice& slice) { element_spmm(slice); }
  static void run_reference(const ElementSlice& slice) { element_spmm_reference(slice); }
  static program::PhaseTimes cost(const ElementSlice& slice, const machine::HostFigures& figures) {
    return element_cost(slice, figures);
  }
};

}  // namespace

constexpr program::Codelet element_spmm_codelet =
    host_codelet<ElementSpmm, true>("element_spmm", kFields, kParams, 8192);
constexpr program::Codelet element_spmm_assign_codelet =
    host_codelet<ElementSpmm, false>("element_spmm_assign", kAssignFields, kParams, 8192);

std::span<const ListedCodelet> element_sparse_codelets() {
  static constexpr ListedCodelet kListed[] = {element_spmm_codelet, element_spmm_assign_codelet};
  return kListed;
}

}  // namespace tessera::kernels
