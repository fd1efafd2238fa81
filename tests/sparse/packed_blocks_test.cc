#include "sparse/blocks/packed_blocks.h"

#include <gtest/gtest.h>
#include <tessera/error.h>

#include <set>

#include "base/half.h"
#include "base/random.h"

namespace tessera::sparse {
namespace {

// 3 block rows, the middle one empty; the last row and column of blocks overhang.
Pattern sample_pattern(uint32_t b) { return {3 * b - 1, 2 * b - 3, b, {0, 2, 2, 3}, {0, 1, 1}}; }

std::vector<float> sample_values(const Pattern& pattern) {
  std::vector<float> values(pattern.blocks() * pattern.block_size * pattern.block_size);
  base::RandomStream(7).fill_symmetric(values);
  return values;
}

TEST(PackedBlocks, OrderIsAPermutationOfTheBlock) {
  for (uint32_t b : {4U, 8U, 16U, 32U}) {
    const BlockOrder order = order_of(b);
    std::set<uint32_t> seen;
    for (uint32_t r = 0; r < b; ++r) {
      for (uint32_t c = 0; c < b; ++c) seen.insert(order.offset(r, c));
    }
    EXPECT_EQ(seen.size(), size_t{b} * b);
    EXPECT_EQ(*seen.rbegin(), b * b - 1);
  }
}

TEST(PackedBlocks, ValuesStandWhereTheOrderSays) {
  for (uint32_t b : {4U, 8U, 16U, 32U}) {
    const Pattern pattern = sample_pattern(b);
    const std::vector<float> values = sample_values(pattern);
    const PackedBlocks packed(SparseMatrix{pattern, values}, Type::f32);
    const auto* stored = reinterpret_cast<const float*>(packed.values().data());
    EXPECT_EQ(stored[packed.order().offset(b - 1, 2)], values[(b - 1) * b + 2]);
    EXPECT_EQ(stored[2 * b * b + packed.order().offset(b - 1, 0)], 0) << "overhang";
  }
}

TEST(PackedBlocks, GetReturnsWhatSetRounded) {
  for (const Type type : {Type::f32, Type::f16, Type::bf16}) {
    for (uint32_t b : {4U, 8U, 16U, 32U}) {
      const Pattern pattern = sample_pattern(b);
      const std::vector<float> values = sample_values(pattern);
      PackedBlocks packed(pattern, type);
      packed.set_values(values);
      std::vector<float> back(values.size(), 9.0F);
      packed.get_values(back);
      for (uint64_t i = 0; i < pattern.blocks(); ++i) {
        for (uint32_t r = 0; r < b; ++r) {
          for (uint32_t c = 0; c < b; ++c) {
            const bool inside = !(i == 2 && r == b - 1) && !(i > 0 && c >= b - 3);
            const float value = values[(i * b + r) * b + c];
            const float want = type == Type::f16    ? base::to_float(base::to_half(value))
                               : type == Type::bf16 ? base::to_float(base::to_bfloat16(value))
                                                    : value;
            EXPECT_EQ(back[(i * b + r) * b + c], inside ? want : 0);
          }
        }
      }
    }
  }
}

TEST(PackedBlocks, CountsWhatLiesInsideTheMatrix) {
  const PackedBlocks packed(sample_pattern(8), Type::f32);
  EXPECT_EQ(packed.non_zeros(), 8U * 13 + 7 * 5);
  const PackedBlocks full(full_pattern(17, 19, 16), Type::bf16);
  EXPECT_EQ(full.non_zeros(), 17U * 19);
  EXPECT_EQ(full.index().column_type, Type::u16);
}

TEST(PackedBlocks, ColumnsOfFullPatternsAreNotInFewCacheSets) {
  const PackedBlocks full(full_pattern(64, 128, 8), Type::f32);  // rows of blocks of 4 KB
  const BlockIndex& index = full.index();
  std::set<uint32_t> slots, lines;
  for (uint32_t block = 0; block < full.blocks(); ++block) {
    slots.insert(index.slot(block));
    EXPECT_EQ(index.slot(block) / 16, block / 16) << "a row keeps its slots";
    if (index.column(block) == 3) lines.insert(index.slot(block) % 16);
  }
  EXPECT_EQ(slots.size(), full.blocks());
  EXPECT_EQ(lines.size(), 8U);
  EXPECT_TRUE(PackedBlocks(full_pattern(64, 136, 8), Type::f32).index().slots.empty());
}

TEST(PackedBlocks, LongRowsHaveWideColumns) {
  Pattern pattern{4, 4 * 0x10001, 4, {0, 1}, {0x10000}};
  const PackedBlocks packed(pattern, Type::f32);
  EXPECT_EQ(packed.index().column_type, Type::u32);
  EXPECT_EQ(packed.index().column(0), 0x10000U);
}

TEST(PackedBlocks, RejectsWhatTheKernelsLack) {
  EXPECT_THROW(PackedBlocks(Pattern{8, 8, 5, {0, 0, 0}, {}}, Type::f32), UsageError);
  EXPECT_THROW(PackedBlocks(Pattern{8, 8, 8, {0, 1}, {0}}, Type::f64), UsageError);
  EXPECT_THROW(PackedBlocks(Pattern{8, 8, 8, {0, 1}, {1}}, Type::f32), UsageError);
  PackedBlocks packed(Pattern{8, 8, 8, {0, 1}, {0}}, Type::f32);
  EXPECT_THROW(packed.set_values(std::vector<float>(63)), UsageError);
}

}  // namespace
}  // namespace tessera::sparse
