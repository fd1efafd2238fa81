#include "kernels/host/block_sparse/codelet.h"

#include <array>

#include "kernels/common/assign.h"
#include "kernels/host/block_sparse/cost.h"
#include "machine/model/machine.h"
#include "sparse/generate.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldSpec;
using program::Vertex;

constexpr std::array<FieldSpec, block_field::count> kFields = {{
    {"values"},
    {"row_begin"},
    {"columns", Access::in, 2},
    {"slots", Access::in, 4, false, true},
    {"x"},
    {"y", Access::inout},
    {"scalars"},
    {"bias", Access::in, 4, false, true},
    {.name = "scratch", .access = Access::inout, .alignment = 64, .scratch = true},
}};

constexpr auto kAssignFields = write_only(kFields, block_field::y);

constexpr std::array<std::string_view, 11> kParams = {
    "block_size", "transposed",    "activation", "kernel", "row_parts", "col_parts",
    "micro_rows", "micro_vectors", "panel_cols", "copy_x", "stream_y"};

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

constexpr uint32_t kWideCols = 37;
constexpr uint32_t kFewColumns = 3;

/// A random pattern of density 1/4 whose blocks overhang the matrix.
template <uint32_t block_size, Type type, BlockSchedule::Kernel kernel, bool transposed = false,
          bool reads_y = true>
Sample sample(uint32_t scale, uint64_t seed) {
  uint32_t rows = scale == 0 ? 0 : 8 + 29 * scale;
  uint32_t cols = scale == 0 ? 0 : 5 + 31 * scale;
  const uint32_t n = kernel == BlockSchedule::Kernel::wide ? kWideCols : kFewColumns;
  const sparse::PackedBlocks packed(
      sparse::generate_pattern({PatternKind::random, rows, cols, 0.25, block_size, seed}), type);
  BlockSchedule schedule;
  schedule.kernel = kernel;
  schedule.micro_rows = block_size == 4 ? 4 : 8;
  Sample s(reads_y ? block_spmm_codelet : block_spmm_assign_codelet);
  s.random(type, static_cast<uint32_t>(packed.blocks()), packed.order().block_values(), seed).packed();
  const sparse::BlockIndex& index = transposed ? packed.transposed_index() : packed.index();
  const auto blocks = static_cast<uint32_t>(index.blocks());
  s.values(Type::u32, 1, index.rows() + 1, [&](uint64_t i) { return index.row_begin[i]; }).packed();
  s.values(Type::u16, 1, blocks, [&](uint64_t i) { return index.column(i); }).packed();
  s.values(Type::u32, 1, transposed ? blocks : 0, [&](uint64_t i) { return index.slots[i]; }).packed();
  if (transposed) std::swap(rows, cols);
  s.random(Type::f32, cols, n, seed + 1);
  reads_y ? s.random(Type::f32, rows, n, seed + 2) : s.unset(Type::f32, rows, n);
  s.values(Type::f32, 1, 2, [](uint64_t i) { return i == 0 ? 0.75 : -0.5; }).packed();
  s.random(Type::f32, 1, rows, seed + 3).packed();
  s.unset(Type::f32, 1,
          static_cast<uint32_t>(block_scratch_floats(schedule, cols, block_size, n, transposed)))
      .packed();
  s.param(block_size).param(transposed).param(static_cast<int64_t>(Activation::relu));
  visit_block_knobs(schedule, [&](std::string_view, auto& knob) { s.param(static_cast<int64_t>(knob)); });
  // Sums of up to `cols` products below 1, in another order.
  s.tolerance({.absolute = (cols + 4) * epsilon_of(Type::f32)});
  return s.flops(2.0 * static_cast<double>(packed.non_zeros()) * n);
}

constexpr BlockSchedule::Kernel kWide = BlockSchedule::Kernel::wide;
constexpr BlockSchedule::Kernel kFewColumn = BlockSchedule::Kernel::few_columns;
constexpr NamedSample kSamples[] = {
    {"b4-f32-wide", sample<4, Type::f32, kWide>},
    {"b8-f32-wide", sample<8, Type::f32, kWide>},
    {"b16-f16-wide", sample<16, Type::f16, kWide>},
    {"b32-bf16-wide", sample<32, Type::bf16, kWide>},
    {"b4-bf16-narrow", sample<4, Type::bf16, kFewColumn>},
    {"b8-f16-narrow", sample<8, Type::f16, kFewColumn>},
    {"b16-f32-narrow", sample<16, Type::f32, kFewColumn>},
    {"b32-f32-narrow", sample<32, Type::f32, kFewColumn>},
    {"b4-f32-wide-transposed", sample<4, Type::f32, kWide, true>},
    {"b8-f16-wide-transposed", sample<8, Type::f16, kWide, true>},
    {"b16-f32-wide-transposed", sample<16, Type::f32, kWide, true>},
    {"b32-bf16-wide-transposed", sample<32, Type::bf16, kWide, true>},
    {"b4-f32-narrow-transposed", sample<4, Type::f32, kFewColumn, true>},
    {"b8-bf16-narrow-transposed", sample<8, Type::bf16, kFewColumn, true>},
    {"b16-f16-narrow-transposed", sample<16, Type::f16, kFewColumn, true>},
};
constexpr NamedSample kAssignSamples[] = {
    {"b16-f32-wide", sample<16, Type::f32, kWide, false, false>},
    {"b8-f16-narrow", sample<8, Type::f16, kFewColumn, false, false>},
    {"b4-f32-wide-transposed", sample<4, Type::f32, kWide, true, false>},
    {"b16-bf16-narrow-transposed", sample<16, Type::bf16, kFewColumn, true, false>},
};

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
  static constexpr ListedCodelet kListed[] = {{block_spmm_codelet, kSamples},
                                              {block_spmm_assign_codelet, kAssignSamples}};
  return kListed;
}

}  // namespace tessera::kernels
