// SDDMM through the public API.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/io.h>
#include <tessera/spmm.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "bound/expect_spmm.h"
#include "support/error_of.h"

namespace tessera {
namespace {

using test::CallersMatrix;

constexpr uint32_t kRows = 77;
constexpr uint32_t kCols = 93;

/// Checks that dW holds alpha · dY·Xᵀ + beta · before at the pattern, and 0 everywhere else.
void expect_gradient(const Weight& weight, const CallersMatrix& dy, const CallersMatrix& x, uint32_t n,
                     float alpha, float beta, const std::vector<float>& before,
                     const std::vector<float>& dw) {
  const Pattern pattern = weight.pattern();
  const uint32_t b = pattern.block_size;
  std::vector<float> stored(pattern.blocks() * b * b), old(stored.size());
  weight.unpack(dw, stored);
  weight.unpack(before, old);
  for (uint32_t r = 0; r < pattern.block_rows(); ++r)
    for (uint64_t block = pattern.crow_indices[r]; block < pattern.crow_indices[r + 1]; ++block)
      for (uint32_t e = 0; e < b * b; ++e) {
        const uint32_t row = r * b + e / b, col = pattern.col_indices[block] * b + e % b;
        if (row >= pattern.rows || col >= pattern.cols) continue;
        const uint64_t i = block * b * b + e;
        double sum = 0, magnitude = 0;
        for (uint32_t j = 0; j < n; ++j) {
          sum += dy.at(row, j) * x.at(col, j);
          magnitude += std::abs(dy.at(row, j) * x.at(col, j));
        }
        const double kept = beta == 0 ? 0 : double{beta} * old[i];
        const double tolerance =
            (n + 8) * epsilon_of(Type::f32) / 2 * (std::abs(alpha) * magnitude + std::abs(kept));
        ASSERT_NEAR(stored[i], alpha * sum + kept, tolerance) << row << ", " << col;
      }
  std::vector<float> again(dw.size());
  weight.pack(stored, again);
  EXPECT_EQ(again, dw) << "a place that holds no stored element is not 0";
}

/// A packed array with a value at each stored element.
std::vector<float> some_state(const Weight& weight) {
  const Pattern pattern = weight.pattern();
  std::vector<float> values(sparse::stored_values(pattern));
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::cos(static_cast<float>(i));
  std::vector<float> packed(weight.packed_size());
  weight.pack(values, packed);
  return packed;
}

void run_and_check(const Weight& weight, const Sddmm& gradient, uint32_t n, Layout layout, float alpha,
                   float beta) {
  CallersMatrix dy(layout, weight.rows(), n, 0, 3, 1), x(layout, weight.cols(), n, 0, 3, 2);
  const std::vector<float> before = some_state(weight);
  std::vector<float> dw = before;
  gradient({.dy = dy.data(),
            .dy_leading = dy.leading,
            .x = x.data(),
            .x_leading = x.leading,
            .dw = dw.data(),
            .alpha = alpha,
            .beta = beta});
  expect_gradient(weight, dy, x, n, alpha, beta, before, dw);
}

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
  const Sddmm gradient(weight, n, {.dy_layout = layout, .x_layout = layout});
  EXPECT_EQ(gradient.packed_size(), weight.packed_size());
  run_and_check(weight, gradient, n, layout, 1.5F, 0);
  run_and_check(weight, gradient, n, layout, 1, -0.5F);
  if (!dynamic) return;
  // Another pattern, with fewer blocks: the gradient follows.
  weight.set_pattern(generate({PatternKind::random, kRows, kCols, 0.2, block_size, 12}).pattern);
  run_and_check(weight, gradient, n, layout, 1, 0);
  run_and_check(weight, gradient, n, layout, 1, 1);
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
    run_and_check(weight, Sddmm(weight, 20), 20, Layout::row_major, 1, 0);
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
  run_and_check(weight, gradient, 20, Layout::row_major, 1, 0);
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
