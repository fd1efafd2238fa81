#include "kernels/host/weight_rows/codelet.h"
#include "kernels/samples/list.h"
#include "sparse/blocks/packed_blocks.h"
#include "sparse/elements/packed_elements.h"
#include "sparse/generate.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kSkippedRow = 2, kRowPart = 1, kRowParts = 2;

uint32_t table_rows_at(uint32_t scale) { return scale == 0 ? 0 : 8 + 29 * scale; }
uint32_t table_cols_at(uint32_t scale) { return scale == 0 ? 0 : 5 + 31 * scale; }

/// Rows, some of which are listed several times.
void add_list(Sample& s, uint32_t scale, uint64_t seed) {
  s.values(Type::u32, 7 * scale, 1,
           [&](uint64_t i) { return static_cast<double>((i * 11 + seed) % table_rows_at(scale)); });
}

void add_values(Sample& s, Type type, const sparse::PackedElements& packed, uint64_t seed) {
  const uint64_t steps = packed.value_count() / sparse::kRowGroupLanes;
  s.random(type, static_cast<uint32_t>(steps), sparse::kRowGroupLanes, seed).packed();
}

void add_values(Sample& s, Type type, const sparse::PackedBlocks& packed, uint64_t seed) {
  s.random(type, static_cast<uint32_t>(packed.blocks()), packed.order().block_values(), seed).packed();
}

void add_index(Sample& s, const sparse::PackedElements& packed) {
  const sparse::ElementIndex& index = packed.index();
  s.values(Type::u32, 1, packed.chunks() + 1, [&](uint64_t i) { return index.chunk_begin[i]; }).packed();
  s.records(std::span(index.blocks)).records(std::span(index.row_groups));
  s.values(Type::u32, static_cast<uint32_t>(index.words.size() / sparse::kRowGroupLanes),
           sparse::kRowGroupLanes, [&](uint64_t i) { return index.words[i]; })
      .packed();
}

/// With slots, blocks stand in another order.
void add_index(Sample& s, const sparse::PackedBlocks& packed, bool with_slots) {
  const sparse::BlockIndex& index = packed.index();
  const auto blocks = static_cast<uint32_t>(index.blocks());
  s.values(Type::u32, 1, index.rows() + 1, [&](uint64_t i) { return index.row_begin[i]; }).packed();
  s.values(Type::u16, 1, blocks, [&](uint64_t i) { return index.column(i); }).packed();
  s.values(Type::u32, 1, with_slots ? blocks : 0, [&](uint64_t i) { return blocks - 1 - i; }).packed();
}

/// A power-law pattern of density 1/5, so that row lengths differ, in several chunks and k-blocks.
sparse::PackedElements elements_at(uint32_t scale, Type type, uint64_t seed) {
  return {generate({PatternKind::power_law, table_rows_at(scale), table_cols_at(scale), 0.2, 1, seed}),
          type,
          {.k_block = 64, .chunk_rows = 40}};
}

/// A random pattern of density 1/4 whose blocks overhang the matrix.
sparse::PackedBlocks blocks_at(uint32_t scale, uint32_t block_size, Type type, uint64_t seed) {
  return {sparse::generate_pattern(
              {PatternKind::random, table_rows_at(scale), table_cols_at(scale), 0.25, block_size, seed}),
          type};
}

template <Type type>
Sample taken_of_elements(uint32_t scale, uint64_t seed) {
  const sparse::PackedElements packed = elements_at(scale, type, seed);
  Sample s(take_element_rows_codelet);
  add_list(s, scale, seed);
  add_values(s, type, packed, seed + 1);
  add_index(s, packed);
  s.unset(type, 7 * scale, table_cols_at(scale));
  return s.param(packed.k_block()).param(table_rows_at(scale));
}

template <Type type, uint32_t block_size, bool with_slots = false>
Sample taken_of_blocks(uint32_t scale, uint64_t seed) {
  const sparse::PackedBlocks packed = blocks_at(scale, block_size, type, seed);
  Sample s(take_block_rows_codelet);
  add_list(s, scale, seed);
  add_values(s, type, packed, seed + 1);
  add_index(s, packed, with_slots);
  s.unset(type, 7 * scale, table_cols_at(scale));
  return s.param(block_size).param(table_rows_at(scale));
}

Sample added_to_elements(uint32_t scale, uint64_t seed) {
  const sparse::PackedElements packed = elements_at(scale, Type::f32, seed);
  Sample s(add_element_rows_codelet);
  add_list(s, scale, seed);
  s.random(Type::f32, 7 * scale, table_cols_at(scale), seed + 1);
  add_index(s, packed);
  add_values(s, Type::f32, packed, seed + 2);
  s.param(packed.k_block()).param(table_rows_at(scale));
  return s.param(kSkippedRow).param(kRowPart).param(kRowParts);
}

template <uint32_t block_size, bool with_slots = false>
Sample added_to_blocks(uint32_t scale, uint64_t seed) {
  const sparse::PackedBlocks packed = blocks_at(scale, block_size, Type::f32, seed);
  Sample s(add_block_rows_codelet);
  add_list(s, scale, seed);
  s.random(Type::f32, 7 * scale, table_cols_at(scale), seed + 1);
  add_index(s, packed, with_slots);
  add_values(s, Type::f32, packed, seed + 2);
  s.param(block_size).param(table_rows_at(scale));
  return s.param(kSkippedRow).param(kRowPart).param(kRowParts);
}

constexpr NamedSample take_element_rows_uses[] = {{"f32", taken_of_elements<Type::f32>},
                                                  {"f16", taken_of_elements<Type::f16>},
                                                  {"bf16", taken_of_elements<Type::bf16>}};
constexpr NamedSample take_block_rows_uses[] = {{"f32-b4", taken_of_blocks<Type::f32, 4>},
                                                {"f32-b16-slots", taken_of_blocks<Type::f32, 16, true>},
                                                {"f16-b8", taken_of_blocks<Type::f16, 8>},
                                                {"bf16-b32", taken_of_blocks<Type::bf16, 32>}};
constexpr NamedSample add_element_rows_uses[] = {{"f32", added_to_elements}};
constexpr NamedSample add_block_rows_uses[] = {
    {"b4", added_to_blocks<4>}, {"b8-slots", added_to_blocks<8, true>}, {"b16", added_to_blocks<16>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(weight_rows, TESSERA_WEIGHT_ROWS_CODELETS)

}  // namespace tessera::kernels
