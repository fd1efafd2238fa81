// Every FP16 and BF16 number, and the FP32 numbers around every rounding boundary.
#include "kernels/map/cast/cast.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "support/every_isa.h"

namespace tessera::kernels {
namespace {

constexpr uint32_t kNumbers = 1 << 16;

template <class T>
constexpr Type kType = Type::f16;
template <>
constexpr Type kType<base::Bfloat16> = Type::bf16;

template <class To, class From>
std::vector<To> cast(const std::vector<From>& in, Type from, Type to) {
  std::vector<To> out(in.size());
  const auto view = [&](const void* data, Type type) {
    return program::FieldView{static_cast<std::byte*>(const_cast<void*>(data)),
                              type,
                              1,
                              static_cast<uint32_t>(in.size()),
                              static_cast<int64_t>(in.size()),
                              1};
  };
  apply_cast(view(in.data(), from), view(out.data(), to));
  return out;
}

template <class T>
class CastTest : public ::testing::Test {
 protected:
  static std::vector<T> all_numbers() {
    std::vector<T> numbers;
    for (uint32_t bits = 0; bits < kNumbers; ++bits) numbers.push_back(T(bits));
    return numbers;
  }
};

using SixteenBitTypes = ::testing::Types<base::Half, base::Bfloat16>;
TYPED_TEST_SUITE(CastTest, SixteenBitTypes);

TYPED_TEST(CastTest, WidensEveryNumberExactly) {
  const std::vector<TypeParam> numbers = this->all_numbers();
  test::on_every_isa([&] {
    const std::vector<float> wide = cast<float>(numbers, kType<TypeParam>, Type::f32);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const float expected = base::to_float(numbers[i]);
      if (std::isnan(expected))
        ASSERT_TRUE(std::isnan(wide[i])) << i;
      else
        ASSERT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
  });
}

TYPED_TEST(CastTest, RoundsToNearestEvenEverywhere) {
  std::vector<float> wide;
  for (TypeParam number : this->all_numbers()) {
    const float low = base::to_float(number);
    const float high = base::to_float(TypeParam(static_cast<uint32_t>(number) + 1));
    const float middle = low / 2 + high / 2;
    for (float x : {low, middle, std::nextafter(middle, low), std::nextafter(middle, high)})
      wide.push_back(x);
  }
  for (float x : {65519.0F, 65520.0F, -65520.0F, 3.4e38F, HUGE_VALF, -HUGE_VALF, 0x1p-149F, -0.0F})
    wide.push_back(x);
  test::on_every_isa([&] {
    const std::vector<TypeParam> narrow = cast<TypeParam>(wide, Type::f32, kType<TypeParam>);
    for (size_t i = 0; i < wide.size(); ++i) {
      TypeParam expected{};
      if constexpr (kType<TypeParam> == Type::f16)
        expected = base::to_half(wide[i]);
      else
        expected = base::to_bfloat16(wide[i]);
      if (std::isnan(wide[i]))
        ASSERT_TRUE(std::isnan(base::to_float(narrow[i]))) << i;
      else
        ASSERT_EQ(narrow[i], expected) << wide[i];
    }
  });
}

}  // namespace
}  // namespace tessera::kernels
