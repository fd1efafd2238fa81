// Windows that slide over images, as ONNX describes them. Images are [samples, channels, sizes…] in files,
// and channels last in graphs.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <vector>

#include "onnx/call.h"

namespace tessera::onnx {

/// The sizes of a window and its movement, with a number per spatial dimension.
struct Window {
  /// The window of a call's attributes, for an image of at least one spatial dimension; without the
  /// attribute, the kernel is the weight's.
  Window(const Call& call, const Dims& image, const Dims& weight = {});

  std::vector<uint32_t> kernel, stride, dilation;
  std::vector<uint32_t> before, after;  ///< padding
  bool is_automatic = false;            ///< whether padding follows from the image's sizes

  /// The padding before all dimensions, then the padding after them.
  std::vector<uint32_t> padding() const;
  /// How often the window is in all samples of an image.
  uint64_t positions(const Dims& image) const;
};

/// A size within limits. Otherwise throws UsageError, naming `what`.
uint32_t size_of(const char* what, int64_t size, int64_t least = 1);
/// Throws UsageError unless there are one or two spatial dimensions, or three, if these are the most.
void require_image(const Dims& dims, size_t most = 2);
/// Throws UsageError unless there are at least two dimensions, [samples, channels, …].
void require_channels(const Dims& dims);
/// Move the channels of [samples, channels, …] last, and the channels of the result first again. Throws
/// UsageError for fewer dimensions.
graph::Value channels_last(graph::Value x);
Known channels_first(graph::Value x, DataType type);

}  // namespace tessera::onnx
