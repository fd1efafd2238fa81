#include "ops/spiking/definition.h"

#include <cmath>

#include "kernels/common/spiking_surrogate.h"

namespace tessera::ops {
namespace {

double of(const std::vector<double>& values, uint32_t n) {
  return values.size() == 1 ? values[0] : values[n];
}
void add_to(std::vector<double>& values, uint32_t n, double x) { values[values.size() == 1 ? 0 : n] += x; }
double or_zero(const Sequence& s, uint32_t t, uint32_t b, uint32_t n) { return s.empty() ? 0 : s(t, b, n); }
double or_one(const Sequence& s, uint32_t t, uint32_t b, uint32_t n) { return s.empty() ? 1 : s(t, b, n); }

/// The neurons of one sample.
class Neurons {
 public:
  Neurons(const SpikingLayer& layer, const SpikingValues& values, const SpikingSettings& settings)
      : layer_(layer), neuron_(layer.neuron), values_(values), settings_(settings) {}

  void run(const Sequence& in, const Sequence& mask, uint32_t b, SpikingTrace& trace) const {
    std::vector<double> adaptation(layer_.neurons);
    for (uint32_t t = 0; t < in.steps; ++t)
      for (uint32_t n = 0; n < layer_.neurons; ++n) {
        const double spiked = t > 0 ? trace.spikes(t - 1, b, n) : 0;
        const double v = t > 0 ? trace.v(t - 1, b, n) : 0;
        double current = weighted_sum(in, trace.emitted, t, b, n);
        if (neuron_.synaptic && t > 0) current += of(values_.current_decay, n) * trace.current(t - 1, b, n);
        double u = of(values_.decay, n) * v + neuron_.gain * current;
        if (neuron_.reset == Reset::late_zero) u *= 1 - spiked;
        if (neuron_.reset == Reset::late_subtract) u -= threshold(n) * spiked;
        trace.current(t, b, n) = current;
        trace.u(t, b, n) = u;
        adaptation[n] = neuron_.adaptation_decay * adaptation[n] + spiked;
        const double x =
            u - threshold(n) - (neuron_.adaptive ? neuron_.adaptation_strength * adaptation[n] : 0);
        const double s = neuron_.spikes ? spike(x) : 0;
        trace.distance(t, b, n) = x;
        trace.spikes(t, b, n) = s;
        trace.emitted(t, b, n) = s * or_one(mask, t, b, n);
        trace.v(t, b, n) = neuron_.reset == Reset::zero       ? u * (1 - s)
                           : neuron_.reset == Reset::subtract ? u - threshold(n) * s
                                                              : u;
      }
  }

  void differentiate(const Sequence& in, const Sequence& mask, uint32_t b, const SpikingTrace& trace,
                     const SpikingUpstream& upstream, SpikingGradients& gradients) const {
    const uint32_t neurons = layer_.neurons;
    // Gradients of the next step: of u, of the sum x, of the current and of the adaptation.
    std::vector<double> next_u(neurons), next_x(neurons), next_current(neurons), next_adaptation(neurons);
    for (uint32_t t = in.steps; t-- > 0;) {
      const std::vector<double> later_x = next_x;
      for (uint32_t n = 0; n < neurons; ++n) {
        const double u = trace.u(t, b, n), s = trace.spikes(t, b, n), beta = of(values_.decay, n);
        const double listed = or_one(mask, t, b, n);
        double ds = or_zero(upstream.spikes, t, b, n);
        if (layer_.recurrent)
          for (uint32_t m = 0; m < neurons; ++m) ds += values_.recurrent[n * neurons + m] * later_x[m];
        ds *= listed;
        if (neuron_.adaptive) ds += next_adaptation[n];

        // Through the reset.
        const bool attached = neuron_.reset_gradient == ResetGradient::attached;
        const double gate = neuron_.reset_gradient == ResetGradient::detached ? 1 : 1 - s;
        const double dv = or_zero(upstream.after, t, b, n) +
                          beta * next_u[n] * (neuron_.reset == Reset::late_zero ? gate : 1);
        double du = or_zero(upstream.before, t, b, n) + dv * (neuron_.reset == Reset::zero ? gate : 1);
        if (neuron_.reset == Reset::zero && attached) ds -= u * dv;
        if (neuron_.reset == Reset::subtract) {
          if (attached) ds -= threshold(n) * dv;
          add_to(gradients.values.threshold, n, -s * dv);
        }
        if (neuron_.reset == Reset::late_subtract) {
          if (attached) ds -= threshold(n) * next_u[n];
          add_to(gradients.values.threshold, n, -s * next_u[n]);
        }
        if (neuron_.reset == Reset::late_zero && attached && t + 1 < in.steps)
          ds -= (beta * u + neuron_.gain * trace.current(t + 1, b, n)) * next_u[n];

        // Through the step.
        if (neuron_.spikes) {
          const double delta = ds * derivative(t, b, n, trace) * listed;
          du += delta;
          add_to(gradients.values.threshold, n, -delta);
          next_adaptation[n] =
              neuron_.adaptation_decay * next_adaptation[n] - neuron_.adaptation_strength * delta;
        }

        // Through the sum.
        const double spiked = t > 0 ? trace.spikes(t - 1, b, n) : 0;
        const bool is_gated =
            neuron_.reset == Reset::late_zero && neuron_.reset_gradient != ResetGradient::detached;
        const double dbase = du * (is_gated ? 1 - spiked : 1);
        if (t > 0) add_to(gradients.values.decay, n, dbase * trace.v(t - 1, b, n));
        double dcurrent = neuron_.gain * dbase + or_zero(upstream.current, t, b, n);
        if (neuron_.synaptic) {
          dcurrent += of(values_.current_decay, n) * next_current[n];
          if (t > 0) add_to(gradients.values.current_decay, n, dcurrent * trace.current(t - 1, b, n));
        }
        next_u[n] = du;
        next_current[n] = next_x[n] = dcurrent;
        add_sum(in, trace.emitted, t, b, n, dcurrent, gradients);
      }
    }
  }

