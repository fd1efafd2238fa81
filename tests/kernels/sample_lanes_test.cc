// Loading samples in either order into lanes, and storing them back.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/simd.h"
#include "program/codelet.h"
#include "support/every_isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sample_lanes_test.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
#define TESSERA_TESTS_SAMPLE_LANES 1
#include "kernels/common/sample_lanes-inl.h"
#else
#define TESSERA_TESTS_SAMPLE_LANES 0
#endif

#ifndef TESSERA_SAMPLE_LANES_TEST_ONCE
#define TESSERA_SAMPLE_LANES_TEST_ONCE
namespace tessera::kernels {
/// Loads samples [begin, begin + count) of x into columns, and stores these to y.
struct LaneCase {
  program::FieldView x, y;
  bool transposed;
  uint32_t begin, count, lanes, features;
  float* columns;
};
}  // namespace tessera::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
bool copy_through_lanes([[maybe_unused]] const LaneCase& c) {
#if TESSERA_TESTS_SAMPLE_LANES
  const LaneTile tile{c.begin, c.count, c.lanes};
  load_samples(samples_of(c.x, c.transposed), tile, c.features, c.columns);
  store_samples(c.columns, tile, samples_of(c.y, c.transposed));
#endif
  return TESSERA_TESTS_SAMPLE_LANES;
}
#undef TESSERA_TESTS_SAMPLE_LANES
}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {
HWY_EXPORT(copy_through_lanes);

namespace {

constexpr uint32_t kBegin = 3, kGap = 2;
constexpr float kUntouched = -1;

/// Samples with gaps between rows; strided twice where `scattered`.
struct Batch {
  uint32_t samples, features;
  bool transposed, scattered;
  std::vector<float> values;

  uint32_t rows() const { return transposed ? features : samples; }
  uint32_t cols() const { return transposed ? samples : features; }
  int64_t col_stride() const { return scattered ? 2 : 1; }
  int64_t row_stride() const { return (cols() + kGap) * col_stride(); }
  void fill(float first, float step) {
    values.resize(static_cast<size_t>(rows() * row_stride()));
    for (float& value : values) value = first, first += step;
  }
  float& at(uint32_t sample, uint32_t feature) {
    const uint32_t row = transposed ? feature : sample, col = transposed ? sample : feature;
    return values[static_cast<size_t>(row * row_stride() + col * col_stride())];
  }
  program::FieldView view() {
    return {
        reinterpret_cast<std::byte*>(values.data()), Type::f32, rows(), cols(), row_stride(), col_stride()};
  }
};

void check(uint32_t count, uint32_t lanes, bool transposed, bool scattered) {
  constexpr uint32_t kIn = 37, kOut = 50, kFeatures = 64;
  Batch x{kBegin + count + 1, kIn, transposed, scattered, {}}, y{x.samples, kOut, transposed, scattered, {}};
  x.fill(1, 1);
  y.fill(kUntouched, 0);
  std::vector<float> columns(size_t{kFeatures} * lanes, kUntouched);
  if (!HWY_DYNAMIC_DISPATCH(copy_through_lanes)(
          {x.view(), y.view(), transposed, kBegin, count, lanes, kFeatures, columns.data()}))
    return;  // without vectors there are no lanes
  for (uint32_t f = 0; f < kFeatures; ++f)
    for (uint32_t lane = 0; lane < lanes; ++lane) {
      const float expected = lane < count && f < kIn ? x.at(kBegin + lane, f) : 0;
      ASSERT_EQ(columns[size_t{f} * lanes + lane], expected) << "feature " << f << ", lane " << lane;
    }
  for (uint32_t s = 0; s < count; ++s)
    for (uint32_t f = 0; f < kOut; ++f) {
      ASSERT_EQ(y.at(kBegin + s, f), f < kIn ? x.at(kBegin + s, f) : 0)
          << "sample " << s << ", feature " << f;
      y.at(kBegin + s, f) = kUntouched;
    }
  for (float value : y.values) ASSERT_EQ(value, kUntouched);
}

TEST(SampleLanesTest, CopiesSamplesOfEitherOrder) {
  test::on_every_isa([] {
    for (uint32_t count : {1U, 5U, 16U, 19U, 33U, 48U})
      for (bool transposed : {false, true})
        for (bool scattered : {false, true}) {
          SCOPED_TRACE(testing::Message()
                       << count << " samples, transposed " << transposed << ", scattered " << scattered);
          check(count, 48, transposed, scattered);
        }
  });
}

}  // namespace
}  // namespace tessera::kernels
#endif
