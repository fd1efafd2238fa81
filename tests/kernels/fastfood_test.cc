// Fastfood layers against products of dense matrices in float64, on every instruction set.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/isa.h"
#include "kernels/host/fastfood/codelet.h"
#include "kernels/vertex_arrays.h"

namespace tessera::kernels {
namespace {

using test::Matrix;
using test::Random;
using test::Scratch;
using Vector = std::vector<double>;

/// H_2N = (H_N H_N; H_N −H_N), normalised at the end.
std::vector<Vector> hadamard_matrix(size_t size) {
  std::vector<Vector> h(size, Vector(size, 1));
  for (size_t half = 1; half < size; half *= 2)
    for (size_t i = 0; i < half; ++i)
      for (size_t j = 0; j < half; ++j) {
        h[i + half][j] = h[i][j + half] = h[i][j];
        h[i + half][j + half] = -h[i][j];
      }
  for (Vector& row : h)
    for (double& value : row) value /= std::sqrt(static_cast<double>(size));
  return h;
}

struct Shape {
  uint32_t size, stacks, in, out;
};

struct Layer {
  Shape shape;
  Matrix s, g, b;
  std::vector<uint32_t> permutation;

  Layer(const Shape& of, Random& random)
      : shape(of),
        s(of.stacks, of.size),
        g(of.stacks, of.size),
        b(of.stacks, of.size),
        permutation(size_t{of.stacks} * of.size) {
    for (Matrix* diagonal : {&s, &g, &b}) diagonal->fill(random);
    for (uint32_t stack = 0; stack < of.stacks; ++stack) {
      const auto row = permutation.begin() + stack * of.size;
      std::iota(row, row + of.size, 0U);
      for (uint32_t i = of.size; i > 1; --i) std::swap(row[i - 1], row[random.below(i)]);
    }
  }

  program::FieldView permutation_view() {
    return {
        reinterpret_cast<std::byte*>(permutation.data()), Type::u32, shape.stacks, shape.size, shape.size, 1};
  }

