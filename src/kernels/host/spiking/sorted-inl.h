// The lists of a sample in the order of their neurons.
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

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {

// Sources that fired, as offsets into a panel, and the steps in which their spikes arrive, as offsets into
// the gradients of a strip; `ends` are those of each source's steps.
struct SortedSpikes {
  uint32_t* steps;
  uint32_t* sources;
  uint32_t* ends;
  uint32_t* count;
};

// Of each listed input: offsets of its weights and its gradients, and its place in the lists.
struct ListedInputs {
  uint32_t* weights;
  uint32_t* steps;
  uint32_t* places;
};

// When spikes arrive, and the floats between the gradients of two steps.
struct Arrival {
  uint32_t delay;
  uint32_t row_floats;
};

class SpikeSorter {
 public:
  // `counters` for each source, and one more.
  SpikeSorter(uint32_t steps, uint32_t* counters) : steps_(steps), next_(counters) {}

  void sort(const SpikeLists& lists, uint32_t b, const Arrival& arrival, uint32_t sources, uint32_t width,
            const SortedSpikes& to) const {
    count(lists, b, arrival, sources, false);
    uint32_t groups = 0;
    for (uint32_t j = 0; j < sources; ++j) {
      if (next_[j + 1] == next_[j]) continue;
      to.sources[groups] = j * width;
      to.ends[groups++] = next_[j + 1];
    }
    *to.count = groups;
    for (uint32_t t = 0; t + arrival.delay < steps_; ++t) {
      const uint16_t* ids = lists.row(t, b);
      const uint32_t offset = (t + arrival.delay) * arrival.row_floats;
      for (uint32_t e = 0, spikes = lists.spikes(t, b); e < spikes; ++e) to.steps[next_[ids[e]]++] = offset;
    }
  }

  // Returns how many there are.
  uint32_t sort_listed(const SpikeLists& lists, uint32_t b, const Arrival& arrival, uint32_t sources,
                       uint32_t width, const ListedInputs& to) const {
    count(lists, b, arrival, sources, true);
    const uint32_t listed = next_[sources];
    for (uint32_t t = 0; t + arrival.delay < steps_; ++t) {
      const uint16_t* ids = lists.row(t, b);
      const uint32_t offset = (t + arrival.delay) * arrival.row_floats;
      for (uint32_t e = 0, of_step = lists.listed(t, b); e < of_step; ++e) {
        const uint32_t at = next_[ids[e]]++;
        to.weights[at] = ids[e] * width;
        to.steps[at] = offset;
        to.places[at] = t * lists.capacity + e;
      }
    }
    return listed;
  }

 private:
  // next_[j] becomes the first place of source j.
  void count(const SpikeLists& lists, uint32_t b, const Arrival& arrival, uint32_t sources,
             bool listed) const {
    std::fill_n(next_, sources + 1, 0U);
    for (uint32_t t = 0; t + arrival.delay < steps_; ++t) {
      const uint16_t* ids = lists.row(t, b);
      for (uint32_t e = 0, n = listed ? lists.listed(t, b) : lists.spikes(t, b); e < n; ++e)
        ++next_[ids[e] + 1];
    }
    for (uint32_t j = 0; j < sources; ++j) next_[j + 1] += next_[j];
  }

  uint32_t steps_;
  uint32_t* next_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
