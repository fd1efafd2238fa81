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

/// The shortcut of a block that changes sizes: option B and option A of He et al.
enum class Shortcut : uint8_t {
  projection,  ///< a 1 × 1 convolution with batch normalisation
  padding,     ///< every second pixel, with further channels of zeros: no parameters
};

/// "projection", "padding"; shortcut_named() throws UsageError, listing the names, for any other name.
std::string_view name_of(Shortcut shortcut);
Shortcut shortcut_named(std::string_view name);

/// The sizes of a network. The default is ResNet-50.
struct ResnetConfig {
  /// Number of blocks of each stage. Each stage has twice the channels of the stage before, and half its
  /// pixels in each dimension.
  std::vector<uint32_t> blocks = {3, 4, 6, 3};
  uint32_t width = 64;  ///< channels of the first convolution, and of the convolutions in the first stage
  bool is_bottleneck = true;  ///< blocks of a 1 × 1, 3 × 3 and 1 × 1 convolution instead of two of 3 × 3
  /// Whether the network begins with a 3 × 3 convolution that keeps all pixels, for images of 32 × 32,
  /// instead of a 7 × 7 convolution of stride 2 and pooling.
  bool is_for_small_images = false;
  Shortcut shortcut = Shortcut::projection;
  uint32_t classes = 1000;
  double epsilon = 1e-5;  ///< epsilon of batch normalisations
  double momentum = 0.1;  ///< the fraction of a batch's statistics in the running statistics

  /// Depths 18, 34, 50, 101 and 152 give the networks for images of 224 × 224 and 1,000 classes; their
  /// bottlenecks halve the number of pixels in the 3 × 3 convolution, as in torchvision. Other depths 6n + 2,
  /// such as 20, give the networks of three stages for CIFAR-10, with padding as shortcuts. Throws UsageError
  /// for all other depths.
  static ResnetConfig of_depth(uint32_t depth);
};

struct ResnetOptions {
  /// Whether batches are normalised by their own statistics, with which the running statistics are updated;
  /// otherwise the running statistics are used, as in evaluation.
  bool training = false;
  Numbers numbers = {};  ///< types of parameters and products; statistics and logits are FP32
  /// Patterns of sparse convolutions, by the names of their weights; and whether they may change, with their
  /// numbers of blocks as capacity.
  std::map<std::string, Pattern> patterns = {};
  bool dynamic = false;
  /// Number of replicas that the graph will have (Graph::replicate): running statistics are updated with the
  /// mean of the replicas' statistics.
  uint32_t replicas = 1;
  /// Number of consecutive replicas whose batches are normalised as one; 0: all. See batch_norm_of_batch().
  uint32_t norm_replicas = 1;
  /// Whether blocks are calls of functions, one function for equal blocks, so patterns of their weights may
  /// not change; a memory budget can then choose which of them are computed again (Graph::set_memory_budget).
  bool block_calls = false;
  /// Whether only the inputs of blocks are kept for the backward pass, which computes the other values again.
  /// Blocks are then calls.
  bool recompute = false;
};

/// Values of a network. The parameters have torchvision's names, and this library's shapes: weights of
/// convolutions are [outputs, taps · channels]. Running statistics are parameters without gradients.
struct Resnet {
  Value features;  ///< means over the pixels of the last stage: [samples, channels]
  Value logits;    ///< [samples, classes]
  /// The shape that PyTorch gives the weight of each convolution, [outputs, channels, height, width], by
  /// name: convolution_weight() reorders its values.
  std::map<std::string, Shape> kernels = {};
};

/// Adds a network for images [samples, height, width, channels]. Throws UsageError for sizes that do not fit,
/// and for patterns of other weights.
Resnet resnet(Graph& graph, Value images, const ResnetConfig& config, const ResnetOptions& options = {});

/// Converts 8-bit pixels, u8, to FP32: (pixel − mean) / deviation, with one mean and deviation for each
/// channel, the last dimension. Throws UsageError for other types, for numbers of means or deviations that
/// differ from the number of channels, for means that are not finite, and for deviations that are not
/// positive and finite.
Value normalised_pixels(Value pixels, const std::vector<double>& mean, const std::vector<double>& deviation);

}  // namespace tessera::graph
