// Batches of samples in either orientation.
#pragma once

#include <cstdint>
#include <utility>

#include "program/codelet.h"

namespace tessera::kernels {

/// A batch of FP32 samples.
struct Samples {
  float* data = nullptr;
  uint32_t count = 0;
  uint32_t features = 0;
  int64_t sample_stride = 0;
  int64_t feature_stride = 0;

  float* pointer_to(uint32_t sample, uint32_t feature) const {
    return data + sample * sample_stride + feature * feature_stride;
  }
  bool empty() const { return count == 0 || features == 0; }
};

/// A field [samples × features], or `transposed` [features × samples].
inline Samples samples_of(const program::FieldView& field, bool transposed) {
  Samples all{field.as<float>(), field.rows, field.cols, field.row_stride, field.col_stride};
  if (transposed) {
    std::swap(all.count, all.features);
    std::swap(all.sample_stride, all.feature_stride);
  }
  return all;
}

}  // namespace tessera::kernels
