// Products on machines of several chips, through the public class.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/product.h>

#include <cmath>

#include "bound/product.h"
#include "sparse/generate.h"
#include "sparse/pattern.h"
#include "support/numbers.h"
#include "support/toy_machine.h"

namespace tessera {
namespace {

using test::random_floats;
using ::testing::HasSubstr;
using testing::toy_chips;

machine::Machine chips(uint32_t count, uint32_t tiles_each = 4) {
  machine::Machine m = toy_chips(count, tiles_each);
  m.superstep_cycles = 30;
  return m;
}

struct Numbers {
  SparseMatrix w;
  uint32_t n;
  std::vector<float> x, y;

  Numbers(uint32_t m, uint32_t k, uint32_t columns, uint32_t block)
      : w{sparse::generate_pattern({PatternKind::random, m, k, 0.5, block, 3}), {}},
        n(columns),
        x(random_floats(uint64_t{k} * n, 1)),
        y(random_floats(uint64_t{m} * n, 2)) {
    w.values = random_floats(w.pattern.blocks() * block * block, 3);
  }

  /// One product in float64: Y, dX or dW at all elements.
  std::vector<double> expected(ProductKind kind) const {
    const uint32_t m = w.pattern.rows, k = w.pattern.cols;
    const std::vector<float> full = sparse::to_dense(w);
    std::vector<double> result(kind == ProductKind::forward          ? y.size()
                               : kind == ProductKind::input_gradient ? x.size()
                                                                     : full.size());
    for (uint32_t i = 0; i < m; ++i)
      for (uint32_t p = 0; p < k; ++p)
        for (uint32_t j = 0; j < n; ++j) {
          const double weight = full[uint64_t{i} * k + p];
          const double of_x = x[uint64_t{p} * n + j], of_y = y[uint64_t{i} * n + j];
          if (kind == ProductKind::forward) result[uint64_t{i} * n + j] += weight * of_x;
          if (kind == ProductKind::input_gradient) result[uint64_t{p} * n + j] += weight * of_y;
          if (kind == ProductKind::sddmm) result[uint64_t{i} * k + p] += of_y * of_x;
        }
    return result;
  }
};

TEST(ChipProducts, AreRightAndTakeWhatWasPredicted) {
  for (const bool dense : {false, true})
    for (const bool dynamic : {false, true})
      for (const ProductKind kind : {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm})
        for (const uint32_t n : {7U, 16U}) {
          if (dense && dynamic) continue;
          SCOPED_TRACE(::testing::Message() << dense << dynamic << static_cast<int>(kind) << " n " << n);
          Numbers numbers(48, 32, n, 4);
          const std::vector<double> expected = numbers.expected(kind);
          Product product(numbers.w, n, Machine(chips(4)),
                          {.kind = kind,
                           .capacity = dynamic ? std::optional(numbers.w.pattern.blocks()) : std::nullopt,
                           .dense = dense});
          ASSERT_TRUE(product.fits());
          std::vector<float> x = numbers.x, y = numbers.y;
          const ProductProfile run = product.run({x.data(), n, 1}, {y.data(), n, 1});
          EXPECT_DOUBLE_EQ(run.seconds, product.estimate().seconds);
          EXPECT_TRUE(dynamic || std::abs(run.seconds / product.predicted_seconds() - 1) < 1e-9);
          if (kind != ProductKind::sddmm) {
            const std::vector<float>& found = kind == ProductKind::forward ? y : x;
            for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-4);
            continue;
          }
          const std::vector<float> found = sparse::to_dense({numbers.w.pattern, product.gradient()});
          const std::vector<float> mask =
              sparse::to_dense({numbers.w.pattern, std::vector<float>(numbers.w.values.size(), 1.0F)});
          for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], mask[i] * expected[i], 1e-4);
        }
}

TEST(ChipProducts, SpreadLargeOnesAndSayWhenNot) {
  const Numbers small(16, 16, 1, 4), large(64, 64, 128, 4);
  machine::Machine far = chips(4);
  far.link_latency_seconds = 1e-5;
  Product one(small.w, small.n, Machine(far));
  EXPECT_THAT(one.plan(), HasSubstr("1 of 4 chips: "));
  Product four(large.w, large.n, Machine(chips(4)));
  EXPECT_THAT(four.plan(), HasSubstr("4 chips, each 32 columns: "));
  EXPECT_LT(four.predicted_seconds(), 0.5 * Product(large.w, large.n, Machine(chips(1))).predicted_seconds());
  const bound::BoundProduct inside(large.w, {.n = large.n, .type = Type::f32}, chips(4));
  ASSERT_GT(inside.candidates().size(), 4u);
  EXPECT_THAT(inside.candidates()[0].partition, HasSubstr("1 of 4 chips"));
  EXPECT_THAT(inside.candidates()[0].rejected, HasSubstr("slower than"));
}

TEST(ChipProducts, TakeOperandsWhereTheyLie) {
  const Numbers large(64, 64, 128, 4);
  const ops::ProductProblem problem{.n = large.n, .type = Type::f32};
  const auto layouts_of = [&](uint32_t count, const ops::LayoutChoices& lying = {}) {
    const bound::BoundProduct on(large.w, problem, chips(count), {}, nullptr, {.tiles = lying});
    return on.tile_plan().layouts;
  };
  const auto same = [](const ops::OperandLayout& a, const ops::OperandLayout& b) {
    return a.mapping == b.mapping;
  };
  const auto one = layouts_of(1), four = layouts_of(4);
  EXPECT_TRUE(same(layouts_of(4, {.x = {one.x}}).x, one.x));
  EXPECT_FALSE(same(four.x, one.x));
  EXPECT_TRUE(same(layouts_of(4, {.y = {one.y}}).y, one.y));
  EXPECT_FALSE(same(four.y, one.y));
  // Replicas have the weight in the layout of one chip; chips that work as one have another layout.
  const auto as_one = ops::plan_closed_product(large.w.pattern, problem, chips(4)).plan.layouts;
  EXPECT_FALSE(same(four.values, as_one.values));
  EXPECT_TRUE(same(layouts_of(4, {.values = {as_one.values}}).values, as_one.values));
}

TEST(ChipProducts, OfWeightsLargerThanAChip) {
  // 256 KB on chips of 4 × 64 KB.
  const Numbers numbers(256, 256, 4, 4);
  Product product(numbers.w, numbers.n, Machine(chips(4)), {.dense = true});
  EXPECT_THAT(product.plan(), HasSubstr("4 chips as one: "));
  ASSERT_TRUE(product.fits());
  std::vector<float> x = numbers.x, y = numbers.y;
  product.run({x.data(), numbers.n, 1}, {y.data(), numbers.n, 1});
  const std::vector<double> expected = numbers.expected(ProductKind::forward);
  for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], expected[i], 1e-3);
}

TEST(ChipMachines, TellTheirChips) {
  const Machine m2000 = Machine::find("m2000");
  EXPECT_EQ(m2000.chips(), 4u);
  EXPECT_EQ(m2000.tiles(), 4 * 1472u);
  EXPECT_EQ(Machine::find("gc200").chips(), 1u);
  EXPECT_EQ(m2000.with("chips", 2).tiles(), 2 * 1472u);
}

}  // namespace
}  // namespace tessera
