// Normalisation, as it is for inference.
#include <cmath>
#include <numeric>

#include "onnx/call.h"
#include "onnx/values.h"

namespace tessera::onnx {
namespace {

using model::Shape;
using model::Value;

/// The last dimensions from an axis on as one.
struct Flattened {
  Flattened(Call& call, int64_t axis)
      : x(call.value(0)), shape(x.shape()), from(Call::dimension(axis, shape.size())) {
    const auto middle = shape.begin() + static_cast<int64_t>(from);
    size = std::accumulate(middle, shape.end(), 1U, std::multiplies<>());
    Shape flat(shape.begin(), middle);
    flat.push_back(size);
    if (flat != shape) x = reshape(x, flat);
  }

  /// A parameter of all of these dimensions, as one; none: it has to be broadcast.
  std::optional<Value> whole(const Call& call, size_t input) const {
    const Dims last(shape.begin() + static_cast<int64_t>(from), shape.end());
    if (!call.has(input) || call[input].dims != last || call[input].type != call[0].type) return {};
    return reshape(call.value(input), {size});
  }

  Value restored(Value y) const { return y.shape() == shape ? y : reshape(y, shape); }

  Value x;
  Shape shape;
  size_t from;
  uint32_t size = 1;
};

/// Mean and reciprocal deviation of each row.
void add_statistics(Call& call, Results& results, const Flattened& of, double epsilon) {
  if (call.node.output_size() < 2) return;
  const Value wide = cast(of.x, Type::f32), average = mean(wide, {-1}, true);
  const Value reciprocal = rsqrt(mean(square(wide - average), {-1}, true) + epsilon);
  Shape shape(of.shape.begin(), of.shape.begin() + static_cast<int64_t>(of.from));
  shape.resize(of.shape.size(), 1);
  results.push_back(known(reshape(average, shape), DataType::f32));
  results.push_back(known(reshape(reciprocal, shape), DataType::f32));
}

Results layer_normalization(Call& call) {
  const Flattened of(call, call.integer("axis", -1));
  const double epsilon = call.number("epsilon", 1e-5);
  const auto weight = of.whole(call, 1), bias = of.whole(call, 2);
  const bool is_whole = weight && (bias || !call.has(2));
  Value y = of.restored(
      layer_norm(of.x, is_whole ? weight : std::nullopt, is_whole ? bias : std::nullopt, epsilon));
  if (!is_whole) {
    y = y * call.value(1);
    if (call.has(2)) y = y + call.value(2);
  }
  Results results = {known(y, call[0].type)};
  add_statistics(call, results, of, epsilon);
  return results;
}

Results rms_normalization(Call& call) {
  const Flattened of(call, call.integer("axis", -1));
  const auto weight = of.whole(call, 1);
  Value y = of.restored(rms_norm(of.x, weight, call.number("epsilon", 1e-5)));
  if (!weight) y = y * call.value(1);
  return {known(y, call[0].type)};
}

/// A parameter of each channel, beside [batch, channels, …].
Value of_channels(Value parameter, size_t rank) {
  Shape shape(rank - 1, 1);
  shape[0] = static_cast<uint32_t>(parameter.type().elements());
  return reshape(parameter, shape);
}

/// Each group of channels of a sample has mean 0 and deviation 1.
Value normalised_groups(Value x, uint32_t groups, double epsilon) {
  const Shape shape = x.shape();
  const auto size = static_cast<uint32_t>(x.type().elements() / (uint64_t{shape[0]} * groups));
  return reshape(layer_norm(reshape(x, {shape[0], groups, size}), {}, {}, epsilon), shape);
}

void require_channels(const Call& call) {
  if (call[0].dims.size() < 2) refuse("{} is no [batch, channels, …]", to_string(call[0].dims));
}

Results instance_normalization(Call& call) {
  require_channels(call);
  const Value x = call.value(0);
  const size_t rank = x.shape().size();
  const Value y = normalised_groups(x, x.shape()[1], call.number("epsilon", 1e-5));
  return {known(y * of_channels(call.value(1), rank) + of_channels(call.value(2), rank), call[0].type)};
}

Results group_normalization(Call& call) {
  require_channels(call);
  const Value x = call.value(0);
  const uint32_t channels = x.shape()[1];
  const int64_t groups = call.integer("num_groups");
  if (groups < 1 || groups > channels || channels % groups != 0)
    refuse("{} groups of {} channels are not possible", groups, channels);
  const auto parameter = [&](size_t input) {
    const Value given = call.value(input);
    if (given.type().elements() == channels) return of_channels(given, x.shape().size());
    // Before operator set 21, one for each group.
    const auto each = static_cast<uint32_t>(channels / groups), count = static_cast<uint32_t>(groups);
    const Value repeated = expand(reshape(given, {count, 1}), {count, each});
    return of_channels(reshape(repeated, {channels}), x.shape().size());
  };
  const Value y = normalised_groups(x, static_cast<uint32_t>(groups), call.number("epsilon", 1e-5));
  return {known(y * parameter(1) + parameter(2), call[0].type)};
}

/// Constants scale and shift each channel.
Results batch_normalization(Call& call) {
  if (call.integer("training_mode", 0) != 0) refuse("it is in training mode: export the model for inference");
  require_channels(call);
  const double epsilon = call.number("epsilon", 1e-5);
  const Value x = call.value(0);
  const size_t rank = x.shape().size();
  bool is_constant = true;
  for (size_t i = 1; i < 5; ++i) is_constant = is_constant && call[i].constant;
  if (!is_constant) {
    const auto each = [&](size_t input) { return of_channels(call.value(input), rank); };
    return {known((x - each(3)) * rsqrt(each(4) + epsilon) * each(1) + each(2), call[0].type)};
  }
  const Constant &scale = call.constant(1), &bias = call.constant(2), &average = call.constant(3),
                 &variance = call.constant(4);
  const uint32_t channels = x.shape()[1];
  for (const Constant* each : {&scale, &bias, &average, &variance})
    if (each->size() != channels) refuse("its parameters are not of {} channels", channels);
  std::vector<float> factors(channels), shifts(channels);
  for (uint32_t c = 0; c < channels; ++c) {
    const double factor = scale.number(c) / std::sqrt(variance.number(c) + epsilon);
    factors[c] = static_cast<float>(factor);
    shifts[c] = static_cast<float>(bias.number(c) - average.number(c) * factor);
  }
  Shape shape(rank - 1, 1);
  shape[0] = channels;
  const Type type = x.type().type;
  const Value factor = call.graph.constant("", shape, std::move(factors), type),
              shift = call.graph.constant("", shape, std::move(shifts), type);
  return {known(x * factor + shift, call[0].type)};
}

Results mean_variance_normalization(Call& call) {
  const Value x = call.value(0);
  std::vector<int> dims;
  for (const int64_t axis : call.integers_if("axes").value_or(std::vector<int64_t>{0, 2, 3}))
    dims.push_back(static_cast<int>(Call::dimension(axis, x.shape().size())));
  const Value centred = x - mean(x, dims, true);
  return {known(centred / (sqrt(mean(square(centred), dims, true)) + 1e-9), call[0].type)};
}

constexpr Operator kOperators[] = {{"BatchNormalization", batch_normalization},
                                   {"GroupNormalization", group_normalization},
                                   {"InstanceNormalization", instance_normalization},
                                   {"LayerNormalization", layer_normalization},
                                   {"MeanVarianceNormalization", mean_variance_normalization},
                                   {"RMSNormalization", rms_normalization}};

}  // namespace

std::span<const Operator> norm_operators() { return kOperators; }

}  // namespace tessera::onnx
