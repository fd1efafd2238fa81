// Packed formats: round trips, agreement with weights, and stable orders.
#include "sparse/packed_format.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/io.h>

#include <vector>

#include "base/checksum.h"
#include "base/random.h"
#include "sparse/generate.h"
#include "sparse/pattern.h"
#include "support/error_of.h"

namespace tessera::sparse {
namespace {

using test::error_of;
using test::says;

/// Distinct values, with 0 in the overhang.
std::vector<float> numbers_for(const Pattern& pattern) {
  const uint32_t b = pattern.block_size;
  std::vector<float> values(pattern.blocks() * b * b);
  for (uint32_t row = 0; row < pattern.block_rows(); ++row)
    for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1]; ++i)
      for (uint32_t r = 0; r < b && row * b + r < pattern.rows; ++r)
        for (uint32_t c = 0; c < b && pattern.col_indices[i] * b + c < pattern.cols; ++c) {
          const uint64_t at = (i * b + r) * b + c;
          values[at] = static_cast<float>(at + 1);
        }
  return values;
}

std::vector<float> permuted(PackedFormat from, PackedFormat to, const Pattern& pattern,
                            const std::vector<float>& source) {
  std::vector<float> target(packed_size(to, pattern), -1.0F);
  permute_packed(from, to, pattern, source, target);
  return target;
}

template <class Packed>
std::vector<float> packed_by(const Packed& weight, const std::vector<float>& values, uint64_t size) {
  std::vector<float> packed(size);
  weight.pack(values, packed);
  return packed;
}

TEST(PackedFormat, OfSingleElementsIsThatOfTheirWeightAndGoesBack) {
  for (uint64_t seed = 0; seed < 24; ++seed) {
    base::RandomSequence random{base::RandomStream(seed)};
    const uint32_t rows = random.below(4) == 0 ? random.below(3) : 1 + random.below(700);
    const uint32_t cols = random.below(4) == 0 ? random.below(3) : 1 + random.below(700);
    const auto kind = std::vector{PatternKind::random, PatternKind::power_law}[random.below(2)];
    const Pattern pattern = generate_pattern({kind, rows, cols, 0.02 + 0.1 * random.below(4), 1, seed});
    SCOPED_TRACE(fmt::format("seed {}: {} x {}, {} non-zeros", seed, rows, cols, pattern.blocks()));
    const std::vector<float> values = numbers_for(pattern);
    const PackedElements weight({pattern, values}, Type::f32);
    const uint64_t cells = uint64_t{rows} * cols;
    const bool is_sparse = 40 * pattern.blocks() < 3 * cells || (cols < 384 && 8 * pattern.blocks() < cells);
    const PackedFormat format = is_sparse ? PackedFormat::whole_row_groups : PackedFormat::row_groups;
    EXPECT_EQ(format_of(weight), format);
    const auto packed = permuted(PackedFormat::values, format, pattern, values);
    EXPECT_EQ(packed, packed_by(weight, values, weight.places()));
    EXPECT_EQ(permuted(format, PackedFormat::values, pattern, packed), values);
    EXPECT_EQ(permuted(format, format, pattern, packed), packed);
    const auto in_k_blocks = permuted(format, PackedFormat::row_groups, pattern, packed);
    EXPECT_EQ(permuted(PackedFormat::row_groups, format, pattern, in_k_blocks), packed);
  }
}

TEST(PackedFormat, OfBlocksIsThatOfTheirWeightAndGoesBack) {
  for (const uint32_t b : {4U, 8U, 16U, 32U})
    for (const double density : {0.0, 0.3, 1.0}) {
      const Pattern pattern = generate_pattern({PatternKind::random, 133, 1021, density, b, 3});
      SCOPED_TRACE(fmt::format("blocks of {}, density {}", b, density));
      const std::vector<float> values = numbers_for(pattern);
      for (const SlotOrder order : {SlotOrder::in_turn, SlotOrder::rotated}) {
        if (order == SlotOrder::rotated && density < 1) continue;
        const PackedBlocks weight(pattern, Type::f32, order);
        const PackedFormat format = format_of(weight);
        EXPECT_EQ(format, order == SlotOrder::rotated ? PackedFormat::rotated_blocks : PackedFormat::blocks);
        const auto packed = permuted(PackedFormat::values, format, pattern, values);
        EXPECT_EQ(packed, packed_by(weight, values, packed.size()));
        EXPECT_EQ(permuted(format, PackedFormat::values, pattern, packed), values);
      }
      if (density < 1) continue;
      const auto in_turn = permuted(PackedFormat::values, PackedFormat::blocks, pattern, values);
      const auto rotated = permuted(PackedFormat::values, PackedFormat::rotated_blocks, pattern, values);
      EXPECT_NE(in_turn, rotated);
      EXPECT_EQ(permuted(PackedFormat::rotated_blocks, PackedFormat::blocks, pattern, rotated), in_turn);
      EXPECT_EQ(permuted(PackedFormat::blocks, PackedFormat::rotated_blocks, pattern, in_turn), rotated);
    }
}

// A full pattern is rotated for one type and not for another; the format number says which.
TEST(PackedFormat, SaysWhereTheOrderDependsOnTheType) {
  const Pattern pattern = full_pattern(24, 16 * 8, 8);
  EXPECT_EQ(format_of(PackedBlocks(pattern, Type::f32)), PackedFormat::rotated_blocks);
  EXPECT_EQ(format_of(PackedBlocks(pattern, Type::f16)), PackedFormat::blocks);
  EXPECT_EQ(format_of(PackedBlocks(pattern, Type::f32, pattern.blocks())), PackedFormat::dynamic);
  EXPECT_EQ(format_of(PackedElements::dynamic(8, 8, 3, Type::f32)), PackedFormat::dynamic);
}

