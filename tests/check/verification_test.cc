#include "check/verification.h"

#include <gtest/gtest.h>
#include <tessera/io.h>

#include <cmath>
#include <limits>

namespace tessera::check {
namespace {

/// W·X by plain sums, for corrupting.
struct Case {
  explicit Case(uint32_t columns) : n(columns), w(generate({PatternKind::random, 40, 30, 0.3, 4, 3})) {
    x.resize(uint64_t{30} * n);
    y.resize(uint64_t{40} * n);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    for (uint32_t r = 0; r < w.pattern.block_rows(); ++r)
      for (uint64_t b = w.pattern.crow_indices[r]; b < w.pattern.crow_indices[r + 1]; ++b)
        for (uint32_t e = 0; e < 16; ++e) {
          const uint32_t row = r * 4 + e / 4;
          const uint32_t col = w.pattern.col_indices[b] * 4 + e % 4;
          if (row < 40 && col < 30)
            for (uint32_t j = 0; j < n; ++j) y[row * n + j] += w.values[b * 16 + e] * x[col * n + j];
        }
  }

  Verification check(Extent extent) const {
    return verify_product({w, {x.data(), n, 1}, {y.data(), n, 1}, n}, extent, 5, 2);
  }

  uint32_t n;
  SparseMatrix w;
  std::vector<float> x;
  std::vector<float> y;
};

TEST(Verification, AcceptsARightProduct) {
  for (uint32_t n : {1U, 33U, 100U})
    for (Extent extent : {Extent::automatic, Extent::full, Extent::sample}) {
      const Verification v = Case(n).check(extent);
      EXPECT_TRUE(v.verified);
      EXPECT_GT(v.tolerance, v.max_rel_error);
    }
}

TEST(Verification, FindsOneWrongElementWhereverItIs) {
  for (size_t at : {0U, 1234U, 3999U})
    for (Extent extent : {Extent::full, Extent::sample}) {
      Case c(100);
      c.y[at] += 0.01F;
      EXPECT_FALSE(c.check(extent).verified) << at;
    }
}

TEST(Verification, HasNoSmallErrorWhereSomethingIsNoNumber) {
  Case wrong(100);
  wrong.y[1234] = NAN;
  EXPECT_TRUE(std::isnan(wrong.check(Extent::full).max_abs_error));
  EXPECT_TRUE(std::isnan(wrong.check(Extent::full).max_rel_error));
  Case unbounded(100);
  unbounded.y[1234] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(unbounded.check(Extent::full).max_abs_error));
  // Also where the weight has none, and no other result would be right.
  for (Extent extent : {Extent::full, Extent::sample}) {
    Case weight(100);
    for (float& v : weight.w.values) v = NAN;
    for (float& v : weight.y) v = NAN;
    EXPECT_TRUE(std::isnan(weight.check(extent).max_abs_error));
  }
}

TEST(Verification, WantsNaNAndInfinityWhereTheReferenceHasThem) {
  Case c(3);
  const float infinity = std::numeric_limits<float>::infinity();
  c.y[4] = NAN;
  EXPECT_FALSE(c.check(Extent::full).verified);
  c = Case(3);
  for (uint32_t i = 0; i < 30; ++i) c.x[i * 3] = infinity;
  EXPECT_FALSE(c.check(Extent::full).verified);
}

/// dY·Xᵀ at a pattern by plain sums, for corrupting.
struct GradientCase {
  GradientCase(uint32_t size, uint32_t columns)
      : n(columns),
        dw(generate({PatternKind::random, size, size - 1, 0.9, 4, 3})),
        x(uint64_t{size} * n),
        dy(uint64_t{size} * n) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    for (size_t i = 0; i < dy.size(); ++i) dy[i] = std::cos(static_cast<float>(i));
    const Pattern& p = dw.pattern;
    for (uint32_t r = 0; r < p.block_rows(); ++r)
      for (uint64_t b = p.crow_indices[r]; b < p.crow_indices[r + 1]; ++b)
        for (uint32_t e = 0; e < 16; ++e) {
          const uint32_t row = r * 4 + e / 4;
          const uint32_t col = p.col_indices[b] * 4 + e % 4;
          double sum = 0;
          for (uint32_t j = 0; row < p.rows && col < p.cols && j < n; ++j)
            sum += double{dy[row * n + j]} * x[col * n + j];
          dw.values[b * 16 + e] = static_cast<float>(sum);
        }
  }

  Verification check(Extent extent) const {
    return verify_sddmm({dw, {x.data(), n, 1}, {dy.data(), n, 1}, n}, extent, 5, 2);
  }

  uint32_t n;
  SparseMatrix dw;
  std::vector<float> x;
  std::vector<float> dy;
};

TEST(Verification, AcceptsARightSddmmAndFindsAWrongElement) {
  for (uint32_t n : {0U, 1U, 33U}) {
    GradientCase c(41, n);
    const Verification v = c.check(Extent::automatic);
    EXPECT_TRUE(v.verified);
    EXPECT_FALSE(v.sampled);
    for (size_t at : {size_t{0}, c.dw.values.size() / 2 / 16 * 16}) {
      GradientCase broken = c;
      broken.dw.values[at] += 0.01F;
      EXPECT_FALSE(broken.check(Extent::full).verified) << "n = " << n << ", element " << at;
    }
  }
}

TEST(Verification, SamplesLargeSddmmByBlocks) {
  GradientCase c(60, 30000);
  const Verification v = c.check(Extent::sample);
  EXPECT_TRUE(v.verified);
  EXPECT_TRUE(v.sampled);
  c.dw.values.front() += 1;
  EXPECT_FALSE(c.check(Extent::sample).verified);  // the first block and the last are among them
}

TEST(Verification, ForgivesWhatTheTypeOfTheResultCannotHold) {
  SparseMatrix dw = generate({PatternKind::random, 1, 1, 1.0, 1, 3});
  const float x = 0x1p-13F;
  const float dy = 0x1.8p-12F;
  dw.values[0] = 0x1p-24F;  // the nearest FP16 number to 0x1.8p-25
  const auto check = [&](Type type) {
    return verify_sddmm({dw, {&x, 1, 1}, {&dy, 1, 1}, 1, type, Type::f32, Type::f32}, Extent::full, 1, 1);
  };
  EXPECT_TRUE(check(Type::f16).verified);
  EXPECT_FALSE(check(Type::f32).verified);
}

TEST(Verification, ToleranceFollowsFromLengthAndTypes) {
  EXPECT_LT(tolerance_of(16, Type::f32, Type::f32), tolerance_of(4096, Type::f32, Type::f32));
  EXPECT_GT(tolerance_of(16, Type::f32, Type::f16), epsilon_of(Type::f16));
  EXPECT_LT(tolerance_of(4096, Type::f32, Type::f32), 1e-4);
}

TEST(Verification, RoundsAsTheWeightsTypeDoes) {
  SparseMatrix w = generate({PatternKind::random, 8, 8, 1.0, 1, 3});
  EXPECT_EQ(rounded(w, Type::f32).values, w.values);
  EXPECT_NE(rounded(w, Type::bf16).values, w.values);
  EXPECT_EQ(rounded(rounded(w, Type::f16), Type::f16).values, rounded(w, Type::f16).values);
}

}  // namespace
}  // namespace tessera::check
