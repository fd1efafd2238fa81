#include "operations/window.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <algorithm>

namespace tessera::graph {
namespace {

constexpr size_t kMostDimensions = 2;
constexpr int64_t kMostWindow = 1 << 20;
constexpr const char* kAttributes[] = {"kernel", "stride", "padding", "dilation"};

std::vector<int64_t> sizes_or(std::string_view operation, const char* name,
                              const std::vector<uint32_t>& sizes, size_t count, uint32_t otherwise) {
  if (sizes.empty()) return std::vector<int64_t>(count, otherwise);
  if (sizes.size() != count)
    throw UsageError(fmt::format("{}: the {} [{}] needs a size for each of {} dimensions", operation, name,
                                 fmt::join(sizes, ", "), count));
  return {sizes.begin(), sizes.end()};
}

void require_sizes(std::string_view operation, const Node& node, const char* name, size_t count,
                   int64_t least) {
  const std::vector<int64_t>& sizes = node.list(name);
  const bool are_in_range =
      std::ranges::all_of(sizes, [&](int64_t size) { return size >= least && size <= kMostWindow; });
  if (sizes.size() != count || !are_in_range)
    throw UsageError(fmt::format("{}: the {} is [{}]; it must be {} sizes from {} to {}", operation, name,
                                 fmt::join(sizes, ", "), count, least, kMostWindow));
}

kernels::WindowAxis window_axis_of(std::string_view operation, const Node& node, size_t d, uint32_t size) {
  const auto at = [&](const char* name, size_t i) { return node.list(name)[i]; };
  const size_t dimensions = node.list("kernel").size();
  const int64_t kernel = at("kernel", d), stride = at("stride", d), dilation = at("dilation", d);
  const int64_t before = at("padding", d), after = at("padding", dimensions + d);
  const int64_t reach = (kernel - 1) * dilation + 1, padded = int64_t{size} + before + after;
  if (reach > padded || padded > UINT32_MAX)
    throw UsageError(fmt::format("{}: a window over {} positions does not fit the {} with padding", operation,
                                 reach, padded));
  return {size,
          static_cast<uint32_t>((padded - reach) / stride + 1),
          static_cast<uint32_t>(kernel),
          static_cast<uint32_t>(stride),
          static_cast<uint32_t>(before),
          static_cast<uint32_t>(dilation)};
}

}  // namespace

Attributes attributes_of(std::string_view operation, const Convolution& window) {
  const size_t count = window.kernel.size();
  std::vector<uint32_t> padding = window.padding;
  if (padding.size() == count) padding.insert(padding.end(), window.padding.begin(), window.padding.end());
  return {{"kernel", sizes_or(operation, "kernel", window.kernel, count, 1)},
          {"stride", sizes_or(operation, "stride", window.stride, count, 1)},
          {"padding", sizes_or(operation, "padding", padding, 2 * count, 0)},
          {"dilation", sizes_or(operation, "dilation", window.dilation, count, 1)}};
}

Attributes window_attributes(const Node& node) {
  Attributes attributes;
  for (const char* name : kAttributes) attributes[name] = node.list(name);
  return attributes;
}

kernels::Window window_over(std::string_view operation, const Node& node, const Shape& image) {
  const size_t count = node.list("kernel").size();
  if (count < 1 || count > kMostDimensions || image.size() != count + 2)
    throw UsageError(
        fmt::format("{}: a window of {} dimensions over [{}]: it must have one or two, between samples and "
                    "channels",
                    operation, count, fmt::join(image, ", ")));
  require_sizes(operation, node, "kernel", count, 1);
  require_sizes(operation, node, "stride", count, 1);
  require_sizes(operation, node, "dilation", count, 1);
  require_sizes(operation, node, "padding", 2 * count, 0);
  const kernels::WindowAxis down =
      count > 1 ? window_axis_of(operation, node, 0, image[1]) : kernels::WindowAxis();
  const kernels::WindowAxis across = window_axis_of(operation, node, count - 1, image[count]);
  if (uint64_t{down.kernel} * across.kernel * image.back() > UINT32_MAX)
    throw UsageError(fmt::format("{}: {} × {} taps of {} channels are too many", operation, down.kernel,
                                 across.kernel, image.back()));
  return kernels::Window::of(down, across);
}

Shape positions_of(const Shape& image, const kernels::Window& window, uint32_t features) {
  Shape shape = {image[0], window.out_width, features};
  if (image.size() > 3) shape.insert(shape.begin() + 1, window.out_height);
  return shape;
}

}  // namespace tessera::graph
