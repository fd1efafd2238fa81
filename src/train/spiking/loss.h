// Losses of spiking networks, and their gradients.
#pragma once

#include <tessera/spiking.h>
#include <tessera/training.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"

namespace tessera::train {

/// What the last layer of a network left behind a forward pass, as a row of numbers for each sample.
class SpikingOutput {
 public:
  SpikingOutput(SpikingLoss loss, const SpikingNetwork& network);

  /// Of the last forward pass: numbers of spikes, or potentials.
  void read(const SpikingNetwork& network);
  std::span<const float> logits() const { return logits_; }

  struct Result {
    double loss = 0;  ///< sum over the samples
    uint64_t right = 0;
  };
  /// Of the first samples of a batch.
  Result evaluate(std::span<const uint32_t> labels) const;

  /// The gradient of the mean loss of a whole batch, as SpikingNetwork::gradients() takes it.
  const float* gradient(const SpikingNetwork& network, std::span<const uint32_t> labels);

 private:
  double sample_loss(std::span<const float> row, uint32_t label) const;
  void sample_gradient(std::span<const float> row, uint32_t label, std::vector<double>& to) const;

  SpikingLoss loss_;
  uint32_t steps_, batch_, classes_;
  std::vector<float> logits_;      ///< [batch, classes]
  std::vector<uint32_t> largest_;  ///< the step of each maximum
  base::BufferVector<float> upstream_;
};

}  // namespace tessera::train
