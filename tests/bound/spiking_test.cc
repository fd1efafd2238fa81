// Spiking networks and their gradients, compared with dense backpropagation through time in float64.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/spiking.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/random.h"
#include "ops/spiking/definition.h"
#include "support/error_of.h"
#include "support/numbers.h"
#include "support/resets.h"

namespace tessera {
namespace {

using ops::Sequence;
using test::expect_close;
using test::random_floats;

constexpr uint64_t kSeed = 21;
constexpr float kBar = 0.5F;  // ϑ_grad

/// Lists of inputs, and their contents.
struct Inputs {
  Inputs(uint32_t step_count, uint32_t samples, uint32_t features, double activity)
      : steps(step_count), batch(samples), inputs(features), dense(steps, batch, features) {
    const base::RandomStream random(kSeed, 0, 77);
    uint64_t number = 0;
    num.resize(uint64_t{steps} * batch * 2);
    ids.resize(uint64_t{steps} * batch * inputs);
    for (uint64_t row = 0; row < uint64_t{steps} * batch; ++row) {
      std::vector<uint16_t> fired, others;
      for (uint32_t f = 0; f < inputs; ++f) {
        const double x = random.uniform(number++);
        if (x < activity) fired.push_back(static_cast<uint16_t>(f));
        if (x >= activity && x < 1.5 * activity) others.push_back(static_cast<uint16_t>(f));
      }
      for (const uint16_t f : fired) dense.values[row * inputs + f] = 1;
      num[2 * row] = static_cast<uint32_t>(fired.size());
      num[2 * row + 1] = static_cast<uint32_t>(fired.size() + others.size());
      fired.insert(fired.end(), others.begin(), others.end());
      std::copy(fired.begin(), fired.end(), ids.begin() + static_cast<std::ptrdiff_t>(row * inputs));
    }
  }

  SpikeLists lists() const { return {ids.data(), num.data(), inputs}; }

