// Convolutions of graphs. Images are [samples, height, width, channels], channels last; in one dimension,
// sequences are [samples, length, channels].
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera::graph {

/// A window over one or two dimensions, and what a convolution does with it.
struct Convolution {
  std::vector<uint32_t> kernel;  ///< sizes of the window: [height, width], or [length]
  /// For each dimension; of any that is empty, the default for all.
  std::vector<uint32_t> stride = {};  ///< 1
  /// Zeros on both sides of each dimension; or before each dimension, and then after each. 0.
  std::vector<uint32_t> padding = {};
  std::vector<uint32_t> dilation = {};  ///< 1
  /// Number of groups into which channels and outputs are divided; as many as channels: depthwise.
  uint32_t groups = 1;
};

/// What a window sees: [samples, positions…, taps · channels], tap by tap all channels, with zeros beyond the
/// image. Throws UsageError, as the others do, for shapes that do not match, groups, and a window that is
/// larger than the padded image.
Value patches(Value x, const Convolution& window);
/// The reverse: the sums, in an image of these sizes, of all that is seen at the same place.
Value fold(Value x, const Convolution& window, const Shape& sizes);

/// Convolution, in the sense of neural networks, of [samples, sizes…, channels] with a weight of [outputs,
/// taps · channels / groups], tap by tap all channels, dense or sparse (of one group, or depthwise dense):
/// [samples, positions…, outputs]. Blocks of a sparse weight that divide the channels thus lie within a tap.
Value convolution(Value x, Value weight, std::optional<Value> bias, const Convolution& of);

/// The transpose of a convolution, as PyTorch's: each position adds weight · x to what its window sees. The
/// weight is [taps · outputs, channels], tap by tap all outputs; of several groups, one such matrix with the
/// outputs and channels of each below the other: [groups · taps · outputs / groups, channels / groups]. A
/// size becomes (size − 1) · stride − padding before and after + dilation · (kernel − 1) + 1 +
/// output_padding.
Value transposed_convolution(Value x, Value weight, std::optional<Value> bias, const Convolution& of,
                             const std::vector<uint32_t>& output_padding = {});

/// A weight in the order of PyTorch and ONNX, [outputs, channels / groups, kernel…], in that of
/// convolution(). Throws UsageError for another number of values.
std::vector<float> convolution_weight(std::span<const float> values, const Shape& shape);
/// The same for transposed_convolution(), from [channels, outputs / groups, kernel…].
std::vector<float> transposed_convolution_weight(std::span<const float> values, const Shape& shape,
                                                 uint32_t groups = 1);
/// A convolution in groups as one of a single group: the weight of [outputs, taps · channels / groups] among
/// zeros, of which only blocks of block_size × block_size are stored that have something. Block sizes of 4,
/// 8, 16 and 32 and single elements run everywhere.
SparseMatrix ungrouped_convolution_weight(std::span<const float> values, uint32_t outputs, uint32_t channels,
                                          uint32_t taps, uint32_t groups, uint32_t block_size);

}  // namespace tessera::graph
