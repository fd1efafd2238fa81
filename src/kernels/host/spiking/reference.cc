// Spiking layers one neuron after the other, for fields of any strides. Sums are in FP32 and in the order of
// the kernels, because a rounding may decide on a spike.
#include <vector>

#include "kernels/common/spiking_overflow.h"
#include "kernels/common/spiking_step.h"
#include "kernels/host/spiking/layout.h"

namespace tessera::kernels {
namespace {

using program::FieldView;

/// Weights in their panels.
struct Panels {
  const FieldView& field;
  uint32_t sources;

  float operator()(uint32_t source, uint32_t neuron) const {
    return at(field, row(source, neuron), col(neuron));
  }
  void add(uint32_t source, uint32_t neuron, float x) const {
    kernels::add(field, row(source, neuron), col(neuron), x);
  }

 private:
  uint32_t row(uint32_t source, uint32_t neuron) const { return neuron / field.cols * sources + source; }
  uint32_t col(uint32_t neuron) const { return neuron % field.cols; }
};

struct Listed {
  uint32_t id;
  float distance;
};

/// The neurons of one sample forward.
class ForwardSample {
 public:
  ForwardSample(const program::Vertex& v, const SpikingNeuron& neuron, const SpikingShape& shape, uint32_t b)
      : f_(v.fields),
        neuron_(neuron),
        shape_(shape),
        delay_(static_cast<uint32_t>(v.params[spiking_param::delay])),
        b_(b),
        overflow_(spiking_overflow(v)),
        states_(shape.neurons),
        fired_(shape.neurons) {
    bar_ = at(f_[gradient_threshold], 0, 0);
  }

  void run() {
    for (uint32_t t = 0; t < shape_.steps; ++t) {
      const std::vector<float> sums = weighted_sums(t);
      std::vector<Listed> spikes, others;
      for (uint32_t n = 0; n < shape_.neurons; ++n) step(t, n, sums[n], spikes, others);
      if (neuron_.spikes) write(t, spikes, others);
    }
  }

 private:
  enum : size_t { TESSERA_SPIKING_FORWARD_FIELDS(TESSERA_POSITION) };

  std::vector<float> weighted_sums(uint32_t t) const {
    const Panels weights{f_[weight], shape_.sources()};
    const SpikeLists in{f_[in_ids], f_[in_num], shape_.in_capacity};
    std::vector<float> sums(shape_.neurons);
    const auto add = [&](uint32_t source) {
      for (uint32_t n = 0; n < shape_.neurons; ++n) sums[n] += weights(source, n);
    };
    if (t >= delay_)
      for (uint32_t i = 0; i < in.spikes(t - delay_, b_); ++i) add(in.id(t - delay_, b_, i));
    if (neuron_.recurrent)
      for (const uint32_t id : own_) add(shape_.inputs + id);
    return sums;
  }

  void step(uint32_t t, uint32_t n, float x, std::vector<Listed>& spikes, std::vector<Listed>& others) {
    const int64_t column = int64_t{b_} * shape_.neurons + n;
    const SpikingAdvance step =
        advance(neuron_, SpikingDynamics::of(f_[dynamics], n), bar_, x, fired_[n], states_[n]);
    if (neuron_.synaptic) set(f_[currents], t, column, states_[n].current);
    set(f_[potentials], t, column, step.u);
    fired_[n] = step.fires;
    if (step.fires) spikes.push_back({n, step.distance});
    if (step.passes) others.push_back({n, step.distance});
  }

  void write(uint32_t t, const std::vector<Listed>& spikes, const std::vector<Listed>& others) {
    std::vector<uint32_t> list;
    std::vector<float> distances;
    for (const auto* part : {&spikes, &others})
      for (const Listed& entry : *part) {
        list.push_back(entry.id);
        distances.push_back(entry.distance);
      }
    auto fired = static_cast<uint32_t>(spikes.size()), listed = static_cast<uint32_t>(list.size());
    overflow_.drop(t, b_, fired, listed, [&](uint32_t to, uint32_t from) {
      list[to] = list[from];
      distances[to] = distances[from];
    });
    store(address_of(f_[num], t, 2 * b_), fired);
    store(address_of(f_[num], t, 2 * b_ + 1), listed);
    for (uint32_t i = 0; i < listed; ++i) {
      const int64_t column = int64_t{b_} * shape_.capacity + i;
      store(address_of(f_[ids], t, column), static_cast<uint16_t>(list[i]));
      set(f_[surrogate], t, column,
          masked_derivative(neuron_, at(f_[dynamics], 2, list[i]), bar_, distances[i]));
    }
    own_.assign(list.begin(), list.begin() + fired);
    if (f_[resets].empty()) return;
    const uint32_t bytes = (shape_.neurons + 7) / 8;
    for (uint32_t byte = 0; byte < bytes; ++byte) {
      uint8_t bits = 0;
      for (uint32_t n = 8 * byte; n < std::min(8 * byte + 8, shape_.neurons); ++n)
        bits = static_cast<uint8_t>(bits | fired_[n] << n % 8);
      store(address_of(f_[resets], t, int64_t{b_} * bytes + byte), bits);
    }
  }

  const std::span<const FieldView> f_;
  const SpikingNeuron& neuron_;
  const SpikingShape& shape_;
  uint32_t delay_;
  uint32_t b_;
  SpikingOverflow overflow_;
  float bar_ = 0;
  std::vector<SpikingState> states_;
  std::vector<char> fired_;
  std::vector<uint32_t> own_;
};

/// The neurons of one sample backward.
class GradientSample {
 public:
  GradientSample(const program::Vertex& v, const SpikingNeuron& neuron, const SpikingShape& shape, uint32_t b)
      : f_(v.fields),
        neuron_(neuron),
        shape_(shape),
        delay_(static_cast<uint32_t>(v.params[spiking_param::delay])),
        b_(b),
        in_{f_[in_ids], f_[in_num], shape.in_capacity},
        own_{f_[ids], f_[num], shape.capacity},
        weights_{f_[weight], shape.sources()},
        gradients_{f_[dweight], shape.sources()},
        carried_(shape.neurons),
        next_x_(shape.neurons) {}

