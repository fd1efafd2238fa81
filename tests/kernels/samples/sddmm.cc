#include "kernels/host/sddmm/codelet.h"
#include "kernels/samples/list.h"
#include "sparse/generate.h"

namespace tessera::kernels {
namespace {

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

/// A random pattern of density 1/4 whose blocks overhang the matrix. With slots, blocks
/// stand in another order.
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
  s.scratch(block_sddmm_scratch(schedule, view_of(packed), index.rows(), n, {}));
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
  s.scratch(element_sddmm_scratch(schedule, w, n));
  s.param(w.k_block).param(0).param(0).param(static_cast<int64_t>(steps)).param(0);
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
};

constexpr NamedSample element_sddmm_uses[] = {
    {"n1", element_sample<1, false>},
    {"n37", element_sample<37, true>},
    {"n100", element_sample<100, false>},
    {"n260", element_sample<260, true>},
};

constexpr NamedSample block_sddmm_assign_uses[] = {
    {"b8-n37", block_sample<8, 37, false, false>},
    {"b16-n48", block_sample<16, 48, false, false>},
};

constexpr NamedSample element_sddmm_assign_uses[] = {
    {"n1", element_sample<1, true, false>},
    {"n100", element_sample<100, true, false>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(sddmm, TESSERA_SDDMM_CODELETS)

}  // namespace tessera::kernels
