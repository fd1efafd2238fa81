// Normalisation over batches and groups of channels, composed of other operations.
#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/vision.h>

#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

namespace tessera::graph {
namespace {

void require_channels(const char* operation, Value x, std::optional<Value> of, const char* name) {
  if (of && of->shape() != Shape{x.type().cols()})
    throw UsageError(fmt::format("{}: {} is {}; it must have the {} channels of {}", operation, name,
                                 to_string(of->type()), x.type().cols(), to_string(x.type())));
}

void check_normalise(const char* operation, Value x, std::optional<Value> weight, std::optional<Value> bias,
                     double epsilon) {
  if (x.shape().size() < 2)
    throw UsageError(
        fmt::format("{}: x is {}; it must be [N, ..., channels]", operation, to_string(x.type())));
  require_channels(operation, x, weight, "the weight");
  require_channels(operation, x, bias, "the bias");
  if (!(epsilon >= 0 && epsilon <= std::numeric_limits<float>::max()))
    throw UsageError(
        fmt::format("{}: epsilon is {}; it must be a finite FP32 number of at least 0", operation, epsilon));
}

Value wide(Value x) { return cast(x, Type::f32); }

Value scaled(Value x, std::optional<Value> weight, std::optional<Value> bias) {
  if (weight) x = x * cast(*weight, x.type().type);
  return bias ? x + cast(*bias, x.type().type) : x;
}

/// The mean over all replicas that share statistics; each has the same number of rows.
Value over_replicas(Value own, uint32_t replicas) {
  return replicas == 1 ? own : mean_over_replicas(own, replicas);
}

/// By channel.
Value mean_of_channels(Value x, uint32_t replicas) {
  std::vector<int> dims(x.shape().size() - 1);
  std::iota(dims.begin(), dims.end(), 0);
  return over_replicas(mean(x, dims), replicas);
}
Value mean_of_squares(Value x) {
  return x.owner().apply("sum_of_squares", {x}, {{"over", "rows"}, {"scale", 1.0 / x.type().rows()}})[0];
}

/// One factor per channel, because each product with x is a pass over all of x.
Value factor_of(Value variance, std::optional<Value> weight, double epsilon) {
  const Value factor = rsqrt(variance + epsilon);
  return weight ? factor * wide(*weight) : factor;
}

/// Replaces the divisor of a variance, the number of rows of all replicas, by one less.
Value without_bias(Value variance, uint32_t rows, uint32_t replicas) {
  if (replicas == 1) return variance * (rows / (rows - 1.0));
  // How many replicas there are is known only when the graph runs.
  const Value own = variance.owner().constant("", {}, {static_cast<float>(rows)});
  const Value all = sum_over_replicas(own, replicas);
  return variance * (all * reciprocal(clip(all + -1.0, 1.0)));
}

}  // namespace

Value batch_norm(Value x, Value mean, Value variance, std::optional<Value> weight, std::optional<Value> bias,
                 double epsilon) {
  check_normalise("batch_norm", x, weight, bias, epsilon);
  require_channels("batch_norm", x, mean, "the mean");
  require_channels("batch_norm", x, variance, "the variance");
  // A factor and an addend for each channel.
  const Value factor = factor_of(wide(variance), weight, epsilon);
  Value added = -(wide(mean) * factor);
  if (bias) added = added + wide(*bias);
  return scaled(x, factor, added);
}

BatchNorm batch_norm_of_batch(Value x, std::optional<Value> weight, std::optional<Value> bias, double epsilon,
                              uint32_t replicas) {
  check_normalise("batch_norm", x, weight, bias, epsilon);
  const uint32_t rows = x.type().rows();
  if (rows < 2 && replicas == 1)
    throw UsageError(fmt::format("batch_norm: {} has one element of each channel; a variance takes more",
                                 to_string(x.type())));
  // Computed from deviations from the overall mean, as sums of squares would lose digits if the mean is large
  // relative to the deviations.
  const Value all = wide(x), average = mean_of_channels(all, replicas), constant = stop_gradient(average);
  const Value centred = all - constant;
  const Value variance = over_replicas(mean_of_squares(centred), replicas);
  const Value factor = factor_of(variance, weight, epsilon);
  // The variance does not depend on the mean, because deviations add up to 0. y does: through a term that is
  // 0, whose gradient is a sum that the bias needs too.
  Value added = (constant - average) * factor;
  if (bias) added = added + wide(*bias);
  const Value y = scaled(centred, factor, added);
  return {cast(y, x.type().type), average, without_bias(variance, rows, replicas)};
}

Value group_norm(Value x, uint32_t groups, std::optional<Value> weight, std::optional<Value> bias,
                 double epsilon) {
  check_normalise("group_norm", x, weight, bias, epsilon);
  const uint32_t samples = x.shape().front(), channels = x.type().cols(), pixels = x.type().rows() / samples;
  if (groups == 0 || channels % groups != 0)
    throw UsageError(fmt::format("group_norm: {} channels are not {} equal groups", channels, groups));
  const uint32_t of_group = channels / groups;
  const Shape divided = {samples, pixels, groups, of_group};
  const Value by_group = permute(reshape(x, divided), {0, 2, 1, 3});
  const Value normalised =
      layer_norm(reshape(by_group, {samples * groups, pixels * of_group}), {}, {}, epsilon);
  const Value y = permute(reshape(normalised, {samples, groups, pixels, of_group}), {0, 2, 1, 3});
  return scaled(reshape(y, x.shape()), weight, bias);
}

}  // namespace tessera::graph