  uint32_t steps, batch, inputs;
  Sequence dense;
  std::vector<uint16_t> ids;
  std::vector<uint32_t> num;
};

/// The entries of lists for each neuron.
struct Listing {
  Listing(const SpikeLists& lists, uint32_t steps, uint32_t batch, uint32_t neurons)
      : spikes(steps, batch, neurons), listed(steps, batch, neurons) {
    for (uint64_t row = 0; row < uint64_t{steps} * batch; ++row)
      for (uint32_t i = 0; i < lists.num[2 * row + 1]; ++i) {
        const uint64_t at = row * neurons + lists.ids[row * lists.capacity + i];
        listed.values[at] = 1;
        if (i < lists.num[2 * row]) spikes.values[at] = 1;
      }
  }
  Sequence spikes, listed;
};

struct Setting {
  std::string name;
  std::vector<SpikingLayer> layers;
  uint32_t steps = 20;
  uint32_t batch = 9;
  uint32_t capacity = 0;  // of hidden layers
  float bar = kBar;
  bool learns = false;
  uint32_t threads = 2;
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

SpikingLayer readout(uint32_t inputs, uint32_t neurons) {
  return {.inputs = inputs, .neurons = neurons, .neuron = {.spikes = false}};
}

Setting hidden(const std::string& name, const Neuron& neuron, bool recurrent = false) {
  SpikingLayer layer{.inputs = 40, .neurons = 70, .neuron = neuron, .recurrent = recurrent};
  return {.name = name, .layers = {layer, readout(70, 11)}};
}

std::vector<Setting> settings() {
  using enum Reset;
  std::vector<Setting> all;
  for (const auto& [reset_name, reset] : test::kResets)
    for (const auto& [gradient_name, gradient] : test::kResetGradients) {
      if (reset == late_zero && gradient == ResetGradient::attached) continue;
      const std::string name = std::string(reset_name) + "_" + gradient_name;
      Neuron neuron{.reset = reset, .reset_gradient = gradient};
      all.push_back(hidden(name, neuron));
      all.push_back(hidden(name + "_recurrent", neuron, true));
      all.push_back(hidden(name + "_learns", neuron));
      all.back().learns = true;
      neuron.synaptic = neuron.adaptive = true;
      neuron.gain = 0.7F;
      neuron.adaptation_decay = 0.9F;
      neuron.adaptation_strength = 0.3F;
      all.push_back(hidden(name + "_everything_recurrent_learns", neuron, true));
      all.back().learns = true;
      for (SpikingLayer& layer : all.back().layers)
        layer.decay_per_neuron = layer.current_decay_per_neuron = layer.threshold_per_neuron = true;
    }
  const std::pair<const char*, SurrogateFamily> families[] = {{"fast_sigmoid", SurrogateFamily::fast_sigmoid},
                                                              {"arctan", SurrogateFamily::arctan},
                                                              {"triangle", SurrogateFamily::triangle},
                                                              {"sigmoid", SurrogateFamily::sigmoid},
                                                              {"boxcar", SurrogateFamily::boxcar}};
  for (const auto& [name, family] : families) {
    all.push_back(hidden(name, {.surrogate = {family, 2, 0.7F}}));
    all.push_back(
        hidden(std::string(name) + "_window", {.surrogate = {family, 2}, .mask = GradientMask::window}));
  }
  all.push_back(hidden("all_listed", {}));
  all.back().bar = -INFINITY;
  all.push_back(hidden("few_listed", {}));
  all.back().capacity = 6;
  all.push_back(hidden("few_listed_recurrent", {.reset_gradient = ResetGradient::gated}, true));
  all.back().capacity = 6;
  all.push_back(hidden("bar_above_threshold", {}));
  all.back().bar = 1.2F;
  all.push_back(hidden("fires_at_threshold", {.fires_at_threshold = true}));
  Setting deep = hidden("deep", {});
  deep.layers = {{.inputs = 30, .neurons = 130}, {.inputs = 130, .neurons = 64, .delay = 1}, readout(64, 5)};
  deep.layers[2].delay = 2;
  all.push_back(deep);
  Setting longer = hidden("long", {});
  longer.steps = 300;
  longer.batch = 3;
  all.push_back(longer);
  Setting last{.name = "spikes_last",
               .layers = {{.inputs = 25, .neurons = 33}, {.inputs = 33, .neurons = 10}}};
  all.push_back(last);
  Setting leaky{
      .name = "learned_readout", .layers = {{.inputs = 25, .neurons = 33}, readout(33, 20)}, .learns = true};
  leaky.layers[1].neuron.synaptic = true;
  leaky.layers[1].neuron.gain = 0.5F;
  all.push_back(leaky);
  Setting alone = hidden("one_sample", {});
  alone.batch = 1;
  all.push_back(alone);
  return all;
}

/// A network with random parameters, in both precisions.
struct Case {
  explicit Case(const Setting& of)
      : setting(of),
        in(of.steps, of.batch, of.layers[0].inputs, 0.1),
        network(of.layers, of.steps, of.batch, options_of(of)) {
    uint32_t stream = 0;
    for (const SpikingLayer& layer : of.layers) {
      ops::SpikingValues exact;
      for (const SpikingParameter& parameter : parameters_of(layer)) {
        const bool weight = parameter.name == "weight" || parameter.name == "recurrent";
        const float range = 4.0F / std::sqrt(static_cast<float>(parameter.rows));
        const float scale = parameter.name == "recurrent" ? 0.3F : 1.0F;
        values.push_back(
            weight ? random_floats(parameter.elements(), stream++, -scale * range / 2, scale * range)
            : parameter.name == "threshold" ? random_floats(parameter.elements(), stream++, 0.9F, 1.1F)
                                            : random_floats(parameter.elements(), stream++, 0.7F, 0.95F));
        const std::vector<double> doubles(values.back().begin(), values.back().end());
        (parameter.name == "weight"          ? exact.weight
         : parameter.name == "recurrent"     ? exact.recurrent
         : parameter.name == "decay"         ? exact.decay
         : parameter.name == "current_decay" ? exact.current_decay
                                             : exact.threshold) = doubles;
      }
      if (exact.current_decay.empty()) exact.current_decay = {0};
      if (exact.threshold.empty()) exact.threshold = {0};
      exact_values.push_back(exact);
    }
    for (const auto& value : values) pointers.push_back(value.data());
  }

