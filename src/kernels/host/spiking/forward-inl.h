// The forward pass of a spiking layer. Loops from outside to inside: blocks of samples, groups of steps,
// strips of neurons, samples, steps. Weights of the strip stay in the L2 cache, its potentials and sums in
// registers. The neurons that strips find are merged into the lists of the layer.
#if defined(TESSERA_SPIKING_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_FORWARD_INL_H_
#undef TESSERA_SPIKING_FORWARD_INL_H_
#else
#define TESSERA_SPIKING_FORWARD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/spiking/lists-inl.h"
#include "kernels/host/spiking/strip-inl.h"
#include "kernels/host/spiking/vertex-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {
namespace hn = hwy::HWY_NAMESPACE;

using program::FieldView;

class SpikingForward : SpikingVertex {
  struct field {
    enum : size_t { TESSERA_SPIKING_FORWARD_FIELDS(TESSERA_POSITION) count };
  };

 public:
  explicit SpikingForward(const program::Vertex& v)
      : SpikingVertex(v, {field::in_ids, field::in_num, field::weight, field::dynamics, field::scratch}),
        layout_(shape_),
        found_room_(layout_.steps * kStrip + kSpikingSlack),
        lists_(v, neuron_, shape_) {
    gradient_threshold_ = *f_[field::gradient_threshold].as<const float>();
    is_plain_ = !neuron_.recurrent && !neuron_.synaptic && !neuron_.adaptive && !neuron_.is_late();
  }

  void run() {
    lists_.clear_dropped();
    for (uint32_t first = 0; first < shape_.batch; first += layout_.samples) {
      const uint32_t samples = std::min(layout_.samples, shape_.batch - first);
      start(samples);
      for (uint32_t t = 0; t < shape_.steps; t += layout_.steps)
        run_steps(first, samples, t, std::min(layout_.steps, shape_.steps - t));
    }
  }

 private:
  void start(uint32_t samples) const {
    const size_t columns = size_t{samples} * layout_.columns;
    std::fill_n(at<float>(layout_.potential), columns, 0.0F);
    std::fill_n(at<float>(layout_.current), columns, 0.0F);
    std::fill_n(at<float>(layout_.adaptation), columns, 0.0F);
    std::fill_n(at<uint64_t>(layout_.spiked), size_t{samples} * layout_.strips, uint64_t{0});
    std::fill_n(at<uint32_t>(layout_.own_counts), samples, 0U);
  }

  void run_steps(uint32_t first, uint32_t samples, uint32_t t, uint32_t steps) {
    gather_inputs(first, samples, t, steps);
    for (uint32_t k = 0; k < strips_; ++k) {
      const Strip strip(k, shape_.neurons, width_);
      with_vectors(strip.vectors(), [&](auto vectors) HWY_ATTR {
        for (uint32_t s = 0; s < samples; ++s)
          is_plain_ ? integrate<vectors(), true>(strip, k, first + s, s, t, steps)
                    : integrate<vectors(), false>(strip, k, first + s, s, t, steps);
      });
    }
    if (!neuron_.spikes) return;
    std::fill_n(at<uint32_t>(layout_.taken), size_t{samples} * layout_.strips, 0U);
    // Rows of lists hold the lists of all samples side by side.
    for (uint32_t i = 0; i < steps; ++i)
      for (uint32_t s = 0; s < samples; ++s) merge(first + s, s, t, i);
  }

  // Gathers the spikes that arrive in these steps, as offsets into a panel.
  void gather_inputs(uint32_t first, uint32_t samples, uint32_t t, uint32_t steps) const {
    uint32_t* begin = at<uint32_t>(layout_.in_begin);
    const size_t begin_room = layout_.steps + 1;
    for (uint32_t s = 0; s < samples; ++s) begin[s * begin_room] = 0;
    for (uint32_t i = 0; i < steps; ++i)
      for (uint32_t s = 0; s < samples; ++s) {
        const uint32_t filled = begin[s * begin_room + i];
        uint32_t spikes = 0;
        if (t + i >= delay_) {
          spikes = in_.spikes(t + i - delay_, first + s);
          const uint16_t* HWY_RESTRICT row = in_.row(t + i - delay_, first + s);
          uint32_t* HWY_RESTRICT ids = at<uint32_t>(layout_.in_ids) + s * layout_.in_room + filled;
          for (uint32_t e = 0; e < spikes; ++e) ids[e] = row[e] * width_;
        }
        begin[s * begin_room + i + 1] = filled + spikes;
      }
  }

