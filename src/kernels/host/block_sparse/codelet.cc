#include "kernels/host/block_sparse/codelet.h"

#include <array>

#include "kernels/common/assign.h"
#include "kernels/host/block_sparse/cost.h"
#include "machine/model/machine.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;
using program::Vertex;

constexpr auto kFields = std::to_array<FieldSpec>({TESSERA_BLOCK_SPMM_FIELDS(TESSERA_FIELD)});
constexpr auto kAssignFields = write_only(kFields, block_field::y);
constexpr std::string_view kParams[] = {TESSERA_BLOCK_SPMM_PARAMS(TESSERA_NAME)
                                            TESSERA_BLOCK_KNOBS(TESSERA_NAME)};

template <bool reads_y = true>
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
  if (!reads_y) slice.epilogue.beta = 0;
  slice.scratch = v.fields[scratch].as<float>();
  slice.clock = v.clock;
  slice.helpers = v.helpers;
  size_t param = block_param::first_knob;
  visit_block_knobs(slice.schedule, [&](std::string_view, auto& knob) {
    knob = static_cast<std::remove_reference_t<decltype(knob)>>(v.params[param++]);
  });
  return slice;
}

template <bool reads_y>
void run(const Vertex& v) {
  block_spmm(slice_of<reads_y>(v));
}
template <bool reads_y>
void run_reference(const Vertex& v) {
  block_spmm_reference(slice_of<reads_y>(v));
}

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  return block_cost(slice_of(v), m.figures).scaled(m.clock_hz);
}

}  // namespace

constexpr program::Codelet block_spmm_codelet = {
    .name = "block_spmm",
    .workers = program::Workers::whole_tile,
    .fields = kFields,
    .params = kParams,
    .reference = run_reference<true>,
    .simd = run<true>,
    .cost = cost,
    .code_bytes = 4096,
    .runs_on = program::RunsOn::hosts,
};

constexpr program::Codelet block_spmm_assign_codelet = {
    .name = "block_spmm_assign",
    .workers = program::Workers::whole_tile,
    .fields = kAssignFields,
    .params = kParams,
    .reference = run_reference<false>,
    .simd = run<false>,
    .cost = cost,
    .code_bytes = 4096,
    .runs_on = program::RunsOn::hosts,
};

std::span<const ListedCodelet> block_sparse_codelets() {
  static constexpr ListedCodelet kListed[] = {block_spmm_codelet, block_spmm_assign_codelet};
  return kListed;
}

}  // namespace tessera::kernels
