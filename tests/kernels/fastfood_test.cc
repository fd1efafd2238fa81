// Fastfood layers of many shapes against their reference, on every instruction set.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/host/fastfood/codelet.h"
#include "kernels/vertex_arrays.h"
#include "support/every_isa.h"

namespace tessera::kernels {
namespace {

using test::Matrix;
using test::Random;
using test::Scratch;

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
};

/// Values of transforms are as large as a sample's norm; each halving rounds.
double tolerance(const Shape& shape, double terms = 1) {
  return 2 * epsilon_of(Type::f32) * (2 * std::log2(shape.size) + 4) * terms * std::sqrt(shape.in);
}

Matrix forward(Layer& layer, Matrix& x, bool is_transposed = false,
               program::RunVertex run = fastfood_forward_codelet.simd) {
  return test::run_forward(run, x, {layer.s.view(), layer.g.view(), layer.b.view(), layer.permutation_view()},
                           layer.shape.out, fastfood_forward_scratch(layer.shape.size), {is_transposed});
}

/// dx, then those of the diagonals.
std::vector<Matrix> gradients(Layer& layer, Matrix& x, Matrix& dy, program::RunVertex run) {
  const Matrix diagonal(layer.shape.stacks, layer.shape.size, NAN);
  std::vector<Matrix> to = {{x.rows, layer.shape.in, NAN}, diagonal, diagonal, diagonal};
  Scratch scratch(fastfood_gradients_scratch(layer.shape.size));
  std::vector<program::FieldView> fields = {x.view(),       dy.view(),      layer.s.view(),
                                            layer.g.view(), layer.b.view(), layer.permutation_view()};
  for (Matrix& matrix : to) fields.push_back(matrix.view());
  fields.push_back(scratch.view());
  const std::vector<int64_t> params = {0};
  run({fields, params});
  return to;
}

class FastfoodTest : public ::testing::TestWithParam<Shape> {};

void expect_near(const Matrix& found, const Matrix& expected, double allowed) {
  for (size_t i = 0; i < expected.values.size(); ++i)
    ASSERT_NEAR(found.values[i], expected.values[i], allowed) << "element " << i;
}

TEST_P(FastfoodTest, ForwardAgreesWithTheReference) {
  const Shape shape = GetParam();
  Random random(shape.size);
  Layer layer(shape, random);
  Matrix x = Matrix(19, shape.in).fill(random), one(1, shape.in);
  std::copy_n(&x.values[size_t{7} * shape.in], shape.in, one.values.begin());
  const Matrix expected = forward(layer, x, false, fastfood_forward_codelet.reference);
  test::on_every_isa([&] {
    const Matrix y = forward(layer, x);
    expect_near(y, expected, tolerance(shape));
    EXPECT_EQ(forward(layer, x, true).values, y.values);
    const Matrix alone = forward(layer, one);
    for (uint32_t i = 0; i < shape.out; ++i) ASSERT_NEAR(alone(0, i), y(7, i), tolerance(shape));
  });
}

TEST_P(FastfoodTest, GradientsAgreeWithTheReference) {
  const Shape shape = GetParam();
  const uint32_t batch = shape.size > 64 ? 2 : 30;
  Random random(shape.size);
  Layer layer(shape, random);
  Matrix x = Matrix(batch, shape.in).fill(random), dy = Matrix(batch, shape.out).fill(random);
  const std::vector<Matrix> expected = gradients(layer, x, dy, fastfood_gradients_codelet.reference);
  test::on_every_isa([&] {
    const std::vector<Matrix> found = gradients(layer, x, dy, fastfood_gradients_codelet.simd);
    expect_near(found[0], expected[0], tolerance(shape, shape.stacks));
    for (size_t d = 1; d < found.size(); ++d) expect_near(found[d], expected[d], tolerance(shape, batch));
  });
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
