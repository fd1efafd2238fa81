// The reference of spiking layers: against finite differences of a smooth spike, published values, and
// gradients worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "ops/spiking/definition.h"
#include "support/resets.h"

namespace tessera::ops {
namespace {

constexpr uint32_t kSteps = 7, kBatch = 2;

std::vector<double> random_doubles(uint64_t count, uint32_t stream, double low, double high) {
  std::vector<double> values(count);
  const base::RandomStream random(11, 0, stream);
  for (uint64_t i = 0; i < count; ++i) values[i] = low + (high - low) * random.uniform(i);
  return values;
}

Sequence random_sequence(uint32_t steps, uint32_t batch, uint32_t features, uint32_t stream) {
  Sequence s(steps, batch, features);
  s.values = random_doubles(s.values.size(), stream, -1, 1);
  return s;
}

SpikingValues random_values(const SpikingLayer& layer) {
  const uint64_t n = layer.neurons;
  const auto count = [&](bool per_neuron) { return per_neuron ? n : 1; };
  return {random_doubles(layer.inputs * n, 1, -0.5, 1),
          random_doubles(layer.recurrent ? n * n : 0, 2, -0.5, 0.5),
          random_doubles(count(layer.decay_per_neuron), 3, 0.7, 0.95),
          random_doubles(count(layer.current_decay_per_neuron), 4, 0.5, 0.9),
          random_doubles(count(layer.threshold_per_neuron), 5, 0.7, 1.2)};
}

/// A random combination of all results of a layer, whose gradients `upstream` are.
struct Objective {
  SpikingUpstream upstream;

  double of(const SpikingTrace& trace) const {
    double sum = 0;
    for (size_t i = 0; i < trace.u.values.size(); ++i)
      sum += upstream.spikes.values[i] * trace.emitted.values[i] +
             upstream.before.values[i] * trace.u.values[i] + upstream.after.values[i] * trace.v.values[i];
    return sum;
  }
};

struct Setting {
  std::string name;
  SpikingLayer layer;
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const auto& [name, reset] : test::kResets)
    for (uint32_t features = 0; features < 16; ++features) {
      SpikingLayer layer{.inputs = 4, .neurons = 5};
      layer.neuron = {.reset = reset, .reset_gradient = ResetGradient::attached, .gain = 0.8F};
      layer.neuron.synaptic = (features & 1) != 0;
      layer.recurrent = (features & 2) != 0;
      if ((features & 4) != 0) {
        layer.neuron.adaptive = true;
        layer.neuron.adaptation_decay = 0.8F;
        layer.neuron.adaptation_strength = 0.3F;
      }
      if ((features & 8) != 0) {
        layer.delay = 1;
        layer.decay_per_neuron = layer.current_decay_per_neuron = layer.threshold_per_neuron = true;
      }
      all.push_back({std::string(name) + (layer.neuron.synaptic ? "_synaptic" : "") +
                         (layer.recurrent ? "_recurrent" : "") + (layer.neuron.adaptive ? "_adaptive" : "") +
                         (layer.delay > 0 ? "_delayed_per_neuron" : ""),
                     layer});
    }
  return all;
}

class SmoothSpikes : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(SpikingReference, SmoothSpikes, testing::ValuesIn(settings()),
                         [](const auto& setting) { return setting.param.name; });

TEST_P(SmoothSpikes, HaveTheGradientsOfFiniteDifferences) {
  const SpikingLayer& layer = GetParam().layer;
  const SpikingSettings smooth{.smooth_slope = 4};
  Sequence in = random_sequence(kSteps, kBatch, layer.inputs, 6);
  SpikingValues values = random_values(layer);
  const Objective objective{{random_sequence(kSteps, kBatch, layer.neurons, 7),
                             random_sequence(kSteps, kBatch, layer.neurons, 8),
                             random_sequence(kSteps, kBatch, layer.neurons, 9)}};
  const SpikingTrace trace = run_layer(layer, values, smooth, in);
  const SpikingGradients gradients =
      differentiate_layer(layer, values, smooth, in, trace, objective.upstream);

  const auto expect_gradient = [&](std::vector<double>& of, const std::vector<double>& gradient,
                                   const char* name) {
    for (size_t i = 0; i < of.size(); ++i) {
      constexpr double kDelta = 1e-5;
      const double x = of[i];
      of[i] = x + kDelta;
      const double above = objective.of(run_layer(layer, values, smooth, in));
      of[i] = x - kDelta;
      const double below = objective.of(run_layer(layer, values, smooth, in));
      of[i] = x;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kDelta), 1e-6 * (1 + std::abs(gradient[i])))
          << name << " " << i;
    }
  };
  expect_gradient(in.values, gradients.in.values, "input");
  expect_gradient(values.weight, gradients.values.weight, "weight");
  expect_gradient(values.recurrent, gradients.values.recurrent, "recurrent");
  expect_gradient(values.decay, gradients.values.decay, "decay");
  if (layer.neuron.synaptic)
    expect_gradient(values.current_decay, gradients.values.current_decay, "current decay");
  expect_gradient(values.threshold, gradients.values.threshold, "threshold");
}

