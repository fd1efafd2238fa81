// Weights whose pattern changes, against a map from positions to values.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <algorithm>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sparse/blocks/packed_blocks.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/in_parallel.h"

namespace tessera::sparse {
namespace {

using test::in_parallel;

using Position = std::pair<uint32_t, uint32_t>;
using Model = std::map<Position, std::vector<float>>;

Pattern pattern_of(const Model& model, uint32_t rows, uint32_t cols, uint32_t b) {
  Pattern pattern{rows, cols, b, {}, {}};
  pattern.crow_indices.assign(pattern.block_rows() + 1, 0);
  for (const auto& [at, values] : model) {
    ++pattern.crow_indices[at.first + 1];
    pattern.col_indices.push_back(at.second);
  }
  for (uint32_t r = 0; r < pattern.block_rows(); ++r) pattern.crow_indices[r + 1] += pattern.crow_indices[r];
  return pattern;
}

/// A dynamic weight, its expected contents, and an array of state that follows it.
struct Fixture {
  explicit Fixture(uint64_t fixture_seed) : seed(fixture_seed), random(base::RandomStream(seed)) {
    static constexpr uint32_t kBlocks[] = {4, 8, 16, 32};
    static constexpr Type kTypes[] = {Type::f32, Type::f16, Type::bf16};
    b = kBlocks[random.below(4)];
    type = kTypes[random.below(3)];
    rows = random.below(6 * b) + 1;
    cols = random.below(6 * b) + 1;
    block_rows = (rows + b - 1) / b;
    block_cols = (cols + b - 1) / b;
    capacity = block_rows * block_cols / 2 + 1;
    for (uint32_t i = 0; i < capacity / 2; ++i) model[any()] = draw();
    weight = std::make_unique<PackedBlocks>(pattern(), type, capacity);
    weight->set_values(values());
    state.resize(capacity * b * b);
    weight->pack(values(), state);
  }

  Position any() { return {random.below(block_rows), random.below(block_cols)}; }
  Pattern pattern() const { return pattern_of(model, rows, cols, b); }

  /// Values that every type holds, and 0 where a block overhangs.
  std::vector<float> draw() {
    std::vector<float> block(b * b);
    for (float& value : block) value = static_cast<float>(random.below(200)) - 99.5F;
    return block;
  }

  std::vector<float> values() const {
    std::vector<float> all;
    for (const auto& [at, block] : model)
      for (uint32_t r = 0; r < b; ++r)
        for (uint32_t c = 0; c < b; ++c)
          all.push_back(at.first * b + r < rows && at.second * b + c < cols ? block[r * b + c] : 0);
    return all;
  }

  void clear(const std::vector<uint32_t>& slots) {
    for (const uint32_t slot : slots) std::fill_n(state.begin() + slot * b * b, b * b, 0.0F);
  }

  void replace() {
    std::set<Position> drop;
    std::set<Position> grow;
    for (const auto& [at, block] : model)
      if (random.below(4) == 0) drop.insert(at);
    for (uint32_t i = 0; i < block_rows + block_cols; ++i) {
      const Position at = any();
      const bool is_free = !model.contains(at) || drop.contains(at);
      if (is_free && model.size() - drop.size() + grow.size() < capacity) grow.insert(at);
    }
    std::vector<BlockPosition> drops;
    std::vector<BlockPosition> grows;
    for (const Position& at : drop)
      drops.insert(drops.begin() + random.below(static_cast<uint32_t>(drops.size()) + 1),
                   {at.first, at.second});
    for (const Position& at : grow)
      grows.insert(grows.begin() + random.below(static_cast<uint32_t>(grows.size()) + 1),
                   {at.first, at.second});
    clear(weight->replace(drops, grows));
    for (const Position& at : drop) model.erase(at);
    for (const Position& at : grow) model[at].assign(b * b, 0.0F);
  }

  void set_pattern() {
    Model next;
    for (uint32_t i = 0; i < random.below(capacity + 1); ++i) {
      const Position at = any();
      next[at] = model.contains(at) ? model[at] : std::vector<float>(b * b);
    }
    model = std::move(next);
    clear(weight->set_pattern(pattern()));
  }