  static SpikingNetworkOptions options_of(const Setting& s) {
    SpikingNetworkOptions options{.learns_dynamics = s.learns, .input_gradient = true, .threads = s.threads};
    for (const SpikingLayer& layer : s.layers)
      options.capacities.push_back(layer.neuron.spikes ? s.capacity : 0);
    return options;
  }

  void forward() {
    network.forward(in.lists(), pointers, {.gradient_threshold = setting.bar, .seed = 5, .step = 3});
  }

  Setting setting;
  Inputs in;
  SpikingNetwork network;
  std::vector<std::vector<float>> values;
  std::vector<const float*> pointers;
  std::vector<ops::SpikingValues> exact_values;
};

/// The number of neurons that pass ϑ_grad or fire in the exact trace.
uint64_t expected_listed(const SpikingLayer& layer, const ops::SpikingValues& values, double bar,
                         const ops::SpikingTrace& trace) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < trace.distance.values.size(); ++i) {
    const uint64_t n = i % layer.neurons;
    const double threshold = values.threshold[values.threshold.size() == 1 ? 0 : n];
    const double x = trace.distance.values[i], margin = threshold - bar;
    const bool passes = layer.neuron.mask == GradientMask::above ? x > -margin : std::abs(x) < margin;
    count += passes || trace.spikes.values[i] > 0 ? 1 : 0;
  }
  return count;
}

class SpikingNetworkTest : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Spiking, SpikingNetworkTest, testing::ValuesIn(settings()),
                         [](const auto& setting) { return setting.param.name; });

TEST_P(SpikingNetworkTest, HasAStateOfTheSizeThatIsSaid) {
  const Setting& s = GetParam();
  const SpikingNetworkOptions options = Case::options_of(s);
  const SpikingStateSize size = spiking_state_size(s.layers, options);
  const uint64_t said = s.batch * (s.steps * size.per_step_and_sample + size.per_sample) + size.fixed;
  const uint64_t bytes = SpikingNetwork(s.layers, s.steps, s.batch, options).state_bytes();
  EXPECT_LE(bytes, said);
  EXPECT_GE(bytes + size.fixed, said);
}

