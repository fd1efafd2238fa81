// Gradients of neurons that take currents. Loops from outside to inside: blocks of samples, steps backward,
// samples, neurons. Spikes are recomputed from potentials.
#if defined(TESSERA_SPIKING_NEURONS_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_SPIKING_NEURONS_GRADIENTS_INL_H_
#undef TESSERA_SPIKING_NEURONS_GRADIENTS_INL_H_
#else
#define TESSERA_SPIKING_NEURONS_GRADIENTS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/common/element.h"
#include "kernels/common/panels-inl.h"
#include "kernels/host/spiking/neurons-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE::spiking {
namespace hn = hwy::HWY_NAMESPACE;

class NeuronsGradients : NeuronsPass {
 public:
  explicit NeuronsGradients(const program::Vertex& v)
      : NeuronsPass(v, v.fields[field::din], v.fields[field::dynamics], v.fields[field::recurrent],
                    v.fields[field::scratch], true),
        f_(v.fields) {}

  void run() const {
    clear(f_[field::ddynamics]);
    clear(f_[field::drecurrent]);
    if (shape_.all_to_all) transpose_recurrent();
    each_block([&](uint32_t first, uint32_t count, uint32_t b, uint32_t samples) HWY_ATTR {
      std::fill_n(at(layout_.potential), size_t{layout_.samples} * layout_.columns, 0.0F);
      std::fill_n(at(layout_.current), size_t{layout_.samples} * layout_.columns, 0.0F);
      for (uint32_t t = shape_.steps; t-- > 0;) {
        if (shape_.all_to_all) spread(samples);
        for (uint32_t s = 0; s < samples; ++s) {
          each_vector(first, count, b + s, s, [&](const NeuronVector& n) HWY_ATTR { step(t, n); });
          if (shape_.all_to_all && t > 0) add_recurrent(t, b + s, s);
        }
      }
      if (!f_[field::ddynamics].empty() || !f_[field::dinitial].empty())
        for (uint32_t s = 0; s < samples; ++s)
          each_vector(first, count, b + s, s, [&](const NeuronVector& n) HWY_ATTR { finish(n); });
    });
  }

 private:
  struct field {
    enum : size_t { TESSERA_NEURONS_GRADIENTS_FIELDS(TESSERA_POSITION) count };
  };
  // Number of samples whose gradients pass the recurrent weights at a time, and number of vectors of neurons.
  static constexpr uint32_t kRows = 4;
  static constexpr uint32_t kWide = kLanes >= 16 ? 4 : 2;

  HWY_INLINE Lane given(size_t which, uint32_t t, const NeuronVector& n) const {
    return f_[which].empty() ? hn::Zero(Floats()) : load_at(f_[which], t, n);
  }

  // Whether potentials before the first step are given, and are reset before they decay.
  bool resets_initial() const { return !neuron_.after_reset && !f_[field::initial].empty(); }

