// Neurons that take currents one after the other, for fields of any strides. Sums are in FP32 and in the
// order of the kernels, because a rounding may decide on a spike.
#include <cmath>
#include <vector>

#include "kernels/common/element.h"
#include "kernels/common/spiking_step.h"
#include "kernels/host/spiking/neurons.h"

namespace tessera::kernels {
namespace {

using program::FieldView;

float at(const FieldView& field, uint32_t row, uint32_t col) {
  return load<float>(address_of(field, row, col));
}
float or_zero(const FieldView& field, uint32_t row, uint32_t col) {
  return field.empty() ? 0 : at(field, row, col);
}
void set(const FieldView& field, uint32_t row, uint32_t col, float x) {
  if (!field.empty()) store(address_of(field, row, col), x);
}
void add(const FieldView& field, uint32_t row, uint32_t col, float x) {
  if (!field.empty()) set(field, row, col, at(field, row, col) + x);
}
void clear(const FieldView& field) {
  for (uint32_t r = 0; r < field.rows; ++r)
    for (uint32_t c = 0; c < field.cols; ++c) set(field, r, c, 0);
}

/// The definition of a neuron.
struct Dynamics {
  const NeuronsNeuron neuron;
  const FieldView& field;

  float decay(uint32_t n) const { return at(field, 0, n); }
  float current_decay(uint32_t n) const { return at(field, 1, n); }
  float threshold(uint32_t n) const { return at(field, 2, n); }
  bool fires(float u, uint32_t n) const {
    return neuron.spikes && (u > threshold(n) || (neuron.fires_at_threshold && u == threshold(n)));
  }
  float after(float u, uint32_t n) const {
    if (!fires(u, n)) return u;
    if (neuron.reset == Reset::zero) return 0;
    return neuron.reset == Reset::subtract ? u - threshold(n) : u;
  }
  float first(float given, uint32_t n) const { return neuron.after_reset ? given : after(given, n); }
};

void run_sample(const program::Vertex& v, const Dynamics& of, const NeuronsShape& shape, uint32_t b) {
  using namespace neurons_forward_field;
  const auto& f = v.fields;
  const uint32_t neurons = shape.neurons, first = b * neurons;
  std::vector<SpikingState> states(neurons);
  std::vector<char> fired(neurons);
  for (uint32_t n = 0; n < neurons; ++n) {
    states[n].v = f[initial].empty() ? 0 : of.first(at(f[initial], 0, first + n), n);
    states[n].current = or_zero(f[initial], 1, first + n);
  }
  for (uint32_t t = 0; t < shape.steps; ++t) {
    const std::vector<char> fired_before = fired;
    for (uint32_t n = 0; n < neurons; ++n) {
      float x = at(f[in], t, first + n);
      if (shape.one_to_one && fired_before[n]) x += at(f[recurrent], 0, n);
      for (uint32_t m = 0; shape.all_to_all && m < neurons; ++m)
        if (fired_before[m]) x += at(f[recurrent], m, n);
      SpikingState& state = states[n];
      const SpikingDynamics d{of.decay(n), of.current_decay(n), of.threshold(n)};
      const SpikingAdvance step = advance(of.neuron, d, 0, x, of.fires(state.v, n), state);
      fired[n] = step.fires;
      set(f[currents], t, first + n, of.neuron.synaptic ? state.current : x);
      set(f[potentials], t, first + n, step.u);
      set(f[spikes], t, first + n, fired[n] ? 1 : 0);
      set(f[membranes], t, first + n, state.v);
    }
  }
}

class SampleGradients {
 public:
  SampleGradients(const program::Vertex& v, const Dynamics& of, const NeuronsShape& shape, uint32_t b)
      : f_(v.fields),
        of_(of),
        neuron_(of.neuron),
        shape_(shape),
        first_(b * shape.neurons),
        next_u_(shape.neurons),
        next_i_(shape.neurons) {}

  void run() {
    for (uint32_t t = shape_.steps; t-- > 0;) {
      const std::vector<float> later_i = next_i_;
      for (uint32_t n = 0; n < shape_.neurons; ++n) step(t, n, later_i);
      add_recurrent(t);
    }
    for (uint32_t n = 0; n < shape_.neurons; ++n) finish(n);
  }

 private:
  enum : size_t { TESSERA_NEURONS_GRADIENTS_FIELDS(TESSERA_POSITION) };

  bool is(Reset reset) const { return neuron_.spikes && neuron_.reset == reset; }

