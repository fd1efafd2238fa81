#include "kernels/host/block_sparse/codelet.h"
#include "kernels/host/block_sparse/cost.h"
#include "kernels/samples/list.h"
#include "kernels/samples/windows.h"
#include "sparse/generate.h"

namespace tessera::kernels {
namespace {

constexpr uint32_t kWideCols = 37, kWholeCols = 48;
constexpr uint32_t kFewColumns = 3;
constexpr uint32_t kBf16Cols = 85;

/// A random pattern of density 1/4 whose blocks overhang the matrix; in place, with whole columns of blocks,
/// X is not copied and sums are finished in registers.
template <uint32_t block_size, Type type, BlockSchedule::Kernel kernel, bool transposed = false,
          bool reads_y = true, bool sees = false, bool strided = false, bool in_place = false>
Sample sample(uint32_t scale, uint64_t seed) {
  const Window window = sample_window(strided);
  const uint32_t channels = (in_place ? block_size : 5) * scale;
  uint32_t rows = scale == 0 ? 0 : 8 + 29 * scale;
  const uint32_t all_cols = in_place ? 3 * block_size * scale : scale == 0 ? 0 : 5 + 31 * scale;
  uint32_t cols = sees ? channels * window.taps() : all_cols;
  const bool is_bf16 = kernel == BlockSchedule::Kernel::bf16;
  const Type activations = is_bf16 ? Type::bf16 : Type::f32;
  const uint32_t wide_cols = in_place && reads_y ? kWholeCols : kWideCols;
  const uint32_t n = is_bf16 ? kBf16Cols : kernel == BlockSchedule::Kernel::wide ? wide_cols : kFewColumns;
  const sparse::PackedBlocks packed(
      sparse::generate_pattern({PatternKind::random, rows, cols, 0.25, block_size, seed}), type);
  BlockSchedule schedule;
  schedule.kernel = kernel;
  schedule.micro_rows = block_size == 4 ? 4 : 8;
  schedule.copy_x = !in_place;
  Sample s(reads_y ? block_spmm_codelet : block_spmm_assign_codelet);
  s.random(type, static_cast<uint32_t>(packed.blocks()), packed.order().block_values(), seed).packed();
  const sparse::BlockIndex& index = transposed ? packed.transposed_index() : packed.index();
  const auto blocks = static_cast<uint32_t>(index.blocks());
  s.values(Type::u32, 1, index.rows() + 1, [&](uint64_t i) { return index.row_begin[i]; }).packed();
  s.values(Type::u16, 1, blocks, [&](uint64_t i) { return index.column(i); }).packed();
  s.values(Type::u32, 1, transposed ? blocks : 0, [&](uint64_t i) { return index.slots[i]; }).packed();
  if (transposed) std::swap(rows, cols);
  s.random(activations, sees ? channels : cols, sees ? kSampleImages * window.positions() : n, seed + 1);
  reads_y ? s.random(activations, rows, n, seed + 2) : s.unset(activations, rows, n);
  const double alpha = in_place ? 1 : 0.75, beta = !in_place ? -0.5 : reads_y ? 1 : 0;
  s.values(Type::f32, 1, 2, [&](uint64_t i) { return i == 0 ? alpha : beta; }).packed();
  s.random(Type::f32, 1, rows, seed + 3).packed();
  add_window(s, sees, strided);
  s.scratch(block_scratch_floats(schedule, cols, block_size, n, transposed));
  s.param(block_size)
      .param(transposed)
      .param(static_cast<int64_t>(in_place ? Activation::relu6 : Activation::relu));
  s.param(sees ? kFirstPosition : 0);
  visit_block_knobs(schedule, [&](std::string_view, auto& knob) { s.param(static_cast<int64_t>(knob)); });
  // Sums of up to `cols` products below 1, in another order.
  const double rounding = is_bf16 ? epsilon_of(Type::bf16) : 0;
  s.tolerance({.relative = rounding, .absolute = (cols + 4) * epsilon_of(Type::f32) + rounding * 0x1p-10});
  return s.flops(2.0 * static_cast<double>(packed.non_zeros()) * n);
}

constexpr BlockSchedule::Kernel kWide = BlockSchedule::Kernel::wide;
constexpr BlockSchedule::Kernel kFewColumn = BlockSchedule::Kernel::few_columns;
constexpr BlockSchedule::Kernel kBf16 = BlockSchedule::Kernel::bf16;
constexpr NamedSample block_spmm_uses[] = {
    {"b16-bf16", sample<16, Type::bf16, kBf16>},
    {"b32-bf16", sample<32, Type::bf16, kBf16>},
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
    {"b4-f32-wide-in-place", sample<4, Type::f32, kWide, false, true, false, false, true>},
};
constexpr NamedSample block_spmm_assign_uses[] = {
    {"b16-bf16", sample<16, Type::bf16, kBf16, false, false>},
    {"b16-f32-wide", sample<16, Type::f32, kWide, false, false>},
    {"b8-f16-narrow", sample<8, Type::f16, kFewColumn, false, false>},
    {"b4-f32-wide-transposed", sample<4, Type::f32, kWide, true, false>},
    {"b16-bf16-narrow-transposed", sample<16, Type::bf16, kFewColumn, true, false>},
    {"b4-f32-wide-seen", sample<4, Type::f32, kWide, false, false, true>},
    {"b8-f32-wide-seen-strided", sample<8, Type::f32, kWide, false, false, true, true>},
    {"b16-bf16-wide-seen", sample<16, Type::bf16, kWide, false, false, true>},
    {"b4-f32-wide-seen-in-place", sample<4, Type::f32, kWide, false, false, true, false, true>},
    {"b16-bf16-wide-seen-in-place", sample<16, Type::bf16, kWide, false, false, true, false, true>},
    {"b16-f32-wide-in-place", sample<16, Type::f32, kWide, false, false, false, false, true>},
    {"b8-f32-wide-transposed-in-place", sample<8, Type::f32, kWide, true, false, false, false, true>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(block_sparse, TESSERA_BLOCK_SPARSE_CODELETS)

}  // namespace tessera::kernels
