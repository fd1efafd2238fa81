// Steps of a strip of neurons, backward in time.
#if defined(TESSERA_SPIKING_BACKWARD_STEPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_BACKWARD_STEPS_INL_H_
#undef TESSERA_SPIKING_BACKWARD_STEPS_INL_H_
#else
#define TESSERA_SPIKING_BACKWARD_STEPS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/host/spiking/strip-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {
namespace hn = hwy::HWY_NAMESPACE;

using program::FieldView;

class BackwardSteps {
 public:
  // `carried` has three rows of `columns` floats: the gradients of u, of the sum of inputs and of the
  // adaptation from the next step.
  BackwardSteps(const program::Vertex& v, const SpikingNeuron& neuron, const SpikingShape& shape,
                float* carried, uint32_t columns)
      : f_(v.fields), neuron_(neuron), shape_(shape), carried_(carried), columns_(columns) {}

  void start(const Strip& strip) const {
    for (uint32_t row = 0; row < 3; ++row) std::fill_n(carried_ + row * columns_ + strip.begin, kStrip, 0.0F);
  }

  // Steps of neurons whose gradients only decay and are stopped by spikes, in place.
  template <uint32_t vectors>
  HWY_INLINE void run_plain(const Strip& strip, uint32_t b, float* gradient) const {
    const Floats d;
    Lane beta[vectors], g[vectors];
#pragma GCC unroll 4
    for (uint32_t j = 0; j < vectors; ++j) {
      beta[j] = dynamic<0>(strip.vector(j, 0, 0));
      g[j] = hn::Zero(d);
    }
    const bool gates = neuron_.gates();
    for (uint32_t t = shape_.steps; t-- > 0;) {
      const uint64_t fired = gates ? fired_at(strip, b, t) : 0;
      float* row = gradient + size_t{t} * kStrip;
#pragma GCC unroll 4
      for (uint32_t j = 0; j < vectors; ++j) {
        if (gates) g[j] = hn::IfThenZeroElse(mask_of(fired, j), g[j]);
        g[j] = hn::MulAdd(beta[j], g[j], hn::Load(d, row + j * kLanes));
        hn::Store(g[j], d, row + j * kLanes);
      }
    }
  }

  // Steps of any neurons: computes dx from the gradients ds of spikes, or of potentials in a layer without
  // spikes, and the surrogate derivatives.
  template <uint32_t vectors>
  HWY_INLINE void step(const Strip& strip, uint32_t b, uint32_t t, const Lane* ds, const Lane* of,
                       Lane* dx) const {
    const bool reads_spikes = !f_[field::resets].empty();
    const uint64_t fired = reads_spikes ? fired_at(strip, b, t) : 0;
    const uint64_t fired_before = reads_spikes && t > 0 ? fired_at(strip, b, t - 1) : 0;
    const size_t column = size_t{b} * shape_.neurons;
    for (uint32_t j = 0; j < vectors; ++j)
      dx[j] = step_vector(strip.vector(j, column, 0), t, ds[j], of[j], mask_of(fired, j),
                          mask_of(fired_before, j));
  }

 private:
  struct field {
    enum : size_t { TESSERA_SPIKING_GRADIENTS_FIELDS(TESSERA_POSITION) count };
  };

  HWY_INLINE Lane step_vector(const NeuronVector& n, uint32_t t, Lane ds, Lane of, LaneMask fired,
                              LaneMask fired_before) const {
    const Floats d;
    float* carried = carried_ + n.place;
    const Lane beta = dynamic<0>(n), threshold = dynamic<2>(n);
    const Lane next_u = hn::Load(d, carried);
    const bool gates = neuron_.gates(), attaches = neuron_.attaches();
    const Reset reset = neuron_.reset;

    Lane dv = hn::Mul(beta, next_u), du = dv;
    if (gates) du = hn::IfThenZeroElse(fired, dv);
    if (!neuron_.spikes) du = hn::Add(du, ds);
    if (neuron_.adaptive) ds = hn::Add(ds, hn::Load(d, carried + 2 * columns_));
    if (attaches && reset == Reset::zero) ds = hn::NegMulAdd(load_at(f_[field::potentials], t, n), dv, ds);
    if (attaches && reset == Reset::subtract) ds = hn::NegMulAdd(threshold, dv, ds);
    if (attaches && reset == Reset::late_subtract) ds = hn::NegMulAdd(threshold, next_u, ds);
    if (reset == Reset::subtract) add_dynamic(2, n, hn::IfThenElseZero(fired, hn::Neg(dv)));
    if (reset == Reset::late_subtract) add_dynamic(2, n, hn::IfThenElseZero(fired, hn::Neg(next_u)));
    if (neuron_.spikes) {
      const Lane delta = hn::Mul(of, ds);
      du = hn::Add(du, delta);
      add_dynamic(2, n, hn::Neg(delta));
      if (neuron_.adaptive) {
        const Lane next = hn::Load(d, carried + 2 * columns_);
        hn::Store(
            hn::MulSub(set(neuron_.adaptation_decay), next, hn::Mul(set(neuron_.adaptation_strength), delta)),
            d, carried + 2 * columns_);
      }
    }
    const Lane dbase = gates && reset == Reset::late_zero ? hn::IfThenZeroElse(fired_before, du) : du;
    if (t > 0 && !f_[field::ddynamics].empty())
      add_dynamic(0, n,
                  hn::Mul(dbase, reset_at_once(reset, load_at(f_[field::potentials], t - 1, n), fired_before,
                                               threshold)));
    Lane dx = hn::Mul(set(neuron_.gain), dbase);
    if (neuron_.synaptic) {
      dx = hn::MulAdd(dynamic<1>(n), hn::Load(d, carried + columns_), dx);
      if (t > 0 && !f_[field::ddynamics].empty())
        add_dynamic(1, n, hn::Mul(dx, load_at(f_[field::currents], t - 1, n)));
      hn::Store(dx, d, carried + columns_);
    }
    hn::Store(du, d, carried);
    return dx;
  }

  // Decays, decays of currents, thresholds.
  template <uint32_t row>
  HWY_INLINE Lane dynamic(const NeuronVector& n) const {
    return parameters_at(f_[field::dynamics], row, n);
  }
  HWY_INLINE void add_dynamic(uint32_t row, const NeuronVector& n, Lane x) const {
    add_parameters(x, f_[field::ddynamics], row, n);
  }

  HWY_INLINE uint64_t fired_at(const Strip& strip, uint32_t b, uint32_t t) const {
    const FieldView& resets = f_[field::resets];
    return load_bits(resets.as<const uint8_t>() + t * resets.row_stride +
                         size_t{b} * ((shape_.neurons + 7) / 8) + strip.begin / 8,
                     strip.count);
  }

  const std::span<const FieldView> f_;
  const SpikingNeuron& neuron_;
  const SpikingShape& shape_;
  float* const carried_;
  const uint32_t columns_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