uint64_t checksum_of(const std::vector<float>& numbers) {
  return base::checksum(std::as_bytes(std::span(numbers)));
}

// Values that were saved in a format must stay loadable. To change an order, give the new one a new number.
TEST(PackedFormat, KeepsItsOrderForGood) {
  const Pattern elements = generate_pattern({PatternKind::power_law, 1500, 700, 0.15, 1, 5});
  EXPECT_EQ(
      checksum_of(permuted(PackedFormat::values, PackedFormat::row_groups, elements, numbers_for(elements))),
      17013845999292935842U);
  const Pattern few = generate_pattern({PatternKind::power_law, 1500, 700, 0.03, 1, 5});
  EXPECT_EQ(checksum_of(permuted(PackedFormat::values, PackedFormat::row_groups, few, numbers_for(few))),
            4083197398454700064U);
  EXPECT_EQ(
      checksum_of(permuted(PackedFormat::values, PackedFormat::whole_row_groups, few, numbers_for(few))),
      10702331107079801728U);
  EXPECT_THROW(packed_size(PackedFormat::whole_row_groups, elements), UsageError);
  const Pattern blocks = generate_pattern({PatternKind::random, 300, 200, 0.4, 16, 5});
  EXPECT_EQ(checksum_of(permuted(PackedFormat::values, PackedFormat::blocks, blocks, numbers_for(blocks))),
            2912109077470047326U);
  const Pattern full = full_pattern(40, 72, 8);
  EXPECT_EQ(
      checksum_of(permuted(PackedFormat::values, PackedFormat::rotated_blocks, full, numbers_for(full))),
      1199610148776405358U);
  EXPECT_EQ(checksum_of(permuted(PackedFormat::values, PackedFormat::panels, full, numbers_for(full))),
            12494060270066658867U);
}

TEST(PackedFormat, OfPanelsIsThatOfEveryBlockSize) {
  for (const uint32_t b : {1U, 4U, 8U, 32U}) {
    const Pattern full = full_pattern(35, 21, b);
    const std::vector<float> values = numbers_for(full);
    const auto panels = permuted(PackedFormat::values, PackedFormat::panels, full, values);
    const PanelLayout layout{35, 21};
    ASSERT_EQ(panels.size(), layout.elements());
    const std::vector<float> dense = to_dense({full, values});
    for (uint32_t row = 0; row < 48; ++row)
      for (uint32_t col = 0; col < 21; ++col)
        EXPECT_EQ(panels[layout.at(row, col)], row < 35 ? dense[row * 21 + col] : 0);
  }
  EXPECT_THROW(packed_size(PackedFormat::panels, {2, 2, 1, {0, 1, 2}, {0, 1}}), UsageError);
}

TEST(PackedFormat, RefusesSizesAndFormatsThatDoNotFit) {
  const Pattern elements{2, 2, 1, {0, 1, 2}, {0, 1}};
  const Pattern blocks{8, 8, 4, {0, 1, 2}, {0, 1}};
  const auto message_of = [](PackedFormat from, PackedFormat to, const Pattern& pattern, size_t source,
                             size_t target) {
    std::vector<float> in(source), out(target, 7.0F);
    const std::string message = error_of<UsageError>([&] { permute_packed(from, to, pattern, in, out); });
    EXPECT_EQ(out, std::vector<float>(target, 7.0F)) << "the target was written";
    return message;
  };
  const uint64_t places = packed_size(PackedFormat::row_groups, elements);
  EXPECT_TRUE(says(message_of(PackedFormat::values, PackedFormat::row_groups, elements, 3, places),
                   "a source of 3 numbers; packed format 0 (values) has 2 for this pattern"));
  EXPECT_TRUE(
      says(message_of(PackedFormat::values, PackedFormat::row_groups, elements, 2, places - 1),
           fmt::format("a target of {} numbers; packed format 3 (row groups) has {}", places - 1, places)));
  EXPECT_TRUE(says(message_of(PackedFormat::row_groups, PackedFormat::values, elements, 5, 2),
                   "a source of 5 numbers; packed format 3 (row groups)"));
  EXPECT_TRUE(says(message_of(PackedFormat::blocks, PackedFormat::values, blocks, 32, 31),
                   "a target of 31 numbers; packed format 0 (values) has 32"));
  EXPECT_TRUE(says(
      message_of(PackedFormat::values, PackedFormat::row_groups, blocks, 32, 32),
      "packed format 3 (row groups) does not apply to 2 blocks of 4 in 8 x 8; the formats are 0 (values), 1 "
      "(blocks), 2 (rotated blocks), 3 (row groups)"));
  EXPECT_TRUE(says(message_of(PackedFormat::values, PackedFormat::rotated_blocks, blocks, 32, 32),
                   "packed format 2 (rotated blocks) does not apply to 2 blocks of 4"));
  EXPECT_TRUE(says(message_of(PackedFormat::blocks, PackedFormat::values, elements, 2, 2),
                   "packed format 1 (blocks) does not apply to 2 blocks of 1"));
  EXPECT_TRUE(says(message_of(PackedFormat::dynamic, PackedFormat::values, blocks, 32, 32),
                   "packed format 4 (dynamic) depends on all patterns"));
  EXPECT_TRUE(says(message_of(static_cast<PackedFormat>(9), PackedFormat::values, blocks, 32, 32),
                   "packed format 9 (unknown) does not apply to"));
  const Pattern malformed{2, 2, 1, {0, 1, 1}, {2}};
  EXPECT_THROW(packed_size(PackedFormat::row_groups, malformed), UsageError);
}

}  // namespace
}  // namespace tessera::sparse
