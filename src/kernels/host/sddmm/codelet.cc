#include "kernels/host/sddmm/codelet.h"

#include "kernels/host/knobs.h"
#include "kernels/host/sddmm/cost.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Vertex;

/// dy and dw begin `first_row` rows and `first_value` values after the whole matrices.
SddmmOperands operands_of(const Vertex& v, const FieldView& dy, const FieldView& x, const FieldView& dw,
                          const FieldView& scalars, const FieldView& window, const FieldView& scratch,
                          int64_t first_row, int64_t first_value, int64_t first_col) {
  SddmmOperands o;
  o.clock = v.clock;
  o.helpers = v.helpers;
  o.n = window.empty() ? x.cols : dy.cols;
  o.seen = seen_of(x, window, first_col);
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

/// Rows of X.
uint32_t rows_of_x(const FieldView& x, const FieldView& window) {
  const Seen seen = seen_of(x, window, 0);
  return seen ? seen.rows() : x.rows;
}

BlockSddmmSlice block_slice_of(const Vertex& v) {
  using namespace block_sddmm_field;
  BlockSddmmSlice slice;
  BlockWeight& w = slice.weight;
  w.rows = v.fields[dy].rows;
  w.cols = rows_of_x(v.fields[x], v.fields[window]);
  w.block_size = static_cast<uint32_t>(v.params[block_sddmm_param::block_size]);
  w.column_type = v.fields[columns].type;
  w.row_begin = v.fields[row_begin].as<const uint32_t>();
  w.columns = v.fields[columns].data;
  if (!v.fields[slots].empty()) w.slots = v.fields[slots].as<const uint32_t>();
  w.capacity = v.fields[columns].cols;
  slice.block_row_end = v.fields[row_begin].cols - 1;
  const int64_t first_value = v.params[block_sddmm_param::first_block] * w.block_size * w.block_size;
  slice.operands =
      operands_of(v, v.fields[dy], v.fields[x], v.fields[dw], v.fields[scalars], v.fields[window],
                  v.fields[scratch], 0, first_value, v.params[block_sddmm_param::first_col]);
  take_knobs(v.params.subspan(block_sddmm_param::row_parts), slice.schedule,
             [](auto& schedule, const auto& visit) { visit_block_sddmm_knobs(schedule, visit); });
  return slice;
}

/// The slice's weight begins with its first chunk.
ElementSddmmSlice element_slice_of(const Vertex& v) {
  using namespace element_sddmm_field;
  ElementSddmmSlice slice;
  ElementWeight& w = slice.weight;
  w.cols = rows_of_x(v.fields[x], v.fields[window]);
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
  slice.operands =
      operands_of(v, v.fields[dy], v.fields[x], v.fields[dw], v.fields[scalars], v.fields[window],
                  v.fields[scratch], w.chunk_begin[0], first_value, v.params[element_sddmm_param::first_col]);
  take_knobs(v.params.subspan(element_sddmm_param::row_parts), slice.schedule,
             [](auto& schedule, const auto& visit) { visit_element_sddmm_knobs(schedule, visit); });
  return slice;
}

}  // namespace

TESSERA_DEFINE_SLICES(block_sddmm, block_slice_of, operands.beta, block_sddmm_cost)
TESSERA_DEFINE_SLICES(element_sddmm, element_slice_of, operands.beta, element_sddmm_cost)

TESSERA_DEFINE_FAMILY(sddmm, TESSERA_SDDMM_CODELETS, TESSERA_HOST_CODELET)

}  // namespace tessera::kernels
