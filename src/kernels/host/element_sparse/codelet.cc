#include "kernels/host/element_sparse/codelet.h"

#include <array>

#include "kernels/common/assign.h"
#include "kernels/host/element_sparse/cost.h"
#include "machine/model/machine.h"
#include "sparse/generate.h"

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
    {.name = "scratch", .access = Access::inout, .alignment = 64, .scratch = true},
}};

constexpr auto kAssignFields = write_only(kFields, element_field::y);

constexpr std::array<std::string_view, 9> kParams = {"k_block",    "first_chunk",  "capacity",
                                                     "activation", "row_parts",    "col_parts",
                                                     "panel_cols", "group_chunks", "stream_y"};

/// The slice's weight and its Y begin with its first chunk.
template <bool reads_y = true>
ElementSlice slice_of(const Vertex& v) {
  using namespace element_field;
  ElementSlice slice;
  ElementWeight& w = slice.weight;
  w.cols = v.fields[x].rows;
  w.k_block = static_cast<uint32_t>(v.params[element_param::k_block]);
  w.chunks = v.fields[chunk_begin].cols - 1;
  w.type = v.fields[values].type;
  w.values = v.fields[values].data;
  w.chunk_begin = v.fields[chunk_begin].as<const uint32_t>();
  w.rows = w.chunk_begin[w.chunks];
  w.blocks = v.fields[blocks].as<const sparse::ElementBlock>();
  if (w.blocks != nullptr)
    w.blocks += static_cast<uint64_t>(v.params[element_param::first_chunk]) * w.k_blocks();
  w.row_groups = v.fields[row_groups].as<const sparse::RowGroup>();
  w.indices = v.fields[indices].as<const uint32_t>();
  w.capacity = static_cast<uint64_t>(v.params[element_param::capacity]);
  slice.chunk_end = w.chunks;
  slice.col_end = v.fields[y].cols;
  slice.x = v.fields[x].matrix<const float>();
  slice.y = v.fields[y].matrix<float>();
  const auto first_row = static_cast<int64_t>(w.chunk_begin[0]);
  if (slice.y.data != nullptr) slice.y.data -= first_row * slice.y.row_stride;
  slice.epilogue = epilogue_of(v.fields[scalars], v.fields[bias], v.params[element_param::activation]);
  if (slice.epilogue.bias != nullptr) slice.epilogue.bias -= first_row;
  if (!reads_y) slice.epilogue.beta = 0;
  slice.scratch = v.fields[scratch].as<float>();
  slice.clock = v.clock;
  slice.helpers = v.helpers;
  size_t param = element_param::first_knob;
  visit_element_knobs(slice.schedule, [&](std::string_view, auto& knob) {
    knob = static_cast<std::remove_reference_t<decltype(knob)>>(v.params[param++]);
  });
  return slice;
}

template <bool reads_y>
void run(const Vertex& v) {
  element_spmm(slice_of<reads_y>(v));
}
template <bool reads_y>
void run_reference(const Vertex& v) {
  element_spmm_reference(slice_of<reads_y>(v));
}

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  return element_cost(slice_of(v), m.figures).scaled(m.clock_hz);
}

/// A power-law pattern of density 1/5, so that row lengths differ.
template <Type type, uint32_t n, bool reads_y = true>
Sample sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = scale == 0 ? 0 : 8 + 29 * scale;
  const uint32_t cols = scale == 0 ? 0 : 5 + 31 * scale;
  const sparse::PackedElements packed(generate({PatternKind::power_law, rows, cols, 0.2, 1, seed}), type,
                                      {.k_block = 64, .chunk_rows = 128});
  ElementSchedule schedule;
  schedule.panel_cols = n == 1 ? 1 : 64;
  const sparse::ElementIndex& index = packed.index();
  const auto steps = static_cast<uint32_t>(packed.value_count() / sparse::kRowGroupLanes);
  Sample s(reads_y ? element_spmm_codelet : element_spmm_assign_codelet);
  s.random(type, steps, sparse::kRowGroupLanes, seed).packed();
  s.values(Type::u32, 1, packed.chunks() + 1, [&](uint64_t i) { return index.chunk_begin[i]; }).packed();
  s.records(std::span(index.blocks)).records(std::span(index.row_groups));
  s.values(Type::u32, static_cast<uint32_t>(index.words.size() / sparse::kRowGroupLanes),
           sparse::kRowGroupLanes, [&](uint64_t i) { return index.words[i]; })
      .packed();
  s.random(Type::f32, cols, n, seed + 1);
  reads_y ? s.random(Type::f32, rows, n, seed + 2) : s.unset(Type::f32, rows, n);
  s.values(Type::f32, 1, 2, [](uint64_t i) { return i == 0 ? 0.75 : -0.5; }).packed();
  s.random(Type::f32, 1, rows, seed + 3).packed();
  s.unset(Type::f32, 1, static_cast<uint32_t>(element_scratch_floats(schedule, view_of(packed), n))).packed();
  s.param(packed.k_block()).param(0).param(0).param(static_cast<int64_t>(Activation::gelu));
  visit_element_knobs(schedule, [&](std::string_view, auto& knob) { s.param(static_cast<int64_t>(knob)); });
  // Sums of up to `cols` products below 1, in another order.
  s.tolerance({.absolute = (cols + 4) * epsilon_of(Type::f32)});
  return s.flops(2.0 * static_cast<double>(packed.nonzeros()) * n);
}

constexpr NamedSample kSamples[] = {
    {"f32-n37", sample<Type::f32, 37>}, {"f16-n64", sample<Type::f16, 64>},
    {"bf16-n5", sample<Type::bf16, 5>}, {"f32-n1", sample<Type::f32, 1>},
    {"bf16-n1", sample<Type::bf16, 1>}, {"f32-n8", sample<Type::f32, 8>},
};
constexpr NamedSample kAssignSamples[] = {
    {"f32-n37", sample<Type::f32, 37, false>},
    {"f16-n1", sample<Type::f16, 1, false>},
};

}  // namespace

constexpr program::Codelet element_spmm_codelet = {
    .name = "element_spmm",
    .workers = program::Workers::whole_tile,
    .fields = kFields,
    .params = kParams,
    .reference = run_reference<true>,
    .simd = run<true>,
    .cost = cost,
    .code_bytes = 8192,
    .runs_on = program::RunsOn::hosts,
};

constexpr program::Codelet element_spmm_assign_codelet = {
    .name = "element_spmm_assign",
    .workers = program::Workers::whole_tile,
    .fields = kAssignFields,
    .params = kParams,
    .reference = run_reference<false>,
    .simd = run<false>,
    .cost = cost,
    .code_bytes = 8192,
    .runs_on = program::RunsOn::hosts,
};

std::span<const ListedCodelet> element_sparse_codelets() {
  static constexpr ListedCodelet kListed[] = {{element_spmm_codelet, kSamples},
                                              {element_spmm_assign_codelet, kAssignSamples}};
  return kListed;
}

}  // namespace tessera::kernels
