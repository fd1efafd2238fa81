// Which listed neurons stay when there are more than the lists have room for: spikes first, the others by
// chance.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/random.h"
#include "kernels/common/spiking_overflow.h"
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
    const base::RandomStream stream(seed, control_[spiking_control::step], operation_);
    spikes =
        keep_by_chance(stream, t, first_sample_ + b, fired, listed, limit_, [&](uint32_t to, uint32_t from) {
          ids[to] = ids[from];
          distances[to] = distances[from];
        });
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
