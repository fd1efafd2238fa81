// Convolutions in graphs. Images are [samples, height, width, channels], channels last; in one dimension,
// sequences are [samples, length, channels].
#pragma once

#include <tessera/graph.h>
#include <tessera/sparse.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera::graph {

/// A window over one or two dimensions, and what a convolution does with it.
struct Convolution {
  std::vector<uint32_t> kernel;  ///< sizes of the window: [height, width], or [length]
  /// Each list has one number per dimension; an empty list stands for the default in every dimension.
  std::vector<uint32_t> stride = {};  ///< 1
  /// Number of zeros added at each end of each dimension; a list of twice the length has the numbers before
  /// each dimension, then the numbers after each dimension. Default 0.
  std::vector<uint32_t> padding = {};
  std::vector<uint32_t> dilation = {};  ///< 1
  /// Number of groups into which channels and outputs are divided; if it equals the channels, the convolution
  /// is depthwise.
  uint32_t groups = 1;
};

/// The elements under the window at each position: [samples, positions…, taps · channels], ordered by tap,
/// then by channel, with zeros beyond the image. Like the other functions for convolutions, throws UsageError
/// for shapes that do not match, for groups, and for a window that is larger than the padded image.
Value patches(Value x, const Convolution& window);
/// The adjoint of patches(): an image of the given sizes, each element of which is the sum of the patch
/// elements that patches() would take from its position.
Value fold(Value x, const Convolution& window, const Shape& sizes);

/// Convolution, in the sense of neural networks, of [samples, sizes…, channels] with a weight [outputs, taps
/// · channels / groups], ordered by tap, then by channel, dense or sparse. The result is [samples,
/// positions…, outputs]. Blocks of a sparse weight whose size divides the channels thus lie within a tap.
/// With several groups, a sparse weight covers all channels, [outputs, taps · channels], and has blocks only
/// where outputs and channels are of the same group, as ungrouped_convolution_weight() makes it: the
/// convolution is one product, and gradients have the same blocks. If the pattern may change, sessions refuse
/// patterns with other blocks.
Value convolution(Value x, Value weight, std::optional<Value> bias, const Convolution& of);

/// The transpose of a convolution, as in PyTorch: each position adds weight · x to the elements under its
/// window. The weight is the weight of the convolution, dense or sparse: [channels, taps · outputs / groups],
/// ordered by tap, then by output; with several groups, a sparse weight covers all outputs, [channels, taps ·
/// outputs]. A size becomes (size − 1) · stride − padding before and after + dilation · (kernel − 1) + 1 +
/// output_padding.
Value transposed_convolution(Value x, Value weight, std::optional<Value> bias, const Convolution& of,
                             const std::vector<uint32_t>& output_padding = {});

/// Reorders a weight from the layout of PyTorch and ONNX, [outputs, channels / groups, kernel…], to the
/// layout of convolution(); and the weight of a transposed convolution, [channels, outputs / groups,
/// kernel…], to the layout of transposed_convolution(). Throws UsageError if the number of values does not
/// match the shape.
std::vector<float> convolution_weight(std::span<const float> values, const Shape& shape);
/// The weight of a convolution in groups, [outputs, taps · channels / groups], as a sparse weight for the
/// same convolution in a single group, [outputs, taps · channels]; the weight of a transposed convolution, in
/// which channels and outputs change places, is treated alike. Stores only the blocks of block_size ×
/// block_size that have a non-zero. Block sizes 1, 4, 8, 16 and 32 run on every machine.
SparseMatrix ungrouped_convolution_weight(std::span<const float> values, uint32_t outputs, uint32_t channels,
                                          uint32_t taps, uint32_t groups, uint32_t block_size);
/// The same for a sparse weight, whose blocks and values keep their order. Throws UsageError for a block that
/// does not lie within one group and one tap.
SparseMatrix ungrouped_convolution_weight(SparseMatrix weight, const ConvolutionGroups& of);

}  // namespace tessera::graph
