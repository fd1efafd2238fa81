// Batches of recordings in the form that spiking networks take.
#pragma once

#include <tessera/recordings.h>
#include <tessera/spiking.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"

namespace tessera::train {

/// The maximum number of spikes of a recording in a step; at least 1.
uint32_t most_spikes(const Recordings& recordings);

/// Recordings of spikes as lists, or of currents as a dense array [steps, batch, units].
class RecordingBatch {
 public:
  /// A batch with space for `capacity` spikes per step.
  RecordingBatch(const Recordings& of, uint32_t batch, uint32_t capacity);

  /// Loads the recordings `which`, at most as many as the batch has; the others are empty and have the label
  /// 0. Throws UsageError if a step has more spikes than the capacity.
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
