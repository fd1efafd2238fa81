// The graphs of a spiking network: a training step, and evaluation.
#pragma once

#include <tessera/spiking_training.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::train {

// Names of inputs besides the labels (kLabels): lists of spikes, the target rates of the loss on rates, and
// the members of SpikingControl.
inline constexpr const char* kSpikeIds = "in.ids";
inline constexpr const char* kSpikeNum = "in.num";
inline constexpr const char* kTargetRates = "target_rates";
inline constexpr const char* kGradientThreshold = "gradient_threshold";
inline constexpr const char* kMostListed = "most_listed";
inline constexpr const char* kListStep = "list_step";
// Names of outputs besides loss and logits (kLoss, kLogits); layers have the names of value_name().
inline constexpr const char* kPotentials = "potentials";

inline constexpr double kRightRate = 0.8;
inline constexpr double kWrongRate = 0.2;

/// Properties of the data that determine a network.
struct SpikingData {
  uint32_t steps = 0;
  uint32_t units = 0;
  uint32_t classes = 0;
  uint32_t capacity = 0;    ///< maximum number of spikes in a step
  bool has_digits = false;  ///< whether inputs are the digits of currents, which share their current's
                            ///< weights
  double activity = 0;      ///< mean number of spikes in a step, as a fraction of all units
};

/// "layer1.weight" and other parameters; of a layer that spikes, "layer1.ids", "layer1.num" and
/// "layer1.dropped": its lists, their lengths, and the numbers of dropped neurons.
std::string value_name(size_t layer, std::string_view what);

/// Number of parameter values of all layers, learned or not.
uint64_t count_parameters(const std::vector<SpikingLayer>& layers, const SpikingData& data);

/// A training step of a batch. Outputs are the loss, the logits, and for each hidden layer the lengths of
/// lists and the numbers of dropped neurons.
graph::Graph spiking_training_graph(const SpikingTrainingSettings& settings, const SpikingData& data);

/// The evaluation of a batch, without a loss. With `traces`, outputs are also the lists of all layers that
/// spike, and the potentials of a last layer that does not.
graph::Graph spiking_evaluation_graph(const SpikingTrainingSettings& settings, const SpikingData& data,
                                      bool traces = false);

}  // namespace tessera::train
