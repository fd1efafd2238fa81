// Circulant and Toeplitz layers of many shapes against their reference, on every instruction set.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/host/circulant/codelet.h"
#include "kernels/vertex_arrays.h"
#include "support/every_isa.h"

namespace tessera::kernels {
namespace {

using test::Matrix;
using test::Random;
using test::Scratch;
using Vector = std::vector<double>;

Vector row_of(const Matrix& m, uint32_t row) {
  Vector v(m.cols);
  for (uint32_t i = 0; i < m.cols; ++i) v[i] = m(row, i);
  return v;
}

double norm(const Vector& v) { return std::sqrt(std::inner_product(v.begin(), v.end(), v.begin(), 0.0)); }

/// Of a value that is a sum of products of a's and b's elements: each halving of a transform rounds.
double tolerance(const CirculantShape& shape, double a, double b) {
  return 2 * epsilon_of(Type::f32) * std::log2(4.0 * shape.taps) * (a * b + 1e-3);
}

Matrix forward(const CirculantShape& shape, Matrix& x, Matrix& c, bool is_transposed = false,
               program::RunVertex run = circulant_forward_codelet.simd) {
  return test::run_forward(run, x, {c.view()}, shape.out, circulant_forward_scratch(shape),
                           {is_transposed, shape.toeplitz});
}

class CirculantTest : public ::testing::TestWithParam<CirculantShape> {};

TEST_P(CirculantTest, ForwardAgreesWithTheReference) {
  const CirculantShape shape = GetParam();
  Random random(shape.taps);
  Matrix x = Matrix(19, shape.in).fill(random), c = Matrix(1, shape.taps).fill(random);
  const Matrix expected = forward(shape, x, c, false, circulant_forward_codelet.reference);
  test::on_every_isa([&] {
    const Matrix y = forward(shape, x, c);
    for (uint32_t sample = 0; sample < y.rows; ++sample) {
      const double near = tolerance(shape, norm(row_of(c, 0)), norm(row_of(x, sample)));
      for (uint32_t i = 0; i < y.cols; ++i)
        ASSERT_NEAR(y(sample, i), expected(sample, i), near) << "(" << sample << ", " << i << ")";
    }
    EXPECT_EQ(forward(shape, x, c, true).values, y.values);
  });
}

TEST_P(CirculantTest, GradientsAgreeWithTheReference) {
  const CirculantShape shape = GetParam();
  Random random(shape.taps);
  Matrix x = Matrix(19, shape.in).fill(random), c = Matrix(1, shape.taps).fill(random);
  Matrix dy = Matrix(x.rows, shape.out).fill(random);
  struct Gradients {
    Matrix dx, dc;
  };
  const auto run = [&](program::RunVertex codelet) {
    Gradients to{{x.rows, shape.in, NAN}, {1, shape.taps, NAN}};
    Scratch scratch(circulant_gradients_scratch(shape));
    const std::vector<program::FieldView> fields = {x.view(),     dy.view(),    c.view(),
                                                    to.dx.view(), to.dc.view(), scratch.view()};
    const std::vector<int64_t> params = {0, shape.toeplitz};
    codelet({fields, params});
    return to;
  };
  const Gradients expected = run(circulant_gradients_codelet.reference);
  double all = 0;
  for (uint32_t sample = 0; sample < x.rows; ++sample)
    all += norm(row_of(x, sample)) * norm(row_of(dy, sample));
  test::on_every_isa([&] {
    const Gradients found = run(circulant_gradients_codelet.simd);
    for (uint32_t tap = 0; tap < shape.taps; ++tap)
      ASSERT_NEAR(found.dc(0, tap), expected.dc(0, tap), tolerance(shape, all, 1)) << "tap " << tap;
    for (uint32_t sample = 0; sample < x.rows; ++sample) {
      const double near = tolerance(shape, norm(row_of(c, 0)), norm(row_of(dy, sample)));
      for (uint32_t j = 0; j < shape.in; ++j) ASSERT_NEAR(found.dx(sample, j), expected.dx(sample, j), near);
    }
  });
}

TEST_P(CirculantTest, SamplesDoNotDependOnEachOther) {
  const CirculantShape shape = GetParam();
  Random random(shape.taps);
  Matrix x = Matrix(19, shape.in).fill(random), c = Matrix(1, shape.taps).fill(random);
  Matrix spoiled = x, one(1, shape.in);
  spoiled(3, 0) = NAN;
  spoiled(17, shape.in - 1) = INFINITY;
  test::on_every_isa([&] {
    const Matrix y = forward(shape, x, c), others = forward(shape, spoiled, c);
    std::copy_n(&x.values[size_t{7} * shape.in], shape.in, one.values.begin());
    const Matrix alone = forward(shape, one, c);
    const double near = tolerance(shape, norm(row_of(c, 0)), norm(row_of(x, 7)));
    for (uint32_t i = 0; i < shape.out; ++i) {
      EXPECT_TRUE(std::isnan(others(3, i)));
      EXPECT_EQ(others(2, i), y(2, i));
      EXPECT_EQ(others(18, i), y(18, i));
      EXPECT_NEAR(alone(0, i), y(7, i), near);
    }
  });
}

constexpr CirculantShape kShapes[] = {
    {1, 1, 1, false},          {2, 2, 2, false},       {3, 4, 4, false},          {8, 8, 8, false},
    {16, 16, 16, false},       {30, 32, 32, false},    {64, 50, 64, false},       {128, 128, 128, false},
    {256, 256, 256, false},    {500, 512, 512, false}, {5, 7, 7, false},          {37, 21, 60, false},
    {1024, 1024, 1024, false}, {33, 20, 52, true},     {1, 9, 9, true},           {70, 1, 70, true},
    {60, 70, 129, true},       {4, 6, 1024, false},    {2048, 2048, 2048, false},
};

INSTANTIATE_TEST_SUITE_P(Shapes, CirculantTest, ::testing::ValuesIn(kShapes), [](const auto& of) {
  const CirculantShape& s = of.param;
  return fmt::format("{}_{}x{}_of_{}", s.toeplitz ? "toeplitz" : "circulant", s.out, s.in, s.taps);
});

}  // namespace
}  // namespace tessera::kernels
