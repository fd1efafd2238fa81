// SDDMM through the public API.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/io.h>
#include <tessera/spmm.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "bound/expect_spmm.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using test::expect_gradient;

constexpr uint32_t kRows = 77;
constexpr uint32_t kCols = 93;

struct Shape {
  uint32_t block_size;
  uint32_t n;
  Layout layout;
  bool dynamic;
};

void PrintTo(const Shape& s, std::ostream* out) {
  *out << "b" << s.block_size << "-n" << s.n << (s.layout == Layout::row_major ? "-row" : "-col")
       << (s.dynamic ? "-dynamic" : "");
}

class SddmmTest : public ::testing::TestWithParam<Shape> {};

TEST_P(SddmmTest, ComputesWhatItSays) {
  const auto [block_size, n, layout, dynamic] = GetParam();
  const SparseMatrix matrix = generate({PatternKind::random, kRows, kCols, 0.3, block_size, 11});
  const uint64_t capacity = matrix.pattern.blocks() + 5;
  Weight weight = dynamic ? Weight::dynamic(matrix, capacity) : Weight(matrix);
  const SddmmOptions options{.dy_layout = layout, .x_layout = layout};
  const Sddmm gradient(weight, n, options);
  EXPECT_EQ(gradient.packed_size(), weight.packed_size());
  expect_gradient(weight, gradient, n, options, 1.5F, 0);
  expect_gradient(weight, gradient, n, options, 1, -0.5F);
  if (!dynamic) return;
  // Another pattern, with fewer blocks: the gradient follows.
  weight.set_pattern(generate({PatternKind::random, kRows, kCols, 0.2, block_size, 12}).pattern);
  expect_gradient(weight, gradient, n, options, 1, 0);
  expect_gradient(weight, gradient, n, options, 1, 1);
}

std::vector<Shape> shapes() {
  std::vector<Shape> shapes;
  for (uint32_t block_size : {1U, 4U, 8U, 16U, 32U})
    for (uint32_t n : {1U, 9U, 50U, 530U})
      for (Layout layout : {Layout::row_major, Layout::column_major})
        for (bool dynamic : {false, true}) shapes.push_back({block_size, n, layout, dynamic});
  return shapes;
}

INSTANTIATE_TEST_SUITE_P(Shapes, SddmmTest, ::testing::ValuesIn(shapes()));

TEST(Sddmm, TakesWeightsOfEveryType) {
  for (Type type : {Type::f16, Type::bf16}) {
    const Weight weight(generate({PatternKind::random, kRows, kCols, 0.3, 8, 11}), type);
    expect_gradient(weight, Sddmm(weight, 20), 20, {}, 1, 0);
  }
}

TEST(Sddmm, FollowsBlocksThatAreDroppedAndGrown) {
  Weight weight = Weight::dynamic(generate({PatternKind::random, kRows, kCols, 0.3, 8, 11}), 60);
  const Sddmm gradient(weight, 20);
  const Pattern pattern = weight.pattern();
  std::vector<BlockPosition> drop, grow;
  for (uint32_t row = 0; row < pattern.block_rows(); ++row) {
    const auto begin = pattern.col_indices.begin() + static_cast<std::ptrdiff_t>(pattern.crow_indices[row]);
    const auto end = pattern.col_indices.begin() + static_cast<std::ptrdiff_t>(pattern.crow_indices[row + 1]);
    if (begin != end && row % 2 == 0) drop.push_back({row, *begin});
    for (uint32_t col = 0; col < pattern.block_cols() && row % 3 == 0; ++col)
      if (std::find(begin, end, col) == end) {
        grow.push_back({row, col});
        break;
      }
  }
  ASSERT_FALSE(drop.empty());
  weight.replace(drop, grow);
  expect_gradient(weight, gradient, 20, {}, 1, 0);
}

TEST(Sddmm, RefusesWrongArguments) {
  const Weight weight(generate({PatternKind::random, 64, 32, 0.3, 8, 1}));
  const Sddmm gradient(weight, 10);
  std::vector<float> x(32 * 10), dy(64 * 10), dw(gradient.packed_size());
  const auto message_of = [&](const SddmmArguments& a) {
    return test::error_of<UsageError>([&] { gradient(a); });
  };
  EXPECT_TRUE(test::says(message_of({.x = x.data(), .dw = dw.data()}), "dY is null"));
  EXPECT_TRUE(test::says(message_of({.dy = dy.data(), .dw = dw.data()}), "X is null"));
  EXPECT_TRUE(test::says(message_of({.dy = dy.data(), .x = x.data()}), "dW is null"));
  EXPECT_TRUE(test::says(message_of({.dy = dy.data(), .x = x.data(), .x_leading = 9, .dw = dw.data()}),
                         "leading dimension of X is 9"));
  EXPECT_THROW(Sddmm(weight, 10, {.force = {{"colour", 1}}}), UsageError);
}

TEST(Sddmm, OutlivesTheWeightAndMoves) {
  std::optional<Weight> weight(generate({PatternKind::random, 64, 64, 0.3, 8, 1}));
  Sddmm gradient(*weight, 3);
  weight.reset();
  const Sddmm moved = std::move(gradient);
  std::vector<float> x(64 * 3, 1.0F), dy(64 * 3, 1.0F), dw(moved.packed_size());
  EXPECT_NO_THROW(moved(dy.data(), x.data(), dw.data()));
  EXPECT_GT(moved.predicted_seconds(), 0);
  EXPECT_FALSE(moved.plan().empty());
}

}  // namespace
}  // namespace tessera
