// How residual networks are trained with images.
#pragma once

#include <tessera/drop_grow.h>
#include <tessera/resnet.h>
#include <tessera/training_settings.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

/// A residual network and how to train it. Images are pixels of 8 bits, which the graph normalises by mean
/// and deviation of each channel over the images for training. Each micro-batch of a replica is normalised by
/// its own statistics. With LARS and nothing `excluded`, neither weight decay nor trust ratio are for
/// parameters of one dimension: biases and batch normalisations.
struct ResnetTrainingSettings : LearningSettings, PlacementSettings {
  ResnetTrainingSettings();

  uint32_t depth = 20;                           ///< see graph::ResnetConfig::of_depth()
  std::optional<graph::Shortcut> shortcut = {};  ///< instead of those of the depth
  std::string numbers = "fp32";                  ///< see graph::numbers_named()
  double label_smoothing = 0;                    ///< fraction of each target that is spread over all classes
  /// Of the weights of all convolutions but the first; below 1 they are block-sparse.
  double density = 1;
  uint32_t block_size = 16;
  DropGrowSchedule drop_grow = {};  ///< how sparse convolutions change
  /// Whether training takes random crops and flips of images, which follow from seed, epoch and image; of
  /// images of files crops of other sizes, which are brought to that of all (Szegedy et al. 2015).
  bool augment = true;
  uint32_t padding = 4;  ///< pixels of zeros on each side of an image of which crops are taken
  /// Pixels in each dimension to which images of files are brought; 0: 224, or 32 as the depth says.
  uint32_t size = 0;
  /// Consecutive replicas whose micro-batches are normalised as one, 0: all; see graph::ResnetOptions.
  uint32_t norm_replicas = 1;
  uint64_t steps = 0;  ///< 0: as many as the epochs take
};

}  // namespace tessera
