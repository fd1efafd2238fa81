// Residual networks for images, with batch normalisation (He et al. 2016).
#pragma once

#include <tessera/graph.h>
#include <tessera/numbers.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::graph {

/// How the shortcut of a block that changes sizes does so, as He et al. call them option B and option A.
enum class Shortcut : uint8_t {
  projection,  ///< a 1 × 1 convolution with batch normalisation
  padding,     ///< every second pixel, with further channels of zeros: no parameters
};

/// "projection", "padding"; the function from a name throws UsageError that lists them.
std::string_view name_of(Shortcut shortcut);
Shortcut shortcut_named(std::string_view name);

/// The sizes of a network. The default is ResNet-50.
struct ResnetConfig {
  /// Blocks of each stage, each of which has twice the channels of the one before, on half as many pixels of
  /// each dimension.
  std::vector<uint32_t> blocks = {3, 4, 6, 3};
  uint32_t width = 64;        ///< channels of the first convolution, and of those in the first stage
  bool is_bottleneck = true;  ///< blocks of a 1 × 1, 3 × 3 and 1 × 1 convolution instead of two of 3 × 3
  /// Whether the first convolution is 3 × 3 and keeps all pixels, for images of 32², instead of one of 7 × 7
  /// on every second pixel, and pooling.
  bool is_for_small_images = false;
  Shortcut shortcut = Shortcut::projection;
  uint32_t classes = 1000;
  double epsilon = 1e-5;  ///< of batch normalisations
  double momentum = 0.1;  ///< the fraction of a batch's statistics in the running ones

  /// 18, 34, 50, 101 and 152: those for images of 224² and 1,000 classes, of which bottlenecks halve the
  /// number of pixels in their 3 × 3 convolution, as torchvision's. Others of 6n + 2, such as 20: those of
  /// three stages for CIFAR-10, with padding as shortcuts. Throws UsageError for other depths.
  static ResnetConfig of_depth(uint32_t depth);
};

struct ResnetOptions {
  /// Whether batches are normalised by their own statistics, which the running ones follow; otherwise these
  /// are used, as in evaluation.
  bool training = false;
  Numbers numbers = {};  ///< types of parameters and products; statistics and logits are FP32
  /// Patterns of sparse convolutions, by the names of their weights, and whether they may change, with room
  /// for as many blocks.
  std::map<std::string, Pattern> patterns = {};
  bool dynamic = false;
  /// Replicas that the graph will have (Graph::replicate): running statistics follow the mean of theirs.
  uint32_t replicas = 1;
  /// Consecutive replicas whose batches are normalised as one, 0: all; see batch_norm_of_batch().
  uint32_t norm_replicas = 1;
  /// Whether backward passes keep only the inputs of blocks, and compute the rest again. Blocks are called
  /// then, equal ones as one function, so no patterns of theirs may change.
  bool recompute = false;
};

/// Values of a network. Its parameters have the names of torchvision's, and shapes of this library: weights
/// of convolutions are [outputs, taps · channels]. Running statistics are parameters without gradients.
struct Resnet {
  Value features;  ///< means over the pixels of the last stage: [samples, channels]
  Value logits;    ///< [samples, classes]
  /// The shape that PyTorch gives the weight of each convolution, [outputs, channels, height, width], by
  /// name: convolution_weight() reorders its values.
  std::map<std::string, Shape> kernels = {};
};

/// Adds a network of images [samples, height, width, channels]. Throws UsageError for sizes that do not fit,
/// and for patterns of other weights.
Resnet resnet(Graph& graph, Value images, const ResnetConfig& config, const ResnetOptions& options = {});

/// Pixels of 8 bits, u8, as FP32 numbers: (pixel − mean) / deviation of each channel, the last dimension.
/// Throws UsageError for other types, other numbers of channels, means that are not finite, and deviations
/// that are not positive and finite.
Value normalised_pixels(Value pixels, const std::vector<double>& mean, const std::vector<double>& deviation);

}  // namespace tessera::graph
