// Packing single elements: patterns that change, and the transposed index.
#include "sparse/elements/packed_elements.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "base/random.h"
#include "sparse/generate.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/in_parallel.h"

namespace tessera::sparse {
namespace {

using test::in_parallel;

using Elements = std::map<std::pair<uint32_t, uint32_t>, float>;

SparseMatrix matrix_of(uint32_t rows, uint32_t cols, const Elements& elements) {
  SparseMatrix matrix{{rows, cols, 1, {0}, {}}, {}};
  for (uint32_t row = 0; row < rows; ++row) {
    for (auto at = elements.lower_bound({row, 0}); at != elements.end() && at->first.first == row; ++at) {
      matrix.pattern.col_indices.push_back(at->first.second);
      matrix.values.push_back(at->second);
    }
    matrix.pattern.crow_indices.push_back(matrix.pattern.col_indices.size());
  }
  return matrix;
}

Elements elements_of(const PackedElements& packed) {
  const Pattern pattern = packed.pattern();
  std::vector<float> values(packed.nonzeros());
  packed.get_values(values.data());
  Elements elements;
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1]; ++i)
      elements[{row, pattern.col_indices[i]}] = values[i];
  return elements;
}

/// Values that every type holds, none of them 0.
float value_of(base::RandomSequence& random) { return static_cast<float>(random.below(255) + 1) / 8; }

/// Elements of one of many kinds of pattern: none, random, banded, by a power law, a full row, every other
/// row empty.
Elements random_elements(uint32_t rows, uint32_t cols, base::RandomSequence& random) {
  const uint32_t kind = random.below(6);
  const double density = 0.02 + 0.2 * random.below(4);
  Elements elements;
  if (kind == 0) return elements;
  const Pattern pattern =
      generate_pattern({static_cast<PatternKind>(kind % 3), rows, cols, density, 1, random.below(1000)});
  for (uint32_t row = 0; row < rows; ++row)
    for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1]; ++i)
      if (kind != 4 || row % 2 == 0) elements[{row, pattern.col_indices[i]}] = value_of(random);
  if (kind == 5 && rows > 0)
    for (uint32_t col = 0; col < cols; ++col) elements[{rows / 2, col}] = value_of(random);
  return elements;
}

struct Drawn {
  explicit Drawn(uint64_t seed) : random(base::RandomStream(seed)) {
    static constexpr Type kTypes[] = {Type::f32, Type::f16, Type::bf16};
    rows = random.below(5) == 0 ? random.below(3) : 1 + random.below(200);
    cols = random.below(5) == 0 ? random.below(3) : 1 + random.below(200);
    type = kTypes[random.below(3)];
    packing.k_block = std::vector<uint32_t>{0, 1, 16, 127, 1023}[random.below(5)];
    packing.chunk_rows = std::vector<uint32_t>{0, 7, 50, 4096}[random.below(4)];
    first = random_elements(rows, cols, random);
    capacity = std::min<uint64_t>(uint64_t{rows} * cols, first.size() + random.below(100));
    text = fmt::format("seed {}: {} x {}, {} non-zeros of {}, {}, k_block {}, chunk_rows {}", seed, rows,
                       cols, first.size(), capacity, name_of(type), packing.k_block, packing.chunk_rows);
  }

  PackedElements dynamic() const {
    PackedElements packed = PackedElements::dynamic(rows, cols, capacity, type, packing);
    packed.set_matrix(matrix_of(rows, cols, first), in_parallel);
    return packed;
  }

  /// Another pattern within the capacity, part of it as before.
  Elements next(const Elements& present) {
    Elements elements = random_elements(rows, cols, random);
    for (const auto& element : present)
      if (random.below(2) == 0) elements.insert(element);
    std::vector<Elements::iterator> left;
    for (auto at = elements.begin(); at != elements.end(); ++at) left.push_back(at);
    while (left.size() > capacity) {
      Elements::iterator& any = left[random.below(static_cast<uint32_t>(left.size()))];
      elements.erase(std::exchange(any, left.back()));
      left.pop_back();
    }
    return elements;
  }

  base::RandomSequence random;
  uint32_t rows, cols;
  Type type;
  ElementPacking packing;
  Elements first;
  uint64_t capacity;
  std::string text;
};

