#include "kernels/host/element_sparse/codelet.h"
#include "kernels/samples/list.h"
#include "kernels/samples/windows.h"
#include "sparse/generate.h"

namespace tessera::kernels {
namespace {

/// A power-law pattern of density 1/5, so that row lengths differ.
enum class Columns : uint8_t { matrix, seen, seen_strided, seen_vectors };

template <Type type, uint32_t n, bool reads_y = true, Columns columns = Columns::matrix>
Sample sample(uint32_t scale, uint64_t seed) {
  constexpr bool kSees = columns != Columns::matrix;
  const Window window = columns == Columns::seen_vectors ? sample_window_of_vectors()
                                                         : sample_window(columns == Columns::seen_strided);
  const uint32_t channels = 5 * scale;
  const uint32_t rows = scale == 0 ? 0 : 8 + 29 * scale;
  const uint32_t cols = kSees ? channels * window.taps() : scale == 0 ? 0 : 5 + 31 * scale;
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
  s.random(Type::f32, kSees ? channels : cols, kSees ? kSampleImages * window.positions() : n, seed + 1);
  reads_y ? s.random(Type::f32, rows, n, seed + 2) : s.unset(Type::f32, rows, n);
  s.values(Type::f32, 1, 2, [](uint64_t i) { return i == 0 ? 0.75 : -0.5; }).packed();
  s.random(Type::f32, 1, rows, seed + 3).packed();
  add_window(s, kSees, window);
  const Seen seen{window, channels, kSampleImages * window.positions(), kFirstPosition};
  s.scratch(element_scratch_floats(schedule, view_of(packed), n, kSees ? seen : Seen{}));
  s.param(packed.k_block()).param(0).param(0).param(static_cast<int64_t>(Activation::gelu));
  s.param(kSees ? kFirstPosition : 0);
  visit_element_knobs(schedule, [&](std::string_view, auto& knob) { s.param(static_cast<int64_t>(knob)); });
  // Sums of up to `cols` products below 1, in another order.
  s.tolerance({.absolute = (cols + 4) * epsilon_of(Type::f32)});
  return s.flops(2.0 * static_cast<double>(packed.nonzeros()) * n);
}

constexpr NamedSample element_spmm_uses[] = {
    {"f32-n37", sample<Type::f32, 37>}, {"f16-n64", sample<Type::f16, 64>},
    {"bf16-n5", sample<Type::bf16, 5>}, {"f32-n1", sample<Type::f32, 1>},
    {"bf16-n1", sample<Type::bf16, 1>}, {"f32-n8", sample<Type::f32, 8>},
};
constexpr NamedSample element_spmm_assign_uses[] = {
    {"f32-n37", sample<Type::f32, 37, false>},
    {"f16-n1", sample<Type::f16, 1, false>},
    {"f32-n101-seen", sample<Type::f32, 101, false, Columns::seen>},
    {"f32-n40-seen-strided", sample<Type::f32, 40, false, Columns::seen_strided>},
    {"bf16-n6-seen", sample<Type::bf16, 6, false, Columns::seen>},
    {"f32-n185-seen-vectors", sample<Type::f32, 185, false, Columns::seen_vectors>},
};

}  // namespace

TESSERA_DEFINE_SAMPLES(element_sparse, TESSERA_ELEMENT_SPARSE_CODELETS)

}  // namespace tessera::kernels
