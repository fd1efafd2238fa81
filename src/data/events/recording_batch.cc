#include "data/events/recording_batch.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

namespace tessera::train {

uint32_t most_spikes(const Recordings& recordings) {
  uint32_t most = 1;
  for (size_t i = 0; i < recordings.count(); ++i) {
    if (recordings.are_currents()) break;
    uint32_t run = 0;
    const SpikeEvent* before = nullptr;
    for (const SpikeEvent& event : recordings.spikes(i)) {
      run = before != nullptr && before->step == event.step ? run + 1 : 1;
      most = std::max(most, run);
      before = &event;
    }
  }
  return most;
}

RecordingBatch::RecordingBatch(const Recordings& of, uint32_t batch, uint32_t capacity)
    : batch_(batch), capacity_(capacity), labels_(batch) {
  const size_t rows = size_t{of.steps} * batch;
  if (of.are_currents()) {
    currents_.resize(rows * of.units);
    return;
  }
  ids_.resize(rows * capacity);
  num_.resize(rows * 2);
}

void RecordingBatch::load_spikes(std::span<const SpikeEvent> events, uint32_t sample) {
  for (const SpikeEvent& event : events) {
    const size_t row = size_t{event.step} * batch_ + sample;
    uint32_t& count = num_[2 * row];
    if (count == capacity_)
      throw UsageError(
          fmt::format("a recording has more than {} spikes in step {}, for which a batch has room", capacity_,
                      event.step));
    ids_[row * capacity_ + count++] = event.unit;
    num_[2 * row + 1] = count;
  }
}

void RecordingBatch::load(const Recordings& recordings, std::span<const uint32_t> which) {
  std::ranges::fill(num_, 0U);
  std::ranges::fill(currents_, 0.0F);
  std::ranges::fill(labels_, 0U);
  for (uint32_t sample = 0; sample < which.size(); ++sample) {
    const uint32_t i = which[sample];
    labels_[sample] = recordings.labels[i];
    if (!recordings.are_currents()) {
      load_spikes(recordings.spikes(i), sample);
      continue;
    }
    const auto current = recordings.current(i);
    for (uint32_t t = 0; t < recordings.steps; ++t)
      std::ranges::copy(
          current.subspan(size_t{t} * recordings.units, recordings.units),
          currents_.begin() + static_cast<std::ptrdiff_t>((size_t{t} * batch_ + sample) * recordings.units));
  }
}

}  // namespace tessera::train
