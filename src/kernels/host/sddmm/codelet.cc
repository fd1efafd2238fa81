#include "kernels/host/sddmm/codelet.h"

#include <array>

#include "kernels/common/assign.h"
#include "kernels/host/sddmm/cost.h"
#include "machine/model/machine.h"

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

template <class Knob>
void take(int64_t param, Knob& knob) {
  knob = static_cast<Knob>(param);
}

template <bool reads_dw = true>
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
  if (!reads_dw) slice.operands.beta = 0;
  slice.operands.clock = v.clock;
  slice.operands.helpers = v.helpers;
  size_t param = block_sddmm_param::first_knob;
  visit_block_sddmm_knobs(slice.schedule,
                          [&](std::string_view, auto& knob) { take(v.params[param++], knob); });
  return slice;
}

/// The slice's weight begins with its first chunk.
template <bool reads_dw = true>
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
  if (!reads_dw) slice.operands.beta = 0;
  slice.operands.clock = v.clock;
  slice.operands.helpers = v.helpers;
  size_t param = element_sddmm_param::first_knob;
  visit_element_sddmm_knobs(slice.schedule,
                            [&](std::string_view, auto& knob) { take(v.params[param++], knob); });
  return slice;
}

template <bool reads_dw>
void run_blocks(const Vertex& v) {
  block_sddmm(block_slice_of<reads_dw>(v));
}
template <bool reads_dw>
void run_blocks_reference(const Vertex& v) {
  block_sddmm_reference(block_slice_of<reads_dw>(v));
}
program::PhaseTimes block_vertex_cost(const Vertex& v, const machine::Machine& m) {
  return block_sddmm_cost(block_slice_of(v), m.figures).scaled(m.clock_hz);
}

template <bool reads_dw>
void run_elements(const Vertex& v) {
  element_sddmm(element_slice_of<reads_dw>(v));
}
template <bool reads_dw>
void run_elements_reference(const Vertex& v) {
  element_sddmm_reference(element_slice_of<reads_dw>(v));
}
program::PhaseTimes element_vertex_cost(const Vertex& v, const machine::Machine& m) {
  return element_sddmm_cost(element_slice_of(v), m.figures).scaled(m.clock_hz);
}

}  // namespace

constexpr program::Codelet block_sddmm_codelet = {
    .name = "block_sddmm",
    .workers = program::Workers::whole_tile,
    .fields = kBlockFields,
    .params = kBlockParams,
    .reference = run_blocks_reference<true>,
    .simd = run_blocks<true>,
    .cost = block_vertex_cost,
    .code_bytes = 4096,
    .runs_on = program::RunsOn::hosts,
};

constexpr program::Codelet block_sddmm_assign_codelet = {
    .name = "block_sddmm_assign",
    .workers = program::Workers::whole_tile,
    .fields = kBlockAssignFields,
    .params = kBlockParams,
    .reference = run_blocks_reference<false>,
    .simd = run_blocks<false>,
    .cost = block_vertex_cost,
    .code_bytes = 4096,
    .runs_on = program::RunsOn::hosts,
};

constexpr program::Codelet element_sddmm_codelet = {
    .name = "element_sddmm",
    .workers = program::Workers::whole_tile,
    .fields = kElementFields,
    .params = kElementParams,
    .reference = run_elements_reference<true>,
    .simd = run_elements<true>,
    .cost = element_vertex_cost,
    .code_bytes = 8192,
    .runs_on = program::RunsOn::hosts,
};

constexpr program::Codelet element_sddmm_assign_codelet = {
    .name = "element_sddmm_assign",
    .workers = program::Workers::whole_tile,
    .fields = kElementAssignFields,
    .params = kElementParams,
    .reference = run_elements_reference<false>,
    .simd = run_elements<false>,
    .cost = element_vertex_cost,
    .code_bytes = 8192,
    .runs_on = program::RunsOn::hosts,
};

std::span<const ListedCodelet> sddmm_codelets() {
  static constexpr ListedCodelet kListed[] = {block_sddmm_codelet, element_sddmm_codelet,
                                              block_sddmm_assign_codelet, element_sddmm_assign_codelet};
  return kListed;
}

}  // namespace tessera::kernels
