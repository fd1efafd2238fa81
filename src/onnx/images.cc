// Images: pooling, normalisation of channels, interpolation.
#include <tessera/vision.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>
#include <ranges>
#include <utility>
#include <vector>

#include "graph/dims.h"
#include "onnx/values.h"
#include "onnx/windows.h"

namespace tessera::onnx {
namespace {

using graph::Coordinates;
using graph::Interpolation;
using graph::Shape;
using graph::Value;

// Pooling.

graph::Pooling pooling_of(const Call& call) {
  const auto kernel = call.integers_if("kernel_shape");
  if (!kernel || kernel->empty()) refuse("its attribute 'kernel_shape' is missing");
  const Dims& dims = call[0].dims;
  require_image(dims, 3);
  const Window window(call, dims);
  double taps = 1;
  for (const uint32_t size : window.kernel) taps *= size;
  call.count_work(window.positions(dims), dims[1], taps);
  return {.window = window.kernel,
          .stride = window.stride,
          .before = window.before,
          .after = window.after,
          .dilation = window.dilation,
          .ceil = !window.is_automatic && call.integer("ceil_mode", 0) != 0};
}

/// An input of floating-point numbers, or of integers that FP32 holds.
Value in_floating_point(const Call& call) {
  const Value x = call.value(0);
  if (!is_integer(x)) return x;
  if (bits_of(call[0].type) > 16) refuse("it is not possible for {}", name_of(call[0].type));
  return cast(x, Type::f32);
}

/// The pooling along some of its dimensions.
graph::Pooling pooling_along(const graph::Pooling& all, std::ptrdiff_t begin, std::ptrdiff_t end) {
  const auto some = [&](const std::vector<uint32_t>& sizes) {
    return std::vector<uint32_t>(sizes.begin() + begin, sizes.begin() + end);
  };
  return {.window = some(all.window),
          .stride = some(all.stride),
          .before = some(all.before),
          .after = some(all.after),
          .dilation = some(all.dilation),
          .ceil = all.ceil};
}

/// Whether each element is a window of its own.
bool is_identity(const graph::Pooling& of) {
  const auto are = [](const std::vector<uint32_t>& sizes, uint32_t size) {
    return std::ranges::count(sizes, size) == std::ranges::ssize(sizes);
  };
  return are(of.window, 1) && are(of.stride, 1) && are(of.before, 0) && are(of.after, 0);
}

using Pool = std::function<Value(const Value& image, const graph::Pooling& of)>;

/// The result of pooling an image with channels first. Three dimensions are pooled in two steps, as windows
/// are separable: first the last two, for each channel and position along the first; then the first.
Value pooled(const Call& call, const Value& x, const Pool& pool) {
  const graph::Pooling of = pooling_of(call);
  const auto by_channel = [&](const Value& image, const graph::Pooling& some) {
    return *channels_first(pool(channels_last(image), some), call[0].type).value;
  };
  if (of.window.size() < 3) return by_channel(x, of);
  const Shape& shape = x.shape();
  const uint32_t samples = shape[0], channels = shape[1], depth = shape[2];
  const graph::Pooling outer = pooling_along(of, 0, 1), inner = pooling_along(of, 1, 3);
  Value y = reshape(x, {samples, channels * depth, shape[3], shape[4]});
  if (!is_identity(inner)) y = by_channel(y, inner);
  const uint32_t height = y.shape()[2], width = y.shape()[3], area = height * width;
  if (is_identity(outer)) return reshape(y, {samples, channels, depth, height, width});
  const Value rows = graph::moved(reshape(y, {samples, channels, depth, area}), 2, 1);
  const Value found = pool(reshape(rows, {samples, depth, channels * area}), outer);
  const uint32_t depths = found.shape()[1];
  return reshape(graph::moved(reshape(found, {samples, depths, channels, area}), 1, 2),
                 {samples, channels, depths, height, width});
}

Results max_pool_of(Call& call) {
  const Value y = pooled(call, in_floating_point(call), graph::max_pool);
  return {known(cast(y, graph_type_of(call[0].type)), call[0].type)};
}

Results average_pool_of(Call& call) {
  const bool counts_padding = call.integer("count_include_pad", 0) != 0;
  const auto pool = [&](const Value& image, const graph::Pooling& of) {
    return average_pool(image, of, counts_padding);
  };
  return {known(pooled(call, call.value(0), pool), call[0].type)};
}

/// The p-th root of a sum of p-th powers.
Results lp_pool(Call& call) {
  const auto p = static_cast<double>(call.integer("p", 2));
  if (p < 1) refuse("a norm of order {} is not possible", p);
  const Value x = call.value(0), size = abs(widened(x));
  const auto sum = [](const Value& image, const graph::Pooling& of) {
    return average_pool(image, of, true, 1);
  };
  const Value sums = pooled(call, p == 1 ? size : pow(size, p), sum);
  const Value y = p == 1 ? sums : pow(sums, 1 / p);
  return {known(cast(y, x.type().type), call[0].type)};
}

/// Pools over all dimensions after the channels.
template <Value (*pool)(Value, const std::vector<uint32_t>&)>
Results pool_all(Call& call) {
  const Known& x = call[0];
  if (x.dims.size() < 3) refuse("{} has no dimensions after the channels", to_string(x.dims));
  Value image = call.value(0);
  Shape shape = image.shape();
  if (shape.size() > 4)
    image = reshape(
        image, {shape[0], shape[1], static_cast<uint32_t>(image.type().elements() / shape[0] / shape[1])});
  std::fill(shape.begin() + 2, shape.end(), 1);
  const Known y = channels_first(pool(channels_last(image), {1}), x.type);
  return {known(y.value->shape() == shape ? *y.value : reshape(*y.value, shape), x.type)};
}

// Normalisation in inference.

Results batch_normalization(Call& call) {
  // Before operator set 14, having more than one result indicates training.
  const bool trains = call.opset < 14 ? call.node.output_size() > 1 && !call.node.output(1).empty()
                                      : call.integer("training_mode", 0) != 0;
  if (trains) refuse("it is in training mode: export the model for inference");
  const Value y = batch_norm(channels_last(call.value(0)), call.value(3), call.value(4), call.value(1),
                             call.value(2), call.number("epsilon", 1e-5));
  return {channels_first(y, call[0].type)};
}

Results instance_normalization(Call& call) {
  const Value x = channels_last(call.value(0));
  const Value y = group_norm(x, x.type().cols(), call.value(1), call.value(2), call.number("epsilon", 1e-5));
  return {channels_first(y, call[0].type)};
}

Results group_normalization(Call& call) {
  const Value x = channels_last(call.value(0));
  const uint32_t channels = x.type().cols(), groups = size_of("groups", call.integer("num_groups"));
  const auto of_channels = [&](size_t input) {
    const Value given = call.value(input);
    if (given.type().elements() == channels || given.type().elements() != groups || channels % groups != 0)
      return given;
    // Before operator set 21, parameters have one element per group.
    return reshape(expand(reshape(given, {groups, 1}), {groups, channels / groups}), {channels});
  };
  const Value y = group_norm(x, groups, of_channels(1), of_channels(2), call.number("epsilon", 1e-5));
  return {channels_first(y, call[0].type)};
}

/// Normalisation by neighbouring channels (Krizhevsky et al. 2012), which are the windows of a dimension.
Results local_response_normalization(Call& call) {
  require_channels(call[0].dims);
  const Value x = call.value(0);
  const uint32_t size = size_of("channels", call.integer("size"));
  const uint32_t samples = x.shape()[0], channels = x.shape()[1];
  call.count_work(x.type().elements(), size);
  const Value rows = reshape(
      widened(x), {samples, channels, static_cast<uint32_t>(x.type().elements() / samples / channels)});
  const Value around = average_pool(
      square(rows), {.window = {size}, .stride = {1}, .before = {(size - 1) / 2}, .after = {size / 2}});
  const Value factor =
      pow(around * call.number("alpha", 1e-4) + call.number("bias", 1), -call.number("beta", 0.75));
  return {known(cast(reshape(rows * factor, x.shape()), x.type().type), call[0].type)};
}

// Interpolation.

/// How a dimension is scaled.
struct Scaled {
  size_t dim;
  uint32_t size;
  double factor;  ///< magnification, of which the size may be a rounded product
};

/// Sets the factors that follow from sizes, whose aspect ratio may have to be kept.
void set_sizes(const Call& call, const std::vector<int64_t>& sizes, std::vector<Scaled>& all) {
  const Dims& dims = call[0].dims;
  const auto ratio = [&](size_t i) {
    return static_cast<double>(size_of("sizes", sizes[i])) / static_cast<double>(dims[all[i].dim]);
  };
  const std::string policy = call.text("keep_aspect_ratio_policy", "stretch");
  if (policy != "stretch" && policy != "not_larger" && policy != "not_smaller")
    refuse("a ratio of sizes that is '{}' is not possible", policy);
  double common = ratio(0);
  for (size_t i = 1; i < all.size(); ++i)
    common = policy == "not_larger" ? std::min(common, ratio(i)) : std::max(common, ratio(i));
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_free = policy == "stretch";
    all[i].factor = is_free ? ratio(i) : common;
    const double size = is_free ? static_cast<double>(sizes[i])
                                : std::floor(common * static_cast<double>(dims[all[i].dim]) + 0.5);
    all[i].size = size_of("sizes", static_cast<int64_t>(size));
  }
}

void set_factors(const Call& call, const Constant& factors, std::vector<Scaled>& all) {
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].factor = factors.number(i);
    constexpr double kMost = 1 << 24;
    if (!(all[i].factor > 0 && all[i].factor <= kMost))
      refuse("a factor of {} is not possible", all[i].factor);
    // In FP32, as exporters round it.
    const float size = static_cast<float>(call[0].dims[all[i].dim]) * static_cast<float>(all[i].factor);
    all[i].size = size_of("sizes", static_cast<int64_t>(std::floor(size)));
  }
}

