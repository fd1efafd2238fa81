// Batches of recordings as spiking networks take them.
#pragma once

#include <tessera/spiking.h>
#include <tessera/training.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"

namespace tessera::train {

/// The most spikes that a recording has in a step; at least 1.
uint32_t most_spikes(const Recordings& recordings);

/// Recordings of spikes as lists, or of currents as a dense array [steps, batch, units].
class RecordingBatch {
 public:
  /// With room for `capacity` spikes of a step.
  RecordingBatch(const Recordings& of, uint32_t batch, uint32_t capacity);

  /// At most as many recordings as there is room for; the others are empty and have the label 0. Throws
  /// UsageError if a step has more spikes than there is room for.
  void load(const Recordings& recordings, std::span<const uint32_t> which);

  SpikeLists spikes() const { return {ids_.data(), num_.data(), capacity_}; }
  std::span<const float> currents() const { return currents_; }
  std::span<const uint32_t> labels() const { return labels_; }

 private:
  void load_spikes(std::span<const SpikeEvent> events, uint32_t sample);

  uint32_t batch_;
  uint32_t capacity_;
  base::BufferVector<uint16_t> ids_;
  base::BufferVector<uint32_t> num_;
  base::BufferVector<float> currents_;
  std::vector<uint32_t> labels_;
};

}  // namespace tessera::train
