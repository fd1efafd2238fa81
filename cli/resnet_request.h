// The request of `tessera train resnet`.
#pragma once

#include <tessera/images.h>
#include <tessera/resnet_training.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "cli/ranks.h"
#include "cli/train_options.h"

namespace CLI {
class App;
}

namespace tessera::cli {

struct ResnetRequest : RunOptions {
  ResnetTrainingSettings settings = {};

  std::string data = {};  ///< folder of the data set
  /// "cifar-10", "synthetic", or a folder of JPEG files; "": CIFAR-10 if there is a folder.
  std::string dataset = {};
  std::optional<uint32_t> images = {};  ///< number of synthetic images for training
  uint32_t classes = 10;                ///< number of classes of synthetic images

  RankOptions ranks = {};

  std::string save = {};                  ///< file for the trained parameters
  std::set<std::string> configured = {};  ///< options that a file has given
};

void add_resnet_options(CLI::App& command, ResnetRequest& request);

/// Throws UsageError if options conflict, before anything is read.
void check(const ResnetRequest& request, const CLI::App& command);

/// Reads or generates images, or finds their files; an estimate takes only the outline of synthetic images.
std::variant<ImageSplit, ImageFolder, ImageOutline> images_for(const ResnetRequest& request);

/// "ResNet-20, dense"
std::string network_of(const ResnetTrainingSettings& settings);

}  // namespace tessera::cli