bool is_given(const Call& call, size_t input) { return call.has(input) && elements_of(call[input].dims) > 0; }

/// The dimensions that change.
std::vector<Scaled> scaled_dims(const Call& call) {
  const Dims& dims = call[0].dims;
  std::vector<Scaled> all;
  const std::vector<int64_t> axes = call.integers_if("axes").value_or(std::vector<int64_t>{});
  for (const size_t dim : Call::dimensions(axes, dims.size(), dims.size())) all.push_back({dim, 0, 1});
  const bool has_factors = is_given(call, 2);
  if (has_factors == is_given(call, 3)) refuse("it takes either factors or sizes");
  const size_t input = has_factors ? 2 : 3;
  if (call.constant(input).size() != all.size())
    refuse("there are {} factors or sizes for {} dimensions", call.constant(input).size(), all.size());
  if (has_factors)
    set_factors(call, call.constant(2), all);
  else
    set_sizes(call, call.integers(3), all);
  std::erase_if(all, [&](const Scaled& each) { return each.size == dims[each.dim] && each.factor == 1; });
  return all;
}

template <class T, size_t count>
T named(const Call& call, const char* attribute, const char* otherwise,
        const std::pair<const char*, T> (&all)[count]) {
  const std::string name = call.text(attribute, otherwise);
  for (const auto& [known, value] : all)
    if (name == known) return value;
  refuse("its {} '{}' is not possible", attribute, name);
}