  HWY_INLINE void step(uint32_t t, const NeuronVector& n) const {
    const Floats d;
    float* next_u_at = at(layout_.potential) + n.place;
    float* next_i_at = at(layout_.current) + n.place;
    const Lane next_u = hn::Load(d, next_u_at), next_i = hn::Load(d, next_i_at);
    const Lane threshold = dynamic<2>(n);
    Lane dv = hn::Mul(dynamic<0>(n), next_u), du;
    if (neuron_.spikes) {
      const Lane u = load_at(f_[field::potentials], t, n);
      const LaneMask fired = fires(u, threshold);
      const bool gates = neuron_.gates(), attaches = neuron_.attaches();
      if (gates && neuron_.reset == Reset::late_zero) dv = hn::IfThenZeroElse(fired, dv);
      dv = hn::Add(dv, given(field::dmembranes, t, n));
      du = gates && neuron_.reset == Reset::zero ? hn::IfThenZeroElse(fired, dv) : dv;
      Lane ds = given(field::dspikes, t, n);
      if (shape_.all_to_all) ds = hn::Add(ds, hn::Load(d, at(layout_.sum) + n.place));
      if (shape_.one_to_one) ds = hn::MulAdd(parameters_at(f_[field::recurrent], 0, n), next_i, ds);
      if (attaches && neuron_.reset == Reset::zero) ds = hn::NegMulAdd(u, dv, ds);
      const Lane lowered = neuron_.reset == Reset::late_subtract ? next_u : dv;
      const bool subtracts = neuron_.reset == Reset::subtract || neuron_.reset == Reset::late_subtract;
      if (subtracts && attaches) ds = hn::NegMulAdd(threshold, lowered, ds);
      const Lane delta = hn::Mul(ds, surrogate_derivative(neuron_.surrogate, hn::Sub(u, threshold)));
      du = hn::Add(du, delta);
      Lane dthreshold = delta;
      if (subtracts) dthreshold = hn::Add(dthreshold, hn::IfThenElseZero(fired, lowered));
      add_dynamic(2, n, hn::Neg(dthreshold));
    } else {
      du = hn::Add(dv, given(field::dmembranes, t, n));
    }
    du = hn::Add(du, given(field::dpotentials, t, n));
    pass_to_currents(t, n, du, next_i);
    hn::Store(du, d, next_u_at);
  }

  // Passes the gradient of a potential on to its summands.
  HWY_INLINE void pass_to_currents(uint32_t t, const NeuronVector& n, Lane du, Lane next_i) const {
    const Floats d;
    const bool gates = neuron_.reset == Reset::late_zero && neuron_.gates();
    const bool learns = !f_[field::ddynamics].empty();
    const bool reads_spikes = shape_.one_to_one && !f_[field::drecurrent].empty();
    Lane dbase = du;
    LaneMask fired_before = hn::FirstN(d, 0);
    if (gates || learns || reads_spikes) {
      const Lane threshold = dynamic<2>(n);
      const Lane before = t > 0 ? load_at(f_[field::potentials], t - 1, n) : given(field::initial, 0, n);
      if (neuron_.spikes) fired_before = fires(before, threshold);
      const Lane v =
          t > 0 || resets_initial() ? reset_at_once(neuron_.reset, before, fired_before, threshold) : before;
      if (gates) dbase = hn::IfThenZeroElse(fired_before, du);
      add_dynamic(0, n, hn::Mul(dbase, v));
    }
    Lane di = hn::Mul(set(neuron_.gain), dbase);
    if (neuron_.synaptic) {
      di = hn::Add(hn::MulAdd(dynamic<1>(n), next_i, di), given(field::dcurrents, t, n));
      if (learns && t > 0) add_dynamic(1, n, hn::Mul(di, load_at(f_[field::currents], t - 1, n)));
      if (learns && t == 0 && !f_[field::initial].empty())
        add_dynamic(1, n, hn::Mul(di, load_at(f_[field::initial], 1, n)));
    }
    if (reads_spikes && t > 0)
      add_parameters(hn::IfThenElseZero(fired_before, di), f_[field::drecurrent], 0, n);
    hn::Store(di, d, at(layout_.current) + n.place);
    store_at(di, f_[field::din], t, n);
  }

  // Writes the gradients of the state before the first step.
  HWY_INLINE void finish(const NeuronVector& n) const {
    const Floats d;
    const Lane next_u = hn::Load(d, at(layout_.potential) + n.place), threshold = dynamic<2>(n);
    Lane dv = hn::Mul(dynamic<0>(n), next_u);
    if (neuron_.spikes) {
      const LaneMask fired = fires(given(field::initial, 0, n), threshold);
      const bool resets = resets_initial();
      if (neuron_.gates() && neuron_.reset == Reset::late_zero) dv = hn::IfThenZeroElse(fired, dv);
      if (resets && neuron_.reset == Reset::subtract)
        add_dynamic(2, n, hn::Neg(hn::IfThenElseZero(fired, dv)));
      if (neuron_.reset == Reset::late_subtract)
        add_dynamic(2, n, hn::Neg(hn::IfThenElseZero(fired, next_u)));
      if (resets && neuron_.gates() && neuron_.reset == Reset::zero) dv = hn::IfThenZeroElse(fired, dv);
    }
    store_at(dv, f_[field::dinitial], 0, n);
    store_at(
        neuron_.synaptic ? hn::Mul(dynamic<1>(n), hn::Load(d, at(layout_.current) + n.place)) : hn::Zero(d),
        f_[field::dinitial], 1, n);
  }