TEST(SpikingReference, HasNorsesMembranesForConstantInput) {
  SpikingLayer layer{.inputs = 1, .neurons = 1};
  layer.neuron = {.synaptic = true, .gain = 0.1F};
  const SpikingValues values{{1}, {}, {0.9}, {0.8}, {1}};
  const SpikingTrace trace = run_layer(layer, values, {}, Sequence(9, 1, 1, 1));
  const double norse[] = {0.1, 0.27, 0.487, 0.7335, 0.9963, 0, 0.3951, 0.7717, 0};
  for (uint32_t t = 0; t < 9; ++t) EXPECT_NEAR(trace.v(t, 0, 0), norse[t], 1e-4) << t;
  EXPECT_EQ(trace.spikes(5, 0, 0), 1);
  EXPECT_GT(trace.u(5, 0, 0), 1);
}

/// A neuron whose potential before its reset is u[t] without input from the past: β = 0.5, weight 1.
struct OneNeuron {
  explicit OneNeuron(Neuron neuron) { layer.neuron = neuron; }

  SpikingGradients gradients_of_last_u(const std::vector<double>& inputs, SpikingSettings settings = {}) {
    in = Sequence(static_cast<uint32_t>(inputs.size()), 1, 1);
    in.values = inputs;
    trace = run_layer(layer, values, settings, in);
    SpikingUpstream upstream;
    upstream.before = Sequence(in.steps, 1, 1);
    upstream.before(in.steps - 1, 0, 0) = 1;
    return differentiate_layer(layer, values, settings, in, trace, upstream);
  }

  SpikingLayer layer{.inputs = 1, .neurons = 1};
  SpikingValues values{{1}, {}, {0.5}, {0}, {1}};
  Sequence in;
  SpikingTrace trace;
};

TEST(SpikingReference, LetsGradientsThroughResetsAsTheyAsk) {
  const auto first = [](ResetGradient how, Reset reset) {
    Neuron neuron{.reset = reset, .reset_gradient = how, .surrogate = {SurrogateFamily::superspike, 10}};
    return OneNeuron(neuron).gradients_of_last_u({1.25, 0.5}).in(0, 0, 0);
  };
  // σ'(0.25) = 1 / 3.5².
  const double surrogate = 1 / 12.25;
  EXPECT_NEAR(first(ResetGradient::detached, Reset::zero), 0.5, 1e-12);
  EXPECT_NEAR(first(ResetGradient::gated, Reset::zero), 0, 1e-12);
  EXPECT_NEAR(first(ResetGradient::attached, Reset::zero), -0.5 * 1.25 * surrogate, 1e-12);
  EXPECT_NEAR(first(ResetGradient::gated, Reset::subtract), 0.5, 1e-12);
  EXPECT_NEAR(first(ResetGradient::attached, Reset::subtract), 0.5 - 0.5 * surrogate, 1e-12);
  EXPECT_NEAR(first(ResetGradient::attached, Reset::late_subtract), 0.5 - surrogate, 1e-12);
  EXPECT_NEAR(first(ResetGradient::gated, Reset::late_zero), 0, 1e-12);
}