Interpolation interpolation_of(const Call& call, const std::vector<Scaled>& dims) {
  using Mode = Interpolation::Mode;
  using Rounding = Interpolation::Rounding;
  Interpolation how;
  how.mode = named<Mode>(call, "mode", "nearest",
                         {{"nearest", Mode::nearest}, {"linear", Mode::linear}, {"cubic", Mode::cubic}});
  // align_corners: the last element is that of the rounded size, as in the standard's text, PyTorch and other
  // engines; two of ONNX's own cases have it at the product of size and factor.
  how.coordinates = named<Coordinates>(call, "coordinate_transformation_mode", "half_pixel",
                                       {{"half_pixel", Coordinates::half_pixel},
                                        {"half_pixel_symmetric", Coordinates::half_pixel_symmetric},
                                        {"pytorch_half_pixel", Coordinates::pytorch_half_pixel},
                                        {"align_corners", Coordinates::align_corners},
                                        {"asymmetric", Coordinates::asymmetric}});
  how.rounding = named<Rounding>(call, "nearest_mode", "round_prefer_floor",
                                 {{"floor", Rounding::floor},
                                  {"ceil", Rounding::ceil},
                                  {"round_prefer_floor", Rounding::half_down},
                                  {"round_prefer_ceil", Rounding::half_up}});
  how.cubic = call.number("cubic_coeff_a", -0.75);
  how.divides = true;
  const bool shrinks = std::ranges::any_of(dims, [](const Scaled& each) { return each.factor < 1; });
  if (call.integer("antialias", 0) != 0 && how.mode != Mode::nearest && shrinks)
    refuse("an average over what becomes smaller (antialias) is not possible");
  if (call.integer("exclude_outside", 0) != 0 && how.mode == Mode::cubic)
    refuse("cubic interpolation without what lies outside is not possible");
  return how;
}

