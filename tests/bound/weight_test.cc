// Weights through the public API: transposed products, packed order, and changing patterns.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/io.h>
#include <tessera/spmm.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "base/random.h"
#include "bound/expect_spmm.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/numbers.h"

namespace tessera {
namespace {

using test::expect_product;
using test::rounded;

struct Drawn {
  explicit Drawn(uint64_t seed) : random(base::RandomStream(seed)) {
    static constexpr uint32_t kBlocks[] = {1, 4, 8, 16, 32};
    static constexpr Type kTypes[] = {Type::f32, Type::f16, Type::bf16};
    block_size = kBlocks[random.below(5)];
    type = kTypes[random.below(3)];
    matrix = generate({static_cast<PatternKind>(random.below(3)), random.below(150) + 1,
                       random.below(150) + 1, 0.05 + 0.2 * random.below(4), block_size, seed});
    if (random.below(3) == 0) drop_rows();
    n = random.below(3) == 0 ? random.below(8) + 1 : random.below(90) + 1;
    test::draw_call(random, options, call);
    all = uint64_t{matrix.pattern.block_rows()} * matrix.pattern.block_cols();
  }

  /// Empties every other block row.
  void drop_rows() {
    SparseMatrix kept{{matrix.pattern.rows, matrix.pattern.cols, block_size, {0}, {}}, {}};
    const uint64_t values = uint64_t{block_size} * block_size;
    for (uint32_t r = 0; r < matrix.pattern.block_rows(); ++r) {
      for (uint64_t i = matrix.pattern.crow_indices[r]; r % 2 == 1 && i < matrix.pattern.crow_indices[r + 1];
           ++i) {
        kept.pattern.col_indices.push_back(matrix.pattern.col_indices[i]);
        kept.values.insert(kept.values.end(), matrix.values.begin() + static_cast<ptrdiff_t>(i * values),
                           matrix.values.begin() + static_cast<ptrdiff_t>((i + 1) * values));
      }
      kept.pattern.crow_indices.push_back(kept.pattern.col_indices.size());
    }
    matrix = std::move(kept);
  }

  std::string describe() const {
    return fmt::format("{} × {}, {} blocks of {}, n {}, {}{}", matrix.pattern.rows, matrix.pattern.cols,
                       matrix.pattern.blocks(), block_size, n, name_of(type),
                       options.transpose ? ", transposed" : "");
  }

  base::RandomSequence random;
  uint32_t block_size, n;
  Type type;
  SparseMatrix matrix;
  SpmmOptions options;
  test::ProductCall call;
  uint64_t all;  ///< blocks of a full pattern
};

TEST(Weight, ProductsMatchFloat64StaticAndTransposed) {
  for (uint64_t seed = 0; seed < test::number_of_cases(50, 250); ++seed) {
    const Drawn d(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, d.describe()));
    const Weight weight(d.matrix, d.type);
    expect_product(weight, Spmm(weight, d.n, d.options), d.n, d.options, seed, d.call);
    if (testing::Test::HasFailure()) return;
  }
}

/// Drops and grows about a quarter of the blocks.
void drop_and_grow(Weight& weight, base::RandomSequence& random) {
  const Pattern pattern = weight.pattern();
  std::vector<BlockPosition> drop;
  std::vector<BlockPosition> grow;
  std::set<std::pair<uint32_t, uint32_t>> taken;
  for (uint32_t r = 0; r < pattern.block_rows(); ++r)
    for (uint64_t i = pattern.crow_indices[r]; i < pattern.crow_indices[r + 1]; ++i) {
      if (random.below(4) == 0)
        drop.push_back({r, pattern.col_indices[i]});
      else
        taken.insert({r, pattern.col_indices[i]});
    }
  while (taken.size() < weight.capacity() && random.below(20) != 0) {
    const BlockPosition at{random.below(pattern.block_rows()), random.below(pattern.block_cols())};
    if (taken.insert({at.row, at.col}).second) grow.push_back(at);
  }
  weight.replace(drop, grow);
  std::vector<float> values(sparse::stored_values(weight.pattern()));
  weight.get_values(values);
  for (float& value : values)
    if (value == 0) value = rounded(static_cast<float>(random.below(100)) / 64, weight.type());
  weight.set_values(values);
}

TEST(Weight, ProductsFollowAChangingPattern) {
  for (uint64_t seed = 0; seed < test::number_of_cases(30, 80); ++seed) {
    Drawn d(seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, d.describe()));
    const uint64_t capacity = std::min(d.all, d.matrix.pattern.blocks() + 5);
    Weight weight = Weight::dynamic(d.matrix, capacity, d.type);
    EXPECT_TRUE(weight.is_dynamic());
    SpmmOptions turned = d.options;
    turned.transpose = !turned.transpose;
    const Spmm product(weight, d.n, d.options);
    const Spmm other(weight, d.n, turned);
    for (int step = 0; step < 4; ++step) {
      expect_product(weight, product, d.n, d.options, seed, d.call);
      expect_product(weight, other, d.n, turned, seed, d.call);
      if (testing::Test::HasFailure()) return;
      if (step == 1) {
        weight.set_matrix(d.matrix);
      } else {
        drop_and_grow(weight, d.random);
      }
    }
  }
}

