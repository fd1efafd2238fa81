// A penalty for activity of hidden layers.
#pragma once

#include <tessera/spiking.h>

#include <vector>

#include "base/buffer.h"

namespace tessera::train {

/// strength · the mean, over the samples and neurons of a hidden layer, of max(0, rate − cap)², where a rate
/// is the fraction of steps in which a neuron fires; summed over the layers.
class ActivityPenalty {
 public:
  ActivityPenalty(double strength, double cap, const SpikingNetwork& network);

  /// Of the last forward pass, whose rates it keeps.
  double evaluate(const SpikingNetwork& network);
  /// The gradients of the hidden layers' spikes, as SpikingNetwork::gradients() takes them; none without a
  /// strength.
  const std::vector<const float*>& gradients(const SpikingNetwork& network);

 private:
  struct Layer {
    std::vector<float> excess;  ///< max(0, rate − cap) [batch, neurons]
    base::BufferVector<float> upstream;
  };

  double strength_;
  double cap_;
  std::vector<Layer> layers_;
  std::vector<const float*> upstreams_;
};

}  // namespace tessera::train