/// Interpolates images with channels last.
Value interpolated(Value x, const std::vector<Scaled>& dims, size_t first, Interpolation how) {
  how.sizes.assign(x.shape().begin() + 1, x.shape().end() - 1);
  how.factors.assign(how.sizes.size(), 0);
  for (const Scaled& each : dims) {
    how.sizes[each.dim - first] = each.size;
    how.factors[each.dim - first] = each.factor;
  }
  return interpolate(x, how);
}

/// Interpolates one dimension after the other.
Value interpolated_in_turn(Value x, const std::vector<Scaled>& dims, const Interpolation& how) {
  for (const Scaled& each : dims) {
    Shape shape = x.shape();
    const auto middle = shape.begin() + static_cast<int64_t>(each.dim);
    const uint32_t before = std::accumulate(shape.begin(), middle, 1U, std::multiplies<>()),
                   after = std::accumulate(middle + 1, shape.end(), 1U, std::multiplies<>());
    const Value rows = reshape(x, {before, *middle, after});
    *middle = each.size;
    x = reshape(interpolated(rows, {{0, each.size, each.factor}}, 0, how), shape);
  }
  return x;
}

Results resize(Call& call) {
  const DataType type = call[0].type;
  const std::vector<Scaled> dims = scaled_dims(call);
  const Interpolation how = interpolation_of(call, dims);
  if (dims.empty()) return {call[0]};
  Value x = call.value(0);
  if (is_integer(x) && how.mode != Interpolation::Mode::nearest)
    refuse("interpolation between integers is not possible");
  x = in_floating_point(call);
  const size_t rank = x.shape().size();
  const auto are_within = [&](size_t begin, size_t end) {
    return (rank == 3 || rank == 4) &&
           std::ranges::all_of(dims, [&](const Scaled& each) { return each.dim >= begin && each.dim < end; });
  };
  const auto in_type = [&](Value y) { return cast(y, graph_type_of(type)); };
  if (are_within(2, rank))
    return {channels_first(in_type(interpolated(channels_last(x), dims, 2, how)), type)};
  if (are_within(1, rank - 1)) return {known(in_type(interpolated(x, dims, 1, how)), type)};
  return {known(in_type(interpolated_in_turn(x, dims, how)), type)};
}

constexpr Operator kImagesOperators[] = {{"AveragePool", average_pool_of},
                                         {"BatchNormalization", batch_normalization, 5},
                                         {"GlobalAveragePool", pool_all<graph::adaptive_average_pool>},
                                         {"GlobalMaxPool", pool_all<graph::adaptive_max_pool>},
                                         {"GroupNormalization", group_normalization, 3},
                                         {"InstanceNormalization", instance_normalization, 3},
                                         {"LRN", local_response_normalization},
                                         {"LpPool", lp_pool},
                                         {"MaxPool", max_pool_of},
                                         {"Resize", resize, 4}};

}  // namespace

std::span<const Operator> image_operators() { return kImagesOperators; }

}  // namespace tessera::onnx
