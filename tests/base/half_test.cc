#include "base/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera::base {
namespace {

template <class T>
T converted(float value) {
  if constexpr (std::is_same_v<T, Half>) return to_half(value);
  if constexpr (std::is_same_v<T, Bfloat16>) return to_bfloat16(value);
}

template <class T>
class Sixteen : public testing::Test {};
using SixteenBits = testing::Types<Half, Bfloat16>;
TYPED_TEST_SUITE(Sixteen, SixteenBits);

TYPED_TEST(Sixteen, EveryValueSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto value = TypeParam(bits);
    const float wide = to_float(value);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(to_float(converted<TypeParam>(wide)))) << bits;
    } else {
      EXPECT_EQ(static_cast<uint32_t>(converted<TypeParam>(wide)), bits);
    }
  }
}

// Rounds to the nearer of two neighbours, and halfway to the even one.
TYPED_TEST(Sixteen, RoundsToNearestEven) {
  for (uint32_t bits = 0; bits + 1 < 0x7C00; ++bits) {
    const double low = to_float(TypeParam(bits));
    const double high = to_float(TypeParam(bits + 1));
    if (std::isinf(high)) break;
    const auto middle = static_cast<float>((low + high) / 2);
    const uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    EXPECT_EQ(static_cast<uint32_t>(converted<TypeParam>(middle)), even);
    EXPECT_EQ(static_cast<uint32_t>(converted<TypeParam>(std::nextafter(middle, 0.0F))), bits);
    const float above = std::nextafter(middle, std::numeric_limits<float>::infinity());
    EXPECT_EQ(static_cast<uint32_t>(converted<TypeParam>(above)), bits + 1);
    EXPECT_EQ(static_cast<uint32_t>(converted<TypeParam>(-middle)), even | 0x8000);
  }
}

TEST(Half, OverflowIsInfinity) {
  EXPECT_EQ(static_cast<uint32_t>(to_half(65519.996F)), 0x7BFFU);
  EXPECT_EQ(static_cast<uint32_t>(to_half(65520.0F)), 0x7C00U);
  EXPECT_EQ(static_cast<uint32_t>(to_half(-1e30F)), 0xFC00U);
  EXPECT_EQ(to_float(to_half(std::numeric_limits<float>::infinity())),
            std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace tessera::base