  template <uint32_t vectors>
  HWY_INLINE void add_rows(const float* HWY_RESTRICT weights, const uint32_t* HWY_RESTRICT from,
                           const uint32_t* end, Lane* sum) const {
    const Floats d;
    for (; from < end; ++from) {
      const float* row = weights + *from;
#pragma GCC unroll 4
      for (uint32_t j = 0; j < vectors; ++j) sum[j] = hn::Add(sum[j], hn::LoadU(d, row + j * kLanes));
    }
  }

  // Computes the steps of one sample and strip.
  template <uint32_t vectors, bool plain>
  HWY_NOINLINE void integrate(const Strip& strip, uint32_t k, uint32_t b, uint32_t s, uint32_t t,
                              uint32_t steps) const {
    const Floats d;
    const hn::RebindToSigned<Floats> di;
    const hn::Rebind<uint16_t, Floats> d16;
    const FieldView& dynamics = f_[field::dynamics];
    Lane beta[vectors], threshold[vectors], v[vectors];
    hn::Mask<Floats> valid[vectors];
    const size_t column = size_t{b} * shape_.neurons, place = size_t{s} * layout_.columns;
    float* potential = at<float>(layout_.potential);
#pragma GCC unroll 4
    for (uint32_t j = 0; j < vectors; ++j) {
      const NeuronVector n = strip.vector(j, column, place);
      beta[j] = parameters_at(dynamics, 0, n);
      threshold[j] = parameters_at(dynamics, 2, n);
      valid[j] = hn::FirstN(d, n.rest);
      v[j] = hn::Load(d, potential + n.place);
    }
    const Lane gain = set(neuron_.gain), bar = set(gradient_threshold_);
    const auto reset = neuron_.reset;
    const bool spikes = neuron_.spikes, at_threshold = neuron_.fires_at_threshold,
               window = neuron_.mask == GradientMask::window;
    uint64_t& spiked = at<uint64_t>(layout_.spiked)[size_t{s} * layout_.strips + k];
    const float* weights =
        f_[field::weight].as<const float>() + size_t{strip.panel} * shape_.sources() * width_ + strip.column;
    const uint32_t* begin = at<uint32_t>(layout_.in_begin) + size_t{s} * (layout_.steps + 1);
    const uint32_t* in = at<uint32_t>(layout_.in_ids) + s * layout_.in_room;
    const size_t found = s * layout_.found_room + size_t{k} * found_room_;
    uint16_t* found_ids = at<uint16_t>(layout_.found_ids) + found;
    float* found_distances = at<float>(layout_.found_distances) + found;
    uint8_t* counts = at<uint8_t>(layout_.counts) + (size_t{s} * layout_.strips + k) * layout_.steps;
    const FieldView &resets = f_[field::resets], &potentials = f_[field::potentials];

    for (uint32_t i = 0; i < steps; ++i) {
      Lane x[vectors];
#pragma GCC unroll 4
      for (uint32_t j = 0; j < vectors; ++j) x[j] = hn::Zero(d);
      add_rows<vectors>(weights, in + begin[i], in + begin[i + 1], x);
      if (!plain && neuron_.recurrent) {
        const uint32_t* own = at<uint32_t>(layout_.own_ids) + s * own_room();
        add_rows<vectors>(weights + size_t{shape_.inputs} * width_, own,
                          own + at<uint32_t>(layout_.own_counts)[s], x);
      }
      if (!plain && neuron_.synaptic)
        for (uint32_t j = 0; j < vectors; ++j)
          x[j] = add_current(strip.vector(j, column, place), t + i, x[j]);
      uint64_t fired = 0;
      uint32_t found_before = 0;
#pragma GCC unroll 4
      for (uint32_t j = 0; j < vectors; ++j) {
        const NeuronVector n = strip.vector(j, column, place);
        Lane u = hn::MulAdd(beta[j], v[j], hn::Mul(gain, x[j]));
        if (!plain) u = reset_late(reset, u, mask_of(spiked, j), threshold[j]);
        store_at(u, potentials, t + i, n);
        if (!spikes) {
          v[j] = u;
          continue;
        }
        Lane y = u;
        if (!plain && neuron_.adaptive)
          y = hn::NegMulAdd(set(neuron_.adaptation_strength), adapt(n.place, mask_of(spiked, j)), u);
        const auto fires = hn::And(valid[j], reaches(y, threshold[j], at_threshold));
        const Lane distance = hn::Sub(y, threshold[j]);
        const auto passes = window ? hn::Lt(hn::Abs(distance), hn::Sub(threshold[j], bar)) : hn::Gt(y, bar);
        const auto listed = hn::Or(fires, hn::And(valid[j], passes));
        v[j] = reset_at_once(reset, u, fires, threshold[j]);
        const auto ids = hn::Iota(di, static_cast<int32_t>(n.neuron));
        hn::StoreU(hn::Compress(distance, listed), d, found_distances + found_before);
        const auto found_here = hn::Compress(ids, hn::RebindMask(di, listed));
        hn::StoreU(hn::DemoteTo(d16, found_here), d16, found_ids + found_before);
        found_before += static_cast<uint32_t>(hn::CountTrue(d, listed));
        if (!plain || !resets.empty()) fired |= bits_of(fires, j);
      }
      if (!spikes) continue;
      found_ids += found_before;
      found_distances += found_before;
      counts[i] = static_cast<uint8_t>(found_before);
      if (!plain) spiked = fired;
      if (!resets.empty())
        store_bits(fired,
                   resets.as<uint8_t>() + (t + i) * resets.row_stride +
                       size_t{b} * ((shape_.neurons + 7) / 8) + strip.begin / 8,
                   strip.count);
    }
#pragma GCC unroll 4
    for (uint32_t j = 0; j < vectors; ++j)
      hn::Store(v[j], d, potential + strip.vector(j, column, place).place);
  }

