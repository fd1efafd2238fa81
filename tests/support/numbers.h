// Random numbers, and comparison with exact numbers.
#pragma once

#include <gtest/gtest.h>
#include <tessera/types.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/random.h"

namespace tessera::test {

/// Random numbers from a seed, in [low, high).
inline std::vector<float> random_floats(uint64_t count, uint64_t seed, float low = -1, float high = 1) {
  std::vector<float> floats(count);
  base::RandomStream(seed).fill_uniform(floats);
  for (float& x : floats) x = low + (high - low) * x;
  return floats;
}

/// A number as a type stores it.
inline float rounded(float value, Type type) {
  if (type == Type::f16) return base::to_float(base::to_half(value));
  if (type == Type::bf16) return base::to_float(base::to_bfloat16(value));
  return value;
}

/// The largest magnitude, or `least` if that is larger.
template <class Numbers>
double largest(const Numbers& numbers, double least = 0) {
  for (const double x : numbers) least = std::max(least, std::abs(x));
  return least;
}

template <class Found, class Expected>
void expect_near(const Found& found, const Expected& expected, double allowed, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], allowed) << what << ", element " << i;
}

/// Expects numbers to be equal within `relative` times the largest expected number.
template <class Found, class Expected>
void expect_close(const Found& found, const Expected& expected, double relative, const std::string& what) {
  expect_near(found, expected, relative * largest(expected) + 1e-12, what);
}

}  // namespace tessera::test
