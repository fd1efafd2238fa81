// The graphs of a spiking network: a training step, and evaluation.
#pragma once

#include <tessera/training.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::train {

// Inputs besides the labels (kLabels): lists of spikes, the rates that the loss on rates wants, and what
// SpikingControl has.
inline constexpr const char* kSpikeIds = "in.ids";
inline constexpr const char* kSpikeNum = "in.num";
inline constexpr const char* kTargetRates = "target_rates";
inline constexpr const char* kGradientThreshold = "gradient_threshold";
inline constexpr const char* kMostListed = "most_listed";
inline constexpr const char* kListStep = "list_step";
// Outputs besides loss and logits (kLoss, kLogits); of layers those below.
inline constexpr const char* kPotentials = "potentials";

inline constexpr double kRightRate = 0.8;
inline constexpr double kWrongRate = 0.2;

/// What a network has from its data.
struct SpikingData {
  uint32_t steps = 0;
  uint32_t units = 0;
  uint32_t classes = 0;
  uint32_t capacity = 0;    ///< of spikes in a step
  bool has_digits = false;  ///< of currents, whose weights they share
  double activity = 0;      ///< the mean of spikes in a step, of all units
};

/// "layer1.weight" and other parameters; of a layer that spikes, "layer1.ids", "layer1.num" and
/// "layer1.dropped": its lists, their lengths, and what they had no room for.
std::string value_name(size_t layer, std::string_view what);

/// Values of all layers, whether they are learned or not.
uint64_t count_parameters(const std::vector<SpikingLayer>& layers, const SpikingData& data);

/// A training step of a batch. Outputs are the loss, the logits, and of each hidden layer the lengths of
/// lists and what they dropped.
graph::Graph spiking_training_graph(const SpikingTrainingSettings& settings, const SpikingData& data);

/// The same without a loss. With `traces` also the lists of all layers that spike, and the potentials of a
/// last one that does not.
graph::Graph spiking_evaluation_graph(const SpikingTrainingSettings& settings, const SpikingData& data,
                                      bool traces = false);

}  // namespace tessera::train
