// Neurons that take currents, and their gradients, compared with dense backpropagation through time in
// float64.
#include <gtest/gtest.h>
#include <tessera/spiking.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/spiking/definition.h"
#include "support/error_of.h"
#include "support/numbers.h"
#include "support/resets.h"

namespace tessera {
namespace {

using ops::Sequence;
using test::expect_close;
using test::random_floats;

struct Setting {
  std::string name;
  Neuron neuron;
  Recurrence recurrence = Recurrence::none;
  uint32_t neurons = 37;
  uint32_t steps = 20;
  uint32_t batch = 7;
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

std::vector<Setting> settings() {
  using enum Reset;
  std::vector<Setting> all;
  const std::pair<const char*, Recurrence> recurrences[] = {{"", Recurrence::none},
                                                            {"_one_to_one", Recurrence::one_to_one},
                                                            {"_all_to_all", Recurrence::all_to_all}};
  for (const auto& [reset_name, reset] : test::kResets)
    for (const auto& [gradient_name, gradient] : test::kResetGradients)
      for (const auto& [recurrence_name, recurrence] : recurrences)
        for (const bool synaptic : {false, true}) {
          if (reset == late_zero && gradient == ResetGradient::attached) continue;
          const Neuron neuron{.synaptic = synaptic,
                              .reset = reset,
                              .reset_gradient = gradient,
                              .surrogate = {SurrogateFamily::arctan, 2},
                              .gain = synaptic ? 0.5F : 1};
          all.push_back({std::string(reset_name) + "_" + gradient_name + recurrence_name +
                             (synaptic ? "_synaptic" : ""),
                         neuron, recurrence});
        }
  all.push_back({"readout", {.spikes = false}});
  all.push_back({"synaptic_readout", {.spikes = false, .synaptic = true, .gain = 0.3F}});
  const Neuron lif{.reset = late_subtract, .reset_gradient = ResetGradient::gated};
  all.push_back({"many_samples", lif, Recurrence::none, 5, 6, 1700});
  all.push_back({"many_neurons", lif, Recurrence::none, 9001, 4, 2});
  all.push_back({"many_recurrent", lif, Recurrence::all_to_all, 150, 9, 37});
  all.push_back({"one", lif, Recurrence::all_to_all, 1, 5, 1});
  return all;
}

/// Neurons with random arrays, and an equal layer whose weights pass each current on.
struct Case {
  explicit Case(const Setting& of)
      : s(of),
        wide(of.batch * of.neurons),
        layer{.inputs = of.neurons,
              .neurons = of.neurons,
              .neuron = of.neuron,
              .recurrent = of.recurrence != Recurrence::none,
              .decay_per_neuron = true,
              .current_decay_per_neuron = true,
              .threshold_per_neuron = true},
        currents(random_floats(uint64_t{of.steps} * wide, 0, -0.4F, 0.9F)),
        dynamics(random_floats(3 * uint64_t{of.neurons}, 1, 0.6F, 0.95F)) {
    const uint32_t n = of.neurons;
    if (of.recurrence != Recurrence::none)
      recurrent = random_floats(of.recurrence == Recurrence::all_to_all ? n * n : n, 2, -0.4F, 0.3F);
    exact.weight.assign(uint64_t{n} * n, 0);
    for (uint32_t i = 0; i < n; ++i) exact.weight[uint64_t{i} * n + i] = 1;
    exact.recurrent.assign(layer.recurrent ? uint64_t{n} * n : 0, 0);
    if (of.recurrence == Recurrence::all_to_all) exact.recurrent.assign(recurrent.begin(), recurrent.end());
    if (of.recurrence == Recurrence::one_to_one)
      for (uint32_t i = 0; i < n; ++i) exact.recurrent[uint64_t{i} * n + i] = recurrent[i];
    exact.decay.assign(dynamics.begin(), dynamics.begin() + n);
    exact.current_decay.assign(dynamics.begin() + n, dynamics.begin() + 2 * n);
    exact.threshold.assign(dynamics.begin() + 2 * n, dynamics.end());
    in = Sequence(of.steps, of.batch, n);
    in.values.assign(currents.begin(), currents.end());
  }