  void set_matrix() {
    model.clear();
    for (uint32_t i = 0; i < random.below(capacity + 1); ++i) model[any()] = draw();
    weight->set_matrix({pattern(), values()});
    weight->pack(values(), state);
  }

  uint64_t seed;
  base::RandomSequence random;
  uint32_t b, rows, cols, block_rows, block_cols, capacity;
  Type type;
  Model model;
  std::unique_ptr<PackedBlocks> weight;
  std::vector<float> state;
};

void expect_same_index(const BlockIndex& a, const BlockIndex& b) {
  EXPECT_EQ(a.row_begin, b.row_begin);
  for (uint64_t i = 0; i < a.blocks(); ++i) {
    EXPECT_EQ(a.column(i), b.column(i));
    EXPECT_EQ(a.slot(i), b.slot(i));
  }
}

void expect_right(const Fixture& f) {
  const PackedBlocks& w = *f.weight;
  EXPECT_EQ(w.pattern().crow_indices, f.pattern().crow_indices);
  EXPECT_EQ(w.pattern().col_indices, f.pattern().col_indices);
  std::vector<float> values(f.model.size() * f.b * f.b, 9.0F);
  w.get_values(values);
  EXPECT_EQ(values, f.values());
  std::fill(values.begin(), values.end(), 9.0F);
  w.unpack(f.state, values);
  EXPECT_EQ(values, f.values()) << "an optimizer's state";
  std::vector<float> packed(f.state.size(), 9.0F);
  w.pack(values, packed);
  EXPECT_EQ(packed, f.state) << "places without a value";

  std::set<uint32_t> slots(w.free_slots().begin(), w.free_slots().end());
  const size_t bytes = f.b * f.b * size_of(f.type);
  for (const uint32_t slot : slots)
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(w.values()[slot * bytes + i], std::byte{0}) << "a free slot";
  for (uint64_t i = 0; i < w.blocks(); ++i) slots.insert(w.index().slot(i));
  EXPECT_EQ(slots.size(), f.capacity) << "each slot belongs to one block, or is free";

  BlockIndex transposed = empty_index(w.block_cols(), w.block_rows(), w.capacity(), true);
  transpose(w.index(), transposed);
  expect_same_index(w.transposed_index(), transposed);
}

TEST(DynamicBlocks, FollowAnySequenceOfChanges) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Fixture f(seed);
    expect_right(f);
    for (int step = 0; step < 12; ++step) {
      switch (f.random.below(4)) {
        case 0: f.set_pattern(); break;
        case 1: f.set_matrix(); break;
        default: f.replace();
      }
      expect_right(f);
      if (testing::Test::HasFailure()) return;
    }
  }
}

/// A weight with so many blocks that threads share its changes; each block has its own value.
struct LargeFixture {
  static constexpr uint32_t kRows = 256, kCols = 512, kBlock = 4, kCapacity = 50000;

  explicit LargeFixture(uint64_t seed) : random(base::RandomStream(seed)) {
    while (model.size() < kCapacity - 1000) model[any()] = draw();
    weight = std::make_unique<PackedBlocks>(pattern(), Type::f32, kCapacity);
    weight->set_values(values(), in_parallel);
  }

  Position any() { return {random.below(kRows), random.below(kCols)}; }
  float draw() { return static_cast<float>(random.below(100000) + 1); }

  Pattern pattern() const {
    Pattern pattern{kRows * kBlock, kCols * kBlock, kBlock, {}, {}};
    pattern.crow_indices.assign(kRows + 1, 0);
    for (const auto& [at, value] : model) {
      ++pattern.crow_indices[at.first + 1];
      pattern.col_indices.push_back(at.second);
    }
    for (uint32_t r = 0; r < kRows; ++r) pattern.crow_indices[r + 1] += pattern.crow_indices[r];
    return pattern;
  }

  std::vector<float> values() const {
    std::vector<float> all;
    for (const auto& [at, value] : model) all.insert(all.end(), kBlock * kBlock, value);
    return all;
  }

