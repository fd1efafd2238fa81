// Training on a host, for the paper's open questions.
#pragma once

#include <tessera/recordings.h>
#include <tessera/spiking.h>

#include <cstdint>
#include <limits>
#include <string>

#include "studies/paper/study.h"

namespace tessera::studies::snn {

constexpr uint32_t kHiddenNeurons = 128;  ///< neurons of each hidden layer

/// A network, and the limits on its listed neurons.
struct TrainingCase {
  std::string name = {};  ///< what distinguishes it in its section
  uint32_t layers = 1;
  Surrogate surrogate = {};
  double gradient_threshold = -std::numeric_limits<double>::infinity();  ///< ϑ_grad of all epochs
  uint32_t most_listed = 0;                                              ///< in the last epochs; 0: all
};

/// Randman with manifolds of two dimensions: its information is in the times of spikes alone, and it is not
/// learned perfectly.
const RecordingSplit& training_recordings();

/// Trains on recordings of Randman. Enters "accuracy" in percent of the test recordings, and for the last
/// epoch the fractions of hidden neurons that "fired" and were "listed" in a step, the fraction "dropped" of
/// those that should have been listed, and "seconds" of a training step.
Result train(const TrainingCase& what, uint32_t epochs, uint64_t seed, uint32_t threads,
             const RecordingSplit& recordings = training_recordings());

}  // namespace tessera::studies::snn