TEST(Weight, DynamicWithTheSamePatternGivesTheSameBits) {
  for (uint32_t block_size : {4U, 8U, 16U, 32U}) {
    const SparseMatrix matrix = generate({PatternKind::random, 200, 160, 0.3, block_size, 1});
    const Weight fixed(matrix);
    const Weight dynamic = Weight::dynamic(matrix, matrix.pattern.blocks() + 9);
    std::vector<float> x(160 * 48);
    base::RandomStream(2).fill_symmetric(x);
    std::vector<float> a(200 * 48);
    std::vector<float> b(200 * 48);
    const SpmmOptions options{
        .force = {{"kernel", 0}, {"panel_cols", 48}, {"row_parts", 1}, {"col_parts", 1}}};
    Spmm(fixed, 48, options)(x.data(), a.data());
    Spmm(dynamic, 48, options)(x.data(), b.data());
    EXPECT_EQ(a, b);
  }
}

TEST(Weight, PackedOrderIsThatOfTheValues) {
  for (uint32_t block_size : {1U, 4U, 8U, 32U}) {
    const SparseMatrix matrix = generate({PatternKind::random, 77, 93, 0.4, block_size, 3});
    Weight weight = Weight::dynamic(matrix, matrix.pattern.blocks() + 2);
    if (block_size > 1) {
      ASSERT_EQ(weight.packed_size(), weight.capacity() * block_size * block_size);
    }
    std::vector<float> values(matrix.values.size());
    weight.get_values(values);
    std::vector<float> packed(weight.packed_size(), 9.0F);
    weight.pack(values, packed);
    EXPECT_TRUE(std::equal(packed.begin(), packed.end(), weight.packed_values().begin()));
    for (float& value : weight.packed_values()) value *= 2;
    std::vector<float> doubled(values.size());
    weight.get_values(doubled);
    std::vector<float> unpacked(values.size());
    weight.unpack(packed, unpacked);
    EXPECT_EQ(unpacked, values);
    for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(doubled[i], 2 * values[i]);
  }
}

/// Y of a product on this many threads, with its best plan for them.
std::vector<float> product_on(uint32_t threads, const Weight& weight, uint32_t n, bool transpose) {
  std::vector<float> x(uint64_t{transpose ? weight.rows() : weight.cols()} * n);
  std::vector<float> y(uint64_t{transpose ? weight.cols() : weight.rows()} * n);
  base::RandomStream(11).fill_symmetric(x);
  Spmm(weight, n, {.transpose = transpose, .threads = threads})(x.data(), y.data());
  return y;
}

// One prepared weight serves every number of threads; only its order decides the order of sums.
TEST(Weight, OfSingleElementsHasTheSameProductsOnAnyNumberOfThreads) {
  const SparseMatrix matrix = generate({PatternKind::power_law, 1100, 300, 0.5, 1, 8});
  const Weight fixed(matrix), changing = Weight::dynamic(matrix, matrix.pattern.blocks() + 100);
  for (const Weight& weight : {fixed, changing})
    for (const bool transpose : {false, true})
      for (const uint32_t n : {1U, 8U, 70U}) {
        SCOPED_TRACE(fmt::format("dynamic {}, transposed {}, n = {}", weight.is_dynamic(), transpose, n));
        const std::vector<float> one = product_on(1, weight, n, transpose);
        for (const uint32_t threads : {2U, 3U, 8U, 16U})
          EXPECT_EQ(product_on(threads, weight, n, transpose), one) << threads << " threads";
      }
}

