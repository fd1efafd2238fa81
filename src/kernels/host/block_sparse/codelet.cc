#include "kernels/host/block_sparse/codelet.h"

#include "kernels/host/block_sparse/cost.h"
#include "kernels/host/knobs.h"

namespace tessera::kernels {
namespace {

using program::Vertex;

BlockSlice slice_of(const Vertex& v) {
  using namespace block_spmm_field;
  BlockSlice slice;
  slice.weight.rows = v.fields[y].rows;
  slice.seen = seen_of(v.fields[x], v.fields[window], v.params[block_spmm_param::first_col]);
  slice.weight.cols = slice.seen ? slice.seen.rows() : v.fields[x].rows;
  slice.weight.block_size = static_cast<uint32_t>(v.params[block_spmm_param::block_size]);
  slice.weight.type = v.fields[values].type;
  slice.weight.column_type = v.fields[columns].type;
  slice.weight.values = v.fields[values].data;
  slice.weight.row_begin = v.fields[row_begin].as<const uint32_t>();
  slice.weight.columns = v.fields[columns].data;
  if (!v.fields[slots].empty()) slice.weight.slots = v.fields[slots].as<const uint32_t>();
  slice.weight.transposed = v.params[block_spmm_param::transposed] != 0;
  slice.weight.capacity = v.fields[columns].cols;
  slice.block_row_end = v.fields[row_begin].cols - 1;
  slice.col_end = v.fields[y].cols;
  slice.x = v.fields[x].matrix<const float>();
  slice.y = v.fields[y].matrix<float>();
  slice.x_bf16 = v.fields[x].matrix<const base::Bfloat16>();
  slice.y_bf16 = v.fields[y].matrix<base::Bfloat16>();
  slice.epilogue = epilogue_of(v.fields[scalars], v.fields[bias], v.params[block_spmm_param::activation]);
  slice.scratch = v.fields[scratch].as<float>();
  slice.clock = v.clock;
  slice.helpers = v.helpers;
  take_knobs(v.params.subspan(block_spmm_param::kernel), slice.schedule,
             [](auto& schedule, const auto& visit) { visit_block_knobs(schedule, visit); });
  return slice;
}

}  // namespace

TESSERA_DEFINE_SLICES(block_spmm, slice_of, epilogue.beta, block_cost)

TESSERA_DEFINE_FAMILY(block_sparse, TESSERA_BLOCK_SPARSE_CODELETS, TESSERA_HOST_CODELET)

}  // namespace tessera::kernels