  SpikingNeurons made(bool after_reset = false) const {
    return {s.neuron,
            s.neurons,
            s.steps,
            s.batch,
            {.recurrence = s.recurrence, .after_reset = after_reset, .threads = 2}};
  }
  SpikingNeurons::Inputs inputs() const {
    return {currents.data(), dynamics.data(), recurrent.empty() ? nullptr : recurrent.data(), nullptr};
  }
  std::vector<float> room() const { return std::vector<float>(currents.size(), NAN); }

  Setting s;
  uint32_t wide;
  SpikingLayer layer;
  std::vector<float> currents, dynamics, recurrent;
  ops::SpikingValues exact;
  Sequence in;
};

Sequence sequence_of(const Setting& s, const std::vector<float>& values) {
  Sequence sequence(s.steps, s.batch, s.neurons);
  sequence.values.assign(values.begin(), values.end());
  return sequence;
}

std::vector<Setting> settings_where(bool (*holds)(const Setting&)) {
  std::vector<Setting> all = settings();
  std::erase_if(all, [&](const Setting& setting) { return !holds(setting); });
  return all;
}

// The reference has a matrix of weights.
class SpikingNeuronsTest : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Spiking, SpikingNeuronsTest,
                         testing::ValuesIn(settings_where([](const Setting& s) { return s.neurons < 1000; })),
                         [](const auto& setting) { return setting.param.name; });

// Spikes of the step before are not among the states.
class PiecesTest : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Spiking, PiecesTest, testing::ValuesIn(settings_where([](const Setting& s) {
                           return s.recurrence == Recurrence::none;
                         })),
                         [](const auto& setting) { return setting.param.name; });

TEST_P(SpikingNeuronsTest, AgreeWithDenseBackpropagation) {
  const Case c(GetParam());
  const Setting& s = c.s;
  const bool spikes = s.neuron.spikes, synaptic = s.neuron.synaptic;
  const ops::SpikingTrace trace = ops::run_layer(c.layer, c.exact, {}, c.in);
  std::vector<float> spiked = c.room(), currents = c.room(), potentials = c.room(), membranes = c.room();
  const SpikingNeurons neurons = c.made();
  neurons.forward(c.inputs(), {spikes ? spiked.data() : nullptr, synaptic ? currents.data() : nullptr,
                               potentials.data(), membranes.data()});
  if (spikes) {
    expect_close(spiked, trace.spikes.values, 0, "spikes");
    EXPECT_GT(std::count(spiked.begin(), spiked.end(), 1.0F), 0);
  }
  if (synaptic) expect_close(currents, trace.current.values, 1e-5, "currents");
  expect_close(potentials, trace.u.values, 1e-5, "potentials");
  expect_close(membranes, trace.v.values, 1e-5, "membranes");

  const auto up = [&](uint32_t stream) { return random_floats(c.currents.size(), stream, -1, 1); };
  const std::vector<float> of_spikes = up(10), of_potentials = up(11), of_membranes = up(12);
  const ops::SpikingGradients exact =
      ops::differentiate_layer(c.layer, c.exact, {}, c.in, trace,
                               {spikes ? sequence_of(s, of_spikes) : Sequence(),
                                sequence_of(s, of_potentials), sequence_of(s, of_membranes)});
  std::vector<float> din = c.room(), dynamics(c.dynamics.size(), NAN), recurrent(c.recurrent.size(), NAN);
  neurons.gradients(c.inputs(),
                    {potentials.data(), synaptic ? currents.data() : nullptr,
                     spikes ? of_spikes.data() : nullptr, nullptr, of_potentials.data(), of_membranes.data()},
                    {din.data(), dynamics.data(), recurrent.empty() ? nullptr : recurrent.data(), nullptr});
  expect_close(din, exact.in.values, 1e-4, "gradient of currents");
  const uint32_t n = s.neurons;
  const auto part = [&](uint32_t row) {
    return std::vector<float>(dynamics.begin() + row * n, dynamics.begin() + (row + 1) * n);
  };
  expect_close(part(0), exact.values.decay, 1e-4, "gradient of decays");
  if (synaptic) expect_close(part(1), exact.values.current_decay, 1e-4, "gradient of decays of currents");
  if (spikes) expect_close(part(2), exact.values.threshold, 1e-4, "gradient of thresholds");
  std::vector<double> of_recurrent = exact.values.recurrent;
  if (s.recurrence == Recurrence::one_to_one) {
    of_recurrent.clear();
    for (uint32_t i = 0; i < n; ++i) of_recurrent.push_back(exact.values.recurrent[uint64_t{i} * n + i]);
  }
  expect_close(recurrent, of_recurrent, 1e-4, "gradient of recurrent weights");
}

// A sequence in two pieces: the second begins with the final states of the first.
TEST_P(PiecesTest, ContinueFromStates) {
  const Case c(GetParam());
  const Setting& s = c.s;
  const bool spikes = s.neuron.spikes, synaptic = s.neuron.synaptic;
  for (const bool after_reset : {false, true}) {
    const bool is_late = s.neuron.reset == Reset::late_zero || s.neuron.reset == Reset::late_subtract;
    if (is_late && after_reset) continue;
    const uint32_t first = s.steps / 2, rest = s.steps - first;
    const SpikingNeuronsOptions options{.after_reset = after_reset, .threads = 2};
    const SpikingNeurons whole(s.neuron, s.neurons, s.steps, s.batch, options);
    const SpikingNeurons head(s.neuron, s.neurons, first, s.batch, options);
    const SpikingNeurons tail(s.neuron, s.neurons, rest, s.batch, options);
    const size_t cut = size_t{first} * c.wide;
    struct Run {
      std::vector<float> spikes, currents, states;
    };
    const auto run = [&](const SpikingNeurons& neurons, const float* in, const float* initial, size_t count) {
      Run r{std::vector<float>(count), std::vector<float>(count), std::vector<float>(count)};
      neurons.forward({in, c.dynamics.data(), nullptr, initial},
                      {spikes ? r.spikes.data() : nullptr, synaptic ? r.currents.data() : nullptr,
                       after_reset ? nullptr : r.states.data(), after_reset ? r.states.data() : nullptr});
      return r;
    };
    const Run all = run(whole, c.currents.data(), nullptr, c.currents.size());
    const Run begin = run(head, c.currents.data(), nullptr, cut);
    std::vector<float> initial(begin.states.end() - c.wide, begin.states.end());
    initial.insert(initial.end(), begin.currents.end() - c.wide, begin.currents.end());
    const Run end = run(tail, c.currents.data() + cut, initial.data(), c.currents.size() - cut);
    EXPECT_TRUE(std::equal(end.spikes.begin(), end.spikes.end(), all.spikes.begin() + cut));
    EXPECT_TRUE(std::equal(end.states.begin(), end.states.end(), all.states.begin() + cut));

    // Gradients of states pass from the second piece to the first.
    if (s.neuron.reset_gradient == ResetGradient::attached) continue;
    const auto up = random_floats(c.currents.size(), 10, -1, 1);
    const std::vector<float> nothing(2 * size_t{c.wide}, 0);
    struct Gradients {
      std::vector<float> in, dynamics, initial;
    };
    const auto back = [&](const SpikingNeurons& neurons, const Run& r, const float* from,
                          const float* upstream, const float* of_currents) {
      Gradients g{std::vector<float>(r.states.size()), std::vector<float>(c.dynamics.size()),
                  std::vector<float>(2 * size_t{c.wide})};
      std::vector<float> potentials = r.states;
      if (after_reset)
        neurons.forward(
            {from == nullptr ? c.currents.data() : c.currents.data() + cut, c.dynamics.data(), nullptr, from},
            {nullptr, nullptr, potentials.data(), nullptr});
      neurons.gradients({nullptr, c.dynamics.data(), nullptr, from == nullptr ? nothing.data() : from},
                        {potentials.data(), synaptic ? r.currents.data() : nullptr, nullptr, of_currents,
                         after_reset ? nullptr : upstream, after_reset ? upstream : nullptr},
                        {g.in.data(), g.dynamics.data(), nullptr, g.initial.data()});
      return g;
    };
    const Gradients of_all = back(whole, all, nullptr, up.data(), nullptr);
    const Gradients of_end = back(tail, end, initial.data(), up.data() + cut, nullptr);
    std::vector<float> of_states(up.begin(), up.begin() + cut), of_currents(cut);
    for (size_t i = 0; i < c.wide; ++i) {
      of_states[cut - c.wide + i] += of_end.initial[i];
      of_currents[cut - c.wide + i] = of_end.initial[c.wide + i];
    }
    const Gradients of_begin =
        back(head, begin, nullptr, of_states.data(), synaptic ? of_currents.data() : nullptr);
    for (size_t i = 0; i < c.currents.size(); ++i)
      ASSERT_NEAR(i < cut ? of_begin.in[i] : of_end.in[i - cut], of_all.in[i], 1e-4) << i;
    for (size_t i = 0; i < c.dynamics.size(); ++i)
      ASSERT_NEAR(of_begin.dynamics[i] + of_end.dynamics[i], of_all.dynamics[i],
                  1e-4 * (1 + std::abs(of_all.dynamics[i])))
          << i;
  }
}

TEST(SpikingNeurons, HaveTheSameBitsOnOneThread) {
  const Case c({"", {.reset = Reset::late_subtract}, Recurrence::all_to_all, 70, 12, 33});
  std::vector<float> one = c.room(), two = c.room();
  c.made().forward(c.inputs(), {nullptr, nullptr, one.data(), nullptr});
  SpikingNeurons(c.s.neuron, 70, 12, 33, {.recurrence = Recurrence::all_to_all, .threads = 1})
      .forward(c.inputs(), {nullptr, nullptr, two.data(), nullptr});
  EXPECT_EQ(one, two);
}

TEST(SpikingNeurons, RefuseWhatIsImpossible) {
  const auto made = [](const Neuron& neuron, uint32_t neurons, uint32_t steps, uint32_t batch) {
    return test::error_of([&] { SpikingNeurons(neuron, neurons, steps, batch); });
  };
  EXPECT_TRUE(test::says(made({}, 0, 1, 1), "needs at least one of each"));
  EXPECT_TRUE(test::says(made({}, 3, 0, 1), "there must be a step and a sample"));
  EXPECT_TRUE(test::says(made({.adaptive = true}, 3, 2, 1), "no adaptive threshold"));
  EXPECT_TRUE(test::says(made({.surrogate = {SurrogateFamily::arctan, 0}}, 3, 2, 1), "slope"));

  const Case c({"", {}, Recurrence::all_to_all});
  const SpikingNeurons neurons = c.made();
  std::vector<float> result = c.room();
  SpikingNeurons::Inputs in = c.inputs();
  in.recurrent = nullptr;
  EXPECT_ERROR("need their weights", neurons.forward(in, {result.data()}));
  in.currents = nullptr;
  EXPECT_ERROR("currents is null", neurons.forward(in, {result.data()}));
  EXPECT_ERROR("need their potentials", neurons.gradients(c.inputs(), {}, {result.data()}));
  EXPECT_ERROR("without a synaptic current", neurons.forward(c.inputs(), {nullptr, result.data()}));
}

}  // namespace
}  // namespace tessera
