// Windows that slide over images, as ONNX describes them. Images are [samples, channels, sizes…] in files,
// and channels last in graphs.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <vector>

#include "onnx/call.h"

namespace tessera::onnx {

/// Sizes of a window and how it moves, a number for each dimension of space.
struct Window {
  /// Of attributes; the kernel is that of a weight where the attribute is missing.
  Window(const Call& call, const Dims& image, const Dims& weight = {});

  std::vector<uint32_t> kernel, stride, dilation;
  std::vector<uint32_t> before, after;  ///< padding
  bool is_automatic = false;            ///< the padding: it follows from the image's sizes

  /// That before all dimensions, then that after them.
  std::vector<uint32_t> padding() const;
};

/// A size within limits. Throws UsageError, naming what it is.
uint32_t size_of(const char* what, int64_t size, int64_t least = 1);
/// Of a dimension of space: 1 or 2 are possible.
void require_image(const Dims& dims);
/// [samples, channels, …]: at least two dimensions.
void require_channels(const Dims& dims);
/// [samples, channels, …] with channels last, and the result with channels first again. Throws UsageError for
/// fewer dimensions.
graph::Value channels_last(graph::Value x);
Known channels_first(graph::Value x, DataType type);

}  // namespace tessera::onnx