  // i ← α·i + x.
  HWY_INLINE Lane add_current(const NeuronVector& n, uint32_t t, Lane x) const {
    const Floats d;
    float* current = at<float>(layout_.current) + n.place;
    const Lane i = hn::MulAdd(parameters_at(f_[field::dynamics], 1, n), hn::Load(d, current), x);
    hn::Store(i, d, current);
    store_at(i, f_[field::currents], t, n);
    return i;
  }

  // a ← ρ·a + s.
  HWY_INLINE Lane adapt(size_t place, LaneMask spiked) const {
    const Floats d;
    float* adaptation = at<float>(layout_.adaptation) + place;
    const Lane a = hn::MulAdd(set(neuron_.adaptation_decay), hn::Load(d, adaptation),
                              hn::IfThenElseZero(spiked, set(1)));
    hn::Store(a, d, adaptation);
    return a;
  }

  size_t own_room() const { return size_t{layout_.columns} + kSpikingSlack; }

  // Merges the neurons that strips found into the list of step t + i of a sample.
  void merge(uint32_t b, uint32_t s, uint32_t t, uint32_t i) {
    const Floats d;
    const hn::Rebind<uint16_t, Floats> d16;
    const FoundLists lists{at<uint32_t>(layout_.listed_ids), at<float>(layout_.listed_distances),
                           at<uint32_t>(layout_.other_ids), at<float>(layout_.other_distances)};
    uint16_t* merged_ids = at<uint16_t>(layout_.merged_ids);
    float* merged_distances = at<float>(layout_.merged_distances);
    const uint8_t* counts = at<uint8_t>(layout_.counts) + size_t{s} * layout_.strips * layout_.steps + i;
    uint32_t* taken = at<uint32_t>(layout_.taken) + size_t{s} * layout_.strips;
    size_t from = s * layout_.found_room;
    uint32_t total = 0;
    for (uint32_t k = 0; k < strips_; ++k, from += found_room_) {
      const uint32_t count = counts[k * layout_.steps];
      const uint16_t* ids = at<uint16_t>(layout_.found_ids) + from + taken[k];
      const float* distances = at<float>(layout_.found_distances) + from + taken[k];
      uint32_t e = 0;
      do {
        hn::StoreU(hn::LoadU(d16, ids + e), d16, merged_ids + total + e);
        hn::StoreU(hn::LoadU(d, distances + e), d, merged_distances + total + e);
        e += kLanes;
      } while (HWY_UNLIKELY(e < count));
      taken[k] += count;
      total += count;
    }
    const uint32_t spikes = lists_.add(merged_ids, merged_distances, total, t + i, b, lists);
    if (!neuron_.recurrent) return;
    uint32_t* own = at<uint32_t>(layout_.own_ids) + s * own_room();
    for (uint32_t e = 0; e < spikes; ++e) own[e] = lists.listed_ids[e] * width_;
    at<uint32_t>(layout_.own_counts)[s] = spikes;
  }

  const SpikingForwardScratch layout_;
  const uint32_t found_room_;
  ListWriter lists_;
  float gradient_threshold_ = 0;
  bool is_plain_ = false;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
