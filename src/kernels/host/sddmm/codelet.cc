#include "kernels/host/sddmm/codelet.h"

#include <array>

#include "kernels/common/assign.h"
#include "kernels/host/sddmm/cost.h"
#include "machine/model/machine.h"
#include "sparse/generate.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldSpec;
using program::FieldView;
using program::Vertex;

constexpr std::array<FieldSpec, block_sddmm_field::count> kBlockFields = {{
    {"row_begin"},
    {"columns", Access::in, 2},
    {"slots", Access::in, 4, false, true},
    {"dy"},
    {"x"},
    {.name = "dw", .access = Access::inout, .scattered = true},
    {"scalars"},
    {.name = "scratch", .access = Access::inout, .alignment = 64, .scratch = true},
}};

constexpr std::array<FieldSpec, element_sddmm_field::count> kElementFields = {{
    {"chunk_begin"},
    {"blocks", Access::in, 8},
    {"bundles", Access::in, 2},
    {"indices"},
    {"dy"},
    {"x"},
    {.name = "dw", .access = Access::inout, .scattered = true},
    {"scalars"},
    {.name = "scratch", .access = Access::inout, .alignment = 64, .scratch = true},
}};

constexpr auto kBlockAssignFields = write_only(kBlockFields, block_sddmm_field::dw);
constexpr auto kElementAssignFields = write_only(kElementFields, element_sddmm_field::dw);

constexpr std::array<std::string_view, 5> kBlockParams = {"block_size", "first_block", "row_parts",
                                                          "group_rows", "panel_cols"};
constexpr std::array<std::string_view, 8> kElementParams = {"k_block",    "first_chunk", "first_step",
                                                            "end_step",   "capacity",    "row_parts",
                                                            "panel_cols", "group_panels"};

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

uint32_t rows_at(uint32_t scale) { return scale == 0 ? 0 : 8 + 29 * scale; }
uint32_t cols_at(uint32_t scale) { return scale == 0 ? 0 : 5 + 31 * scale; }

/// Alpha and beta; beta is 0 if dW is only written.
void add_scalars(Sample& s, double beta) {
  s.values(Type::f32, 1, 2, [beta](uint64_t i) { return i == 0 ? 0.75 : beta; }).packed();
}

/// dW before the product: anything if beta is 0, in places in use and others alike.
void add_gradient(Sample& s, uint64_t rows, uint32_t cols, bool is_read, uint64_t seed) {
  if (is_read)
    s.random(Type::f32, static_cast<uint32_t>(rows), cols, seed).packed();
  else
    s.unset(Type::f32, static_cast<uint32_t>(rows), cols).packed();
}

/// A random pattern of density 1/4 whose blocks overhang the matrix. With slots, blocks are in another order.
template <uint32_t block_size, uint32_t n, bool with_slots = false, bool reads_dw = true>
Sample block_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = rows_at(scale), cols = cols_at(scale);
  const sparse::PackedBlocks packed(
      sparse::generate_pattern({PatternKind::random, rows, cols, 0.25, block_size, seed}), Type::f32);
  const sparse::BlockIndex& index = packed.index();
  const auto blocks = static_cast<uint32_t>(index.blocks());
  BlockSddmmSchedule schedule;
  schedule.group_rows = 64;
  schedule.panel_cols = 48;
  Sample s(reads_dw ? block_sddmm_codelet : block_sddmm_assign_codelet);
  s.values(Type::u32, 1, index.rows() + 1, [&](uint64_t i) { return index.row_begin[i]; }).packed();
  s.values(Type::u16, 1, blocks, [&](uint64_t i) { return index.column(i); }).packed();
  s.values(Type::u32, 1, with_slots ? blocks : 0, [&](uint64_t i) { return blocks - 1 - i; }).packed();
  s.random(Type::f32, rows, n, seed + 1).random(Type::f32, cols, n, seed + 2);
  add_gradient(s, blocks, packed.order().block_values(), reads_dw && !with_slots, seed + 3);
  add_scalars(s, with_slots ? 0 : -0.5);
  const size_t scratch = block_sddmm_scratch(schedule, view_of(packed), index.rows(), n, {});
  s.unset(Type::f32, 1, static_cast<uint32_t>(scratch)).packed();
  s.param(block_size).param(0);
  visit_block_sddmm_knobs(schedule,
                          [&](std::string_view, auto& knob) { s.param(static_cast<int64_t>(knob)); });
  // Sums of n products below 1, in another order.
  s.tolerance({.absolute = (n + 4) * epsilon_of(Type::f32)});
  return s.flops(2.0 * static_cast<double>(packed.non_zeros()) * n);
}