TEST(Weight, ConvertsStateToTheOrderOfValues) {
  const SparseMatrix matrix = generate({PatternKind::random, 300, 200, 0.2, 1, 8});
  const Weight elements(matrix);
  std::vector<float> packed(elements.packed_size()), back(matrix.values.size());
  elements.pack(matrix.values, packed);
  permute_packed(elements.packed_format(), PackedFormat::values, elements.pattern(), packed, back);
  EXPECT_EQ(back, matrix.values);
  EXPECT_EQ(Weight::dynamic(matrix, matrix.values.size()).packed_format(), PackedFormat::dynamic);
}

class StateOfBlocks : public testing::TestWithParam<uint32_t> {};

TEST_P(StateOfBlocks, FollowsWhereBlocksStay) {
  const uint32_t b = GetParam();
  const SparseMatrix matrix = generate({PatternKind::random, 64, 64, 0.5, b, 3});
  Weight weight = Weight::dynamic(matrix, matrix.pattern.blocks());
  std::vector<float> momentum(weight.packed_values().begin(), weight.packed_values().end());
  const Pattern before = weight.pattern();
  const BlockPosition gone{0, before.col_indices[0]};
  const auto row_end = before.col_indices.begin() + static_cast<ptrdiff_t>(before.crow_indices[1]);
  uint32_t absent = 0;
  while (std::find(before.col_indices.begin(), row_end, absent) != row_end) ++absent;
  const BlockPosition grown{0, absent};
  const Relocation moved = weight.replace({&gone, 1}, {&grown, 1});
  moved.apply(momentum);
  EXPECT_TRUE(std::equal(momentum.begin(), momentum.end(), weight.packed_values().begin()));
  EXPECT_EQ(momentum.size() - std::count(momentum.begin(), momentum.end(), 0.0F),
            matrix.values.size() - b * b);
  std::vector<float> small(64);
  EXPECT_USAGE_ERROR("64 elements", moved.apply(small));
}

TEST_P(StateOfBlocks, FollowsWhenTheyAreCompacted) {
  const uint32_t b = GetParam();
  for (const Type type : {Type::f32, Type::bf16}) {
    const SparseMatrix matrix = generate({PatternKind::random, 100, 90, 0.3, b, 4});
    Weight weight = Weight::dynamic(matrix, matrix.pattern.blocks() + 3, type);
    base::RandomSequence random{base::RandomStream(5)};
    for (int step = 0; step < 4; ++step) drop_and_grow(weight, random);
    std::vector<float> values(weight.pattern().blocks() * b * b), state(weight.packed_size()),
        after(state.size());
    weight.get_values(values);
    weight.pack(values, state);
    const Spmm product(weight, 40), back(weight, 40, {.transpose = true});
    const Relocation moved = weight.compact();
    moved.apply(state);
    weight.pack(values, after);
    EXPECT_EQ(state, after) << "an optimizer's state";
    std::vector<float> same(values.size());
    weight.get_values(same);
    EXPECT_EQ(same, values);
    expect_product(weight, product, 40, {}, 6);
    expect_product(weight, back, 40, {.transpose = true}, 6);
    if (b == 1) continue;
    std::vector<float> in_order(weight.packed_size());
    Weight::dynamic({weight.pattern(), values}, weight.capacity()).pack(values, in_order);
    EXPECT_EQ(after, in_order);
  }
  Weight fixed(generate({PatternKind::random, 64, 64, 0.5, b, 3}));
  EXPECT_THROW(fixed.compact(), UsageError);
}

INSTANTIATE_TEST_SUITE_P(BlockSizes, StateOfBlocks, testing::Values(1U, 4U, 8U));

