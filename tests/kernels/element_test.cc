// Access to the elements of fields.
#include "kernels/common/element.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace tessera::kernels {
namespace {

TEST(Clear, LeavesWhatLiesBetweenElements) {
  constexpr uint32_t kRows = 2, kCols = 3, kRowStride = 12;
  for (const uint32_t col_stride : {1U, 3U}) {
    std::vector<float> data(kRows * kRowStride, 1);
    clear({reinterpret_cast<std::byte*>(data.data()), Type::f32, kRows, kCols, kRowStride, col_stride});
    for (uint32_t i = 0; i < data.size(); ++i) {
      const uint32_t of_row = i % kRowStride;
      const bool is_element = of_row % col_stride == 0 && of_row / col_stride < kCols;
      EXPECT_EQ(data[i], is_element ? 0 : 1) << i;
    }
  }
}

TEST(Clear, TakesEmptyFields) { clear(program::FieldView{}); }

}  // namespace
}  // namespace tessera::kernels
