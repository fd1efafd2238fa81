#include "kernels/element_sparse/codelet.h"

#include <array>

#include "kernels/element_sparse/cost.h"
#include "machine/machine.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldSpec;
using program::Vertex;

constexpr std::array<FieldSpec, element_field::count> kFields = {{
    {"values"},
    {"chunk_begin"},
    {"blocks", Access::in, 8},
    {"bundles", Access::in, 2},
    {"indices"},
    {"x"},
    {"y", Access::inout},
    {"scalars"},
    {"bias", Access::in, 4, false, true},
    {"scratch", Access::inout, 64},
}};

constexpr std::array<std::string_view, 7> kParams = {
    "k_block", "first_chunk", "activation", "row_parts", "col_parts", "panel_cols", "group_chunks"};

/// The share's weight begins with its first chunk, and so does its Y.
ElementShare share_of(const Vertex& v) {
  using namespace element_field;
  ElementShare share;
  ElementWeight& w = share.weight;
  w.cols = v.fields[x].rows;
  w.k_block = static_cast<uint32_t>(v.params[element_param::k_block]);
  w.chunks = v.fields[chunk_begin].cols - 1;
  w.type = v.fields[values].type;
  w.values = v.fields[values].data;
  w.chunk_begin = v.fields[chunk_begin].as<const uint32_t>();
  w.rows = w.chunk_begin[w.chunks];
  w.blocks = v.fields[blocks].as<const sparse::ElementBlock>() +
             static_cast<uint64_t>(v.params[element_param::first_chunk]) * w.k_blocks();
  w.bundles = v.fields[bundles].as<const sparse::ElementBundle>();
  w.indices = v.fields[indices].as<const uint32_t>();
  share.chunk_end = w.chunks;
  share.col_end = v.fields[y].cols;
  share.x = v.fields[x].matrix<const float>();
  share.y = v.fields[y].matrix<float>();
  const auto first_row = static_cast<int64_t>(w.chunk_begin[0]);
  if (share.y.data != nullptr) share.y.data -= first_row * share.y.row_stride;
  if (v.fields[scalars].data != nullptr) {
    share.epilogue.alpha = v.fields[scalars].as<const float>()[0];
    share.epilogue.beta = v.fields[scalars].as<const float>()[1];
  }
  if (!v.fields[bias].empty() && v.fields[bias].data != nullptr)
    share.epilogue.bias = v.fields[bias].as<const float>() - first_row;
  share.epilogue.activation = static_cast<Activation>(v.params[element_param::activation]);
  share.scratch = v.fields[scratch].as<float>();
  share.clock = v.clock;
  size_t param = element_param::first_knob;
  visit_element_knobs(share.cut, [&](std::string_view, auto& knob) {
    knob = static_cast<std::remove_reference_t<decltype(knob)>>(v.params[param++]);
  });
  return share;
}

void run(const Vertex& v) { element_spmm(share_of(v)); }
void run_reference(const Vertex& v) { element_spmm_reference(share_of(v)); }

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  return element_cost(share_of(v), m.figures).scaled(m.clock_hz);
}

}  // namespace

const program::Codelet element_spmm_codelet = {
    .name = "element_spmm",
    .workers = program::Workers::whole_tile,
    .fields = kFields,
    .params = kParams,
    .reference = run_reference,
    .simd = run,
    .cost = cost,
    .code_bytes = 8192,
};

}  // namespace tessera::kernels
