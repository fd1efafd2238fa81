// Which listed neurons stay when there are more than the lists have room for: spikes first, the others by
// chance.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/random.h"
#include "kernels/host/spiking/layout.h"

namespace tessera::kernels {

class SpikingOverflow {
 public:
  explicit SpikingOverflow(const program::Vertex& v)
      : dropped_(v.fields[spiking_forward_field::dropped]),
        first_sample_(static_cast<uint64_t>(v.params[spiking_param::first_sample])),
        operation_(static_cast<uint32_t>(v.params[spiking_param::operation])) {
    const program::FieldView& control = v.fields[spiking_forward_field::control];
    for (uint32_t i = 0; i < spiking_control::count; ++i)
      control_[i] = load<uint32_t>(address_of(control, 0, i));
    limit_ =
        std::min(control_[spiking_control::limit], static_cast<uint32_t>(v.params[spiking_param::capacity]));
  }

  uint32_t limit() const { return limit_; }

  /// Leaves `limit` of the listed neurons, in order, and returns how many that are; `spikes` of them fired.
  uint32_t drop(uint32_t* ids, float* distances, uint32_t& spikes, uint32_t listed, uint32_t t, uint32_t b) {
    const uint32_t fired = spikes;
    const uint64_t seed = control_[spiking_control::seed_low] | uint64_t{control_[spiking_control::seed_high]}
                                                                    << 32;
    base::RandomStream stream(seed, control_[spiking_control::step], operation_);
    // Each step of a sample has as many numbers as a layer may have neurons.
    uint64_t number = ((uint64_t{t} << 32) | (first_sample_ + b)) << 16;
    const auto choose = [&](uint32_t begin, uint32_t end, uint32_t wanted, uint32_t to) {
      for (uint32_t i = begin; i < end && wanted > 0; ++i) {
        const uint64_t word = stream.word(number++);
        if (word * (end - i) >> 32 >= wanted) continue;
        ids[to] = ids[i];
        distances[to++] = distances[i];
        --wanted;
      }
    };
    spikes = std::min(fired, limit_);
    choose(0, fired, spikes, 0);
    choose(fired, listed, limit_ - spikes, spikes);
    add_to(b, 0, fired - spikes);
    add_to(b, 1, listed - fired - (limit_ - spikes));
    return limit_;
  }

 private:
  void add_to(uint32_t b, uint32_t col, uint32_t count) const {
    if (dropped_.empty()) return;
    std::byte* at = address_of(dropped_, b, col);
    store<uint32_t>(at, load<uint32_t>(at) + count);
  }

  const program::FieldView& dropped_;
  uint64_t first_sample_;
  uint32_t operation_;
  uint32_t control_[spiking_control::count];
  uint32_t limit_;
};

}  // namespace tessera::kernels
