// Convolutions of each channel by itself, on hosts.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/common/window.h"

namespace tessera::kernels {

/// For each position of a window (kernels/common/window.h) and channel, the sum over the taps of the weight
/// times the element under the tap, plus the channel's bias, clipped to [low, high]. "x" has whole images:
/// rows are positions, columns channels, or the reverse if "features_in_rows"; "out" is a box of such a
/// matrix that begins at row, col. The weight is channels × taps, the bias, which may be empty, 1 × channels.
/// Bounds are the bits of FP32 numbers (param_of); sums are FP32, rounded once.
#define TESSERA_DEPTHWISE_FIELDS(X) \
  X(x)                              \
  X(w)                              \
  X(bias, .optional = true)         \
  X(window)                         \
  X(out, .access = program::Access::out)
#define TESSERA_DEPTHWISE_PARAMS(X) X(low) X(high) X(features_in_rows) X(row) X(col)

#define TESSERA_DEPTHWISE_CODELETS(X) \
  X(depthwise, TESSERA_DEPTHWISE_FIELDS, TESSERA_DEPTHWISE_PARAMS, depthwise_simd, 1024)
TESSERA_DECLARE_FAMILY(depthwise, TESSERA_DEPTHWISE_CODELETS)
TESSERA_POSITIONS(depthwise_param, TESSERA_DEPTHWISE_PARAMS)
TESSERA_DEPTHWISE_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// Whether the results of a channel lie as the elements under each tap do, but for a shift: in an image whose
/// size is at most the results' times the strides, with at most `kMostShiftedPositions` results.
inline constexpr uint32_t kMostShiftedPositions = uint32_t{1} << 14;
inline bool sees_by_shifts(const Window& w) {
  const auto fits = [](uint32_t size, uint32_t stride, uint32_t results) {
    return (size + stride - 1) / stride <= results;
  };
  return fits(w.height, w.stride_down, w.out_height) && fits(w.width, w.stride_across, w.out_width) &&
         w.out_positions() <= kMostShiftedPositions;
}

/// A vertex, with fields as positions × channels in either orientation.
struct DepthwiseVertex {
  Window window;
  program::FieldView x;
  program::FieldView w;
  program::FieldView bias;
  program::FieldView out;
  float low = 0, high = 0;
  uint32_t position = 0;  ///< first position of `out`
  uint32_t channel = 0;

  explicit DepthwiseVertex(const program::Vertex& v);

  float weight_at(uint32_t channel, uint32_t tap) const;
  float bias_at(uint32_t channel) const;
};

}  // namespace tessera::kernels
