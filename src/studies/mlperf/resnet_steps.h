// Steps of ResNet-50 on modelled pods: the one place to fill in when networks of convolutions are trained.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::studies::mlperf {

/// How a pod trains ResNet-50: one chip in each replica.
struct ResnetSetup {
  std::string machine;        ///< "pod16"
  uint32_t chips = 16;        ///< each a replica
  uint32_t local_batch = 20;  ///< images of a micro-batch
  uint32_t accumulation = 6;  ///< micro-batches of a step
  uint32_t group = 2;         ///< replicas that share the statistics of a batch norm
  bool recomputes = true;
};

struct ResnetStep {
  double seconds = 0;
  uint64_t fullest_tile_bytes = 0;
  bool fits = false;
};

/// The modelled step; none as long as no training of ResNets is there to be modelled.
std::optional<ResnetStep> modelled_resnet_step(const ResnetSetup& setup);

/// Why there is none.
inline constexpr const char* kNoResnet = "not modelled yet: no training of ResNets is there";

}  // namespace tessera::studies::mlperf
