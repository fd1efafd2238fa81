#include "kernels/host/block_sparse/codelet.h"

#include <array>

#include "kernels/host/block_sparse/cost.h"
#include "kernels/host/host_codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;
using program::Vertex;

constexpr auto kFields = std::to_array<FieldSpec>({TESSERA_BLOCK_SPMM_FIELDS(TESSERA_FIELD)});
constexpr auto kAssignFields = write_only(kFields, block_field::y);
constexpr std::string_view kParams[] = {TESSERA_BLOCK_SPMM_PARAMS(TESSERA_NAME)
                                            TESSERA_BLOCK_KNOBS(TESSERA_NAME)};

BlockSlice slice_of(const Vertex& v) {
  using namespace block_field;
  BlockSlice slice;
  slice.weight.rows = v.fields[y].rows;
  slice.weight.cols = v.fields[x].rows;
  slice.weight.block_size = static_cast<uint32_t>(v.params[block_param::block_size]);
  slice.weight.type = v.fields[values].type;
  slice.weight.column_type = v.fields[columns].type;
  slice.weight.values = v.fields[values].data;
  slice.weight.row_begin = v.fields[row_begin].as<const uint32_t>();
  slice.weight.columns = v.fields[columns].data;
  if (!v.fields[slots].empty()) slice.weight.slots = v.fields[slots].as<const uint32_t>();
  slice.weight.transposed = v.params[block_param::transposed] != 0;
  slice.weight.capacity = v.fields[columns].cols;
  slice.block_row_end = v.fields[row_begin].cols - 1;
  slice.col_end = v.fields[y].cols;
  slice.x = v.fields[x].matrix<const float>();
  slice.y = v.fields[y].matrix<float>();
  slice.epilogue = epilogue_of(v.fields[scalars], v.fields[bias], v.params[block_param::activation]);
  slice.scratch = v.fields[scratch].as<float>();
  slice.clock = v.clock;
  slice.helpers = v.helpers;
  take_knobs(v.params.subspan(block_param::first_knob), slice.schedule,
             [](auto& schedule, const auto& visit) { visit_block_knobs(schedule, visit); });
  return slice;
}

struct BlockSpmm {
  static BlockSlice slice_of(const Vertex& v) { return kernels::slice_of(v); }
  static float& beta(BlockSlice& slice) { return slice.epilogue.beta; }
  static void run(const BlockSlice& slice) { block_spmm(slice); }
  static void run_reference(const BlockSlice& slice) { block_spmm_reference(slice); }
  static program::PhaseTimes cost(const BlockSlice& slice, const machine::HostFigures& figures) {
    return block_cost(slice, figures);
  }
};

}  // namespace

constexpr program::Codelet block_spmm_codelet =
    host_codelet<BlockSpmm, true>("block_spmm", kFields, kParams, 4096);
constexpr program::Codelet block_spmm_assign_codelet =
    host_codelet<BlockSpmm, false>("block_spmm_assign", kAssignFields, kParams, 4096);

std::span<const ListedCodelet> block_sparse_codelets() {
  static constexpr ListedCodelet kListed[] = {block_spmm_codelet, block_spmm_assign_codelet};
  return kListed;
}

}  // namespace tessera::kernels
