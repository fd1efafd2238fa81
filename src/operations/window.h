// The windows of convolutions, as attributes of operations.
#pragma once

#include <tessera/convolution.h>

#include <span>
#include <string_view>

#include "graph/operation.h"
#include "kernels/common/window.h"

namespace tessera::graph {

/// The attributes "kernel", "stride", "padding" (before each dimension, then after each) and "dilation".
/// Throws UsageError, naming the operation, for another number of sizes than the kernel has.
Attributes attributes_of(std::string_view operation, const Convolution& window);
/// The window of a node's attributes alone.
Attributes window_attributes(const Node& node);

/// A window with such attributes over images [samples, sizes…, channels]. Throws UsageError, naming the
/// operation, for other shapes, and if it fits nowhere or sees too much.
kernels::Window window_over(std::string_view operation, const Node& node, const Shape& image);
/// Samples, positions of the window in the image, and features.
Shape positions_of(const Shape& image, const kernels::Window& window, uint32_t features);

/// A convolution of each channel by itself: a weight of [channels · multiplier, taps].
Value depthwise(Value x, Value weight, Attributes window);

}  // namespace tessera::graph
