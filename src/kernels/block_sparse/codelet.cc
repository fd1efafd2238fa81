#include "kernels/block_sparse/codelet.h"

#include <array>

#include "kernels/block_sparse/cost.h"
#include "machine/machine.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldSpec;
using program::Vertex;

constexpr std::array<FieldSpec, block_field::count> kFields = {{
    {"values"},
    {"row_begin"},
    {"columns", Access::in, 2},
    {"x"},
    {"y", Access::inout},
    {"scalars"},
    {"bias", Access::in, 4, false, true},
    {"scratch", Access::inout, 64},
}};

constexpr std::array<std::string_view, 10> kParams = {
    "block_size", "activation",   "kernel",     "row_parts", "col_parts",
    "tile_rows",  "tile_vectors", "panel_cols", "pack_x",    "stream_y"};

BlockShare share_of(const Vertex& v) {
  using namespace block_field;
  BlockShare share;
  share.weight.rows = v.fields[y].rows;
  share.weight.cols = v.fields[x].rows;
  share.weight.block_size = static_cast<uint32_t>(v.params[block_param::block_size]);
  share.weight.type = v.fields[values].type;
  share.weight.column_type = v.fields[columns].type;
  share.weight.values = v.fields[values].data;
  share.weight.row_begin = v.fields[row_begin].as<const uint32_t>();
  share.weight.columns = v.fields[columns].data;
  share.block_row_end = v.fields[row_begin].cols - 1;
  share.col_end = v.fields[y].cols;
  share.x = v.fields[x].matrix<const float>();
  share.y = v.fields[y].matrix<float>();
  if (v.fields[scalars].data != nullptr) {
    share.epilogue.alpha = v.fields[scalars].as<const float>()[0];
    share.epilogue.beta = v.fields[scalars].as<const float>()[1];
  }
  share.epilogue.bias = v.fields[bias].empty() ? nullptr : v.fields[bias].as<const float>();
  share.epilogue.activation = static_cast<Activation>(v.params[block_param::activation]);
  share.scratch = v.fields[scratch].as<float>();
  share.clock = v.clock;
  size_t param = block_param::first_knob;
  visit_block_knobs(share.cut, [&](std::string_view, auto& knob) {
    knob = static_cast<std::remove_reference_t<decltype(knob)>>(v.params[param++]);
  });
  return share;
}

void run(const Vertex& v) { block_spmm(share_of(v)); }
void run_reference(const Vertex& v) { block_spmm_reference(share_of(v)); }

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  return block_cost(share_of(v), m.figures).scaled(m.clock_hz);
}

}  // namespace

const program::Codelet block_spmm_codelet = {
    .name = "block_spmm",
    .workers = program::Workers::whole_tile,
    .fields = kFields,
    .params = kParams,
    .reference = run_reference,
    .simd = run,
    .cost = cost,
    .code_bytes = 4096,
};

}  // namespace tessera::kernels