/// Y = W·X, or Wᵀ·X, with values that the caller keeps.
std::vector<float> product_with(const Weight& weight, std::span<const float> values, uint32_t n,
                                bool transpose) {
  std::vector<float> x(uint64_t{transpose ? weight.rows() : weight.cols()} * n);
  std::vector<float> y(uint64_t{transpose ? weight.cols() : weight.rows()} * n);
  base::RandomStream(11).fill_symmetric(x);
  const Spmm product(weight, n, {.transpose = transpose, .threads = 1});
  product({.x = x.data(), .y = y.data(), .values = values.data()});
  return y;
}

class KeptByTheCaller : public testing::TestWithParam<uint32_t> {};

TEST_P(KeptByTheCaller, GiveTheProductsOfAnEqualWeight) {
  const SparseMatrix matrix = generate({PatternKind::random, 150, 90, 0.3, GetParam(), 3});
  const Weight own(matrix), fixed = Weight::without_values(matrix.pattern);
  ASSERT_EQ(fixed.packed_format(), own.packed_format());
  ASSERT_LT(fixed.bytes(), own.bytes());
  for (const uint32_t n : {1U, 40U})
    for (const bool transpose : {false, true})
      EXPECT_EQ(product_with(fixed, own.packed_values(), n, transpose), product_on(1, own, n, transpose));
}

TEST_P(KeptByTheCaller, HaveAnOrderOfThePatternAlone) {
  const uint32_t b = GetParam();
  Pattern pattern = generate({PatternKind::random, 150, 90, 0.3, b, 3}).pattern;
  const uint64_t capacity = pattern.blocks() + 3;
  Weight weight = Weight::without_values(pattern, capacity);
  EXPECT_EQ(weight.packed_format(), b == 1 ? PackedFormat::sorted_row_groups : PackedFormat::blocks);
  for (uint64_t seed = 4; seed < 8; ++seed) {
    const SparseMatrix next = generate({PatternKind::random, 150, 90, 0.28, b, seed});
    // Values that name their positions; blocks in both patterns keep theirs.
    std::vector<float> values(next.values.size()), state(weight.packed_size()), wanted(weight.packed_size());
    const auto named = [&](const Pattern& p) {
      std::vector<float> names;
      for (uint32_t row = 0; row < p.block_rows(); ++row)
        for (uint64_t i = p.crow_indices[row]; i < p.crow_indices[row + 1]; ++i)
          names.insert(names.end(), b * b, static_cast<float>(row * p.block_cols() + p.col_indices[i] + 1));
      return names;
    };
    weight.pack(named(pattern), state);
    const std::vector<float> before = named(pattern), after = named(next.pattern);
    const std::set<float> kept(before.begin(), before.end());
    std::transform(after.begin(), after.end(), values.begin(),
                   [&](float name) { return kept.contains(name) ? name : 0.0F; });
    weight.set_pattern(next.pattern).apply(state);
    const Weight fresh = Weight::without_values(next.pattern, capacity);
    fresh.pack(values, wanted);
    if (b > 1) {  // the overhang is 0 in any array
      std::vector<float> unpacked(values.size());
      weight.unpack(state, unpacked);
      weight.pack(unpacked, state);
    }
    ASSERT_EQ(state, wanted);
    fresh.pack(next.values, state);
    for (const bool transpose : {false, true})
      EXPECT_EQ(product_with(weight, state, 40, transpose), product_with(fresh, state, 40, transpose));
    pattern = next.pattern;
  }
  const Pattern full = generate({PatternKind::random, 150, 90, 1.0, b, 3}).pattern;
  EXPECT_USAGE_ERROR("its capacity of", weight.set_pattern(full));
}

TEST_P(KeptByTheCaller, CannotBeReadFromTheWeight) {
  const SparseMatrix matrix = generate({PatternKind::random, 64, 64, 0.3, GetParam(), 3});
  Weight weight = Weight::without_values(matrix.pattern, matrix.pattern.blocks());
  std::vector<float> values(matrix.values), x(64), y(64);
  const Spmm product(weight, 1);
  EXPECT_USAGE_ERROR("pass them with each call", product(x.data(), y.data()));
  EXPECT_THROW(weight.get_values(values), UsageError);
  EXPECT_THROW(weight.set_values(values), UsageError);
  EXPECT_THROW(weight.packed_values(), UsageError);
  EXPECT_THROW(weight.set_matrix(matrix), UsageError);
  EXPECT_THROW(weight.replace({}, {}), UsageError);
  EXPECT_THROW(weight.compact(), UsageError);
}