TEST_P(SpikingNetworkTest, AgreesWithDenseBackpropagation) {
  const Setting& s = GetParam();
  Case c(s);
  c.forward();
  const ops::SpikingSettings exact{.gradient_threshold = s.bar};

  // Forward: each layer from the lists that it got.
  std::vector<Sequence> inputs = {c.in.dense}, kept;
  std::vector<ops::SpikingTrace> traces;
  for (size_t i = 0; i < s.layers.size(); ++i) {
    const SpikingLayer& layer = s.layers[i];
    if (!layer.neuron.spikes) {
      kept.emplace_back();
      traces.push_back(ops::run_layer(layer, c.exact_values[i], exact, inputs[i]));
      expect_close(c.network.potentials(i), traces[i].u.values, 1e-5, "potentials");
      continue;
    }
    const Listing listing(c.network.spikes(i), s.steps, s.batch, layer.neurons);
    kept.push_back(listing.listed);
    traces.push_back(ops::run_layer(layer, c.exact_values[i], exact, inputs[i], kept[i]));
    ASSERT_EQ(listing.spikes.values, traces[i].emitted.values) << "layer " << i;
    const SpikingCounts counts = c.network.counts(i);
    EXPECT_EQ(counts.spikes + counts.candidates + counts.dropped_spikes + counts.dropped_candidates,
              expected_listed(layer, c.exact_values[i], s.bar, traces[i]));
    EXPECT_GT(counts.spikes, 0u);
    if (s.capacity == 0)
      EXPECT_EQ(counts.dropped_spikes + counts.dropped_candidates, 0u);
    else
      EXPECT_GT(counts.dropped_spikes, 0u);
    inputs.push_back(listing.spikes);
  }

  // Backward.
  const SpikingLayer& last = s.layers.back();
  const uint64_t places = uint64_t{s.steps} * s.batch * last.neurons;
  const std::vector<float> upstream = random_floats(places, 99, -1, 1);
  ops::SpikingUpstream dense;
  Sequence& of_last = last.neuron.spikes ? dense.spikes : dense.before;
  of_last = Sequence(s.steps, s.batch, last.neurons);
  if (last.neuron.spikes) {
    const SpikeLists lists = c.network.spikes(s.layers.size() - 1);
    for (uint64_t row = 0; row < uint64_t{s.steps} * s.batch; ++row)
      for (uint32_t i = 0; i < lists.num[2 * row + 1]; ++i)
        of_last.values[row * last.neurons + lists.ids[row * lists.capacity + i]] =
            upstream[row * lists.capacity + i];
  } else {
    of_last.values.assign(upstream.begin(), upstream.end());
  }
  std::vector<std::vector<float>> gradients;
  std::vector<std::vector<double>> expected;
  for (size_t i = s.layers.size(); i-- > 0;) {
    const ops::SpikingGradients exact_gradients =
        ops::differentiate_layer(s.layers[i], c.exact_values[i], exact, inputs[i], traces[i], dense, kept[i]);
    const ops::SpikingValues& v = exact_gradients.values;
    std::vector<std::vector<double>> of_layer = {v.weight};
    if (s.layers[i].recurrent) of_layer.push_back(v.recurrent);
    if (s.learns) {
      of_layer.push_back(v.decay);
      if (s.layers[i].neuron.synaptic) of_layer.push_back(v.current_decay);
      if (s.layers[i].neuron.spikes) of_layer.push_back(v.threshold);
    }
    expected.insert(expected.begin(), of_layer.begin(), of_layer.end());
    dense = {exact_gradients.in, {}, {}};
  }
  for (const auto& gradient : expected) gradients.emplace_back(gradient.size(), NAN);
  std::vector<float*> pointers;
  for (auto& gradient : gradients) pointers.push_back(gradient.data());
  std::vector<float> din(c.in.ids.size(), NAN);
  c.network.gradients(c.in.lists(), c.pointers, upstream.data(), pointers, din.data());
  for (size_t i = 0; i < expected.size(); ++i)
    expect_close(gradients[i], expected[i], 1e-4, "gradient of parameter " + std::to_string(i));
  std::vector<float> listed;
  std::vector<double> expected_din;
  for (uint64_t row = 0; row < uint64_t{s.steps} * s.batch; ++row)
    for (uint32_t i = 0; i < c.in.num[2 * row + 1]; ++i) {
      listed.push_back(din[row * c.in.inputs + i]);
      expected_din.push_back(dense.spikes.values[row * c.in.inputs + c.in.ids[row * c.in.inputs + i]]);
    }
  expect_close(listed, expected_din, 1e-4, "gradient of inputs");
}

TEST(SpikingNetworks, DropsByChanceThatSeedAndStepDecide) {
  Setting setting = hidden("", {});
  setting.capacity = 5;
  Case c(setting);
  const auto lists_of = [&](uint64_t seed, uint32_t step, uint32_t most) {
    c.network.forward(c.in.lists(), c.pointers,
                      {.gradient_threshold = kBar, .most_listed = most, .seed = seed, .step = step});
    const Listing listing(c.network.spikes(0), c.in.steps, c.in.batch, 70);
    return listing.listed.values;
  };
  const auto first = lists_of(1, 0, 5);
  EXPECT_EQ(lists_of(1, 0, 5), first);
  EXPECT_NE(lists_of(2, 0, 5), first);
  EXPECT_NE(lists_of(1, 1, 5), first);
  const auto fewer = lists_of(1, 0, 2);
  double most = 0;
  for (uint64_t row = 0; row < uint64_t{c.in.steps} * c.in.batch; ++row) {
    double listed = 0;
    for (uint32_t n = 0; n < 70; ++n) listed += fewer[row * 70 + n];
    most = std::max(most, listed);
  }
  EXPECT_EQ(most, 2);
}

