// Windows over images: the inputs of each output along each dimension, and their maxima and weighted sums.
#pragma once

#include <tessera/graph.h>

#include <string_view>
#include <vector>

#include "graph/operation.h"
#include "lower/lowering.h"
#include "ops/map/pool.h"

namespace tessera::graph {

/// Windows over images [N, height, width, channels]; images [N, length, channels] have one row.
struct ImageWindows {
  ops::Windows down, across;

  /// The windows of the gradient: the outputs that each input contributes to.
  ImageWindows transposed() const;
};

/// Sizes of the dimensions between the first and the last.
inline Shape sizes_of_image(const TensorType& x) { return {x.shape.begin() + 1, x.shape.end() - 1}; }
/// The same. Throws UsageError unless there are one or two.
Shape spatial_sizes(const Signature& s, const TensorType& x);
/// The type of x with other spatial sizes.
TensorType with_spatial_sizes(const TensorType& x, const Shape& sizes);
/// Image windows from the windows along one or two dimensions.
ImageWindows image_windows(std::vector<ops::Windows> of_dimensions);

/// References in float64: the largest element of each window, its gradient, and weighted sums.
Array largest_of(const Array& x, const TensorType& type, const ImageWindows& windows);
Array largest_gradient(const Array& dy, const Array& x, const TensorType& type, const ImageWindows& windows);
Array weighted_sums(const Array& x, const TensorType& type, const ImageWindows& windows);

/// The same results by other operations, as [N · outputs, channels].
Value decomposed_largest(Value x, const ImageWindows& windows);
Value decomposed_sums(Value x, const ImageWindows& windows);

/// Lowers the operation on a host. The node's last input is the image.
void lower_windows(Lowering& l, const Node& node, ops::Pooling kind, const ImageWindows& windows);

/// Throws UsageError if the windows along a dimension, with `weights` weighted elements in total, are too
/// many to be listed.
void require_windows(std::string_view operation, uint64_t outputs, uint64_t weights);

/// The list in a node's attribute, or `count` times the number `otherwise`.
std::vector<int64_t> list_or(const Node& node, const char* name, size_t count, int64_t otherwise);

}  // namespace tessera::graph
