// Operations of image networks besides convolution: pooling, normalisation over batches and groups,
// interpolation. Values are channels last: [N, length, channels] or [N, height, width, channels].
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::graph {

/// Windows that slide over the dimensions between the first and the last; each list has one number per such
/// dimension, or a single number for all of them.
struct Pooling {
  std::vector<uint32_t> window;
  std::vector<uint32_t> stride = {};  ///< empty: the window's sizes
  /// Padding before and after each dimension: minus infinity for maxima, 0 for means.
  std::vector<uint32_t> before = {}, after = {};
  std::vector<uint32_t> dilation = {};  ///< distance between a window's elements; empty: 1
  /// Whether the number of outputs is rounded up, unless the last window would begin beyond the input and the
  /// padding before it (PyTorch).
  bool ceil = false;
};

/// The largest element of each window; a window with NaN gives NaN. As in PyTorch, the first of equal maxima
/// gets the gradient. Throws UsageError for shapes with other numbers of dimensions, and for sizes with which
/// no window fits.
Value max_pool(Value x, const Pooling& of);
/// The mean of each window. Padding counts unless `counts_padding` is false, or the divisor is given.
Value average_pool(Value x, const Pooling& of, bool counts_padding = true,
                   std::optional<uint32_t> divisor = {});
/// Pooling to a given number of outputs for each dimension: output i of n from a dimension of m elements
/// takes [⌊i · m / n⌋, ⌈(i + 1) · m / n⌉).
Value adaptive_max_pool(Value x, const std::vector<uint32_t>& sizes);
Value adaptive_average_pool(Value x, const std::vector<uint32_t>& sizes);

/// (x − mean) / √(variance + epsilon) · weight + bias per channel, the last dimension, with given statistics,
/// as in evaluation. Mean, variance, weight and bias are [channels].
Value batch_norm(Value x, Value mean, Value variance, std::optional<Value> weight = {},
                 std::optional<Value> bias = {}, double epsilon = 1e-5);
/// Results of a batch normalisation with the statistics of the batch, as in training.
struct BatchNorm {
  Value y;
  Value mean;
  Value variance;  ///< without bias: the divisor is the number of elements − 1
};
/// Batch normalisation with the statistics of each replica's own batch, or of the batches of each group of
/// `replicas` consecutive replicas together (0: of all replicas; Ying et al. 2018, arXiv 1811.06992).
/// Results, gradients, mean and variance are computed over the joint batch; in a graph without replicas, over
/// its batch. State is the same in all replicas, so it takes mean_over_replicas() of the statistics.
BatchNorm batch_norm_of_batch(Value x, std::optional<Value> weight = {}, std::optional<Value> bias = {},
                              double epsilon = 1e-5, uint32_t replicas = 1);
/// Normalises by mean and variance of each sample over equal groups of channels (Wu & He 2018); with one
/// channel per group it is instance normalisation.
Value group_norm(Value x, uint32_t groups, std::optional<Value> weight = {}, std::optional<Value> bias = {},
                 double epsilon = 1e-5);

/// How the position of an output between the elements of a dimension is computed.
enum class Coordinates : uint8_t {
  half_pixel,            ///< elements and outputs are areas, which cover the same extent
  pytorch_half_pixel,    ///< half_pixel, but a single output lies on the first element (ONNX)
  half_pixel_symmetric,  ///< half_pixel, with the outputs centred if their number is a rounded product of
                         ///< size and factor (ONNX)
  align_corners,  ///< elements and outputs are points; the first points coincide, and so do the last ones
  asymmetric,     ///< elements and outputs are points; the first ones coincide
};
struct Interpolation {
  enum class Mode : uint8_t { nearest, linear, cubic };
  /// How Mode::nearest rounds a position between elements.
  enum class Rounding : uint8_t { floor, ceil, half_down, half_up };

  std::vector<uint32_t> sizes;  ///< sizes of the result's dimensions between the first and the last
  Mode mode = Mode::linear;
  Coordinates coordinates = Coordinates::half_pixel;
  Rounding rounding = Rounding::floor;
  double cubic = -0.75;  ///< the coefficient a of cubic kernels (Keys 1981)
  /// Scale factor per dimension; empty, or 0: the ratio of the sizes.
  std::vector<double> factors = {};
  /// Whether Mode::nearest divides positions by the factor in FP32 instead of multiplying them by its
  /// reciprocal, as ONNX Runtime does: they may be rounded to different elements.
  bool divides = false;
};
/// Interpolates between elements. Positions before the first element have the first element's value,
/// positions after the last element the last one's.
Value interpolate(Value x, const Interpolation& how);

}  // namespace tessera::graph