/// A power-law pattern of density 1/5, so that row lengths differ.
template <uint32_t n, bool accumulates, bool reads_dw = true>
Sample element_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = rows_at(scale), cols = cols_at(scale);
  const sparse::PackedElements packed(generate({PatternKind::power_law, rows, cols, 0.2, 1, seed}), Type::f32,
                                      {.k_block = 64, .chunk_rows = 128});
  ElementSddmmSchedule schedule;
  schedule.panel_cols = n > 100 ? 128 : 32;
  const ElementWeight w = view_of(packed);
  const uint64_t blocks = uint64_t{w.chunks} * w.k_blocks();
  const sparse::ElementBlock& end = w.blocks[blocks];
  Sample s(reads_dw ? element_sddmm_codelet : element_sddmm_assign_codelet);
  s.values(Type::u32, 1, w.chunks + 1, [&](uint64_t i) { return w.chunk_begin[i]; }).packed();
  s.records(std::span(w.blocks, blocks + 1)).records(std::span(w.row_groups, end.row_group));
  s.values(Type::u32, static_cast<uint32_t>(end.index / sparse::kRowGroupLanes), sparse::kRowGroupLanes,
           [&](uint64_t i) { return w.indices[i]; })
      .packed();
  s.random(Type::f32, rows, n, seed + 1).random(Type::f32, cols, n, seed + 2);
  const uint64_t steps = end.value / sparse::kRowGroupLanes + 3;  // the last ones belong to no task
  add_gradient(s, steps, sparse::kRowGroupLanes, reads_dw && accumulates, seed + 3);
  add_scalars(s, accumulates ? -0.5 : 0);
  s.unset(Type::f32, 1, static_cast<uint32_t>(element_sddmm_scratch(schedule, w, n))).packed();
  s.param(w.k_block).param(0).param(0).param(static_cast<int64_t>(steps)).param(0);
  visit_element_sddmm_knobs(schedule,
                            [&](std::string_view, auto& knob) { s.param(static_cast<int64_t>(knob)); });
  // Sums of n products below 1, in another order.
  s.tolerance({.absolute = (n + 4) * epsilon_of(Type::f32)});
  return s.flops(2.0 * static_cast<double>(packed.nonzeros()) * n);
}

constexpr NamedSample kBlockSamples[] = {
    {"b4-n37", block_sample<4, 37>},
    {"b8-n100", block_sample<8, 100>},
    {"b16-n48", block_sample<16, 48>},
    {"b32-n1", block_sample<32, 1>},
    {"b4-n64-slots", block_sample<4, 64, true>},
    {"b16-n17-slots", block_sample<16, 17, true>},
};

constexpr NamedSample kElementSamples[] = {
    {"n1", element_sample<1, false>},
    {"n37", element_sample<37, true>},
    {"n100", element_sample<100, false>},
    {"n260", element_sample<260, true>},
};

constexpr NamedSample kBlockAssignSamples[] = {
    {"b8-n37", block_sample<8, 37, false, false>},
    {"b16-n48", block_sample<16, 48, false, false>},
};

constexpr NamedSample kElementAssignSamples[] = {
    {"n1", element_sample<1, true, false>},
    {"n100", element_sample<100, true, false>},
};

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
  static constexpr ListedCodelet kListed[] = {{block_sddmm_codelet, kBlockSamples},
                                              {element_sddmm_codelet, kElementSamples},
                                              {block_sddmm_assign_codelet, kBlockAssignSamples},
                                              {element_sddmm_assign_codelet, kElementAssignSamples}};
  return kListed;
}

}  // namespace tessera::kernels
