#include "onnx/windows.h"

#include <algorithm>
#include <string>

#include "graph/dims.h"

namespace tessera::onnx {

using graph::Value;

namespace {

std::vector<uint32_t> sizes_or(const Call& call, const char* name, size_t count, int64_t least) {
  const auto given = call.integers_if(name);
  if (!given || given->empty()) return std::vector<uint32_t>(count, static_cast<uint32_t>(least));
  if (given->size() != count)
    refuse("its attribute '{}' has {} sizes for {} dimensions", name, given->size(), count);
  std::vector<uint32_t> sizes;
  for (const int64_t each : *given) sizes.push_back(size_of(name, each, least));
  return sizes;
}

}  // namespace

uint32_t size_of(const char* what, int64_t size, int64_t least) {
  constexpr int64_t kMost = 1 << 24;
  if (size < least || size > kMost) refuse("{} of {} are not possible", what, size);
  return static_cast<uint32_t>(size);
}

void require_image(const Dims& dims, size_t most) {
  if (dims.size() < 3 || dims.size() > most + 2)
    refuse("{} is not possible: only one {} dimensions after the channels", to_string(dims),
           most == 2 ? "or two" : "to three");
}

void require_channels(const Dims& dims) {
  if (dims.size() < 2) refuse("{} is not [samples, channels, …]", to_string(dims));
}

Window::Window(const Call& call, const Dims& image, const Dims& weight) {
  const size_t count = image.size() - 2;
  kernel = sizes_or(call, "kernel_shape", count, 1);
  const bool is_given = !call.integers_if("kernel_shape").value_or(std::vector<int64_t>{}).empty();
  for (size_t d = 0; d < count && !weight.empty(); ++d) {
    const uint32_t size = size_of("kernels", weight.at(d + 2));
    if (is_given && kernel[d] != size)
      refuse("its attribute 'kernel_shape' differs from the shape of its weight, {}", to_string(weight));
    kernel[d] = size;
  }
  stride = sizes_or(call, "strides", count, 1);
  dilation = sizes_or(call, "dilations", count, 1);
  const std::vector<uint32_t> pads = sizes_or(call, "pads", 2 * count, 0);
  before.assign(pads.begin(), pads.begin() + static_cast<int64_t>(count));
  after.assign(pads.begin() + static_cast<int64_t>(count), pads.end());
  const std::string mode = call.text("auto_pad", "NOTSET");
  is_automatic = mode != "NOTSET" && !mode.empty();
  if (!is_automatic) return;
  if (mode != "VALID" && mode != "SAME_UPPER" && mode != "SAME_LOWER")
    refuse("its auto_pad '{}' is not possible", mode);
  for (size_t d = 0; d < count; ++d) {
    const int64_t size = image[d + 2], step = stride[d], outputs = (size + step - 1) / step;
    const int64_t seen = (outputs - 1) * step + int64_t{dilation[d]} * (kernel[d] - 1) + 1;
    const int64_t total = mode == "VALID" ? 0U : size_of("paddings", std::max<int64_t>(0, seen - size), 0);
    const int64_t less = total / 2, more = total - less;
    before[d] = static_cast<uint32_t>(mode == "SAME_LOWER" ? more : less);
    after[d] = static_cast<uint32_t>(mode == "SAME_LOWER" ? less : more);
  }
}

std::vector<uint32_t> Window::padding() const {
  std::vector<uint32_t> both = before;
  both.insert(both.end(), after.begin(), after.end());
  return both;
}

uint64_t Window::positions(const Dims& image) const {
  auto count = static_cast<uint64_t>(image[0]);
  for (size_t d = 0; d < kernel.size(); ++d) {
    const int64_t seen = int64_t{dilation[d]} * (kernel[d] - 1) + 1;
    const int64_t room = image[d + 2] + before[d] + after[d] - seen;
    count *= static_cast<uint64_t>(std::max<int64_t>(0, room) / stride[d] + 1);
  }
  return count;
}

Value channels_last(Value x) {
  require_channels({x.shape().begin(), x.shape().end()});
  return graph::moved(x, 1, x.shape().size() - 1);
}

Known channels_first(Value x, DataType type) { return known(graph::moved(x, x.shape().size() - 1, 1), type); }

}  // namespace tessera::onnx
