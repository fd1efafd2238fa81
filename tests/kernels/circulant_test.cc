// Circulant and Toeplitz layers against discrete Fourier transforms in float64, on every instruction set.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "base/isa.h"
#include "kernels/host/circulant/codelet.h"
#include "kernels/vertex_arrays.h"

namespace tessera::kernels {
namespace {

using test::Matrix;
using test::Random;
using test::Scratch;
using Complex = std::complex<double>;
using Vector = std::vector<double>;

/// Σ_j v_j e^(∓2πi jk / n).
std::vector<Complex> dft(const std::vector<Complex>& v, int sign) {
  const size_t n = v.size();
  std::vector<Complex> roots(n), result(n);
  for (size_t k = 0; k < n; ++k)
    roots[k] = std::polar(1.0, sign * 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n));
  for (size_t k = 0; k < n; ++k)
    for (size_t j = 0; j < n; ++j) result[k] += v[j] * roots[j * k % n];
  return result;
}

std::vector<Complex> padded(const Vector& v, size_t size) {
  std::vector<Complex> result(size);
  std::copy(v.begin(), v.end(), result.begin());
  return result;
}

/// The layer's definition: IDFT(DFT(c) ∘ DFT(x)); a Toeplitz matrix is part of a longer convolution.
Vector layer(const CirculantShape& shape, const Vector& c, const Vector& x) {
  const size_t size = shape.toeplitz ? c.size() + x.size() : c.size();
  std::vector<Complex> spectrum = dft(padded(c, size), -1);
  const std::vector<Complex> of_x = dft(padded(x, size), -1);
  for (size_t k = 0; k < size; ++k) spectrum[k] *= of_x[k] / static_cast<double>(size);
  const std::vector<Complex> result = dft(spectrum, 1);
  Vector y(shape.out);
  for (size_t i = 0; i < y.size(); ++i) y[i] = result[shape.toeplitz ? i + shape.in - 1 : i].real();
  return y;
}

double dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Vector row_of(const Matrix& m, uint32_t row) {
  Vector v(m.cols);
  for (uint32_t i = 0; i < m.cols; ++i) v[i] = m(row, i);
  return v;
}

double norm(const Vector& v) { return std::sqrt(dot(v, v)); }

/// Of a value that is a sum of products of a's and b's elements: each halving of a transform rounds.
double tolerance(const CirculantShape& shape, double a, double b) {
  return 2 * epsilon_of(Type::f32) * std::log2(4.0 * shape.taps) * (a * b + 1e-3);
}

Matrix forward(const CirculantShape& shape, Matrix& x, Matrix& c, bool is_transposed = false) {
  Matrix y(x.rows, shape.out, NAN), x_turned = test::transposed(x), y_turned = test::transposed(y);
  Scratch scratch(circulant_forward_scratch(shape));
  const std::vector<program::FieldView> fields = {is_transposed ? x_turned.view() : x.view(), c.view(),
                                                  is_transposed ? y_turned.view() : y.view(), scratch.view()};
  const std::vector<int64_t> params = {is_transposed, shape.toeplitz};
  circulant_forward_codelet.simd({fields, params});
  return is_transposed ? test::transposed(y_turned) : y;
}

class CirculantTest : public ::testing::TestWithParam<CirculantShape> {
 protected:
  void TearDown() override { restrict_isa(available_isas().back()); }
};

TEST_P(CirculantTest, ForwardIsTheProductOfSpectra) {
  const CirculantShape shape = GetParam();
  Random random(shape.taps);
  Matrix x = Matrix(19, shape.in).fill(random), c = Matrix(1, shape.taps).fill(random);
  const uint32_t checked[] = {0, 7, 18};
  std::vector<Vector> expected;
  for (uint32_t sample : checked) expected.push_back(layer(shape, row_of(c, 0), row_of(x, sample)));
  for (Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    restrict_isa(isa);
    const Matrix y = forward(shape, x, c);
    for (size_t e = 0; e < expected.size(); ++e) {
      const double near = tolerance(shape, norm(row_of(c, 0)), norm(row_of(x, checked[e])));
      for (uint32_t i = 0; i < y.cols; ++i)
        ASSERT_NEAR(y(checked[e], i), expected[e][i], near) << "(" << checked[e] << ", " << i << ")";
    }
    EXPECT_EQ(forward(shape, x, c, true).values, y.values);
  }
}

TEST_P(CirculantTest, GradientsAreThoseOfTheDefinition) {
  const CirculantShape shape = GetParam();
  Random random(shape.taps);
  Matrix x = Matrix(19, shape.in).fill(random), c = Matrix(1, shape.taps).fill(random);
  Matrix dy = Matrix(x.rows, shape.out).fill(random);
  Vector to_c(shape.taps);
  std::vector<Vector> to_x(x.rows, Vector(shape.in));
  for (uint32_t i = 0; i < shape.out; ++i)
    for (uint32_t j = 0; j < shape.in; ++j) {
      const uint32_t tap = shape.toeplitz ? i + shape.in - 1 - j : (i + shape.taps - j) % shape.taps;
      for (uint32_t sample = 0; sample < x.rows; ++sample) {
        to_c[tap] += double{dy(sample, i)} * x(sample, j);
        to_x[sample][j] += double{dy(sample, i)} * c(0, tap);
      }
    }
  double all = 0;
  for (uint32_t sample = 0; sample < x.rows; ++sample)
    all += norm(row_of(x, sample)) * norm(row_of(dy, sample));
  for (Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    restrict_isa(isa);
    Matrix dx(x.rows, shape.in, NAN), dc(1, shape.taps, NAN);
    Scratch scratch(circulant_gradients_scratch(shape));
    const std::vector<program::FieldView> fields = {x.view(),  dy.view(), c.view(),
                                                    dx.view(), dc.view(), scratch.view()};
    const std::vector<int64_t> params = {0, shape.toeplitz};
    circulant_gradients_codelet.simd({fields, params});
    for (uint32_t tap = 0; tap < shape.taps; ++tap)
      ASSERT_NEAR(dc(0, tap), to_c[tap], tolerance(shape, all, 1)) << "tap " << tap;
    for (uint32_t sample = 0; sample < x.rows; ++sample) {
      const double near = tolerance(shape, norm(row_of(c, 0)), norm(row_of(dy, sample)));
      for (uint32_t j = 0; j < shape.in; ++j) ASSERT_NEAR(dx(sample, j), to_x[sample][j], near);
    }
  }
}

TEST_P(CirculantTest, SamplesDoNotDependOnEachOther) {
  const CirculantShape shape = GetParam();
  Random random(shape.taps);
  Matrix x = Matrix(19, shape.in).fill(random), c = Matrix(1, shape.taps).fill(random);
  Matrix spoiled = x, one(1, shape.in);
  spoiled(3, 0) = NAN;
  spoiled(17, shape.in - 1) = INFINITY;
  for (Isa isa : available_isas()) {
    restrict_isa(isa);
    const Matrix y = forward(shape, x, c), others = forward(shape, spoiled, c);
    std::copy_n(&x.values[size_t{7} * shape.in], shape.in, one.values.begin());
    const Matrix alone = forward(shape, one, c);
    const double near = tolerance(shape, norm(row_of(c, 0)), norm(row_of(x, 7)));
    for (uint32_t i = 0; i < shape.out; ++i) {
      EXPECT_TRUE(std::isnan(others(3, i)));
      EXPECT_EQ(others(2, i), y(2, i));
      EXPECT_EQ(others(18, i), y(18, i));
      EXPECT_NEAR(alone(0, i), y(7, i), near) << name_of(isa);
    }
  }
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
