#include "kernels/host/sddmm/codelet.h"
#include "kernels/samples/list.h"
#include "kernels/samples/windows.h"
#include "sparse/generate.h"

namespace tessera::kernels {
namespace {

uint32_t rows_at(uint32_t scale) { return scale == 0 ? 0 : 8 + 29 * scale; }
uint32_t cols_at(uint32_t scale) { return scale == 0 ? 0 : 5 + 31 * scale; }

/// The form of x: X, or images with its elements under a window.
enum class Given : uint8_t { matrix, images, strided_images, images_of_vectors };

Window window_of_given(Given given) {
  return given == Given::images_of_vectors ? sample_window_of_vectors()
                                           : sample_window(given == Given::strided_images);
}
uint32_t channels_at(uint32_t scale) { return 5 * scale; }
uint32_t x_rows_at(uint32_t scale, Given given) {
  return given == Given::matrix ? cols_at(scale) : channels_at(scale) * window_of_given(given).taps();
}

void add_x(Sample& s, Given given, uint32_t scale, uint32_t n, uint64_t seed) {
  if (given == Given::matrix)
    s.random(Type::f32, cols_at(scale), n, seed);
  else
    s.random(Type::f32, channels_at(scale), kSampleImages * window_of_given(given).positions(), seed);
}

/// Alpha and beta; beta is 0 if dW is only written.
void add_scalars(Sample& s, double beta) {
  s.values(Type::f32, 1, 2, [beta](uint64_t i) { return i == 0 ? 0.75 : beta; }).packed();
}

/// dW before the product: if beta is 0, any values in all places, used or not.
void add_gradient(Sample& s, uint64_t rows, uint32_t cols, bool is_read, uint64_t seed) {
  if (is_read)
    s.random(Type::f32, static_cast<uint32_t>(rows), cols, seed).packed();
  else
    s.unset(Type::f32, static_cast<uint32_t>(rows), cols).packed();
}

/// A random pattern of density 1/4 whose blocks overhang the matrix. With slots, blocks
/// stand in another order.
template <uint32_t block_size, uint32_t n, bool with_slots = false, bool reads_dw = true,
          Given given = Given::matrix, uint32_t first_col = 0>
Sample block_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = rows_at(scale), cols = x_rows_at(scale, given);
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
  s.random(Type::f32, rows, n, seed + 1);
  add_x(s, given, scale, n, seed + 2);
  add_gradient(s, blocks, packed.order().block_values(), reads_dw && !with_slots, seed + 3);
  add_scalars(s, with_slots ? 0 : -0.5);
  add_window(s, given != Given::matrix, window_of_given(given));
  s.scratch(
      block_sddmm_scratch(schedule, view_of(packed), index.rows(), n, {.sees = given != Given::matrix}));
  s.param(block_size).param(0).param(first_col);
  visit_block_sddmm_knobs(schedule,
                          [&](std::string_view, auto& knob) { s.param(static_cast<int64_t>(knob)); });
  // Sums of n products below 1, in another order.
  s.tolerance({.absolute = (n + 4) * epsilon_of(Type::f32)});
  return s.flops(2.0 * static_cast<double>(packed.non_zeros()) * n);
}

/// A power-law pattern of density 1/5, so that row lengths differ.
template <uint32_t n, bool accumulates, bool reads_dw = true, Given given = Given::matrix,
          uint32_t first_col = 0>
Sample element_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = rows_at(scale), cols = x_rows_at(scale, given);
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
  s.random(Type::f32, rows, n, seed + 1);
  add_x(s, given, scale, n, seed + 2);
  const uint64_t steps = end.value / sparse::kRowGroupLanes + 3;  // the last ones belong to no task
  add_gradient(s, steps, sparse::kRowGroupLanes, reads_dw && accumulates, seed + 3);
  add_scalars(s, accumulates ? -0.5 : 0);
  add_window(s, given != Given::matrix, window_of_given(given));
  const Window window = window_of_given(given);
  const Seen seen{window, channels_at(scale), kSampleImages * window.positions(), first_col};
  s.scratch(element_sddmm_scratch(schedule, w, n, given == Given::matrix ? Seen{} : seen));
  s.param(w.k_block).param(0).param(0).param(static_cast<int64_t>(steps)).param(0).param(first_col);
  visit_element_sddmm_knobs(schedule,
                            [&](std::string_view, auto& knob) { s.param(static_cast<int64_t>(knob)); });
  // Sums of n products below 1, in another order.
  s.tolerance({.absolute = (n + 4) * epsilon_of(Type::f32)});
  return s.flops(2.0 * static_cast<double>(packed.nonzeros()) * n);
}

constexpr NamedSample block_sddmm_uses[] = {
    {"b4-n37", block_sample<4, 37>},
    {"b8-n100", block_sample<8, 100>},
    {"b16-n48", block_sample<16, 48>},
    {"b32-n1", block_sample<32, 1>},
    {"b4-n64-slots", block_sample<4, 64, true>},
    {"b16-n17-slots", block_sample<16, 17, true>},
    {"b4-n101-seen", block_sample<4, 101, false, true, Given::images>},
    {"b16-n198-seen", block_sample<16, 198, false, true, Given::images>},
    {"b8-n40-seen-strided", block_sample<8, 40, false, true, Given::strided_images>},
};

constexpr NamedSample element_sddmm_uses[] = {
    {"n1", element_sample<1, false>},
    {"n37", element_sample<37, true>},
    {"n100", element_sample<100, false>},
    {"n260", element_sample<260, true>},
    {"n198-seen", element_sample<198, true, true, Given::images>},
    {"n40-seen-strided", element_sample<40, false, true, Given::strided_images>},
    {"n192-seen-vectors", element_sample<192, true, true, Given::images_of_vectors>},
};

constexpr NamedSample block_sddmm_assign_uses[] = {
    {"b8-n37", block_sample<8, 37, false, false>},
    {"b16-n48", block_sample<16, 48, false, false>},
    {"b16-n54-seen-strided", block_sample<16, 54, false, false, Given::strided_images>},
    {"b8-n90-seen-part", block_sample<8, 90, false, false, Given::images, 7>},
};

constexpr NamedSample element_sddmm_assign_uses[] = {
    {"n1", element_sample<1, true, false>},
    {"n100", element_sample<100, true, false>},
    {"n101-seen", element_sample<101, true, false, Given::images>},
    {"n64-seen-vectors", element_sample<64, true, false, Given::images_of_vectors, 128>},
    {"n90-seen-part", element_sample<90, true, false, Given::images, 7>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(sddmm, TESSERA_SDDMM_CODELETS)

}  // namespace tessera::kernels