 private:
  double threshold(uint32_t n) const { return neuron_.spikes ? of(values_.threshold, n) : 0; }

  double spike(double x) const {
    if (settings_.smooth_slope > 0) return 1 / (1 + std::exp(-settings_.smooth_slope * x));
    return x > 0 || (neuron_.fires_at_threshold && x == 0) ? 1 : 0;
  }

  double derivative(uint32_t t, uint32_t b, uint32_t n, const SpikingTrace& trace) const {
    if (settings_.smooth_slope > 0) {
      const double s = trace.spikes(t, b, n);
      return settings_.smooth_slope * s * (1 - s);
    }
    const double x = trace.distance(t, b, n), margin = threshold(n) - settings_.gradient_threshold;
    const bool passes = neuron_.mask == GradientMask::above ? x > -margin : std::abs(x) < margin;
    return passes ? surrogate_derivative(neuron_.surrogate, x) : 0;
  }

  double weighted_sum(const Sequence& in, const Sequence& emitted, uint32_t t, uint32_t b, uint32_t n) const {
    double sum = 0;
    if (t >= layer_.delay)
      for (uint32_t j = 0; j < layer_.inputs; ++j)
        sum += in(t - layer_.delay, b, j) * values_.weight[uint64_t{j} * layer_.neurons + n];
    if (layer_.recurrent && t > 0)
      for (uint32_t m = 0; m < layer_.neurons; ++m)
        sum += emitted(t - 1, b, m) * values_.recurrent[uint64_t{m} * layer_.neurons + n];
    return sum;
  }

  void add_sum(const Sequence& in, const Sequence& emitted, uint32_t t, uint32_t b, uint32_t n, double dx,
               SpikingGradients& gradients) const {
    if (t >= layer_.delay)
      for (uint32_t j = 0; j < layer_.inputs; ++j) {
        const uint64_t at = uint64_t{j} * layer_.neurons + n;
        gradients.values.weight[at] += in(t - layer_.delay, b, j) * dx;
        gradients.in(t - layer_.delay, b, j) += values_.weight[at] * dx;
      }
    if (layer_.recurrent && t > 0)
      for (uint32_t m = 0; m < layer_.neurons; ++m)
        gradients.values.recurrent[uint64_t{m} * layer_.neurons + n] += emitted(t - 1, b, m) * dx;
  }

  const SpikingLayer& layer_;
  const Neuron& neuron_;
  const SpikingValues& values_;
  const SpikingSettings& settings_;
};

}  // namespace

double surrogate_derivative(const Surrogate& surrogate, double x) {
  return kernels::derivative_of(surrogate, x);
}

SpikingTrace run_layer(const SpikingLayer& layer, const SpikingValues& values,
                       const SpikingSettings& settings, const Sequence& in, const Sequence& mask) {
  const Sequence zeros(in.steps, in.batch, layer.neurons);
  SpikingTrace trace{zeros, zeros, zeros, zeros, zeros, zeros};
  const Neurons neurons(layer, values, settings);
  for (uint32_t b = 0; b < in.batch; ++b) neurons.run(in, mask, b, trace);
  return trace;
}

SpikingGradients differentiate_layer(const SpikingLayer& layer, const SpikingValues& values,
                                     const SpikingSettings& settings, const Sequence& in,
                                     const SpikingTrace& trace, const SpikingUpstream& upstream,
                                     const Sequence& mask) {
  SpikingGradients gradients;
  gradients.in = Sequence(in.steps, in.batch, in.features);
  const auto zeros = [](const std::vector<double>& like) { return std::vector<double>(like.size()); };
  gradients.values = {zeros(values.weight), zeros(values.recurrent), zeros(values.decay),
                      zeros(values.current_decay), zeros(values.threshold)};
  const Neurons neurons(layer, values, settings);
  for (uint32_t b = 0; b < in.batch; ++b) neurons.differentiate(in, mask, b, trace, upstream, gradients);
  return gradients;
}

}  // namespace tessera::ops
