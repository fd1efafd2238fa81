// The lists of a block of samples, sorted for each sample in the order in which gradients read them.
#if defined(TESSERA_SPIKING_SORTED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_SORTED_INL_H_
#undef TESSERA_SPIKING_SORTED_INL_H_
#else
#define TESSERA_SPIKING_SORTED_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/spiking/layout.h"
#include "kernels/host/spiking/strip-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {

// Number of pairs per vector of dot products.
inline constexpr uint32_t kPairs = static_cast<uint32_t>(kLanes / 2);

// Spikes of a sample by source, two at a time: the source, as an offset into a panel; the steps in which they
// arrive, as offsets into the gradients of a strip; their places in the lists. If their number is odd, the
// last spike is paired with one that has no gradient, in the step after the last.
struct SpikePairs {
  uint32_t* sources;
  uint32_t* steps;
  uint32_t* places;
  uint32_t* count;
};

// Listed neurons that did not fire, with the same members, in the order of their steps.
struct OtherListed {
  uint32_t* sources;
  uint32_t* steps;
  uint32_t* places;
  uint32_t* count;
};

// The delay after which spikes arrive, and the distance of the gradients of consecutive steps, in floats.
struct Arrival {
  uint32_t delay;
  uint32_t row_floats;
};

class SpikeSorter {
 public:
  SpikeSorter(const SpikingSortedScratch& layout, float* scratch, uint32_t steps, uint32_t sources,
              uint32_t width, const Arrival& arrival)
      : layout_(layout),
        scratch_(scratch),
        steps_(steps),
        sources_(sources),
        width_(width),
        arrival_(arrival),
        none_(steps * arrival.row_floats) {}

  SpikePairs pairs(uint32_t s) const {
    return {at(layout_.sources) + s * layout_.pair_room, at(layout_.steps) + 2 * s * layout_.pair_room,
            at(layout_.places) + 2 * s * layout_.pair_room, at(layout_.counts) + s};
  }
  OtherListed others(uint32_t s) const {
    return {at(layout_.other_sources) + s * layout_.room, at(layout_.other_steps) + s * layout_.room,
            at(layout_.other_places) + s * layout_.room, at(layout_.other_counts) + s};
  }

  // Sorts the lists of samples from `first` on. Places are offsets into `din`, which may be empty.
  void sort(const SpikeLists& lists, uint32_t first, uint32_t samples, const program::FieldView& din) const {
    std::fill_n(at(layout_.counters), size_t{samples} * (sources_ + 1), 0U);
    std::fill_n(at(layout_.flat_counts), samples, 0U);
    std::fill_n(at(layout_.other_counts), samples, 0U);
    // Rows of lists hold the lists of all samples side by side.
    for (uint32_t t = 0; t + arrival_.delay < steps_; ++t)
      for (uint32_t s = 0; s < samples; ++s) gather(lists, t, first + s, s, din);
    for (uint32_t s = 0; s < samples; ++s) place(s, !din.empty());
  }

 private:
  uint32_t* at(size_t position) const { return reinterpret_cast<uint32_t*>(scratch_ + position); }

  HWY_INLINE void gather(const SpikeLists& lists, uint32_t t, uint32_t b, uint32_t s,
                         const program::FieldView& din) const {
    const uint16_t* HWY_RESTRICT ids = lists.row(t, b);
    const uint32_t spikes = lists.spikes(t, b);
    uint32_t& filled = at(layout_.flat_counts)[s];
    uint32_t* HWY_RESTRICT flat = at(layout_.flat) + s * layout_.room + filled;
    uint32_t* HWY_RESTRICT counters = at(layout_.counters) + size_t{s} * (sources_ + 1);
    for (uint32_t e = 0; e < spikes; ++e) {
      flat[e] = t << 16 | ids[e];
      ++counters[ids[e]];
    }
    if (!din.empty()) gather_listed(ids, spikes, lists.listed(t, b), t, s, place_of(din, lists, t, b));
    filled += spikes;
  }

  HWY_INLINE void gather_listed(const uint16_t* HWY_RESTRICT ids, uint32_t spikes, uint32_t listed,
                                uint32_t t, uint32_t s, uint32_t first_place) const {
    uint32_t* flat = at(layout_.flat_places) + s * layout_.room + at(layout_.flat_counts)[s];
    for (uint32_t e = 0; e < spikes; ++e) flat[e] = first_place + e;
    const OtherListed to = others(s);
    const uint32_t filled = *to.count, offset = (t + arrival_.delay) * arrival_.row_floats;
    for (uint32_t e = spikes; e < listed; ++e) {
      const uint32_t place = filled + e - spikes;
      to.sources[place] = ids[e] * width_;
      to.steps[place] = offset;
      to.places[place] = first_place + e;
    }
    *to.count = filled + listed - spikes;
  }

  static uint32_t place_of(const program::FieldView& din, const SpikeLists& lists, uint32_t t, uint32_t b) {
    return static_cast<uint32_t>(t * din.row_stride) + b * lists.capacity;
  }

  void place(uint32_t s, bool has_places) const {
    uint32_t* HWY_RESTRICT next = at(layout_.counters) + size_t{s} * (sources_ + 1);
    uint32_t total = 0;
    for (uint32_t j = 0; j < sources_; ++j) {
      const uint32_t even = (next[j] + 1) / 2 * 2;
      next[j] = total;
      total += even;
    }
    const SpikePairs to = pairs(s);
    const uint32_t* flat = at(layout_.flat) + s * layout_.room;
    const uint32_t* flat_places = at(layout_.flat_places) + s * layout_.room;
    for (uint32_t i = 0, count = at(layout_.flat_counts)[s]; i < count; ++i) {
      const uint32_t id = flat[i] & 0xFFFF, t = (flat[i] >> 16) + arrival_.delay, slot = next[id]++;
      to.sources[slot / 2] = id * width_;
      to.steps[slot | 1] = none_;
      to.steps[slot] = t * arrival_.row_floats;
      if (!has_places) continue;
      to.places[slot | 1] = flat_places[i];
      to.places[slot] = flat_places[i];
    }
    *to.count = total / 2;
    for (uint32_t i = 0; i < kPairs; ++i) {
      to.sources[total / 2 + i] = 0;
      to.steps[total + 2 * i] = to.steps[total + 2 * i + 1] = none_;
    }
    if (!has_places) return;
    const OtherListed listed = others(s);
    std::fill_n(listed.sources + *listed.count, kLanes, 0U);
    std::fill_n(listed.steps + *listed.count, kLanes, none_);
  }

  const SpikingSortedScratch& layout_;
  float* const scratch_;
  const uint32_t steps_;
  const uint32_t sources_;
  const uint32_t width_;
  const Arrival arrival_;
  const uint32_t none_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