  void replace(uint32_t one_in) {
    std::vector<BlockPosition> drop, grow;
    for (const auto& [at, value] : model)
      if (random.below(one_in) == 0) drop.push_back({at.first, at.second});
    for (const BlockPosition& at : drop) model.erase({at.row, at.col});
    const uint32_t wanted = random.below(2 * static_cast<uint32_t>(drop.size()) + 1);
    while (grow.size() < wanted && model.size() < kCapacity) {
      const Position at = any();
      if (model.emplace(at, 0.0F).second) grow.push_back({at.first, at.second});
    }
    weight->replace(drop, grow, in_parallel);
  }

  void set_pattern() {
    std::map<Position, float> next;
    for (const auto& element : model)
      if (random.below(3) != 0) next.insert(element);
    const size_t wanted = next.size() + random.below(static_cast<uint32_t>(kCapacity - next.size() + 1));
    while (next.size() < wanted) {
      const Position at = any();
      next.emplace(at, model.contains(at) ? model[at] : 0.0F);
    }
    model = std::move(next);
    weight->set_pattern(pattern(), in_parallel);
  }

  void expect_right() const {
    const PackedBlocks& w = *weight;
    ASSERT_EQ(w.pattern().crow_indices, pattern().crow_indices);
    ASSERT_EQ(w.pattern().col_indices, pattern().col_indices);
    std::vector<float> have(model.size() * kBlock * kBlock);
    w.get_values(have);
    ASSERT_EQ(have, values());
    std::set<uint32_t> slots(w.free_slots().begin(), w.free_slots().end());
    for (uint64_t i = 0; i < w.blocks(); ++i) slots.insert(w.index().slot(i));
    EXPECT_EQ(slots.size(), kCapacity) << "each slot belongs to one block, or is free";
    BlockIndex transposed = empty_index(w.block_cols(), w.block_rows(), w.capacity(), true);
    transpose(w.index(), transposed);
    expect_same_index(w.transposed_index(), transposed);
  }

  base::RandomSequence random;
  std::map<Position, float> model;
  std::unique_ptr<PackedBlocks> weight;
};

