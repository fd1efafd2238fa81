#include "kernels/host/element_sparse/codelet.h"

#include "kernels/host/element_sparse/cost.h"
#include "kernels/host/knobs.h"

namespace tessera::kernels {
namespace {

using program::Vertex;

/// The slice's weight and its Y begin with its first chunk.
ElementSlice slice_of(const Vertex& v) {
  using namespace element_spmm_field;
  ElementSlice slice;
  ElementWeight& w = slice.weight;
  slice.seen = seen_of(v.fields[x], v.fields[window], v.params[element_spmm_param::first_col]);
  w.cols = slice.seen ? slice.seen.rows() : v.fields[x].rows;
  w.k_block = static_cast<uint32_t>(v.params[element_spmm_param::k_block]);
  w.chunks = v.fields[chunk_begin].cols - 1;
  w.type = v.fields[values].type;
  w.values = v.fields[values].data;
  w.chunk_begin = v.fields[chunk_begin].as<const uint32_t>();
  w.rows = w.chunk_begin[w.chunks];
  w.blocks = v.fields[blocks].as<const sparse::ElementBlock>();
  if (w.blocks != nullptr)
    w.blocks += static_cast<uint64_t>(v.params[element_spmm_param::first_chunk]) * w.k_blocks();
  w.row_groups = v.fields[row_groups].as<const sparse::RowGroup>();
  w.indices = v.fields[indices].as<const uint32_t>();
  w.capacity = static_cast<uint64_t>(v.params[element_spmm_param::capacity]);
  slice.chunk_end = w.chunks;
  slice.col_end = v.fields[y].cols;
  slice.x = v.fields[x].matrix<const float>();
  slice.y = v.fields[y].matrix<float>();
  const auto first_row = static_cast<int64_t>(w.chunk_begin[0]);
  if (slice.y.data != nullptr) slice.y.data -= first_row * slice.y.row_stride;
  slice.epilogue = epilogue_of(v.fields[scalars], v.fields[bias], v.params[element_spmm_param::activation]);
  if (slice.epilogue.bias != nullptr) slice.epilogue.bias -= first_row;
  slice.scratch = v.fields[scratch].as<float>();
  slice.clock = v.clock;
  slice.helpers = v.helpers;
  take_knobs(v.params.subspan(element_spmm_param::row_parts), slice.schedule,
             [](auto& schedule, const auto& visit) { visit_element_knobs(schedule, visit); });
  return slice;
}

}  // namespace

TESSERA_DEFINE_SLICES(element_spmm, slice_of, epilogue.beta, element_cost)

TESSERA_DEFINE_FAMILY(element_sparse, TESSERA_ELEMENT_SPARSE_CODELETS, TESSERA_HOST_CODELET)

}  // namespace tessera::kernels
