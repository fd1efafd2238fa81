// The windows of convolutions, as attributes of operations.
#pragma once

#include <tessera/convolution.h>

#include <string_view>

#include "graph/operation.h"
#include "kernels/common/window.h"

namespace tessera::graph {

/// The attributes "kernel", "stride", "padding" (before each dimension, then after each) and "dilation".
/// Throws UsageError, naming the operation, if their number of sizes differs from the kernel's.
Attributes attributes_of(std::string_view operation, const Convolution& window);
/// Only the attributes of a node that describe its window.
Attributes window_attributes(const Node& node);

/// A window with a node's attributes over images [samples, sizes…, channels]. Throws UsageError, naming the
/// operation, for other shapes, and if the window is larger than the padded image or has too many elements.
kernels::Window window_over(std::string_view operation, const Node& node, const Shape& image);
/// The shape [samples, positions of the window…, features].
Shape positions_of(const Shape& image, const kernels::Window& window, uint32_t features);

/// A convolution of each channel by itself: a weight of [channels · multiplier, taps].
Value depthwise(Value x, Value weight, Attributes window);

}  // namespace tessera::graph