TEST(DynamicBlocks, FollowChangesOnSeveralThreads) {
  for (uint64_t seed = 300; seed < 304; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    LargeFixture f(seed);
    for (int step = 0; step < 6; ++step) {
      if (f.random.below(3) == 0)
        f.set_pattern();
      else
        f.replace(std::vector<uint32_t>{2, 20, 100}[f.random.below(3)]);
      f.expect_right();
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(DynamicBlocks, DropAllGrowAllAndNothing) {
  for (const uint32_t b : {4U, 8U, 16U, 32U}) {
    const Pattern full = full_pattern(5 * b, 3 * b, b);
    PackedBlocks weight(full, Type::f32, full.blocks());
    weight.set_values(std::vector<float>(full.blocks() * b * b, 2.0F));
    std::vector<BlockPosition> all;
    for (uint32_t i = 0; i < full.blocks(); ++i) all.push_back({i / 3, i % 3});
    weight.replace({}, {});
    EXPECT_EQ(weight.blocks(), full.blocks());
    EXPECT_EQ(weight.replace(all, all).size(), full.blocks()) << "all begin anew";
    std::vector<float> values(full.blocks() * b * b, 9.0F);
    weight.get_values(values);
    EXPECT_EQ(std::count(values.begin(), values.end(), 0.0F), static_cast<ptrdiff_t>(values.size()));
    weight.replace(all, {});
    EXPECT_EQ(weight.blocks(), 0U);
    EXPECT_EQ(weight.free_slots().size(), full.blocks());
    weight.replace({}, {all.data() + 6, 3});  // one row of an empty weight
    EXPECT_EQ(weight.blocks(), 3U);
    weight.replace({all.data() + 6, 3}, {all.data(), 6});
    EXPECT_EQ(weight.pattern().col_indices, (std::vector<uint32_t>{0, 1, 2, 0, 1, 2}));
  }
}

TEST(DynamicBlocks, ArraysOfTheIndexStayWhereTheyAre) {
  Fixture f(3);
  const auto* columns = f.weight->index().columns.data();
  const auto* slots = f.weight->index().slots.data();
  const auto* transposed = f.weight->transposed_index().slots.data();
  for (int step = 0; step < 20; ++step) {
    f.replace();
    f.set_pattern();
  }
  EXPECT_EQ(f.weight->index().columns.data(), columns);
  EXPECT_EQ(f.weight->index().slots.data(), slots);
  EXPECT_EQ(f.weight->transposed_index().slots.data(), transposed);
}

// A change that is refused leaves everything as it was.
TEST(DynamicBlocks, RefuseWhatCannotBe) {
  PackedBlocks weight(Pattern{32, 32, 8, {0, 2, 2, 3, 3}, {0, 3, 1}}, Type::f32, 4);
  std::vector<float> values(3 * 64, 1.0F);
  weight.set_values(values);
  using Positions = std::vector<BlockPosition>;
  const auto error_of_replace = [&](const Positions& drop, const Positions& grow) {
    return test::error_of<UsageError>([&] { weight.replace(drop, grow); });
  };
  EXPECT_TRUE(
      test::says(error_of_replace({{1, 1}}, {}), "block (1, 1) cannot be dropped: it does not exist"));
  EXPECT_TRUE(test::says(error_of_replace({{0, 0}, {0, 0}}, {}),
                         "block (0, 0) cannot be dropped: it is listed twice"));
  EXPECT_TRUE(test::says(error_of_replace({}, {{2, 1}}), "block (2, 1) cannot be grown: it exists already"));
  EXPECT_TRUE(
      test::says(error_of_replace({}, {{3, 3}, {3, 3}}), "block (3, 3) cannot be grown: it is listed twice"));
  EXPECT_TRUE(test::says(error_of_replace({}, {{4, 0}}), "there are 4 × 4"));
  EXPECT_TRUE(test::says(error_of_replace({{0, 0}}, {{1, 0}, {1, 1}, {1, 2}}),
                         "5 blocks, 1 more than its capacity of 4"));
  const Pattern too_many{32, 32, 8, {0, 4, 5, 5, 5}, {0, 1, 2, 3, 0}};
  EXPECT_USAGE_ERROR("1 more than its capacity", weight.set_pattern(too_many));
  EXPECT_USAGE_ERROR("32 × 24", weight.set_pattern({32, 24, 8, {0, 0, 0, 0, 0}, {}}));
  EXPECT_THROW(weight.set_pattern({32, 32, 8, {0, 2, 2, 2, 2}, {1, 1}}), UsageError);
  EXPECT_THROW(weight.set_matrix({{32, 32, 8, {0, 1, 1, 1, 1}, {1}}, std::vector<float>(63)}), UsageError);
  std::vector<float> back(3 * 64);
  weight.get_values(back);
  EXPECT_EQ(back, values);
  EXPECT_EQ(weight.free_slots().size(), 1U);

  PackedBlocks fixed(Pattern{32, 32, 8, {0, 0, 0, 0, 0}, {}}, Type::f32);
  EXPECT_THROW(fixed.set_pattern(weight.pattern()), UsageError);
  EXPECT_THROW(fixed.replace({}, {}), UsageError);
  EXPECT_THROW(PackedBlocks(weight.pattern(), Type::f32, 2), UsageError);
  EXPECT_USAGE_ERROR("can be told apart", PackedBlocks(weight.pattern(), Type::f32, uint64_t{1} << 62));
}

TEST(DynamicBlocks, TransposedIndexIsBuiltOnceByWhoeverComesFirst) {
  const PackedBlocks weight(full_pattern(512, 384, 4), Type::f32);
  std::vector<const BlockIndex*> seen(8);
  std::vector<std::thread> threads;
  for (auto& index : seen)
    threads.emplace_back([&] {
      index = &weight.transposed_index();
      for (uint64_t i = 0; i < index->blocks(); ++i)
        ASSERT_EQ(index->slot(i), index->column(i) * 96 + i / 128);
    });
  for (std::thread& thread : threads) thread.join();
  for (const BlockIndex* index : seen) EXPECT_EQ(index, seen[0]);
}

}  // namespace
}  // namespace tessera::sparse