TEST(SpikingReference, ResetsNowOrInTheNextStep) {
  const auto potentials = [](Reset reset) {
    OneNeuron neuron(Neuron{.reset = reset});
    neuron.gradients_of_last_u({2, 0.25, 0.5});
    return neuron.trace.u.values;
  };
  EXPECT_EQ(potentials(Reset::none), (std::vector<double>{2, 1.25, 1.125}));
  EXPECT_EQ(potentials(Reset::zero), (std::vector<double>{2, 0.25, 0.625}));
  EXPECT_EQ(potentials(Reset::subtract), (std::vector<double>{2, 0.75, 0.875}));
  EXPECT_EQ(potentials(Reset::late_zero), (std::vector<double>{2, 0, 0.5}));
  EXPECT_EQ(potentials(Reset::late_subtract), (std::vector<double>{2, 0.25, 0.625}));
}

TEST(SpikingReference, ComparesWithTheThresholdAsAsked) {
  for (const bool at : {false, true}) {
    OneNeuron neuron(Neuron{.fires_at_threshold = at});
    neuron.gradients_of_last_u({1});
    EXPECT_EQ(neuron.trace.spikes(0, 0, 0), at ? 1 : 0);
  }
}

TEST(SpikingReference, MasksSurrogates) {
  const auto passes = [](GradientMask mask, double u) {
    OneNeuron neuron(Neuron{.mask = mask});
    neuron.in = Sequence(1, 1, 1, u);
    const SpikingSettings settings{.gradient_threshold = 0.75};
    neuron.trace = run_layer(neuron.layer, neuron.values, settings, neuron.in);
    SpikingUpstream upstream;
    upstream.spikes = Sequence(1, 1, 1, 1);
    return differentiate_layer(neuron.layer, neuron.values, settings, neuron.in, neuron.trace, upstream)
               .in(0, 0, 0) != 0;
  };
  EXPECT_TRUE(passes(GradientMask::above, 0.8));
  EXPECT_FALSE(passes(GradientMask::above, 0.75));
  EXPECT_TRUE(passes(GradientMask::above, 5));
  EXPECT_TRUE(passes(GradientMask::window, 0.8));
  EXPECT_TRUE(passes(GradientMask::window, 1.2));
  EXPECT_FALSE(passes(GradientMask::window, 1.25));
  EXPECT_FALSE(passes(GradientMask::window, 0.75));
}

TEST(SpikingReference, LeavesOutWhatIsNotKept) {
  SpikingLayer layer{.inputs = 1, .neurons = 1, .recurrent = true};
  const SpikingValues values{{1}, {3}, {0.5}, {0}, {1}};
  const Sequence in(2, 1, 1, 1.5), kept(2, 1, 1, 0);
  const SpikingTrace trace = run_layer(layer, values, {}, in, kept);
  EXPECT_EQ(trace.spikes.values, (std::vector<double>{1, 1}));
  EXPECT_EQ(trace.emitted.values, (std::vector<double>{0, 0}));
  EXPECT_EQ(trace.u.values, (std::vector<double>{1.5, 1.5}));  // reset by the first spike, no recurrent input
  SpikingUpstream upstream;
  upstream.spikes = Sequence(2, 1, 1, 1);
  EXPECT_EQ(differentiate_layer(layer, values, {}, in, trace, upstream, kept).in.values,
            (std::vector<double>{0, 0}));
}

TEST(SpikingReference, HasTheSurrogatesOfTheLiterature) {
  const auto at = [](SurrogateFamily family, float slope, double x) {
    return surrogate_derivative({family, slope}, x);
  };
  EXPECT_NEAR(at(SurrogateFamily::superspike, 10, -0.1), 0.25, 1e-12);
  EXPECT_NEAR(at(SurrogateFamily::fast_sigmoid, 25, 0.04), 0.25, 1e-12);
  EXPECT_NEAR(at(SurrogateFamily::arctan, 2, 0), 1, 1e-12);
  EXPECT_NEAR(at(SurrogateFamily::arctan, 2, 1 / M_PI), 0.5, 1e-12);
  EXPECT_NEAR(at(SurrogateFamily::triangle, 2, 0.25), 0.5, 1e-12);
  EXPECT_NEAR(at(SurrogateFamily::sigmoid, 4, 0), 1, 1e-12);
  EXPECT_NEAR(at(SurrogateFamily::boxcar, 2, 0.24), 2, 1e-12);
  EXPECT_NEAR(at(SurrogateFamily::boxcar, 2, 0.26), 0, 1e-12);
  EXPECT_NEAR(surrogate_derivative({SurrogateFamily::sigmoid, 4, 0.3F}, 0), 0.3, 1e-7);
}

}  // namespace
}  // namespace tessera::ops
