// Convolutions.
#include <tessera/convolution.h>
#include <tessera/sparse.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "onnx/windows.h"

namespace tessera::onnx {
namespace {

using graph::Convolution;
using graph::Shape;
using graph::Value;

/// A weight of the file in the order of products, once: [first dimension, taps · second dimension].
ConstantPointer reordered(Call& call, const ConstantPointer& weight, uint32_t groups) {
  ConstantPointer& known = call.context.reordered[{weight.get(), groups}];
  if (known) return known;
  call.context.held.push_back(weight);
  Constant matrix = *weight;
  const int64_t rows = weight->dims[0];
  matrix.transposed = {};
  matrix.dims = {rows, static_cast<int64_t>(weight->size()) / rows};
  matrix.values = std::make_shared<const std::vector<float>>(
      graph::convolution_weight(weight->floats(), Shape(weight->dims.begin(), weight->dims.end())));
  return known = std::make_shared<const Constant>(std::move(matrix));
}

/// The same for a weight that is computed.
Value reordered(Value weight) {
  const Value last = channels_last(weight);
  const uint32_t rows = last.shape()[0];
  return reshape(last, {rows, static_cast<uint32_t>(last.type().elements() / rows)});
}

/// A weight, sparse if that pays.
Value weight_value(Call& call, const ConstantPointer& matrix, uint64_t rows, const ConvolutionGroups& of) {
  const auto count = static_cast<uint32_t>(std::min<uint64_t>(rows, INT32_MAX));
  return call.context.weight_of(matrix, false, count, call.weight_name(), of);
}

Value depthwise_weight_value(Call& call, const ConstantPointer& matrix) {
  call.context.leave(*matrix, call.weight_name(), "depthwise convolution");
  return call.value_of(known(matrix));
}

uint32_t taps_of(const Window& window) {
  return std::accumulate(window.kernel.begin(), window.kernel.end(), 1U, std::multiplies<>());
}

void require_weight(const Call& call) {
  require_image(call[0].dims);
  if (!is_float(call[1].type)) refuse("its weight is {}", name_of(call[1].type));
  if (call[1].dims.size() != call[0].dims.size() || elements_of(call[1].dims) == 0)
    refuse("a weight of {} does not fit {}", to_string(call[1].dims), to_string(call[0].dims));
}

Results convolve(Call& call) {
  require_weight(call);
  const Known& weight = call[1];
  const Window window(call, call[0].dims, weight.dims);
  const Convolution of{window.kernel, window.stride, window.padding(), window.dilation,
                       size_of("groups", call.integer("group", 1))};
  if (call[0].dims[1] % of.groups != 0 || call[0].dims[1] / of.groups != weight.dims[1])
    refuse("a weight of {} in {} groups does not fit {}", to_string(weight.dims), of.groups,
           to_string(call[0].dims));
  const uint64_t positions = window.positions(call[0].dims);
  call.count_work(positions, elements_of(weight.dims));
  const Value x = channels_last(call.value(0));
  std::optional<Value> matrix;
  if (weight.constant) {
    const ConstantPointer taps = reordered(call, weight.constant, of.groups);
    const bool is_depthwise = of.groups > 1 && weight.dims[1] == 1;
    matrix = is_depthwise ? depthwise_weight_value(call, taps)
                          : weight_value(call, taps, positions, {of.groups, taps_of(window)});
  } else {
    matrix = reordered(call.value(1));
  }
  return {channels_first(convolution(x, *matrix, call.value_if(2), of), call[0].type)};
}

/// The padding that gives a transposed convolution the sizes of its attribute `output_shape`.
void set_padding(const Call& call, Window& window, std::vector<uint32_t>& more) {
  const auto wanted = call.integers_if("output_shape");
  const std::string mode = call.text("auto_pad", "NOTSET");
  const size_t count = window.kernel.size();
  if (!wanted && mode == "NOTSET") return;
  if (wanted && wanted->size() < count)
    refuse("its output shape has {} sizes for {} dimensions", wanted->size(), count);
  for (size_t d = 0; d < count; ++d) {
    const int64_t size = call[0].dims[d + 2], step = window.stride[d];
    const int64_t seen = int64_t{window.dilation[d]} * (window.kernel[d] - 1) + 1;
    const int64_t whole = (size - 1) * step + seen + more[d];
    const int64_t target = wanted            ? size_of("sizes", (*wanted)[wanted->size() - count + d])
                           : mode == "VALID" ? whole
                                             : size * step;
    const int64_t total = std::max<int64_t>(0, whole - target);
    if (whole < target) more[d] = size_of("output padding", more[d] + target - whole, 0);
    const int64_t less = total / 2, rest = total - less;
    window.before[d] = static_cast<uint32_t>(mode == "SAME_UPPER" ? less : rest);
    window.after[d] = static_cast<uint32_t>(total) - window.before[d];
  }
}

Results convolve_transposed(Call& call) {
  require_weight(call);
  const Known& weight = call[1];
  Window window(call, call[0].dims, weight.dims);
  const size_t count = window.kernel.size();
  std::vector<uint32_t> more(count, 0);
  if (const auto given = call.integers_if("output_padding"); given && !given->empty()) {
    if (given->size() != count)
      refuse("its attribute 'output_padding' has {} sizes for {} dimensions", given->size(), count);
    for (size_t d = 0; d < count; ++d) more[d] = size_of("output padding", (*given)[d], 0);
  }
  set_padding(call, window, more);
  const uint32_t groups = size_of("groups", call.integer("group", 1));
  const Convolution of{window.kernel, window.stride, window.padding(), window.dilation, groups};
  if (weight.dims[0] != call[0].dims[1])
    refuse("a weight of {} does not fit {}", to_string(weight.dims), to_string(call[0].dims));
  if (weight.dims[0] % groups != 0)
    refuse("{} groups of {} channels are not possible", groups, weight.dims[0]);
  auto positions = static_cast<uint64_t>(call[0].dims[0]);
  for (size_t d = 0; d < count; ++d) positions *= static_cast<uint64_t>(call[0].dims[d + 2]);
  call.count_work(positions, elements_of(weight.dims));
  std::optional<Value> matrix;
  if (weight.constant) {
    const ConstantPointer taps = reordered(call, weight.constant, groups);
    const bool is_depthwise = groups > 1 && (weight.dims[1] == 1 || weight.dims[0] == groups);
    matrix = is_depthwise ? depthwise_weight_value(call, taps)
                          : weight_value(call, taps, positions, {groups, taps_of(window)});
  } else {
    matrix = reordered(call.value(1));
  }
  const Value y = transposed_convolution(channels_last(call.value(0)), *matrix, call.value_if(2), of, more);
  return {channels_first(y, call[0].type)};
}

constexpr Operator kConvolutionsOperators[] = {{"Conv", convolve, 3},
                                               {"ConvTranspose", convolve_transposed, 3}};

}  // namespace

std::span<const Operator> convolution_operators() { return kConvolutionsOperators; }

}  // namespace tessera::onnx