  HWY_INLINE void add_dynamic(uint32_t row, const NeuronVector& n, Lane x) const {
    add_parameters(x, f_[field::ddynamics], row, n);
  }

  // Transposes the recurrent weights to a row per target neuron, whole strips long.
  void transpose_recurrent() const {
    const FieldView& recurrent = f_[field::recurrent];
    float* to = at(layout_.transposed);
    std::fill_n(to, size_t{shape_.neurons} * layout_.columns, 0.0F);
    transpose(recurrent.as<const float>(), static_cast<size_t>(recurrent.row_stride), shape_.neurons,
              shape_.neurons, to, layout_.columns);
  }

  // Computes gradients of spikes: the gradients of the next step's currents times the recurrent weights.
  void spread(uint32_t samples) const {
    for (uint32_t s = 0; s < samples; s += kRows)
      for (uint32_t n = 0; n < layout_.columns; n += static_cast<uint32_t>(kWide * kLanes))
        spread_strip(at(layout_.current) + size_t{s} * layout_.columns, at(layout_.transposed) + n,
                     at(layout_.sum) + size_t{s} * layout_.columns + n);
  }

  HWY_NOINLINE void spread_strip(const float* HWY_RESTRICT di, const float* HWY_RESTRICT weights,
                                 float* HWY_RESTRICT ds) const {
    const Floats d;
    Lane sum[kRows][kWide];
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (uint32_t j = 0; j < kWide; ++j) sum[r][j] = hn::Zero(d);
    for (uint32_t n = 0; n < shape_.neurons; ++n, weights += layout_.columns) {
      Lane w[kWide];
#pragma GCC unroll 4
      for (uint32_t j = 0; j < kWide; ++j) w[j] = hn::Load(d, weights + j * kLanes);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < kRows; ++r) {
        const Lane x = set(di[size_t{r} * layout_.columns + n]);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < kWide; ++j) sum[r][j] = hn::MulAdd(x, w[j], sum[r][j]);
      }
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < kRows; ++r)
#pragma GCC unroll 4
      for (uint32_t j = 0; j < kWide; ++j)
        hn::Store(sum[r][j], d, ds + size_t{r} * layout_.columns + j * kLanes);
  }

  // Adds to the gradients of the recurrent weights of each neuron that fired in the previous step.
  void add_recurrent(uint32_t t, uint32_t b, uint32_t s) const {
    const FieldView& to = f_[field::drecurrent];
    if (to.empty()) return;
    uint32_t* ids = at<uint32_t>(layout_.own_ids);
    uint32_t count = 0;
    each_vector(0, shape_.neurons, b, s, [&](const NeuronVector& n) HWY_ATTR {
      count += append(fires(load_at(f_[field::potentials], t - 1, n), dynamic<2>(n)), n, ids + count);
    });
    const Floats d;
    const float* di = at(layout_.current) + size_t{s} * layout_.columns;
    for (uint32_t i = 0; i < count; ++i) {
      float* row = to.as<float>() + ids[i] * to.row_stride;
      for (uint32_t n = 0; n < shape_.neurons; n += kLanes) {
        const uint32_t rest = shape_.neurons - n;
        store_some(hn::Add(load_some(row + n, rest), hn::Load(d, di + n)), row + n, rest);
      }
    }
  }

  const std::span<const FieldView> f_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE::spiking
HWY_AFTER_NAMESPACE();
#endif
