// The choice of the neurons that stay when more are found than lists can hold: spikes are preferred, and
// neurons of either kind are chosen at random, with equal probability.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/random.h"
#include "kernels/common/draws.h"
#include "kernels/common/spiking_neuron.h"

namespace tessera::kernels {

/// Keeps `limit` of `listed` neurons, of which the first `fired` have fired. Calls keep(to, from) for each
/// neuron that stays, in order, and returns the number of spikes among them. Each step of a sample has 2^16
/// random numbers of its own, one per possible neuron.
template <class Keep>
uint32_t keep_by_chance(const base::RandomStream& stream, uint32_t step, uint64_t sample, uint32_t fired,
                        uint32_t listed, uint32_t limit, const Keep& keep) {
  uint64_t number = ((uint64_t{step} << 32) | sample) << 16;
  const auto choose = [&](uint32_t begin, uint32_t end, uint32_t wanted, uint32_t to) {
    for (uint32_t i = begin; i < end && wanted > 0; ++i) {
      const uint64_t word = stream.word(number++);
      if (word * (end - i) >> 32 >= wanted) continue;
      keep(to++, i);
      --wanted;
    }
  };
  const uint32_t spikes = std::min(fired, limit);
  choose(0, fired, spikes, 0);
  choose(fired, listed, limit - spikes, spikes);
  return spikes;
}

/// Drops neurons as a vertex's field "control" says, and counts them in "dropped" unless that is empty.
class SpikingOverflow {
 public:
  SpikingOverflow(const program::FieldView& control, const program::FieldView& dropped, int64_t capacity,
                  int64_t operation, int64_t first_sample)
      : dropped_(dropped),
        first_sample_(static_cast<uint64_t>(first_sample)),
        stream_(seed(control), word(control, spiking_control::step), static_cast<uint32_t>(operation)),
        limit_(std::min(word(control, spiking_control::limit), static_cast<uint32_t>(capacity))) {}

  /// Keeps no more of the listed neurons than fit; the first `spikes` of them fired.
  template <class Keep>
  void drop(uint32_t step, uint32_t b, uint32_t& spikes, uint32_t& listed, const Keep& keep) const {
    if (listed <= limit_) return;
    const uint32_t fired = spikes;
    spikes = keep_by_chance(stream_, step, first_sample_ + b, fired, listed, limit_, keep);
    add_to(b, 0, fired - spikes);
    add_to(b, 1, listed - fired - (limit_ - spikes));
    listed = limit_;
  }

 private:
  static uint64_t seed(const program::FieldView& control) {
    return seed_of_substream(
        control, spiking_control::count,
        word(control, spiking_control::seed_low) | uint64_t{word(control, spiking_control::seed_high)} << 32);
  }
  static uint32_t word(const program::FieldView& control, size_t i) {
    return load<uint32_t>(address_of(control, 0, static_cast<int64_t>(i)));
  }
  void add_to(uint32_t b, uint32_t col, uint32_t count) const {
    if (dropped_.empty()) return;
    std::byte* at = address_of(dropped_, b, col);
    store<uint32_t>(at, load<uint32_t>(at) + count);
  }

  const program::FieldView& dropped_;
  uint64_t first_sample_;
  base::RandomStream stream_;
  uint32_t limit_;
};

}  // namespace tessera::kernels
