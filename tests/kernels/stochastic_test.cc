// Stochastic rounding: its results, and their frequencies.
#include "kernels/map/cast/stochastic.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/stochastic_rounding.h"
#include "support/every_isa.h"

namespace tessera::kernels {
namespace {

constexpr uint32_t kNumbers = 1 << 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <class T>
constexpr Type kType = Type::f16;
template <>
constexpr Type kType<base::Bfloat16> = Type::bf16;

base::Half rounded(base::Half /*like*/, float x, uint32_t word) { return base::to_half(x, word); }
base::Bfloat16 rounded(base::Bfloat16 /*like*/, float x, uint32_t word) { return base::to_bfloat16(x, word); }

/// Numbers of a row, rounded by the words of a stream in their order.
template <class T>
std::vector<T> round_row(const std::vector<float>& in, const Draws& draws) {
  std::vector<T> out(in.size());
  const auto cols = static_cast<uint32_t>(in.size());
  const auto view = [&](const void* data, Type of) {
    return program::FieldView{static_cast<std::byte*>(const_cast<void*>(data)), of, 1, cols, cols, 1};
  };
  apply_stochastic_cast({draws, ElementOrder::strided(cols, 1)}, view(in.data(), Type::f32),
                        view(out.data(), kType<T>));
  return out;
}

template <class T>
class StochasticRounding : public ::testing::Test {
 protected:
  /// All numbers of the type but NaN.
  static std::vector<float> all_numbers() {
    std::vector<float> numbers;
    for (uint32_t bits = 0; bits < kNumbers; ++bits)
      if (const float x = base::to_float(T(bits)); !std::isnan(x)) numbers.push_back(x);
    return numbers;
  }
};

using SixteenBitTypes = ::testing::Types<base::Half, base::Bfloat16>;
TYPED_TEST_SUITE(StochasticRounding, SixteenBitTypes);

TYPED_TEST(StochasticRounding, LeavesNumbersOfTheTypeAlone) {
  const std::vector<float> numbers = this->all_numbers();
  for (float x : numbers)
    for (uint32_t word : {0U, 1U, 1U << 31, ~0U})
      ASSERT_EQ(std::bit_cast<uint32_t>(base::to_float(rounded(TypeParam{}, x, word))),
                std::bit_cast<uint32_t>(x));
  test::on_every_isa([&] {
    for (uint32_t step = 0; step < 4; ++step) {
      const std::vector<TypeParam> found = round_row<TypeParam>(numbers, {7, step, 1});
      for (size_t i = 0; i < numbers.size(); ++i)
        ASSERT_EQ(std::bit_cast<uint32_t>(base::to_float(found[i])), std::bit_cast<uint32_t>(numbers[i]));
    }
  });
}

TYPED_TEST(StochasticRounding, GivesOneOfTheNeighboursOnEveryInstructionSet) {
  std::vector<float> numbers;
  for (float low : this->all_numbers()) {
    const float next = std::nextafter(low, std::copysign(kInfinity, low));
    for (float x : {next, low * 1.0003F, low * 1.0009F, std::nextafter(next, low)}) numbers.push_back(x);
  }
  for (uint32_t exponent = 0; exponent < 256; ++exponent)
    for (uint32_t mantissa : {1U, 0x123456U, 0x7FFFFFU})
      numbers.push_back(std::bit_cast<float>(exponent << 23 | mantissa));
  const Draws draws{9, 3, 5};
  const base::RandomStream stream = draws.stream();
  test::on_every_isa([&] {
    const std::vector<TypeParam> found = round_row<TypeParam>(numbers, draws);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const float x = numbers[i], y = base::to_float(found[i]);
      if (std::isnan(x)) {
        ASSERT_TRUE(std::isnan(y)) << i;
        continue;
      }
      ASSERT_EQ(found[i], rounded(TypeParam{}, x, stream.word(i))) << x;
      const TypeParam toward_zero = rounded(TypeParam{}, x, 0);
      const TypeParam next = TypeParam(static_cast<uint16_t>(toward_zero) + 1);
      ASSERT_TRUE(found[i] == toward_zero || (found[i] == next && base::to_float(toward_zero) != x)) << x;
      if (std::isfinite(base::to_float(toward_zero))) {
        ASSERT_LE(std::abs(base::to_float(toward_zero)), std::abs(x));
      }
      ASSERT_EQ(std::signbit(y), std::signbit(x)) << x;
    }
  });
}

/// The mean of 10^7 draws, in which infinity counts as the power of two after the largest number.
TYPED_TEST(StochasticRounding, IsUnbiased) {
  constexpr size_t kDraws = 10'000'000;
  const bool is_half = kType<TypeParam> == Type::f16;
  const double beyond = is_half ? 65536 : 0x1p127 * 2;
  std::vector<float> some = {1.00021F, -0.3F, 3.1415927F, 1e-3F};
  if (is_half)
    for (float x : {65510.0F, 6.1e-5F, 3.3e-6F, -1e-9F, 0x1.8p-25F, 0x1.234568p-30F}) some.push_back(x);
  else
    for (float x : {3.3953e38F, 1.1e-38F, -3e-41F}) some.push_back(x);
  for (size_t number = 0; number < some.size(); ++number) {
    const float x = some[number];
    const std::vector<TypeParam> found =
        round_row<TypeParam>(std::vector<float>(kDraws, x), {11, static_cast<uint32_t>(number), 1});
    const auto value = [&](TypeParam y) {
      const double wide = base::to_float(y);
      return std::isinf(wide) ? std::copysign(beyond, wide) : wide;
    };
    const double low = value(rounded(TypeParam{}, x, 0)), high = value(rounded(TypeParam{}, x, ~0U));
    ASSERT_NE(low, high) << x;
    size_t rounded_up = 0;
    for (TypeParam y : found) rounded_up += value(y) == high ? 1 : 0;
    const double probability = (x - low) / (high - low);
    const double deviation = std::sqrt(probability * (1 - probability) / kDraws);
    EXPECT_NEAR(static_cast<double>(rounded_up) / kDraws, probability, 4 * deviation) << x;
  }
}

TEST(StochasticRounding, OfLargeNumbersMayBeInfinity) {
  for (uint32_t word : {0U, ~0U}) {
    EXPECT_EQ(base::to_float(base::to_half(65504, word)), 65504);
    EXPECT_EQ(base::to_float(base::to_half(65536, word)), kInfinity);
    EXPECT_EQ(base::to_float(base::to_half(-1e30F, word)), -kInfinity);
    EXPECT_EQ(base::to_float(base::to_bfloat16(-kInfinity, word)), -kInfinity);
  }
  EXPECT_EQ(base::to_float(base::to_half(65535, 0)), 65504);
  EXPECT_EQ(base::to_float(base::to_half(65505, ~0U)), kInfinity);
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(base::to_float(base::to_bfloat16(largest, 0)), 0x1.FEp127F);
  EXPECT_EQ(base::to_float(base::to_bfloat16(largest, ~0U)), kInfinity);
}

TEST(StochasticRounding, KeepsNaNAndSigns) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (uint32_t word : {0U, ~0U}) {
    EXPECT_TRUE(std::isnan(base::to_float(base::to_half(nan, word))));
    EXPECT_TRUE(std::isnan(base::to_float(base::to_bfloat16(std::bit_cast<float>(0xFFFFFFFFU), word))));
    EXPECT_TRUE(std::signbit(base::to_float(base::to_half(-0.0F, word))));
    EXPECT_TRUE(std::signbit(base::to_float(base::to_half(-1e-20F, word))));
  }
}

}  // namespace
}  // namespace tessera::kernels