  void run() {
    for (uint32_t t = shape_.steps; t-- > 0;) {
      std::vector<float> ds(shape_.neurons), derivative(shape_.neurons);
      if (neuron_.spikes) {
        for (uint32_t i = 0; i < own_.listed(t, b_); ++i) {
          const uint32_t n = own_.id(t, b_, i);
          ds[n] = at(f_[upstream], t, int64_t{b_} * shape_.capacity + i) + (neuron_.recurrent ? later(n) : 0);
          derivative[n] = at(f_[surrogate], t, int64_t{b_} * shape_.capacity + i);
        }
      } else {
        for (uint32_t n = 0; n < shape_.neurons; ++n)
          ds[n] = at(f_[upstream], t, int64_t{b_} * shape_.neurons + n);
      }
      for (uint32_t n = 0; n < shape_.neurons; ++n) step(t, n, ds[n], derivative[n]);
      pass(t);
    }
    if (!f_[din].empty())
      for (uint32_t t = shape_.steps - std::min(shape_.steps, delay_); t < shape_.steps; ++t)
        for (uint32_t i = 0; i < in_.listed(t, b_); ++i)
          set(f_[din], t, int64_t{b_} * shape_.in_capacity + i, 0);
  }

 private:
  enum : size_t { TESSERA_SPIKING_GRADIENTS_FIELDS(TESSERA_POSITION) };

  /// What a neuron's spike adds to the sums of the next step.
  float later(uint32_t n) const {
    float sum = 0;
    for (uint32_t m = 0; m < shape_.neurons; ++m) sum += weights_(shape_.inputs + n, m) * next_x_[m];
    return sum;
  }

  bool fired(uint32_t t, uint32_t n) const {
    const uint32_t bytes = (shape_.neurons + 7) / 8;
    return (load<uint8_t>(address_of(f_[resets], t, int64_t{b_} * bytes + n / 8)) >> n % 8 & 1) != 0;
  }
  float value(const FieldView& field, uint32_t t, uint32_t n) const {
    return or_zero(field, t, int64_t{b_} * shape_.neurons + n);
  }

  void step(uint32_t t, uint32_t n, float ds, float derivative) {
    const bool knows = !f_[resets].empty();
    SpikingSeen seen{
        .derivative = derivative, .fired = knows && fired(t, n), .u = value(f_[potentials], t, n)};
    if (t > 0) {
      seen.fired_before = knows && fired(t - 1, n);
      seen.u_before = value(f_[potentials], t - 1, n);
      seen.current_before = value(f_[currents], t - 1, n);
    }
    const SpikingStepGradients g =
        differentiate(neuron_, SpikingDynamics::of(f_[dynamics], n), ds, seen, carried_[n]);
    next_x_[n] = g.x;
    if (t > 0) add(f_[ddynamics], 0, n, g.dynamics.decay);
    if (t > 0 && neuron_.synaptic) add(f_[ddynamics], 1, n, g.dynamics.current_decay);
    add(f_[ddynamics], 2, n, g.dynamics.threshold);
  }

  /// The gradients of the sums of a step, to weights and inputs.
  void pass(uint32_t t) const {
    const auto add = [&](uint32_t source) {
      for (uint32_t n = 0; n < shape_.neurons; ++n) gradients_.add(source, n, next_x_[n]);
    };
    if (t >= delay_) {
      const uint32_t from = t - delay_;
      for (uint32_t i = 0; i < in_.spikes(from, b_); ++i) add(in_.id(from, b_, i));
      for (uint32_t i = 0; !f_[din].empty() && i < in_.listed(from, b_); ++i) {
        float sum = 0;
        for (uint32_t n = 0; n < shape_.neurons; ++n) sum += weights_(in_.id(from, b_, i), n) * next_x_[n];
        set(f_[din], from, int64_t{b_} * shape_.in_capacity + i, sum);
      }
    }
    if (neuron_.recurrent && t > 0)
      for (uint32_t i = 0; i < own_.spikes(t - 1, b_); ++i) add(shape_.inputs + own_.id(t - 1, b_, i));
  }

  const std::span<const FieldView> f_;
  const SpikingNeuron& neuron_;
  const SpikingShape& shape_;
  uint32_t delay_;
  uint32_t b_;
  SpikeLists in_, own_;
  Panels weights_, gradients_;
  std::vector<SpikingCarried> carried_;
  std::vector<float> next_x_;
};

}  // namespace

void spiking_forward_reference(const program::Vertex& v) {
  using namespace spiking_forward_field;
  const SpikingNeuron neuron(v.params, spiking_param::kinds);
  const SpikingShape shape = spiking_shape(v, v.fields[in_num], v.fields[weight], v.fields[dynamics]);
  clear(v.fields[dropped]);
  for (uint32_t b = 0; b < shape.batch; ++b) ForwardSample(v, neuron, shape, b).run();
}

void spiking_gradients_reference(const program::Vertex& v) {
  using namespace spiking_gradients_field;
  const SpikingNeuron neuron(v.params, spiking_param::kinds);
  const SpikingShape shape = spiking_shape(v, v.fields[in_num], v.fields[weight], v.fields[dynamics]);
  clear(v.fields[dweight]);
  clear(v.fields[ddynamics]);
  for (uint32_t b = 0; b < shape.batch; ++b) GradientSample(v, neuron, shape, b).run();
}

}  // namespace tessera::kernels