/// The non-zero values, by place.
std::map<uint64_t, float> stored(const PackedElements& packed) {
  std::vector<float> values(packed.nonzeros());
  packed.get_values(values.data());
  const std::vector<uint64_t> places = packed.permutation();
  std::map<uint64_t, float> result;
  for (size_t i = 0; i < places.size(); ++i) result[places[i]] = values[i];
  EXPECT_EQ(result.size(), places.size()) << "two elements in one place";
  return result;
}

/// The values as an array in packed order.
std::vector<float> state_of(const PackedElements& packed) {
  std::vector<float> values(packed.nonzeros()), state(packed.places());
  packed.get_values(values.data());
  packed.pack(values, state);
  return state;
}

void expect_zeros_elsewhere(const PackedElements& packed) {
  const size_t bytes = size_of(packed.type());
  std::vector<std::byte> values(packed.values(), packed.values() + packed.value_bytes());
  for (const auto& [place, value] : stored(packed))
    std::fill_n(values.begin() + static_cast<ptrdiff_t>(place * bytes), bytes, std::byte{0});
  EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](std::byte b) { return b == std::byte{0}; }));
  ASSERT_LE(packed.value_count(), packed.zero_place());
}

TEST(DynamicElements, HoldWhatTheyAreGiven) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Drawn d(seed);
    SCOPED_TRACE(d.text);
    PackedElements packed = d.dynamic();
    EXPECT_EQ(elements_of(packed), d.first);
    expect_zeros_elsewhere(packed);
    const std::byte* values = packed.values();
    const uint32_t* words = packed.indices().data();
    const Elements second = d.next(d.first);
    packed.set_matrix(matrix_of(d.rows, d.cols, second), in_parallel);
    EXPECT_EQ(elements_of(packed), second);
    expect_zeros_elsewhere(packed);
    EXPECT_EQ(packed.values(), values) << "the values have moved";
    EXPECT_EQ(packed.indices().data(), words) << "the index has moved";
    if (testing::Test::HasFailure()) return;
  }
}

/// The values of elements of both patterns, and 0 for the others.
Elements kept(const Elements& present, Elements next) {
  for (auto& [position, value] : next) {
    const auto at = present.find(position);
    value = at == present.end() ? 0 : at->second;
  }
  return next;
}

TEST(DynamicElements, KeepTheValuesOfWhatStays) {
  for (uint64_t seed = 200; seed < 260; ++seed) {
    Drawn d(seed);
    SCOPED_TRACE(d.text);
    PackedElements packed = d.dynamic();
    Elements present = d.first;
    for (int step = 0; step < 4; ++step) {
      std::vector<float> state(packed.places());
      std::vector<float> values(packed.nonzeros());
      packed.get_values(values.data());
      packed.pack(values, state, in_parallel);
      const Elements next = kept(present, d.next(present));
      const auto moves = packed.set_pattern(matrix_of(d.rows, d.cols, next).pattern, in_parallel);
      ASSERT_EQ(elements_of(packed), next);
      expect_zeros_elsewhere(packed);

      // An array in packed order follows by the moves.
      std::vector<float> moved = state;
      follow(*moves, moved, in_parallel);
      std::vector<float> unpacked(packed.nonzeros());
      packed.unpack(moved, unpacked);
      EXPECT_EQ(unpacked, matrix_of(d.rows, d.cols, next).values);
      std::vector<float> again(state.size());
      packed.pack(unpacked, again);
      EXPECT_EQ(moved, again) << "what holds no element is not 0";
      if (testing::Test::HasFailure()) return;
      present = next;
    }
  }
}

/// The rows of each task, block by block.
std::vector<std::vector<uint16_t>> tasks_of(const PackedElements& packed) {
  std::vector<std::vector<uint16_t>> tasks;
  for (size_t block = 0; block + 1 < packed.blocks().size(); ++block) {
    tasks.emplace_back();
    for (uint64_t i = packed.blocks()[block].row_group; i < packed.blocks()[block + 1].row_group; ++i) {
      const RowGroup& row_group = packed.row_groups()[i];
      if (row_group.tasks > 0) tasks.back().push_back(row_group.unpaired_steps);
      tasks.back().insert(tasks.back().end(), row_group.row_a, row_group.row_a + row_group.tasks);
      tasks.back().insert(tasks.back().end(), row_group.row_b, row_group.row_b + row_group.tasks);
    }
  }
  return tasks;
}

