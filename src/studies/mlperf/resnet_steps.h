// Steps of ResNet-50 as Graphcore trained it for MLPerf, on modelled pods.
#pragma once

#include <tessera/resnet_training.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/image_source.h"
#include "studies/paper/study.h"

namespace tessera::studies::mlperf {

inline constexpr std::string_view kResnet = "resnet";

/// How a pod trains ResNet-50: one chip in each replica.
struct ResnetSetup {
  std::string round = {};     ///< "v1.0"; "": not of a submission
  std::string machine = {};   ///< "pod16"
  uint32_t chips = 16;        ///< each a replica
  uint32_t local_batch = 20;  ///< images of a micro-batch
  uint32_t accumulation = 6;  ///< micro-batches of a step
  uint32_t epochs = 0;        ///< of the submission
  uint32_t group = 2;         ///< replicas that share the statistics of a batch norm
  bool recomputes = true;

  uint32_t images() const { return chips * local_batch * accumulation; }  ///< of a step
};

/// The setups of the submissions, v1.0 to v2.0.
const std::vector<ResnetSetup>& resnet_setups();
/// The setup with which a round trained on `chips` chips; null: there is none.
const ResnetSetup* resnet_setup_of(std::string_view round, uint32_t chips);

/// Settings with LARS and label smoothing, in FP16.
ResnetTrainingSettings settings_of(const ResnetSetup& setup);
/// Images of ImageNet, 224 × 224.
train::ImageFormat imagenet_format();

/// "seconds", "tile_bytes" and "total_bytes" of a step; without seconds, an operation alone does not fit.
Result estimate_resnet_step(const ResnetSetup& setup, const ResnetTrainingSettings& settings,
                            const train::ImageFormat& images);

/// Steps on 16 chips with and without recomputation, for two numbers of micro-batches, from which the steps
/// of other setups follow; and a step on 64 chips.
std::vector<Cell> resnet_cells(const machine::Machine& machine, const Request& request);

struct ResnetStep {
  double seconds = 0;
  uint64_t fullest_tile_bytes = 0;
  bool fits = false;
  bool is_whole = false;    ///< otherwise it follows from steps with other numbers of micro-batches
  std::string reason = {};  ///< why it does not fit
};

/// The modelled step; none: it was not run, or an operation alone does not fit.
std::optional<ResnetStep> modelled_resnet_step(const Study& study, const ResnetSetup& setup);

/// Why there is no modelled step.
std::string why_no_resnet(const Study& study);

}  // namespace tessera::studies::mlperf