  void step(uint32_t t, uint32_t n, const std::vector<float>& later_i) {
    const uint32_t col = first_ + n;
    const float u = neuron_.spikes ? at(f_[potentials], t, col) : 0, threshold = of_.threshold(n);
    const bool fired = of_.fires(u, n);
    float dv = of_.decay(n) * next_u_[n];
    if (neuron_.gates() && is(Reset::late_zero) && fired) dv = 0;
    dv += or_zero(f_[dmembranes], t, col);
    float du = neuron_.gates() && is(Reset::zero) && fired ? 0 : dv;
    if (neuron_.spikes) {
      float ds = or_zero(f_[dspikes], t, col);
      if (shape_.one_to_one) ds += at(f_[recurrent], 0, n) * later_i[n];
      for (uint32_t m = 0; shape_.all_to_all && m < shape_.neurons; ++m)
        ds += at(f_[recurrent], n, m) * later_i[m];
      const float lowered = is(Reset::late_subtract) ? next_u_[n] : dv;
      const bool subtracts = is(Reset::subtract) || is(Reset::late_subtract);
      if (neuron_.attaches() && is(Reset::zero)) ds -= u * dv;
      if (neuron_.attaches() && subtracts) ds -= threshold * lowered;
      const float delta = ds * derivative_of(neuron_.surrogate, u - threshold);
      du += delta;
      add(f_[ddynamics], 2, n, -delta - (subtracts && fired ? lowered : 0));
    }
    du += or_zero(f_[dpotentials], t, col);

    const float before = t > 0 ? or_zero(f_[potentials], t - 1, col) : or_zero(f_[initial], 0, col);
    const float v = t > 0 ? of_.after(before, n) : f_[initial].empty() ? 0 : of_.first(before, n);
    const bool gated = neuron_.gates() && is(Reset::late_zero) && of_.fires(before, n);
    const float dbase = gated ? 0 : du;
    add(f_[ddynamics], 0, n, dbase * v);
    float di = neuron_.gain * dbase;
    if (neuron_.synaptic) {
      di += of_.current_decay(n) * next_i_[n] + or_zero(f_[dcurrents], t, col);
      const float i = t > 0 ? or_zero(f_[currents], t - 1, col) : or_zero(f_[initial], 1, col);
      add(f_[ddynamics], 1, n, di * i);
    }
    next_u_[n] = du;
    next_i_[n] = di;
    set(f_[din], t, col, di);
  }

  void add_recurrent(uint32_t t) const {
    if (t == 0 || f_[drecurrent].empty()) return;
    for (uint32_t m = 0; m < shape_.neurons; ++m) {
      if (!of_.fires(at(f_[potentials], t - 1, first_ + m), m)) continue;
      if (shape_.one_to_one) add(f_[drecurrent], 0, m, next_i_[m]);
      for (uint32_t n = 0; shape_.all_to_all && n < shape_.neurons; ++n)
        add(f_[drecurrent], m, n, next_i_[n]);
    }
  }

  void finish(uint32_t n) const {
    const float before = or_zero(f_[initial], 0, first_ + n);
    const bool fired = of_.fires(before, n);
    const bool resets = fired && !neuron_.after_reset && !f_[initial].empty();
    float dv = of_.decay(n) * next_u_[n];
    if (neuron_.gates() && is(Reset::late_zero) && fired) dv = 0;
    if (resets && is(Reset::subtract)) add(f_[ddynamics], 2, n, -dv);
    if (fired && is(Reset::late_subtract)) add(f_[ddynamics], 2, n, -next_u_[n]);
    if (resets && neuron_.gates() && is(Reset::zero)) dv = 0;
    set(f_[dinitial], 0, first_ + n, dv);
    set(f_[dinitial], 1, first_ + n, neuron_.synaptic ? of_.current_decay(n) * next_i_[n] : 0);
  }

  const std::span<const FieldView> f_;
  const Dynamics& of_;
  const NeuronsNeuron& neuron_;
  const NeuronsShape& shape_;
  const uint32_t first_;
  std::vector<float> next_u_, next_i_;
};

}  // namespace

void neurons_forward_reference(const program::Vertex& v) {
  using namespace neurons_forward_field;
  const Dynamics of{NeuronsNeuron(v.params), v.fields[dynamics]};
  const NeuronsShape shape = neurons_shape(v.fields[in], v.fields[dynamics], v.fields[recurrent]);
  for (uint32_t b = 0; b < shape.samples; ++b) run_sample(v, of, shape, b);
}

void neurons_gradients_reference(const program::Vertex& v) {
  using namespace neurons_gradients_field;
  const Dynamics of{NeuronsNeuron(v.params), v.fields[dynamics]};
  const NeuronsShape shape = neurons_shape(v.fields[din], v.fields[dynamics], v.fields[recurrent]);
  clear(v.fields[ddynamics]);
  clear(v.fields[drecurrent]);
  for (uint32_t b = 0; b < shape.samples; ++b) SampleGradients(v, of, shape, b).run();
}

}  // namespace tessera::kernels