TEST(SpikingNetworks, DropsEachCandidateWithTheSameChance) {
  // All neurons alike and above ϑ_grad: each should be listed in a quarter of the steps.
  Setting setting{
      .name = "", .layers = {{.inputs = 1, .neurons = 40}}, .steps = 50, .batch = 40, .capacity = 10};
  SpikingNetworkOptions options{.capacities = {10}};
  SpikingNetwork network(setting.layers, setting.steps, setting.batch, options);
  const std::vector<uint16_t> ids(uint64_t{50} * 40);
  std::vector<uint32_t> num(uint64_t{50} * 40 * 2);
  const std::vector<float> weight(40), decay = {0.5F}, threshold = {1};
  const std::vector<const float*> parameters = {weight.data(), decay.data(), threshold.data()};
  network.forward({ids.data(), num.data(), 1}, parameters, {.gradient_threshold = -1, .seed = 3});
  const SpikingCounts counts = network.counts(0);
  EXPECT_EQ(counts.candidates, 50u * 40 * 10);
  EXPECT_EQ(counts.dropped_candidates, 50u * 40 * 30);
  const Listing listing(network.spikes(0), 50, 40, 40);
  for (uint32_t n = 0; n < 40; ++n) {
    double listed = 0;
    for (uint64_t row = 0; row < 2000; ++row) listed += listing.listed.values[row * 40 + n];
    EXPECT_NEAR(listed, 500, 5 * std::sqrt(2000 * 0.25 * 0.75)) << n;
  }
}

TEST(SpikingNetworks, RepeatsItsBits) {
  Setting setting = hidden("", {}, true);
  Case first(setting), second(setting);
  for (Case* c : {&first, &second}) c->forward();
  const auto a = first.network.potentials(1), b = second.network.potentials(1);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0);
}

TEST(SpikingNetworks, KeepsStatesOfTheCallers) {
  Case c(hidden("", {.reset_gradient = ResetGradient::gated}));
  const std::vector<float> upstream = random_floats(uint64_t{20} * 9 * 11, 99, -1, 1);
  const auto gradient = [&](const std::byte* state) {
    std::vector<std::vector<float>> of = {std::vector<float>(40 * 70), std::vector<float>(70 * 11)};
    std::vector<float*> pointers = {of[0].data(), of[1].data()};
    std::vector<float> din(c.in.ids.size());
    c.network.gradients(c.in.lists(), c.pointers, upstream.data(), pointers, din.data(), state);
    return of;
  };
  const SpikingControl wide{.gradient_threshold = -1}, narrow{.gradient_threshold = 0.8F};
  c.network.forward(c.in.lists(), c.pointers, wide);
  const auto expected = gradient(nullptr);

  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> one(c.network.state_bytes() / 64 + 1), other = one;
  c.network.forward(c.in.lists(), c.pointers, wide, one[0].bytes);
  c.network.forward(c.in.lists(), c.pointers, narrow, other[0].bytes);
  EXPECT_EQ(gradient(one[0].bytes), expected);
  EXPECT_NE(gradient(other[0].bytes), expected);
  EXPECT_LT(c.network.counts(0, other[0].bytes).candidates, c.network.counts(0).candidates);
  EXPECT_EQ(test::error_of<UsageError>([&] {
              const float* hidden = upstream.data();
              std::vector<std::vector<float>> of = {std::vector<float>(40 * 70), std::vector<float>(70 * 11)};
              std::vector<float*> pointers = {of[0].data(), of[1].data()};
              std::vector<float> din(c.in.ids.size());
              c.network.gradients(c.in.lists(), c.pointers, upstream.data(), pointers, din.data(), nullptr,
                                  {&hidden, 1});
            }),
            "this network takes gradients of the spikes of 0 hidden layers; given are 1");
}

