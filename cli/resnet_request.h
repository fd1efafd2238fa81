// The request of `tessera train resnet`.
#pragma once

#include <tessera/images.h>
#include <tessera/resnet_training.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

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
  std::optional<uint32_t> images = {};  ///< synthetic ones for training

  std::string save = {};  ///< file for the trained parameters
};

void add_resnet_options(CLI::App& command, ResnetRequest& request);

/// Throws UsageError if options conflict, before anything is read.
void check(const ResnetRequest& request, const CLI::App& command);

/// Reads or generates images, or finds their files.
std::variant<ImageSplit, ImageFolder> images_for(const ResnetRequest& request);

/// "ResNet-20, dense"
std::string network_of(const ResnetTrainingSettings& settings);

}  // namespace tessera::cli
