// How networks of spiking neurons are trained, and how a trained one responds.
#pragma once

#include <tessera/recordings.h>
#include <tessera/spiking.h>
#include <tessera/training_settings.h>

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace tessera {

/// The loss of a spiking network: the cross-entropy of the last layer's spike counts, or of the last, largest
/// or mean potential of a last layer that does not spike; or the mean squared difference between firing rates
/// and their targets, 0.8 for the right class and 0.2 for the other classes.
enum class SpikingLoss : uint8_t { spikes, last, maximum, mean, rate };
std::string_view name_of(SpikingLoss loss);
SpikingLoss spiking_loss_named(std::string_view name);

/// Layers of spiking neurons and how to train them.
struct SpikingTrainingSettings : LearningSettings {
  SpikingTrainingSettings()
      : LearningSettings{
            .optimizer = OptimizerKind::adam, .lr = 0.002, .batch = 64, .epochs = 30, .validation = 0.1} {}

  std::vector<uint32_t> hidden = {128};  ///< sizes of hidden layers; inputs and classes follow from the data
  Neuron neuron = {};                    ///< neurons of layers that spike
  bool recurrent = false;                ///< whether hidden layers are recurrent
  uint32_t delay = 0;                    ///< delay of all layers but the first
  double decay = 0.9;                    ///< factor by which potentials decay per step
  double current_decay = 0.8;            ///< factor by which currents decay per step, for synaptic neurons
  double threshold = 1;
  double readout_decay = 0.9;    ///< decay of the potentials of a last layer that does not spike
  bool learns_dynamics = false;  ///< whether decays and thresholds, one of each per layer, are learned
  double initial_firing = 0.03;  ///< fraction of hidden neurons that fire in a step before training
  SpikingLoss loss = SpikingLoss::maximum;
  /// Factor of a penalty that each hidden layer adds to the loss: the mean of max(0, rate − activity_cap)²
  /// over samples and neurons, where the rate is the fraction of steps in which a neuron fires.
  double activity_penalty = 0;
  double activity_cap = 0;
  /// ϑ_grad of the last epochs. It begins at `first_gradient_threshold`, and each epoch halves the distance.
  double gradient_threshold = -std::numeric_limits<double>::infinity();
  double first_gradient_threshold = -100;
  /// Maximum number of neurons listed per step, sample and layer in the last epochs; 0: all neurons. It
  /// begins with all neurons, and each epoch halves the distance.
  uint32_t most_listed = 0;

  double gradient_threshold_of(uint32_t epoch) const;  ///< epochs count from 0
  uint32_t most_listed_of(uint32_t epoch) const;
};

/// Settings that suit a data set of load_recordings(). With these settings, Randman, MNIST and Braille reach
/// the accuracies of docs/spiking.md.
SpikingTrainingSettings usual_settings(std::string_view dataset);

/// The response of a trained network to a recording.
struct SpikingTraces {
  uint32_t steps = 0;
  uint32_t label = 0;
  uint32_t answer = 0;
  std::vector<uint32_t> sizes = {};                  ///< numbers of inputs, then of the neurons of each layer
                                                     ///< that spikes
  std::vector<std::vector<SpikeEvent>> spikes = {};  ///< spikes of the inputs, then of the layers that spike
  std::vector<float> potentials = {};  ///< potentials of a last layer that does not spike: [steps, classes]
};

}  // namespace tessera