TEST(DynamicElements, AreLikeFreshlyPackedOnes) {
  for (uint64_t seed = 400; seed < 440; ++seed) {
    Drawn d(seed);
    SCOPED_TRACE(d.text);
    PackedElements packed = d.dynamic();
    const Elements next = d.next(d.first);
    const SparseMatrix matrix = matrix_of(d.rows, d.cols, next);
    packed.set_pattern(matrix.pattern, in_parallel);
    packed.set_values(matrix.values.data());
    PackedElements fresh = PackedElements::dynamic(d.rows, d.cols, d.capacity, d.type, d.packing);
    fresh.set_matrix(matrix);
    EXPECT_EQ(tasks_of(packed), tasks_of(fresh));
    EXPECT_EQ(elements_of(packed), elements_of(fresh));
    if (testing::Test::HasFailure()) return;
  }
}

/// After the steps of a quarter its lanes hold only filler, and one of them has an element in the last step.
void expect_tight_quarters(const PackedElements& packed) {
  const ElementIndex& index = packed.index();
  for (size_t block = 0; block + 1 < index.blocks.size(); ++block) {
    std::map<std::pair<uint64_t, uint32_t>, uint32_t>
        longest;  // of row groups, by their values, and quarters
    for_each_slice(index, block, [&](uint16_t, const ElementSlice& slice) {
      const SliceColumns columns(index, slice);
      uint32_t& steps = longest[{slice.value, slice.lane / kQuarterLanes}];
      for (uint32_t s = 0; s < slice.unpaired_steps; ++s)
        if (columns.unpaired(s) != index.k_block) steps = std::max(steps, s + 1);
    });
    uint64_t value = index.blocks[block].value;
    for (uint64_t i = index.blocks[block].row_group; i < index.blocks[block + 1].row_group; ++i) {
      for (uint32_t q = 0; q < kQuarters; ++q) {
        const auto at = longest.find({value, q});
        ASSERT_EQ(index.row_groups[i].quarter_steps[q], at == longest.end() ? 0U : at->second);
      }
      value += index.row_groups[i].value_count();
    }
  }
}

TEST(PackedElements, QuartersHaveTheStepsOfTheirLongestTasks) {
  for (uint64_t seed = 700; seed < 740; ++seed) {
    Drawn d(seed);
    SCOPED_TRACE(d.text);
    const PackedElements packed(matrix_of(d.rows, d.cols, d.first), d.type, d.packing);
    EXPECT_EQ(elements_of(packed), d.first);
    expect_tight_quarters(packed);
    PackedElements changing = d.dynamic();
    expect_tight_quarters(changing);
    changing.set_pattern(matrix_of(d.rows, d.cols, d.next(d.first)).pattern, in_parallel);
    expect_tight_quarters(changing);
    expect_tight_quarters(packed);
    if (testing::Test::HasFailure()) return;
  }
}

// Chunks depend only on shape and non-zeros: enough for threads to share, long enough to hold little filler.
TEST(PackedElements, AreSplitByTheMatrixAlone) {
  struct Case {
    uint32_t rows, cols;
    uint64_t non_zeros;
    size_t chunks, chunks_of_shape;
  };
  for (const Case& c :
       {Case{4096, 4096, 1 << 23, 8, 4}, Case{4096, 4096, 1 << 20, 4, 4}, Case{4096, 4096, 1 << 19, 4, 4},
        Case{2048, 512, 209715, 2, 2}, Case{2048, 512, 52428, 2, 2}, Case{1000, 2048, 204800, 2, 2},
        Case{512, 512, 52428, 1, 1}, Case{512, 2048, 104857, 2, 2}, Case{256, 2304, 117964, 2, 2},
        Case{130, 4096, 500000, 1, 1}, Case{100000, 10, 20, 49, 49}, Case{65536, 256, 1 << 22, 64, 64}}) {
    SCOPED_TRACE(fmt::format("{} x {}, {} non-zeros", c.rows, c.cols, c.non_zeros));
    Pattern pattern{c.rows, c.cols, 1, {0}, std::vector<uint32_t>(c.non_zeros)};
    for (uint64_t row = 1; row <= c.rows; ++row) pattern.crow_indices.push_back(c.non_zeros * row / c.rows);
    const ElementIndex index = split_for(pattern, {});
    EXPECT_EQ(index.chunks(), c.chunks);
    EXPECT_EQ(split_for_shape(c.rows, c.cols, c.non_zeros, {}).chunks(), c.chunks_of_shape);
    for (uint32_t chunk = 0; chunk < index.chunks(); ++chunk)
      EXPECT_NEAR(index.rows_of(chunk), static_cast<double>(c.rows) / index.chunks(), 2);
  }
}

