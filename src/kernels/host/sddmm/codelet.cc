#include "kernels/host/sddmm/codelet.h"

#include <array>

#include "kernels/host/host_codelet.h"
#include "kernels/host/sddmm/cost.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;
using program::FieldView;
using program::Vertex;

constexpr auto kBlockFields = std::to_array<FieldSpec>({TESSERA_BLOCK_SDDMM_FIELDS(TESSERA_FIELD)});
constexpr auto kBlockAssignFields = write_only(kBlockFields, block_sddmm_field::dw);
constexpr std::string_view kBlockParams[] = {TESSERA_BLOCK_SDDMM_PARAMS(TESSERA_NAME)
                                                 TESSERA_BLOCK_SDDMM_KNOBS(TESSERA_NAME)};
constexpr auto kElementFields = std::to_array<FieldSpec>({TESSERA_ELEMENT_SDDMM_FIELDS(TESSERA_FIELD)});
constexpr auto kElementAssignFields = write_only(kElementFields, element_sddmm_field::dw);
constexpr std::string_view kElementParams[] = {TESSERA_ELEMENT_SDDMM_PARAMS(TESSERA_NAME)
                                                   TESSERA_ELEMENT_SDDMM_KNOBS(TESSERA_NAME)};

/// dy and dw begin `first_row` rows and `first_value` values after the whole matrices.
SddmmOperands operands_of(const FieldView& dy, const FieldView& x, const FieldView& dw,
                          const FieldView& scalars, const FieldView& scratch, int64_t first_row,
                          int64_t first_value) {
  SddmmOperands o;
  o.n = x.cols;
  o.dy = dy.matrix<const float>();
  if (o.dy.data != nullptr) o.dy.data -= first_row * o.dy.row_stride;
  o.x = x.matrix<const float>();
  o.dw = dw.as<float>();
  if (o.dw != nullptr) o.dw -= first_value;
  if (scalars.data != nullptr) {
    o.alpha = scalars.as<const float>()[0];
    o.beta = scalars.as<const float>()[1];
  }
  o.scratch = scratch.as<float>();
  return o;
}

BlockSddmmSlice block_slice_of(const Vertex& v) {
  using namespace block_sddmm_field;
  BlockSddmmSlice slice;
  BlockWeight& w = slice.weight;
  w.rows = v.fields[dy].rows;
  w.cols = v.fields[x].rows;
  w.block_size = static_cast<uint32_t>(v.params[block_sddmm_param::block_size]);
  w.column_type = v.fields[columns].type;
  w.row_begin = v.fields[row_begin].as<const uint32_t>();
  w.columns = v.fields[columns].data;
  if (!v.fields[slots].empty()) w.slots = v.fields[slots].as<const uint32_t>();
  w.capacity = v.fields[columns].cols;
  slice.block_row_end = v.fields[row_begin].cols - 1;
  const int64_t first_value = v.params[block_sddmm_param::first_block] * w.block_size * w.block_size;
  slice.operands = operands_of(v.fields[dy], v.fields[x], v.fields[dw], v.fields[scalars], v.fields[scratch],
                               0, first_value);
  slice.operands.clock = v.clock;
  slice.operands.helpers = v.helpers;
  take_knobs(v.params.subspan(block_sddmm_param::first_knob), slice.schedule,
             [](auto& schedule, const auto& visit) { visit_block_sddmm_knobs(schedule, visit); });
  return slice;
}

/// The slice's weight begins with its first chunk.
ElementSddmmSlice element_slice_of(const Vertex& v) {
  using namespace element_sddmm_field;
  ElementSddmmSlice slice;
  ElementWeight& w = slice.weight;
  w.cols = v.fields[x].rows;
  w.k_block = static_cast<uint32_t>(v.params[element_sddmm_param::k_block]);
  w.chunks = v.fields[chunk_begin].cols - 1;
  w.chunk_begin = v.fields[chunk_begin].as<const uint32_t>();
  w.rows = w.chunk_begin[w.chunks];
  w.blocks = v.fields[blocks].as<const sparse::ElementBlock>();
  if (w.blocks != nullptr)
    w.blocks += static_cast<uint64_t>(v.params[element_sddmm_param::first_chunk]) * w.k_blocks();
  w.row_groups = v.fields[row_groups].as<const sparse::RowGroup>();
  w.indices = v.fields[indices].as<const uint32_t>();
  w.capacity = static_cast<uint64_t>(v.params[element_sddmm_param::capacity]);
  slice.chunk_end = w.chunks;
  const int64_t first_value = v.params[element_sddmm_param::first_step] * sparse::kRowGroupLanes;
  slice.end_place = static_cast<uint64_t>(v.params[element_sddmm_param::end_step]) * sparse::kRowGroupLanes;
  slice.operands = operands_of(v.fields[dy], v.fields[x], v.fields[dw], v.fields[scalars], v.fields[scratch],
                               w.chunk_begin[0], first_value);
  slice.operands.clock = v.clock;
  slice.operands.helpers = v.helpers;
  take_knobs(v.params.subspan(element_sddmm_param::first_knob), slice.schedule,
             [](auto& schedule, const auto& visit) { visit_element_sddmm_knobs(schedule, visit); });
  return slice;
}

struct BlockSddmm {
  static BlockSddmmSlice slice_of(const Vertex& v) { return block_slice_of(v); }
  static float& beta(BlockSddmmSlice& slice) { return slice.operands.beta; }
  static void run(const BlockSddmmSlice& slice) { block_sddmm(slice); }
  static void run_reference(const BlockSddmmSlice& slice) { block_sddmm_reference(slice); }
  static program::PhaseTimes cost(const BlockSddmmSlice& slice, const machine::HostFigures& figures) {
    return block_sddmm_cost(slice, figures);
  }
};

struct ElementSddmm {
  static ElementSddmmSlice slice_of(const Vertex& v) { return element_slice_of(v); }
  static float& beta(ElementSddmmSlice& slice) { return slice.operands.beta; }
  static void run(const ElementSddmmSlice& slice) { element_sddmm(slice); }
  static void run_reference(const ElementSddmmSlice& slice) { element_sddmm_reference(slice); }
  static program::PhaseTimes cost(const ElementSddmmSlice& slice, const machine::HostFigures& figures) {
    return element_sddmm_cost(slice, figures);
  }
};

}  // namespace

constexpr program::Codelet block_sddmm_codelet =
    host_codelet<BlockSddmm, true>("block_sddmm", kBlockFields, kBlockParams, 4096);
constexpr program::Codelet block_sddmm_assign_codelet =
    host_codelet<BlockSddmm, false>("block_sddmm_assign", kBlockAssignFields, kBlockParams, 4096);
constexpr program::Codelet element_sddmm_codelet =
    host_codelet<ElementSddmm, true>("element_sddmm", kElementFields, kElementParams, 8192);
constexpr program::Codelet element_sddmm_assign_codelet =
    host_codelet<ElementSddmm, false>("element_sddmm_assign", kElementAssignFields, kElementParams, 8192);

std::span<const ListedCodelet> sddmm_codelets() {
  static constexpr ListedCodelet kListed[] = {block_sddmm_codelet, element_sddmm_codelet,
                                              block_sddmm_assign_codelet, element_sddmm_assign_codelet};
  return kListed;
}

}  // namespace tessera::kernels