INSTANTIATE_TEST_SUITE_P(BlockSizes, KeptByTheCaller, testing::Values(1U, 4U, 16U));

TEST(Weight, RefusesMalformedPatterns) {
  for (const uint32_t b : {1U, 4U}) {
    SparseMatrix outside = generate({PatternKind::random, 64, 64, 0.5, b, 3});
    outside.pattern.col_indices[0] = 1000;
    SparseMatrix short_of_values = generate({PatternKind::random, 64, 64, 0.5, b, 3});
    short_of_values.values.pop_back();
    for (const SparseMatrix& wrong : {outside, short_of_values}) {
      EXPECT_THROW(Weight{wrong}, UsageError) << b;
      EXPECT_THROW(Weight::dynamic(wrong, 4096), UsageError) << b;
    }
  }
}

TEST(Weight, RefusesTypesThatItCannotStore) {
  for (const uint32_t b : {1U, 4U}) {
    const SparseMatrix matrix = generate({PatternKind::random, 64, 64, 0.25, b, 1});
    for (const Type type : {Type::u8, Type::u16, Type::u32, Type::i32, Type::u64, Type::f64}) {
      const auto refuses = [&](const auto& make) {
        return test::says(test::error_of<UsageError>(make), std::string(name_of(type)));
      };
      EXPECT_TRUE(refuses([&] { Weight(matrix, type); }));
      EXPECT_TRUE(refuses([&] { Weight::dynamic(matrix, 4096, type); }));
      EXPECT_TRUE(refuses([&] { Weight::without_values(matrix.pattern, type); }));
      EXPECT_TRUE(refuses([&] { Weight::without_values(matrix.pattern, 4096, type); }));
      EXPECT_TRUE(refuses([&] { Weight::dense({matrix.values.data(), 4, 1}, 4, 4, type); }));
    }
  }
  EXPECT_USAGE_ERROR("W is null", Weight::dense({}, 4, 4));
}

TEST(Weight, RefusesWhatItCannotDo) {
  const SparseMatrix matrix = generate({PatternKind::random, 64, 64, 0.5, 8, 3});
  for (const SparseMatrix& m : {matrix, generate({PatternKind::random, 64, 64, 0.5, 1, 3})}) {
    EXPECT_USAGE_ERROR("more than its capacity of 7", Weight::dynamic(m, 7));
    Weight fixed(m);
    EXPECT_USAGE_ERROR("its pattern is fixed", fixed.set_matrix(m));
  }
  const Weight fixed(matrix);
  EXPECT_FALSE(fixed.is_dynamic());
  EXPECT_EQ(fixed.capacity(), matrix.pattern.blocks());
  Weight half(matrix, Type::f16);
  EXPECT_USAGE_ERROR("f16", half.packed_values());
  std::vector<float> few(3);
  EXPECT_USAGE_ERROR("of 3 elements", fixed.pack(few, few));
}

// The first transposed products of a weight run concurrently: they build its index.
TEST(Weight, TransposedProductsMayBeginAtOnce) {
  for (const uint32_t block_size : {1U, 4U}) {
    const SparseMatrix matrix = generate({PatternKind::random, 256, 192, 0.3, block_size, 5});
    Weight weight = Weight::dynamic(matrix, matrix.pattern.blocks());
    const Spmm product(weight, 24, {.transpose = true});
    weight.set_pattern(generate({PatternKind::random, 256, 192, 0.3, block_size, 6}).pattern);
    std::vector<float> x(256 * 24, 1.0F);
    std::vector<std::vector<float>> results(4, std::vector<float>(192 * 24, 9.0F));
    std::vector<std::thread> callers;
    for (auto& y : results) callers.emplace_back([&] { product(x.data(), y.data()); });
    for (std::thread& caller : callers) caller.join();
    for (const auto& y : results) EXPECT_EQ(y, results[0]);
  }
}

}  // namespace
}  // namespace tessera
