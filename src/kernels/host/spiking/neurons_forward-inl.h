// The forward pass of neurons that take currents. Loops from outside to inside: blocks of samples, steps,
// samples, neurons. States stay in the cache while currents and results stream.
#if defined(TESSERA_SPIKING_NEURONS_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_NEURONS_FORWARD_INL_H_
#undef TESSERA_SPIKING_NEURONS_FORWARD_INL_H_
#else
#define TESSERA_SPIKING_NEURONS_FORWARD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/spiking/neurons-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {
namespace hn = hwy::HWY_NAMESPACE;

class NeuronsForward : NeuronsPass {
 public:
  explicit NeuronsForward(const program::Vertex& v)
      : NeuronsPass(v, v.fields[field::in], v.fields[field::dynamics], v.fields[field::recurrent],
                    v.fields[field::scratch], false),
        f_(v.fields) {}

  void run() const {
    each_block([&](uint32_t first, uint32_t count, uint32_t b, uint32_t samples) HWY_ATTR {
      for (uint32_t s = 0; s < samples; ++s) start(first, count, b + s, s);
      for (uint32_t t = 0; t < shape_.steps; ++t)
        for (uint32_t s = 0; s < samples; ++s) step(t, first, count, b + s, s);
    });
  }

 private:
  struct field {
    enum : size_t { TESSERA_NEURONS_FORWARD_FIELDS(TESSERA_POSITION) count };
  };

  void start(uint32_t first, uint32_t count, uint32_t b, uint32_t s) const {
    const Floats d;
    const FieldView& initial = f_[field::initial];
    if (shape_.all_to_all) at<uint32_t>(layout_.own_counts)[s] = 0;
    each_vector(first, count, b, s, [&](const NeuronVector& n) HWY_ATTR {
      const bool given = !initial.empty();
      const Lane threshold = dynamic<2>(n);
      Lane v = given ? load_at(initial, 0, n) : hn::Zero(d);
      if (given && !neuron_.after_reset) v = reset_at_once(neuron_.reset, v, fires(v, threshold), threshold);
      hn::Store(v, d, at(layout_.potential) + n.place);
      hn::Store(given ? load_at(initial, 1, n) : hn::Zero(d), d, at(layout_.current) + n.place);
      if (shape_.one_to_one) hn::Store(hn::Zero(d), d, at(layout_.spiked) + n.place);
    });
  }

  HWY_NOINLINE void step(uint32_t t, uint32_t first, uint32_t count, uint32_t b, uint32_t s) const {
    const Floats d;
    uint32_t fired_count = 0;
    uint32_t* own = nullptr;
    if (shape_.all_to_all) {
      own = at<uint32_t>(layout_.own_ids) + size_t{s} * (layout_.columns + kSpikingSlack);
      add_own(t, b, own, at<uint32_t>(layout_.own_counts)[s]);
    }
    each_vector(first, count, b, s, [&](const NeuronVector& n) HWY_ATTR {
      Lane x = shape_.all_to_all ? hn::Load(d, at(layout_.sum) + n.neuron) : load_at(f_[field::in], t, n);
      if (shape_.one_to_one)
        x = hn::MulAdd(parameters_at(f_[field::recurrent], 0, n), hn::Load(d, at(layout_.spiked) + n.place),
                       x);
      const LaneMask fired = step_vector(t, n, x);
      if (shape_.one_to_one) hn::Store(hn::IfThenElseZero(fired, set(1)), d, at(layout_.spiked) + n.place);
      if (own != nullptr) fired_count += append(fired, n, own + fired_count);
    });
    if (own != nullptr) at<uint32_t>(layout_.own_counts)[s] = fired_count;
  }

  HWY_INLINE LaneMask step_vector(uint32_t t, const NeuronVector& n, Lane x) const {
    const Floats d;
    if (neuron_.synaptic) {
      x = hn::MulAdd(dynamic<1>(n), hn::Load(d, at(layout_.current) + n.place), x);
      hn::Store(x, d, at(layout_.current) + n.place);
      store_at(x, f_[field::currents], t, n);
    }
    const Lane v = hn::Load(d, at(layout_.potential) + n.place), threshold = dynamic<2>(n);
    Lane u = hn::MulAdd(dynamic<0>(n), v, hn::Mul(set(neuron_.gain), x));
    if (neuron_.is_late()) u = reset_late(neuron_.reset, u, fires(v, threshold), threshold);
    store_at(u, f_[field::potentials], t, n);
    LaneMask fired = hn::FirstN(d, 0);
    Lane next = u;
    if (neuron_.spikes) {
      fired = fires(u, threshold);
      next = reset_at_once(neuron_.reset, u, fired, threshold);
      store_at(hn::IfThenElseZero(fired, set(1)), f_[field::spikes], t, n);
    }
    store_at(next, f_[field::membranes], t, n);
    hn::Store(next, d, at(layout_.potential) + n.place);
    return fired;
  }

  // Adds the recurrent weights of a sample's spikes to its currents.
  void add_own(uint32_t t, uint32_t b, const uint32_t* ids, uint32_t count) const {
    const FieldView &in = f_[field::in], &recurrent = f_[field::recurrent];
    const float* x = in.as<const float>() + t * in.row_stride + size_t{b} * shape_.neurons;
    for (uint32_t n = 0; n < shape_.neurons; n += kStrip) {
      const uint32_t rest = std::min(kStrip, shape_.neurons - n);
      with_vectors(static_cast<uint32_t>((rest + kLanes - 1) / kLanes), [&](auto vectors) HWY_ATTR {
        const Floats d;
        constexpr uint32_t kLast = vectors() - 1;
        const auto last = static_cast<uint32_t>((rest - 1) % kLanes + 1);
        const auto load = [&](const float* from, uint32_t j) HWY_ATTR {
          return j < kLast ? hn::LoadU(d, from + j * kLanes) : load_some(from + j * kLanes, last);
        };
        Lane sum[vectors()];
#pragma GCC unroll 4
        for (uint32_t j = 0; j <= kLast; ++j) sum[j] = load(x + n, j);
        for (uint32_t i = 0; i < count; ++i) {
          const float* row = recurrent.as<const float>() + ids[i] * recurrent.row_stride + n;
#pragma GCC unroll 4
          for (uint32_t j = 0; j <= kLast; ++j) sum[j] = hn::Add(sum[j], load(row, j));
        }
#pragma GCC unroll 4
        for (uint32_t j = 0; j <= kLast; ++j) hn::Store(sum[j], d, at(layout_.sum) + n + j * kLanes);
      });
    }
  }

  const std::span<const FieldView> f_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