  /// S·H·G·Π·H·B·x of every stack.
  Vector operator()(const Vector& x, const std::vector<Vector>& h) const {
    Vector y;
    for (uint32_t stack = 0; stack < shape.stacks; ++stack) {
      Vector first(shape.size), second(shape.size);
      for (uint32_t i = 0; i < shape.size; ++i)
        for (uint32_t j = 0; j < shape.in; ++j) first[i] += h[i][j] * b(stack, j) * x[j];
      for (uint32_t i = 0; i < shape.size; ++i)
        for (uint32_t j = 0; j < shape.size; ++j)
          second[i] += h[i][j] * g(stack, j) * first[permutation[stack * shape.size + j]];
      for (uint32_t i = 0; i < shape.size; ++i) y.push_back(s(stack, i) * second[i]);
    }
    y.resize(shape.out);
    return y;
  }
};

Vector row_of(const Matrix& m, uint32_t row) {
  Vector v(m.cols);
  for (uint32_t i = 0; i < m.cols; ++i) v[i] = m(row, i);
  return v;
}

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// Values of transforms are as large as a sample's norm; each halving rounds.
double tolerance(const Shape& shape, double terms = 1) {
  return 2 * epsilon_of(Type::f32) * (2 * std::log2(shape.size) + 4) * terms * std::sqrt(shape.in);
}

Matrix forward(Layer& layer, Matrix& x, bool is_transposed = false) {
  Matrix y(x.rows, layer.shape.out, NAN), x_turned = test::transposed(x), y_turned = test::transposed(y);
  Scratch scratch(fastfood_forward_scratch(layer.shape.size));
  const std::vector<program::FieldView> fields = {is_transposed ? x_turned.view() : x.view(),
                                                  layer.s.view(),
                                                  layer.g.view(),
                                                  layer.b.view(),
                                                  layer.permutation_view(),
                                                  is_transposed ? y_turned.view() : y.view(),
                                                  scratch.view()};
  const std::vector<int64_t> params = {is_transposed};
  fastfood_forward_codelet.simd({fields, params});
  return is_transposed ? test::transposed(y_turned) : y;
}

class FastfoodTest : public ::testing::TestWithParam<Shape> {
 protected:
  void TearDown() override { restrict_isa(available_isas().back()); }
};

TEST_P(FastfoodTest, ForwardIsTheProductOfMatrices) {
  const Shape shape = GetParam();
  Random random(shape.size);
  Layer layer(shape, random);
  const std::vector<Vector> h = hadamard_matrix(shape.size);
  Matrix x = Matrix(19, shape.in).fill(random);
  for (Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    restrict_isa(isa);
    const Matrix y = forward(layer, x);
    for (uint32_t sample : {0U, 7U, 18U}) {
      const Vector expected = layer(row_of(x, sample), h);
      for (uint32_t i = 0; i < shape.out; ++i)
        ASSERT_NEAR(y(sample, i), expected[i], tolerance(shape)) << "(" << sample << ", " << i << ")";
    }
    EXPECT_EQ(forward(layer, x, true).values, y.values);
    Matrix one(1, shape.in);
    std::copy_n(&x.values[size_t{7} * shape.in], shape.in, one.values.begin());
    const Matrix alone = forward(layer, one);
    for (uint32_t i = 0; i < shape.out; ++i) ASSERT_NEAR(alone(0, i), y(7, i), tolerance(shape));
  }
}

TEST_P(FastfoodTest, GradientsAreThoseOfTheProduct) {
  const Shape shape = GetParam();
  // Products with large matrices take long: fewer samples, and elements.
  const uint32_t batch = shape.size > 64 ? 2 : 30, step = shape.size > 64 ? shape.size / 4 + 1 : 1;
  Random random(shape.size);
  Layer layer(shape, random);
  const std::vector<Vector> h = hadamard_matrix(shape.size);
  Matrix x = Matrix(batch, shape.in).fill(random), dy = Matrix(batch, shape.out).fill(random);
  const auto loss = [&](const Layer& of) {
    double sum = 0;
    for (uint32_t sample = 0; sample < batch; ++sample)
      sum += dot(row_of(dy, sample), of(row_of(x, sample), h));
    return sum;
  };
  // The loss is linear in each diagonal: its derivatives are its values at units.
  const auto derivatives = [&](Matrix Layer::*diagonal) {
    Matrix result(shape.stacks, shape.size);
    for (uint32_t stack = 0; stack < shape.stacks; ++stack)
      for (uint32_t i = 0; i < shape.size; i += step) {
        Layer at_unit = layer, at_zero = layer;
        std::fill_n(&(at_unit.*diagonal)(stack, 0), shape.size, 0.0F);
        std::fill_n(&(at_zero.*diagonal)(stack, 0), shape.size, 0.0F);
        (at_unit.*diagonal)(stack, i) = 1;
        result(stack, i) = static_cast<float>(loss(at_unit) - loss(at_zero));
      }
    return result;
  };
  const Matrix expected[] = {derivatives(&Layer::s), derivatives(&Layer::g), derivatives(&Layer::b)};
  for (Isa isa : available_isas()) {
    SCOPED_TRACE(name_of(isa));
    restrict_isa(isa);
    Matrix dx(batch, shape.in, NAN), diagonals[] = {{shape.stacks, shape.size, NAN},
                                                    {shape.stacks, shape.size, NAN},
                                                    {shape.stacks, shape.size, NAN}};
    Scratch scratch(fastfood_gradients_scratch(shape.size));
    const std::vector<program::FieldView> fields = {x.view(),
                                                    dy.view(),
                                                    layer.s.view(),
                                                    layer.g.view(),
                                                    layer.b.view(),
                                                    layer.permutation_view(),
                                                    dx.view(),
                                                    diagonals[0].view(),
                                                    diagonals[1].view(),
                                                    diagonals[2].view(),
                                                    scratch.view()};
    const std::vector<int64_t> params = {0};
    fastfood_gradients_codelet.simd({fields, params});
    for (size_t d = 0; d < 3; ++d)
      for (size_t i = 0; i < expected[d].values.size(); i += step)
        ASSERT_NEAR(diagonals[d].values[i], expected[d].values[i], tolerance(shape, batch))
            << "diagonal " << d << ", element " << i;
    for (uint32_t j = 0; j < shape.in; j += step) {
      Vector unit(shape.in);
      unit[j] = 1;
      const Vector column = layer(unit, h);
      for (uint32_t sample = 0; sample < batch; ++sample)
        ASSERT_NEAR(dx(sample, j), dot(row_of(dy, sample), column), tolerance(shape, shape.stacks));
    }
  }
}

constexpr Shape kShapes[] = {{1, 1, 1, 1},     {2, 1, 2, 2},       {4, 2, 3, 7},
                             {8, 1, 8, 8},     {16, 3, 5, 40},     {32, 1, 32, 29},
                             {64, 2, 64, 128}, {128, 1, 100, 128}, {512, 1, 500, 512}};

INSTANTIATE_TEST_SUITE_P(Shapes, FastfoodTest, ::testing::ValuesIn(kShapes), [](const auto& of) {
  const Shape& s = of.param;
  return fmt::format("{}x{}_by_{}_of_{}", s.out, s.in, s.stacks, s.size);
});

}  // namespace
}  // namespace tessera::kernels