// If rows differ, chunks have similar numbers of non-zeros, and never more rows than words can represent.
TEST(PackedElements, ChunksHaveLikeNumbersOfNonZeros) {
  Pattern pattern{9000, 600, 1, {0}, {}};
  for (uint32_t row = 0; row < pattern.rows; ++row) {
    for (uint32_t col = 0; col < (row < 1000 ? 500 : 10); ++col) pattern.col_indices.push_back(col);
    pattern.crow_indices.push_back(pattern.blocks());
  }
  const ElementIndex index = split_for(pattern, {});
  EXPECT_GE(index.chunks(), 8U);
  for (uint32_t chunk = 0; chunk < index.chunks(); ++chunk) {
    EXPECT_LE(index.rows_of(chunk), 2304U);
    const uint64_t non_zeros =
        pattern.crow_indices[index.chunk_begin[chunk + 1]] - pattern.crow_indices[index.chunk_begin[chunk]];
    EXPECT_LT(non_zeros, pattern.blocks() * 3 / 2 / 8);
  }
}

TEST(DynamicElements, DropAndGrow) {
  for (uint64_t seed = 500; seed < 560; ++seed) {
    Drawn d(seed);
    SCOPED_TRACE(d.text);
    PackedElements packed = d.dynamic();
    Elements present = d.first;
    std::vector<BlockPosition> drop, grow;
    for (const auto& [position, value] : d.first) {
      if (d.random.below(3) != 0) continue;
      drop.push_back({position.first, position.second});
      present.erase(position);
      if (d.random.below(4) != 0) continue;
      grow.push_back(drop.back());  // begins anew
      present[position] = 0;
    }
    for (int i = 0; i < 40 && d.rows > 0 && d.cols > 0 && present.size() < d.capacity; ++i) {
      const std::pair<uint32_t, uint32_t> position{d.random.below(d.rows), d.random.below(d.cols)};
      if (d.first.contains(position) || !present.emplace(position, 0.0F).second) continue;
      grow.push_back({position.first, position.second});
    }
    std::vector<float> state = state_of(packed);
    follow(*packed.replace(drop, grow, in_parallel), state, in_parallel);
    EXPECT_EQ(elements_of(packed), present);
    EXPECT_EQ(state, state_of(packed)) << "an optimizer's state";
    expect_zeros_elsewhere(packed);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(DynamicElements, DropAllGrowAllAndNothing) {
  constexpr uint32_t kRows = 90, kCols = 70;
  std::vector<BlockPosition> all;
  Elements full, zeros;
  for (uint32_t i = 0; i < kRows * kCols; ++i) {
    all.push_back({i / kCols, i % kCols});
    full[{i / kCols, i % kCols}] = 3;
    zeros[{i / kCols, i % kCols}] = 0;
  }
  PackedElements packed = PackedElements::dynamic(kRows, kCols, full.size(), Type::f32);
  EXPECT_EQ(elements_of(packed), Elements());
  packed.set_matrix(matrix_of(kRows, kCols, full), in_parallel);
  packed.replace({}, {}, in_parallel);
  EXPECT_EQ(elements_of(packed), full);
  packed.replace(all, all, in_parallel);
  EXPECT_EQ(elements_of(packed), zeros) << "all begin anew";
  packed.replace(all, {}, in_parallel);
  EXPECT_EQ(elements_of(packed), Elements());
  packed.replace({}, std::span(all).first(kCols), in_parallel);  // one row of an empty weight
  EXPECT_EQ(packed.nonzeros(), kCols);
  packed.replace(std::span(all).first(kCols), std::span(all).subspan(kCols), in_parallel);
  for (uint32_t col = 0; col < kCols; ++col) zeros.erase({0, col});
  EXPECT_EQ(elements_of(packed), zeros);
  expect_zeros_elsewhere(packed);
}

/// Sequences of small and large exchanges in a large matrix: some are packed in place, others not.
TEST(DynamicElements, FollowSequencesOfExchanges) {
  for (uint64_t seed = 600; seed < 606; ++seed) {
    base::RandomSequence random{base::RandomStream(seed)};
    const uint32_t rows = 200 + random.below(400), cols = 200 + random.below(400);
    const Type type = std::vector{Type::f32, Type::f16, Type::bf16}[random.below(3)];
    const SparseMatrix first =
        generate({PatternKind::random, rows, cols, 0.02 + 0.03 * random.below(4), 1, seed});
    const uint64_t capacity = first.values.size() + random.below(2) * first.values.size() / 10;
    SCOPED_TRACE(fmt::format("seed {}: {} x {}, {} non-zeros of {}, {}", seed, rows, cols,
                             first.values.size(), capacity, name_of(type)));
    PackedElements packed =
        PackedElements::dynamic(rows, cols, capacity, type, {.chunk_rows = (rows + 1) / 2});
    packed.set_matrix(first, in_parallel);
    std::vector<float> state = state_of(packed);
    for (int step = 0; step < 12; ++step) {
      Elements present = elements_of(packed);
      const uint32_t one_in = std::vector<uint32_t>{1, 2, 20, 20, 200, 5000}[random.below(6)];
      std::vector<BlockPosition> drop, grow;
      for (auto at = present.begin(); at != present.end();) {
        const auto [row, col] = at->first;
        if (random.below(one_in) != 0) {
          ++at;
          continue;
        }
        drop.push_back({row, col});
        at = present.erase(at);
      }
      const uint32_t most = random.below(8) == 0 ? 0 : static_cast<uint32_t>(drop.size());
      while (grow.size() < most) {
        const std::pair<uint32_t, uint32_t> at{random.below(rows), random.below(cols)};
        if (present.emplace(at, 0.0F).second) grow.push_back({at.first, at.second});
      }
      follow(*packed.replace(drop, grow, in_parallel), state, in_parallel);
      ASSERT_EQ(elements_of(packed), present);
      ASSERT_EQ(state, state_of(packed));
      expect_zeros_elsewhere(packed);
      // New values, so that moved values can be told from new ones.
      std::vector<float> values(packed.nonzeros());
      for (float& value : values) value = value_of(random);
      packed.set_values(values.data(), in_parallel);
      state = state_of(packed);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(DynamicElements, RefuseWhatDoesNotFitAndStayAsTheyWere) {
  const Elements elements = {{{0, 1}, 1.0F}, {{1, 0}, 2.0F}, {{1, 2}, 3.0F}};
  PackedElements packed = PackedElements::dynamic(3, 4, 3, Type::f32);
  packed.set_matrix(matrix_of(3, 4, elements));
  const auto refuses = [&](const Pattern& pattern, const char* why) {
    EXPECT_USAGE_ERROR(why, packed.set_pattern(pattern));
    EXPECT_EQ(elements_of(packed), elements);
  };
  refuses({3, 4, 1, {0, 4, 4, 4}, {0, 1, 2, 3}}, "1 more than its capacity of 3");
  refuses({3, 5, 1, {0, 1, 1, 1}, {0}}, "a weight of 3 x 4");
  refuses({3, 4, 1, {0, 2, 2, 2}, {1, 1}}, "");
  refuses({3, 4, 1, {0, 1, 1, 1}, {4}}, "");
  refuses({3, 4, 1, {0, 2, 1, 3}, {0, 1, 2}}, "");
  refuses({3, 4, 1, {0, 1}, {0}}, "");
  refuses({3, 4, 1, {1, 2, 2, 2}, {0, 1}}, "crow_indices[0] is 1");
  const auto refuses_edit = [&](std::vector<BlockPosition> drop, std::vector<BlockPosition> grow,
                                const char* why) {
    EXPECT_USAGE_ERROR(why, packed.replace(drop, grow));
    EXPECT_EQ(elements_of(packed), elements);
  };
  refuses_edit({{0, 0}}, {}, "(0, 0) cannot be dropped: it does not exist");
  refuses_edit({}, {{0, 1}}, "(0, 1) cannot be grown: it exists already");
  refuses_edit({{0, 1}, {0, 1}}, {}, "(0, 1) cannot be dropped: it is listed twice");
  refuses_edit({}, {{2, 2}, {0, 0}, {2, 2}}, "(2, 2) cannot be grown: it is listed twice");
  refuses_edit({{3, 1}}, {}, "3 x 4");
  refuses_edit({}, {{2, 2}}, "1 more than its capacity of 3");
  PackedElements fixed(matrix_of(3, 4, elements), Type::f32);
  EXPECT_USAGE_ERROR("its pattern is fixed", fixed.set_pattern(fixed.pattern()));
  EXPECT_USAGE_ERROR("places", PackedElements::dynamic(1 << 20, 1 << 20, 1ULL << 32, Type::f32));
  EXPECT_USAGE_ERROR("places", PackedElements::dynamic(3, 4, UINT64_MAX, Type::f32));
}

/// Each element of the transposed index, and the place that its value comes from.
void expect_transposed(const PackedElements& packed) {
  const TransposedElements& t = packed.transposed(in_parallel);
  ASSERT_EQ(t.index.rows, packed.cols());
  ASSERT_EQ(t.index.cols, packed.rows());
  ASSERT_GE(t.source.size(), t.index.value_count());
  const Pattern pattern = packed.pattern();
  const std::vector<uint64_t> permutation = packed.permutation();
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> expected;
  for (uint32_t row = 0; row < pattern.rows; ++row)
    for (uint64_t i = pattern.crow_indices[row]; i < pattern.crow_indices[row + 1]; ++i)
      expected[{pattern.col_indices[i], row}] = permutation[i];
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> found;
  std::vector<uint32_t> others = t.source;
  for (uint64_t block = 0; block + 1 < t.index.blocks.size(); ++block)
    for_each_slice(t.index, block, [&](uint16_t row, const ElementSlice& slice) {
      for_each_element(t.index, slice, [&](uint32_t column, uint64_t place) {
        const auto chunk = static_cast<uint32_t>(block / t.index.k_blocks());
        const auto first_column = static_cast<uint32_t>(block % t.index.k_blocks()) * t.index.k_block;
        found[{t.index.chunk_begin[chunk] + row, first_column + column}] = t.source[place];
        others[place] = static_cast<uint32_t>(packed.zero_place());
      });
    });
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(std::all_of(others.begin(), others.end(),
                          [&](uint32_t source) { return source == packed.zero_place(); }));
}

TEST(TransposedElements, HaveTheValuesOfTheOriginal) {
  for (uint64_t seed = 700; seed < 750; ++seed) {
    Drawn d(seed);
    SCOPED_TRACE(d.text);
    expect_transposed(PackedElements(matrix_of(d.rows, d.cols, d.first), d.type, d.packing));
    PackedElements packed = d.dynamic();
    expect_transposed(packed);
    const uint32_t* source = packed.transposed().source.data();
    packed.set_pattern(matrix_of(d.rows, d.cols, d.next(d.first)).pattern, in_parallel);
    expect_transposed(packed);
    EXPECT_EQ(packed.transposed().source.data(), source) << "the index has moved";
    if (testing::Test::HasFailure()) return;
  }
}

TEST(TransposedElements, AreBuiltByWhoeverComesFirst) {
  const PackedElements packed(generate({PatternKind::random, 500, 400, 0.1, 1, 3}), Type::f32);
  std::vector<const TransposedElements*> seen(4);
  std::vector<std::thread> threads;
  for (auto& s : seen) threads.emplace_back([&] { s = &packed.transposed(); });
  for (std::thread& thread : threads) thread.join();
  for (const TransposedElements* s : seen) EXPECT_EQ(s, seen[0]);
  expect_transposed(packed);
}

}  // namespace
}  // namespace tessera::sparse
