// How residual networks are trained with images.
#pragma once

#include <tessera/drop_grow.h>
#include <tessera/resnet.h>
#include <tessera/training_settings.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

/// A residual network and how to train it. Images are pixels of 8 bits, which the graph normalises by the
/// mean and standard deviation of each channel over the training images. Each micro-batch of a replica is
/// normalised by its own statistics. With LARS and nothing `excluded`, parameters of one dimension (biases
/// and batch normalisations) have neither weight decay nor a trust ratio.
struct ResnetTrainingSettings : LearningSettings, PlacementSettings {
  ResnetTrainingSettings();

  uint32_t depth = 20;                           ///< see graph::ResnetConfig::of_depth()
  std::optional<graph::Shortcut> shortcut = {};  ///< instead of the shortcuts of the depth
  std::string numbers = "fp32";                  ///< see graph::numbers_named()
  double label_smoothing = 0;                    ///< fraction of each target that is spread over all classes
  /// Density of the weights of all convolutions but the first; below 1 they are block-sparse.
  double density = 1;
  uint32_t block_size = 16;
  DropGrowSchedule drop_grow = {};  ///< how sparse convolutions change
  /// Whether training takes random crops and flips of images, which follow from seed, epoch and image. Crops
  /// of images in files have random sizes and are scaled to the common size (Szegedy et al. 2015).
  bool augment = true;
  uint32_t padding = 4;  ///< pixels of zeros added on each side of an image before crops are taken
  /// Height and width, in pixels, to which images in files are scaled; 0: 224, or 32, depending on the depth.
  uint32_t size = 0;
  /// Consecutive replicas whose micro-batches are normalised as one, 0: all; see graph::ResnetOptions.
  uint32_t norm_replicas = 1;
  uint64_t steps = 0;  ///< number of steps; 0: as many as the epochs take
};

}  // namespace tessera
