// Windows of images: what outputs see along each dimension, and what can be computed of that.
#pragma once

#include <tessera/graph.h>

#include <string_view>
#include <vector>

#include "graph/operation.h"
#include "lower/lowering.h"
#include "ops/map/pool.h"

namespace tessera::graph {

/// Of [N, height, width, channels]; images [N, length, channels] have one row.
struct ImageWindows {
  ops::Windows down, across;

  /// The same of a value's gradient: what inputs see of the outputs.
  ImageWindows transposed() const;
};

/// The dimensions between the first and the last. Throws UsageError unless there are one or two.
Shape spatial_sizes(const Signature& s, const TensorType& x);
/// x with other sizes of these.
TensorType with_spatial_sizes(const TensorType& x, const Shape& sizes);
/// Those of one or two dimensions.
ImageWindows image_windows(std::vector<ops::Windows> of_dimensions);

/// In float64: the largest elements, their gradient, and weighted sums.
Array largest_of(const Array& x, const TensorType& type, const ImageWindows& windows);
Array largest_gradient(const Array& dy, const Array& x, const TensorType& type, const ImageWindows& windows);
Array weighted_sums(const Array& x, const TensorType& type, const ImageWindows& windows);

/// By other operations, as [N · outputs, channels].
Value decomposed_largest(Value x, const ImageWindows& windows);
Value decomposed_sums(Value x, const ImageWindows& windows);

/// On a host. The last input is the image.
void lower_windows(Lowering& l, const Node& node, ops::Pooling kind, const ImageWindows& windows);

/// Throws UsageError if the windows along a dimension, with so many elements that have a weight each, are too
/// many to be listed.
void require_windows(std::string_view operation, uint64_t outputs, uint64_t weights);

/// A list of a node's attribute, or of so many equal numbers.
std::vector<int64_t> list_or(const Node& node, const char* name, size_t count, int64_t otherwise);

bool lowers_windows_on(const machine::Machine& machine);

}  // namespace tessera::graph
