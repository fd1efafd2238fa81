#include "base/integer_types.h"
#include "kernels/map/gather/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

template <Type type, Type index, uint32_t panel_rows = 1>
Sample gather_sample(uint32_t scale, uint64_t seed) {
  const uint32_t source_rows = 7 * scale, panels = (source_rows + panel_rows - 1) / panel_rows;
  const uint32_t rows = 5 * scale;
  const uint32_t cols = 19 * scale;
  Sample sample(gather_rows_codelet);
  sample.values(index, rows, 1,
                [&](uint64_t i) { return static_cast<double>((i * 11 + seed) % source_rows); });
  if (is_integer(type))
    sample.values(type, panels, cols * panel_rows, [](uint64_t i) { return static_cast<double>(i) - 20; });
  else
    sample.random(type, panels, cols * panel_rows, seed, 1, true);
  sample.unset(type, rows, cols);
  return sample.param(panel_rows).param(source_rows);
}

/// Some rows are listed several times; one is skipped.
template <Type index, uint32_t panel_rows>
Sample added_rows_sample(const program::Codelet& codelet, uint32_t scale, uint64_t seed) {
  const uint32_t out_rows = 5 * scale, rows = 11 * scale, cols = 13 * scale;
  Sample sample(codelet);
  sample.values(index, rows, 1, [&](uint64_t i) { return static_cast<double>((i * 7 + seed) % out_rows); });
  sample.random(Type::f32, rows, cols, seed);
  const uint32_t panels = (out_rows + panel_rows - 1) / panel_rows;
  if (&codelet == &add_rows_codelet)
    sample.random(Type::f32, panels, cols * panel_rows, seed + 1);
  else
    sample.unset(Type::f32, panels, cols * panel_rows);
  return sample.param(2).param(panel_rows).param(out_rows);
}

template <Type index, uint32_t panel_rows = 1>
Sample scatter_add_sample(uint32_t scale, uint64_t seed) {
  return added_rows_sample<index, panel_rows>(scatter_add_rows_codelet, scale, seed);
}

template <Type index, uint32_t panel_rows = 1>
Sample add_rows_sample(uint32_t scale, uint64_t seed) {
  return added_rows_sample<index, panel_rows>(add_rows_codelet, scale, seed);
}

template <Type type>
Sample copy_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 3 * scale;
  const uint32_t cols = 37 * scale;
  Sample sample(copy_codelet);
  return sample.random(type, rows, cols, seed, 1, true).unset(type, rows, cols);
}

template <Type type>
Sample transpose_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 7 * scale;
  const uint32_t cols = 19 * scale;
  Sample sample(transpose_codelet);
  return sample.random(type, cols, rows, seed, 1, true).unset(type, rows, cols);
}

template <Type type>
Sample gather_elements_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = 7 * scale;
  const uint32_t cols = 13 * scale;
  Sample sample(gather_elements_codelet);
  sample.random(type, 5 * scale, 10 * scale, seed, 1, true);
  sample.values(Type::u32, rows, cols, [&](uint64_t i) {
    return static_cast<double>((i * 7919 + seed) % (uint64_t{50} * scale * scale));
  });
  return sample.unset(type, rows, cols);
}

/// A part with the second third of a table's rows, and a list of rows of all thirds.
struct PartSizes {
  uint32_t rows, cols, count;

  explicit PartSizes(uint32_t scale) : rows(5 * scale), cols(7 * scale), count(11 * scale) {}
  uint32_t first() const { return rows; }
  uint32_t table_rows() const { return 3 * rows; }
};

void add_list_of_rows(Sample& sample, const PartSizes& of, uint64_t seed) {
  sample.values(Type::u32, of.count, 1,
                [&](uint64_t i) { return static_cast<double>((i * 7 + seed) % of.table_rows()); });
}

template <Type type>
Sample rows_of_part_sample(uint32_t scale, uint64_t seed) {
  const PartSizes of(scale);
  Sample sample(rows_of_part_codelet);
  add_list_of_rows(sample, of, seed);
  sample.random(type, scale == 0 ? 0 : 1, of.rows * of.cols, seed, 1, true);
  sample.unset(type, of.count, of.cols);
  return sample.param(of.cols).param(of.first()).param(of.table_rows());
}

template <Type type>
Sample join_rows_sample(uint32_t scale, uint64_t seed) {
  Sample sample(join_rows_codelet);
  sample.random(type, scale == 0 ? 0 : 2 + scale, 7 * 5 * scale, seed, 1, true);
  return sample.unset(type, 5 * scale, 7);
}

template <Type values, bool lies_in_rows>
Sample add_rows_to_part_sample(uint32_t scale, uint64_t seed) {
  const PartSizes of(scale);
  Sample sample(add_rows_to_part_codelet);
  add_list_of_rows(sample, of, seed);
  sample.random(values, of.count, of.cols, seed);
  if (lies_in_rows)
    sample.random(Type::f32, of.rows, of.cols, seed + 1);
  else
    sample.random(Type::f32, scale == 0 ? 0 : 1, of.rows * of.cols, seed + 1);
  return sample.param(of.first() + 1).param(of.first()).param(of.table_rows());
}

constexpr NamedSample gather_rows_uses[] = {
    {"f32-u32", gather_sample<Type::f32, Type::u32>},
    {"f16-u16", gather_sample<Type::f16, Type::u16>},
    {"bf16-u32", gather_sample<Type::bf16, Type::u32>},
    {"i32-u32", gather_sample<Type::i32, Type::u32>},
    {"f32-panels", gather_sample<Type::f32, Type::u32, 16>},
    {"f16-panels", gather_sample<Type::f16, Type::u32, 16>},
};
constexpr NamedSample scatter_add_rows_uses[] = {
    {"u32", scatter_add_sample<Type::u32>},
    {"u16", scatter_add_sample<Type::u16>},
    {"panels", scatter_add_sample<Type::u32, 16>},
};
constexpr NamedSample add_rows_uses[] = {
    {"u32", add_rows_sample<Type::u32>},
    {"u16", add_rows_sample<Type::u16>},
    {"panels", add_rows_sample<Type::u32, 16>},
};
constexpr NamedSample gather_elements_uses[] = {{"f32", gather_elements_sample<Type::f32>},
                                                {"f16", gather_elements_sample<Type::f16>},
                                                {"bf16", gather_elements_sample<Type::bf16>}};
constexpr NamedSample copy_uses[] = {
    {"f32", copy_sample<Type::f32>}, {"f16", copy_sample<Type::f16>}, {"bf16", copy_sample<Type::bf16>}};

constexpr NamedSample transpose_uses[] = {{"f32", transpose_sample<Type::f32>},
                                          {"f16", transpose_sample<Type::f16>},
                                          {"bf16", transpose_sample<Type::bf16>}};
constexpr NamedSample rows_of_part_uses[] = {{"f32", rows_of_part_sample<Type::f32>},
                                             {"f16", rows_of_part_sample<Type::f16>}};
constexpr NamedSample join_rows_uses[] = {{"f32", join_rows_sample<Type::f32>},
                                          {"f16", join_rows_sample<Type::f16>}};
constexpr NamedSample add_rows_to_part_uses[] = {{"f32", add_rows_to_part_sample<Type::f32, false>},
                                                 {"f16", add_rows_to_part_sample<Type::f16, true>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(gather, TESSERA_GATHER_CODELETS)

}  // namespace tessera::kernels
