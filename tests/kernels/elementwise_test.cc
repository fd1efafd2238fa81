// Elementwise functions over the whole range of FP32, on every instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/map/elementwise/codelet.h"
#include "support/every_isa.h"

namespace tessera::kernels {
namespace {

std::vector<float> applied(Unary op, std::vector<float> numbers) {
  const auto count = static_cast<uint32_t>(numbers.size());
  const program::FieldView field{reinterpret_cast<std::byte*>(numbers.data()), Type::f32, 1, count, count, 1};
  apply_unary(op, 1, field, field);
  return numbers;
}

/// Expects results within some units in the last place, for subnormal numbers too, or within `absolute`.
void expect_close(Unary op, const std::vector<float>& numbers, double (*exact)(double), double absolute = 0) {
  constexpr double kUnits = 6;
  constexpr double kLeast = std::numeric_limits<float>::min();
  test::on_every_isa([&] {
    const std::vector<float> found = applied(op, numbers);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto expected = static_cast<double>(static_cast<float>(exact(numbers[i])));
      if (std::isfinite(expected))
        ASSERT_NEAR(found[i], expected,
                    kUnits * epsilon_of(Type::f32) * std::max(kLeast, std::abs(expected)) + absolute)
            << numbers[i];
      else
        ASSERT_EQ(found[i], expected) << numbers[i];
    }
  });
}

/// Numbers of both signs and every magnitude.
std::vector<float> all_magnitudes() {
  std::vector<float> numbers;
  for (float x = 1.1e-44F; std::isfinite(x); x *= 1.37F) numbers.push_back(x);
  const std::vector<float> positive = numbers;
  for (float x : positive) numbers.push_back(-x);
  return numbers;
}

std::vector<float> steps(float from, float to, float step) {
  std::vector<float> numbers;
  for (float x = from; x <= to; x += step) numbers.push_back(x);
  return numbers;
}

TEST(ElementwiseTest, ExponentialsOverflowAndUnderflow) {
  const auto exp = [](double x) { return std::exp(x); };
  expect_close(Unary::exp, steps(-110, 88.7F, 0.37F), exp);
  expect_close(Unary::exp, steps(88.75F, 400, 0.37F), exp);
  expect_close(Unary::exp, all_magnitudes(), exp);
}

TEST(ElementwiseTest, SigmoidAndTanhSaturate) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  constexpr double kFlushed = 4e-39;  // where exp(−x) overflows
  expect_close(Unary::sigmoid, all_magnitudes(), sigmoid, kFlushed);
  expect_close(Unary::sigmoid, steps(-80, 80, 0.31F), sigmoid);
  const auto tanh = [](double x) { return std::tanh(x); };
  expect_close(Unary::tanh, all_magnitudes(), tanh);
  expect_close(Unary::tanh, steps(-20, 20, 0.13F), tanh);
}

TEST(ElementwiseTest, ActivationsSaturate) {
  constexpr double kFlushed = 1e-35;  // where exp(−x) overflows
  const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
  expect_close(Unary::silu, steps(-200, 200, 0.31F), silu, kFlushed);
  const auto gelu_tanh = [](double x) {
    return x / (1 + std::exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)));
  };
  // Rounding of the exponent is multiplied by it.
  expect_close(Unary::gelu_tanh, steps(-200, 200, 0.13F), gelu_tanh, 1e-6);
  expect_close(
      Unary::erf, all_magnitudes(), [](double x) { return std::erf(x); }, 8e-7);
}

TEST(ElementwiseTest, AnglesOfManyTurns) {
  expect_close(
      Unary::sin, steps(-60000, 60000, 17.3F), [](double x) { return std::sin(x); }, 4e-7);
  expect_close(
      Unary::cos, steps(-30000, 30000, 17.3F), [](double x) { return std::cos(x); }, 4e-7);
}

TEST(ElementwiseTest, LogarithmsOfEveryMagnitude) {
  std::vector<float> numbers = all_magnitudes();
  numbers.resize(numbers.size() / 2);
  expect_close(Unary::log, numbers, [](double x) { return std::log(x); });
}

TEST(ElementwiseTest, LimitsAndNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  test::on_every_isa([&] {
    const std::vector<float> numbers = {kInfinity, -kInfinity, 0, -1, kNaN};
    const std::vector<float> exp = applied(Unary::exp, numbers);
    EXPECT_EQ(exp[0], kInfinity);
    EXPECT_EQ(exp[1], 0);
    EXPECT_EQ(exp[2], 1);
    EXPECT_TRUE(std::isnan(exp[4]));
    const std::vector<float> log = applied(Unary::log, numbers);
    EXPECT_EQ(log[0], kInfinity);
    EXPECT_TRUE(std::isnan(log[1]));
    EXPECT_EQ(log[2], -kInfinity);
    EXPECT_TRUE(std::isnan(log[3]));
    EXPECT_TRUE(std::isnan(log[4]));
    for (Unary op : {Unary::tanh, Unary::sigmoid, Unary::sqrt, Unary::gelu, Unary::gelu_tanh, Unary::silu,
                     Unary::rsqrt, Unary::erf, Unary::sin, Unary::cos})
      EXPECT_TRUE(std::isnan(applied(op, numbers)[4])) << codelet_of(op).name;
  });
}

}  // namespace
}  // namespace tessera::kernels
