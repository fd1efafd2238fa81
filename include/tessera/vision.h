// What networks of images need besides convolution: pooling, normalisation over batches and groups,
// interpolation. Values are channels last: [N, length, channels] or [N, height, width, channels].
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::graph {

/// Windows that slide over the dimensions between the first and the last; a number for each of these, or one
/// for all of them.
struct Pooling {
  std::vector<uint32_t> window;
  std::vector<uint32_t> stride = {};  ///< none: the window's sizes
  /// Elements that are added before and after a dimension: as minus infinity for maxima, as 0 for means.
  std::vector<uint32_t> before = {}, after = {};
  std::vector<uint32_t> dilation = {};  ///< how far apart a window's elements are; none: neighbours
  /// The number of outputs is rounded up, unless the last window would begin beyond the input and what is
  /// added before it (PyTorch).
  bool ceil = false;
};

/// The largest element of each window, with PyTorch's gradient at equal ones: that of the first; a window
/// with NaN gives NaN. Throws UsageError for other shapes and sizes that make no window.
Value max_pool(Value x, const Pooling& of);
/// The mean of each window. Elements that are added count unless `counts_padding` is false, or the divisor is
/// given.
Value average_pool(Value x, const Pooling& of, bool counts_padding = true,
                   std::optional<uint32_t> divisor = {});
/// As many outputs as given for each dimension: output i of n from a dimension of m elements takes
/// [⌊i · m / n⌋, ⌈(i + 1) · m / n⌉).
Value adaptive_max_pool(Value x, const std::vector<uint32_t>& sizes);
Value adaptive_average_pool(Value x, const std::vector<uint32_t>& sizes);

/// (x − mean) / √(variance + epsilon) · weight + bias by channel, the last dimension, all of [channels]: the
/// statistics are given, as in evaluation.
Value batch_norm(Value x, Value mean, Value variance, std::optional<Value> weight = {},
                 std::optional<Value> bias = {}, double epsilon = 1e-5);
/// The same with the statistics of the batch, as in training.
struct BatchNorm {
  Value y;
  Value mean;
  Value variance;  ///< without bias: the divisor is the number of elements − 1
};
BatchNorm batch_norm_of_batch(Value x, std::optional<Value> weight = {}, std::optional<Value> bias = {},
                              double epsilon = 1e-5);
/// Mean and variance of each sample, over equal groups of channels (Wu & He 2018); as many groups as channels
/// are instance normalisation.
Value group_norm(Value x, uint32_t groups, std::optional<Value> weight = {}, std::optional<Value> bias = {},
                 double epsilon = 1e-5);

/// Where an output of an interpolation lies between the elements of a dimension.
enum class Coordinates : uint8_t {
  half_pixel,          ///< elements are areas, and so are outputs
  pytorch_half_pixel,  ///< the same, but the first element for a single output (ONNX)
  align_corners,       ///< the first and last ones are points that lie on each other
  asymmetric,          ///< the first ones lie on each other
};
struct Interpolation {
  enum class Mode : uint8_t { nearest, linear, cubic };
  /// Of `nearest`, where a place lies between elements.
  enum class Rounding : uint8_t { floor, ceil, half_down, half_up };

  std::vector<uint32_t> sizes;  ///< of the results' dimensions between the first and the last
  Mode mode = Mode::linear;
  Coordinates coordinates = Coordinates::half_pixel;
  Rounding rounding = Rounding::floor;
  double cubic = -0.75;  ///< the coefficient a of cubic kernels (Keys 1981)
  /// By dimension, how much larger the results are; none, or 0: as the sizes say.
  std::vector<double> factors = {};
};
/// Values between elements. Those before the first and after the last one are as these.
Value interpolate(Value x, const Interpolation& how);

}  // namespace tessera::graph
