// Neurons that take currents one after the other, for fields of any strides. Sums are in FP32 and in the
// order of the kernels, because a rounding may decide on a spike.
#include <vector>

#include "kernels/common/spiking_step.h"
#include "kernels/host/spiking/neurons.h"

namespace tessera::kernels {
namespace {

using program::FieldView;

/// The definition of a neuron.
struct Dynamics {
  const NeuronsNeuron neuron;
  const FieldView& field;

  SpikingDynamics of(uint32_t n) const { return SpikingDynamics::of(field, n); }
  bool fires(float u, uint32_t n) const {
    const float threshold = of(n).threshold;
    return neuron.spikes && (u > threshold || (neuron.fires_at_threshold && u == threshold));
  }
  bool resets_at_once() const { return neuron.reset == Reset::zero || neuron.reset == Reset::subtract; }
  /// A potential before the first step, after its reset.
  float first(float given, uint32_t n) const {
    if (neuron.after_reset || !resets_at_once() || !fires(given, n)) return given;
    return neuron.reset == Reset::zero ? 0 : given - of(n).threshold;
  }
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
      const SpikingAdvance step = advance(of.neuron, of.of(n), 0, x, of.fires(state.v, n), state);
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
        carried_(shape.neurons) {}

  void run() {
    for (uint32_t t = shape_.steps; t-- > 0;) {
      const std::vector<SpikingCarried> later = carried_;
      for (uint32_t n = 0; n < shape_.neurons; ++n) step(t, n, later);
      add_recurrent(t);
    }
    for (uint32_t n = 0; n < shape_.neurons; ++n) finish(n);
  }

 private:
  enum : size_t { TESSERA_NEURONS_GRADIENTS_FIELDS(TESSERA_POSITION) };

  void step(uint32_t t, uint32_t n, const std::vector<SpikingCarried>& later) {
    const uint32_t col = first_ + n;
    const SpikingDynamics d = of_.of(n);
    SpikingSeen seen;
    float ds = 0;
    if (neuron_.spikes) {
      seen.u = at(f_[potentials], t, col);
      seen.fired = of_.fires(seen.u, n);
      seen.derivative = derivative_of(neuron_.surrogate, seen.u - d.threshold);
      ds = or_zero(f_[dspikes], t, col);
      if (shape_.one_to_one) ds += at(f_[recurrent], 0, n) * later[n].current;
      for (uint32_t m = 0; shape_.all_to_all && m < shape_.neurons; ++m)
        ds += at(f_[recurrent], n, m) * later[m].current;
    }
    seen.u_before = t > 0 ? or_zero(f_[potentials], t - 1, col) : or_zero(f_[initial], 0, col);
    seen.current_before = t > 0 ? or_zero(f_[currents], t - 1, col) : or_zero(f_[initial], 1, col);
    const bool was_reset = t == 0 && of_.resets_at_once() && (neuron_.after_reset || f_[initial].empty());
    seen.fired_before = !was_reset && of_.fires(seen.u_before, n);
    const SpikingStepGradients g = differentiate(
        neuron_, d, ds, seen, carried_[n],
        {or_zero(f_[dmembranes], t, col), or_zero(f_[dpotentials], t, col), or_zero(f_[dcurrents], t, col)});
    add(f_[ddynamics], 0, n, g.dynamics.decay);
    if (neuron_.synaptic) add(f_[ddynamics], 1, n, g.dynamics.current_decay);
    add(f_[ddynamics], 2, n, g.dynamics.threshold);
    set(f_[din], t, col, g.x);
  }

  void add_recurrent(uint32_t t) const {
    if (t == 0 || f_[drecurrent].empty()) return;
    for (uint32_t m = 0; m < shape_.neurons; ++m) {
      if (!of_.fires(at(f_[potentials], t - 1, first_ + m), m)) continue;
      if (shape_.one_to_one) add(f_[drecurrent], 0, m, carried_[m].current);
      for (uint32_t n = 0; shape_.all_to_all && n < shape_.neurons; ++n)
        add(f_[drecurrent], m, n, carried_[n].current);
    }
  }

  /// Passes gradients to the state before the first step.
  void finish(uint32_t n) const {
    const SpikingDynamics d = of_.of(n);
    const bool fired = of_.fires(or_zero(f_[initial], 0, first_ + n), n);
    const bool resets = fired && !neuron_.after_reset && !f_[initial].empty();
    const bool gates = neuron_.gates() && (neuron_.is_late() ? fired : resets);
    const float next_u = carried_[n].u, dv = d.decay * next_u;
    if (resets && neuron_.reset == Reset::subtract) add(f_[ddynamics], 2, n, -dv);
    if (fired && neuron_.reset == Reset::late_subtract) add(f_[ddynamics], 2, n, -next_u);
    set(f_[dinitial], 0, first_ + n, gates ? 0 : dv);
    set(f_[dinitial], 1, first_ + n, neuron_.synaptic ? d.current_decay * carried_[n].current : 0);
  }

  const std::span<const FieldView> f_;
  const Dynamics& of_;
  const NeuronsNeuron& neuron_;
  const NeuronsShape& shape_;
  const uint32_t first_;
  std::vector<SpikingCarried> carried_;
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