TEST(SpikingNetworks, KeepsLittleForGradients) {
  // 700-256-20 with 4 % candidates, and lists with capacity for half as many more.
  std::vector<SpikingLayer> layers = {{.inputs = 700, .neurons = 256}, readout(256, 20)};
  const SpikingNetwork network(layers, 100, 256, {.input_capacity = 28, .capacities = {16, 0}});
  const uint64_t dense = uint64_t{100} * 256 * (256 + 700) * 4, events = uint64_t{100} * 256 * (28 * 2 + 8);
  EXPECT_LT(network.stash_bytes() + events, dense / 20);
}

TEST(SpikingNetworks, RejectsWhatCannotBe) {
  const auto error = [](std::vector<SpikingLayer> layers, uint32_t steps = 3, uint32_t batch = 2,
                        SpikingNetworkOptions options = {}) {
    return test::error_of<UsageError>([&] { SpikingNetwork(std::move(layers), steps, batch, options); });
  };
  EXPECT_EQ(error({}), "a spiking network has no layers");
  EXPECT_EQ(error({{.inputs = 3, .neurons = 0}}),
            "a spiking layer has 3 inputs and 0 neurons; it needs at least one of each");
  EXPECT_EQ(error({{.inputs = 3, .neurons = 70000}}),
            "a spiking layer has 3 inputs and 70000 neurons; at most 65536 are possible: split it");
  EXPECT_EQ(error({{.inputs = 3, .neurons = 4}, {.inputs = 5, .neurons = 4}}),
            "layer 1 has 5 inputs, and the layer before 4 neurons");
  EXPECT_EQ(error({readout(3, 4), readout(4, 4)}), "layer 0 has no spikes, so it must be the last");
  EXPECT_EQ(error({{.inputs = 3, .neurons = 4}}, 0),
            "a spiking layer has 0 steps and 2 samples; there must be 1 to 65535 steps, and a sample");
  EXPECT_EQ(error({{.inputs = 3, .neurons = 4}}, 3, 2, {.capacities = {5}}),
            "layer 0 of 4 neurons has lists of 5; they need no more room than for all");
  EXPECT_EQ(error({readout(1, 65536)}, 1, 65537, {.capacities = {1}}),
            "lists of 1 steps, 65537 samples and 65536 neurons are too long: take fewer samples");
  EXPECT_EQ(error({{.inputs = 3,
                    .neurons = 4,
                    .neuron = {.reset = Reset::late_zero, .reset_gradient = ResetGradient::attached}}}),
            "a spiking layer cannot attach the gradient of a late reset to zero: use gated or detached");
  EXPECT_EQ(error({{.inputs = 3, .neurons = 4, .neuron = {.surrogate = {SurrogateFamily::arctan, 0}}}}),
            "a spiking layer has a surrogate of slope 0 and scale 1; the slope must be above 0, both finite");
}

TEST(SpikingNetworks, RejectsListsThatAreNot) {
  SpikingNetwork network({readout(4, 2)}, 1, 1);
  std::vector<uint16_t> ids = {3, 9, 0, 0};
  std::vector<uint32_t> num = {1, 2};
  const std::vector<float> weight(8), decay = {0.9F};
  const std::vector<const float*> parameters = {weight.data(), decay.data()};
  const auto error = [&](const SpikeLists& lists) {
    return test::error_of<UsageError>([&] { network.forward(lists, parameters); });
  };
  EXPECT_EQ(error({ids.data(), num.data(), 4}), "step 0 of sample 0 lists input 9; there are 4");
  EXPECT_EQ(error({ids.data(), num.data(), 3}),
            "lists of inputs have room for 3; this network was made for 4");
  EXPECT_EQ(error({nullptr, num.data(), 4}), "the lists' ids is null; it must be an array");
  num = {3, 2};
  EXPECT_EQ(error({ids.data(), num.data(), 4}),
            "step 0 of sample 0 lists 3 spikes and 2 neurons, with room for 4");
  EXPECT_EQ(test::error_of<UsageError>([&] {
              network.gradients({ids.data(), num.data(), 4}, parameters, weight.data(), {});
            }),
            "gradients follow a forward pass; there was none");
}

}  // namespace
}  // namespace tessera
