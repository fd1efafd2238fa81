// Spiking layers in graphs: gradients and losses against the float64 reference, chains, training.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/graph.h>

#include <cmath>
#include <cstring>

#include "base/random.h"
#include "compare.h"
#include "kernels/common/element.h"
#include "machine/model/machine.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

constexpr uint32_t kSteps = 14, kBatch = 6, kInputs = 30, kCapacity = 9;

/// Lists of about a fifth of the inputs, some of them candidates.
Arrays random_lists(uint64_t seed) {
  Arrays arrays;
  std::vector<float>&ids = arrays["in.ids"], &num = arrays["in.num"];
  const base::RandomStream random(seed);
  for (uint32_t row = 0; row < kSteps * kBatch; ++row) {
    std::vector<float> fired, others;
    for (uint32_t n = 0; n < kInputs && fired.size() + others.size() < kCapacity; ++n) {
      const float x = random.uniform(row * kInputs + n);
      if (x < 0.15F) fired.push_back(static_cast<float>(n));
      if (x >= 0.15F && x < 0.2F) others.push_back(static_cast<float>(n));
    }
    num.push_back(static_cast<float>(fired.size()));
    num.push_back(static_cast<float>(fired.size() + others.size()));
    fired.insert(fired.end(), others.begin(), others.end());
    fired.resize(kCapacity);
    ids.insert(ids.end(), fired.begin(), fired.end());
  }
  return arrays;
}

SpikingLayer leaky(uint32_t inputs, uint32_t neurons) {
  return {.inputs = inputs, .neurons = neurons, .neuron = {.spikes = false}};
}

struct Setting {
  std::string name;
  std::vector<SpikingLayer> layers;
  bool learns = false;
  std::vector<uint32_t> capacities = {};
};
void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

std::vector<Setting> settings() {
  const SpikingLayer hidden{.inputs = kInputs, .neurons = 24};
  SpikingLayer recurrent = hidden;
  recurrent.recurrent = true;
  recurrent.neuron = {.synaptic = true,
                      .adaptive = true,
                      .reset = Reset::subtract,
                      .reset_gradient = ResetGradient::attached,
                      .surrogate = {SurrogateFamily::arctan, 2},
                      .gain = 0.7F,
                      .adaptation_decay = 0.9F,
                      .adaptation_strength = 0.1F};
  recurrent.decay_per_neuron = recurrent.threshold_per_neuron = true;
  SpikingLayer gated = hidden;
  gated.neuron.reset_gradient = ResetGradient::gated;
  return {{"readout", {leaky(kInputs, 5)}, true},
          {"hidden", {hidden, leaky(24, 5)}},
          {"learned", {gated, leaky(24, 5)}, true},
          {"recurrent", {recurrent, leaky(24, 5)}, true},
          {"deep", {hidden, {.inputs = 24, .neurons = 20, .delay = 1}, leaky(20, 5)}},
          {"wide",
           {{.inputs = kInputs, .neurons = 60, .delay = 1},
            {.inputs = 60, .neurons = 41, .delay = 2},
            leaky(41, 5)}},
          {"few_listed", {hidden, leaky(24, 5)}, false, {5, 0}},
          {"spikes_last", {hidden, {.inputs = 24, .neurons = 5}}}};
}

/// A classifier whose loss depends on all results: readout or counts, and the rates of hidden layers.
struct Network {
  explicit Network(const Setting& setting) {
    in = spike_input(graph, "in", kSteps, kBatch, kCapacity);
    parameters = spiking_parameters(graph, "snn", setting.layers, {.weight = 1.5, .decay = 0.9});
    const Value bar = graph.input("bar", Shape{});
    results = spiking(in, setting.layers, parameters,
                      {.capacities = setting.capacities,
                       .learns_dynamics = setting.learns,
                       .gradient_threshold = bar,
                       .step = graph.input("number", Shape{}, Type::u32),
                       .seed = 3});
    const Value labels = graph.input("labels", {kBatch}, Type::u32);
    const Value logits = results.potentials ? readout(*results.potentials, kBatch, Readout::maximum) +
                                                  readout(*results.potentials, kBatch, Readout::mean)
                                            : spike_counts(results.spikes.back(), 5);
    loss = cross_entropy(logits, labels);
    for (size_t l = 0; l + 1 < setting.layers.size(); ++l)
      loss = loss + mean(square(spike_counts(results.spikes[l], setting.layers[l].neurons) * 0.1));
    graph.output("loss", loss);
  }

  static Arrays inputs(uint64_t seed = 5) {
    Arrays arrays = random_lists(seed);
    arrays["bar"] = {0.3F};
    arrays["number"] = {7};
    arrays["labels"] = {0, 1, 2, 3, 4, 0};
    return arrays;
  }

  Graph graph;
  Spikes in;
  std::vector<Value> parameters;
  SpikingResults results;
  Value loss;
};

void expect_near(const Arrays& found, const WideArrays& expected) {
  ASSERT_FALSE(expected.empty());
  for (const auto& [name, values] : expected) EXPECT_GT(test::largest(values), 0) << name;
  graph::expect_near(found, expected, 1e-4);
}

class SpikingGraph : public testing::TestWithParam<Setting> {};
INSTANTIATE_TEST_SUITE_P(Model, SpikingGraph, testing::ValuesIn(settings()),
                         [](const auto& setting) { return setting.param.name; });

TEST_P(SpikingGraph, GradientsAgreeWithDenseBackpropagation) {
  Network n(GetParam());
  const auto found = gradients(n.loss, n.parameters);
  size_t number = 0;
  for (const auto& gradient : found)
    if (gradient) n.graph.output("gradient" + std::to_string(number++), *gradient);
  const size_t weights = GetParam().layers.size() + (GetParam().layers[0].recurrent ? 1 : 0);
  EXPECT_EQ(number, GetParam().learns ? n.parameters.size() : weights);
  const Arrays initial = initial_state(n.graph, 4);
  WideArrays state = widened(initial);
  const WideArrays expected = evaluate(n.graph, widened(Network::inputs()), state);
  for (const char* machine : {"host", "gc200"}) {
    SCOPED_TRACE(machine);
    Session session(n.graph, Machine::find(machine, 2));
    session.set_state(initial);
    const Arrays results = session.run(Network::inputs());
    expect_near(results, expected);
  }
}

TEST_P(SpikingGraph, RepeatsItsBitsOnAnyNumberOfThreads) {
  Network n(GetParam());
  add_training(n.loss, {.optimizer = Adam{}});
  const Arrays initial = initial_state(n.graph, 4);
  for (const char* machine : {"host", "bow"}) {
    std::vector<Arrays> states;
    for (const uint32_t threads : {1U, 2U}) {
      Session session(n.graph, Machine::find(machine, 2), {.threads = threads});
      session.set_state(initial);
      for (uint32_t step = 1; step < 4; ++step) {
        Arrays inputs = Network::inputs(step);
        inputs["lr"] = {0.01F};
        inputs["step"] = {static_cast<float>(step)};
        session.run(inputs);
      }
      states.push_back(session.state());
    }
    for (const auto& [name, values] : states[0])
      EXPECT_EQ(std::memcmp(values.data(), states[1].at(name).data(), values.size() * sizeof(float)), 0)
          << machine << ", " << name;
  }
}

TEST_P(SpikingGraph, TilesMakeTheListsOfHosts) {
  Network n(GetParam());
  for (size_t l = 0; l < n.results.spikes.size(); ++l) {
    n.graph.output("ids" + std::to_string(l), n.results.spikes[l].ids);
    n.graph.output("num" + std::to_string(l), n.results.spikes[l].num);
    n.graph.output("dropped" + std::to_string(l), n.results.dropped[l]);
  }
  std::vector<Arrays> found;
  for (const char* machine : {"host", "gc200"}) {
    Session session(n.graph, Machine::find(machine, 2), {.seed = 4});
    found.push_back(session.run(Network::inputs()));
  }
  for (size_t l = 0; l < n.results.spikes.size(); ++l) {
    const std::string number = std::to_string(l);
    EXPECT_EQ(found[0].at("num" + number), found[1].at("num" + number));
    EXPECT_EQ(found[0].at("dropped" + number), found[1].at("dropped" + number));
    const uint32_t capacity = n.results.spikes[l].capacity();
    for (size_t row = 0; row < kSteps * kBatch; ++row)
      for (uint32_t i = 0; i < found[0].at("num" + number)[2 * row + 1]; ++i)
        ASSERT_EQ(found[0].at("ids" + number)[row * capacity + i],
                  found[1].at("ids" + number)[row * capacity + i])
            << "layer " << l << ", list " << row << ", place " << i;
  }
}

/// Layers with more neurons than a chip has tiles for lie on several chips, and make the same lists.
TEST(SpikingOnChips, MakeTheListsOfHosts) {
  const std::vector<SpikingLayer> layers = {{.inputs = kInputs, .neurons = 24},
                                            {.inputs = 24, .neurons = 20, .delay = 1},
                                            {.inputs = 20, .neurons = 5, .delay = 1}};
  Network n({"chips", layers});
  for (size_t l = 0; l < layers.size(); ++l)
    n.graph.output("num" + std::to_string(l), n.results.spikes[l].num);
  machine::Machine two = machine::find("m2000");
  two.tiles = 2 * (two.chip_tiles = 16);
  two.chips = 2;
  Session tiles(n.graph, Machine(two), {.seed = 4, .on_chips = 2});
  Session host(n.graph, Machine::find("host", 2), {.seed = 4});
  const Arrays on_tiles = tiles.run(Network::inputs()), on_host = host.run(Network::inputs());
  for (size_t l = 0; l < layers.size(); ++l)
    EXPECT_EQ(on_tiles.at("num" + std::to_string(l)), on_host.at("num" + std::to_string(l))) << "layer " << l;
  const RunCost cost = tiles.cost();
  EXPECT_EQ(cost.chips.size(), 2U);
  EXPECT_FALSE(cost.links.empty());
  EXPECT_GT(cost.balance, 0);
  EXPECT_LE(cost.balance, 1);
}

TEST(SpikingOnChips, RefuseMoreThanThereAre) {
  Network n({"chips", {leaky(kInputs, 5)}});
  EXPECT_EQ(test::error_of<UsageError>([&] { Session(n.graph, Machine::find("m2000"), {.on_chips = 5}); }),
            "5 chips are to work as one; m2000 has 4");
  n.graph.replicate(2);
  EXPECT_EQ(test::error_of<UsageError>([&] { Session(n.graph, Machine::find("m2000"), {.on_chips = 2}); }),
            "chips cannot work as one on a graph with replicas or stages, which divide them");
}

/// Inputs as arrays of their types.
struct TypedInputs {
  explicit TypedInputs(const Graph& graph, const Arrays& arrays) {
    for (const auto& [name, values] : arrays)
      for (const ValueInfo& info : graph.values()) {
        if (info.name != name) continue;
        std::vector<std::byte>& of = bytes[name];
        of.resize(values.size() * size_of(info.type.type));
        for (size_t i = 0; i < values.size(); ++i)
          kernels::store_number(info.type.type, of.data() + i * size_of(info.type.type), values[i]);
        tensors.push_back({name, of.data()});
      }
  }
  std::map<std::string, std::vector<std::byte>> bytes;
  std::vector<Tensor> tensors;
};

TEST(SpikingGraphs, CostWhatTheirListsSayIfTheseAreKnown) {
  for (const bool hidden : {false, true}) {
    Graph g;
    const Spikes in = spike_input(g, "in", kSteps, kBatch, kCapacity);
    std::vector<SpikingLayer> layers = {leaky(kInputs, 24)};
    if (hidden) layers = {{.inputs = kInputs, .neurons = 24}, leaky(24, 5)};
    const std::vector<Value> p = spiking_parameters(g, "snn", layers, {.weight = 1.5});
    const SpikingResults results = spiking(in, layers, p,
                                           {.gradient_threshold = g.constant("", {}, {0}),
                                            .expected_input_activity = 0.1,
                                            .expected_activity = 0.5});
    const Value loss = mean(square(*results.potentials));
    g.output("loss", loss);
    add_training(loss);
    Session session(g, Machine::find("gc200", 2));
    Arrays arrays = random_lists(6);
    arrays["lr"] = {0.1F};
    TypedInputs inputs(g, arrays);
    const RunCost estimate = session.cost(inputs.tensors);
    EXPECT_EQ(session.cost().fullest_tile_bytes, estimate.fullest_tile_bytes);
    EXPECT_NE(session.cost().cycles, estimate.cycles);
    float loss_now = 0;
    inputs.tensors.push_back({"loss", &loss_now});
    const RunCost executed = session.measure(inputs.tensors);
    // Only a run computes which neurons fire.
    if (hidden)
      EXPECT_NE(executed.cycles, estimate.cycles);
    else
      EXPECT_EQ(executed.cycles, estimate.cycles);
    EXPECT_NEAR(executed.seconds, estimate.seconds, 0.1 * estimate.seconds);
  }
}

/// Without lists, the cost is for lists of the expected length.
TEST(SpikingGraphs, CostWhatIsExpectedOfTheirLists) {
  constexpr uint32_t kListed = 6;
  Graph g;
  const Spikes in = spike_input(g, "in", kSteps, kBatch, kCapacity);
  const std::vector<SpikingLayer> layers = {leaky(kInputs, 24)};
  const std::vector<Value> p = spiking_parameters(g, "snn", layers);
  constexpr double kActivity = double{kListed} / kInputs;
  g.output("potentials", *spiking(in, layers, p, {.expected_input_activity = kActivity}).potentials);
  const Session session(g, Machine::find("gc200", 2));
  for (const uint32_t listed : {kListed - 1, kListed, kListed + 1}) {
    Arrays arrays;
    for (uint32_t row = 0; row < kSteps * kBatch; ++row) {
      arrays["in.num"].insert(arrays["in.num"].end(), 2, static_cast<float>(listed));
      for (uint32_t i = 0; i < kCapacity; ++i)
        arrays["in.ids"].push_back(i < listed ? static_cast<float>(3 * i) : 0);
    }
    const TypedInputs inputs(g, arrays);
    const RunCost expected = session.cost(), known = session.cost(inputs.tensors);
    if (listed < kListed) {
      EXPECT_GT(expected.seconds, known.seconds);
    } else if (listed > kListed) {
      EXPECT_LT(expected.seconds, known.seconds);
    } else {
      EXPECT_EQ(expected.cycles, known.cycles);
    }
  }
}

TEST(SpikingGraphs, TakeWeightsOfSixteenBits) {
  const std::vector<SpikingLayer> layers = {{.inputs = kInputs, .neurons = 24}, leaky(24, 5)};
  Graph g;
  const Spikes in = spike_input(g, "in", kSteps, kBatch, kCapacity);
  const std::vector<Value> p = spiking_parameters(g, "snn", layers, {.weight = 1.5}, Type::f16);
  EXPECT_EQ(p[0].type().type, Type::f16);
  EXPECT_EQ(p[1].type().type, Type::f32);
  const SpikingResults results = spiking(in, layers, p, {.gradient_threshold = g.constant("", {}, {0})});
  const Value loss = cross_entropy(readout(*results.potentials, kBatch, Readout::mean),
                                   g.input("labels", {kBatch}, Type::u32));
  g.output("loss", loss);
  const auto found = gradients(loss, {p[0], p[3]});
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i]->type().type, Type::f16);
    g.output("gradient" + std::to_string(i), *found[i]);
  }
  Arrays inputs = random_lists(5);
  inputs["labels"] = {0, 1, 2, 3, 4, 0};
  Arrays state = initial_state(g, 4);
  for (auto& [name, values] : state)
    if (name.ends_with("weight"))
      for (float& x : values) x = std::round(x * 256) / 256;
  WideArrays wide = widened(state);
  const WideArrays expected = evaluate(g, widened(inputs), wide);
  for (const char* machine : {"host", "gc200"}) {
    SCOPED_TRACE(machine);
    Session session(g, Machine::find(machine, 2));
    session.set_state(state);
    graph::expect_near(session.run(inputs), expected, 4e-3);
  }
}

TEST(SpikingGraphs, ShareWeightsThatLieOnOtherTiles) {
  Graph g;
  const std::vector<SpikingLayer> layers = {{.inputs = kInputs, .neurons = 24}};
  const std::vector<Value> p = spiking_parameters(g, "snn", layers, {.weight = 1.5});
  const Spikes in = spike_input(g, "in", kSteps, kBatch, kCapacity);
  for (const uint32_t neurons : {4U, 8U, 11U, 3U}) {
    const SpikingResults results = spiking(in, layers, p, {.neurons_per_tile = {neurons}});
    g.output(fmt::format("counts{}", neurons), spike_counts(results.spikes[0], 24));
  }
  WideArrays state = widened(initial_state(g, 4));
  const Arrays inputs = random_lists(5);
  const WideArrays expected = evaluate(g, widened(inputs), state);
  Session session(g, Machine::find("gc200"), {.seed = 4});
  for (const auto& [name, values] : session.run(inputs))
    EXPECT_EQ(widened({{name, values}}).at(name), expected.at(name)) << name;
}

TEST(SpikingGraphs, KeepWhatGradientsReadOnTiles) {
  Graph g;
  const Spikes in = spike_input(g, "in", 4, 3, 5);
  const std::vector<SpikingLayer> layers = {{.inputs = 8, .neurons = 6}};
  const std::vector<Value> p = spiking_parameters(g, "snn", layers);
  const SpikingResults results = spiking(in, layers, p);
  g.output("surrogate", g.value(results.spikes[0].num.id + 1));
  EXPECT_EQ(test::error_of<UsageError>([&] { Session(g, Machine::find("gc200")); }),
            "'surrogate' stays on the tiles: of spiking layers on gc200 only lists, and potentials of a last "
            "layer without spikes can be outputs");
}

TEST(SpikingGraphs, ChainLayersOfSeveralOperations) {
  const std::vector<SpikingLayer> layers = {{.inputs = kInputs, .neurons = 24}, leaky(24, 5)};
  std::vector<Arrays> results;
  for (const bool one : {true, false}) {
    Graph g;
    const Spikes in = spike_input(g, "in", kSteps, kBatch, kCapacity);
    const std::vector<Value> p = spiking_parameters(g, "snn", layers, {.weight = 1.5});
    const SpikingResults first =
        spiking(in, one ? layers : std::vector{layers[0]}, one ? p : std::vector{p[0], p[1], p[2]});
    const SpikingResults last = one ? first : spiking(first.spikes[0], {layers[1]}, {p[3], p[4]});
    const Value loss = mean(square(readout(*last.potentials, kBatch, Readout::last)));
    g.output("loss", loss);
    const auto found = gradients(loss, p);
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i]) g.output("gradient" + std::to_string(i), *found[i]);
    Session session(g, Machine::host(2));
    results.push_back(session.run(random_lists(8)));
    EXPECT_EQ(results.back().size(), 3U);
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(SpikingGraphs, LearnWhichInputFires) {
  // Class c: inputs c, c + 5, … fire. Trained by counts of output spikes, and by readout.
  for (const bool counts : {true, false}) {
    Graph g;
    const Spikes in = spike_input(g, "in", kSteps, kBatch, kCapacity);
    std::vector<SpikingLayer> layers = {{.inputs = kInputs, .neurons = 32}, {.inputs = 32, .neurons = 5}};
    layers[1].neuron.spikes = counts;
    const std::vector<Value> p = spiking_parameters(g, "snn", layers);
    const SpikingResults results =
        spiking(in, layers, p, {.gradient_threshold = g.constant("", {}, {-10}), .most_listed = {}});
    const Value logits =
        counts ? spike_counts(results.spikes[1], 5) : readout(*results.potentials, kBatch, Readout::mean);
    const Value loss = cross_entropy(logits, g.input("labels", {kBatch}, Type::u32));
    g.output("loss", loss);
    add_training(loss, {.optimizer = Adam{}});
    Session session(g, Machine::host(1));
    const base::RandomStream random(17);
    float last = 0;
    for (uint32_t step = 1; step <= 60; ++step) {
      Arrays inputs;
      for (uint32_t b = 0; b < kBatch; ++b)
        inputs["labels"].push_back(static_cast<float>(random.word(step * kBatch + b) % 5));
      for (uint32_t row = 0; row < kSteps * kBatch; ++row) {
        for (uint32_t i = 0; i < kCapacity; ++i)
          inputs["in.ids"].push_back(i < 6 ? inputs["labels"][row % kBatch] + 5.0F * static_cast<float>(i)
                                           : 0);
        const auto fired = static_cast<float>(row / kBatch % 2 * 6);
        inputs["in.num"].insert(inputs["in.num"].end(), {fired, fired});
      }
      inputs["lr"] = {0.02F};
      inputs["step"] = {static_cast<float>(step)};
      last = session.run(inputs).at("loss")[0];
      if (step == 1) {
        EXPECT_GT(last, 1.0F) << counts;
      }
    }
    EXPECT_LT(last, 0.1F) << counts;
  }
}

TEST(SpikingGraphs, TakeCurrentsOfProducts) {
  constexpr uint32_t kFeatures = 12, kNeurons = 20;
  for (const bool everything : {false, true}) {
    Graph g;
    const Value x = g.input("x", {kSteps, kBatch, kFeatures});
    const Value w = g.parameter("w", {kNeurons, kFeatures}, Initial::normal(0.6));
    const Value w2 = g.parameter("w2", {3, kNeurons}, Initial::normal(0.4));
    Neuron neuron;
    std::vector<Value> parameters = {g.parameter("decay", {kNeurons}, Initial::constant(0.9))}, all;
    std::optional<Value> recurrent;
    if (everything) {
      neuron = {.synaptic = true,
                .reset = Reset::subtract,
                .reset_gradient = ResetGradient::gated,
                .surrogate = {SurrogateFamily::arctan, 2}};
      parameters.push_back(g.parameter("current_decay", {1}, Initial::constant(0.7)));
      recurrent = g.parameter("recurrent", {kNeurons, kNeurons}, Initial::normal(0.05));
    }
    parameters.push_back(g.parameter("threshold", {1}, Initial::constant(1)));
    const NeuronValues hidden = spiking_neurons(linear(x, w), neuron, parameters, recurrent);
    const NeuronValues last = spiking_neurons(linear(*hidden.spikes, w2), {.spikes = false},
                                              {g.parameter("decay2", {1}, Initial::constant(0.8))});
    EXPECT_FALSE(last.spikes);
    const Value loss = mean(square(last.potentials)) + mean(*hidden.spikes) * 0.1;
    g.output("loss", loss);
    for (ValueId id = 0; id < g.values().size(); ++id)
      if (g.info(id).kind == Kind::parameter) all.push_back(g.value(id));
    const auto found = gradients(loss, all);
    for (size_t i = 0; i < all.size(); ++i) g.output(g.info(all[i].id).name + ".d", *found[i]);
    Arrays inputs;
    const base::RandomStream random(31);
    for (uint32_t i = 0; i < kSteps * kBatch * kFeatures; ++i) inputs["x"].push_back(random.symmetric(i));
    const Arrays state = initial_state(g, 6);
    WideArrays wide = widened(state);
    const WideArrays expected = evaluate(g, widened(inputs), wide);
    for (const uint32_t threads : {1U, 2U}) {
      Session session(g, Machine::host(threads));
      session.set_state(state);
      expect_near(session.run(inputs), expected);
    }
    EXPECT_EQ(test::error_of<UsageError>([&] { Session(g, Machine::find("gc200")); }),
              "neurons that take currents run on hosts, not on gc200");
  }
}

TEST(SpikingGraphs, RejectListsThatKernelsCannotRead) {
  Graph g;
  const Spikes in = spike_input(g, "in", kSteps, kBatch, kCapacity);
  g.output("counts", spike_counts(in, kInputs));
  const std::vector<SpikingLayer> layers = {leaky(kInputs - 5, 2)};
  Graph network;
  const Spikes of_network = spike_input(network, "in", kSteps, kBatch, kCapacity);
  network.output("y", *spiking(of_network, layers, spiking_parameters(network, "snn", layers)).potentials);
  for (const char* machine : {"host", "gc200"}) {
    Session counts(g, Machine::find(machine)), session(network, Machine::find(machine));
    const auto error = [&](Session& of, uint32_t id, uint32_t fired, uint32_t listed) {
      Arrays lists = random_lists(7);
      const size_t row = 2 * kBatch + 3;  // of step 2, sample 3
      lists["in.ids"][row * kCapacity] = static_cast<float>(id);
      lists["in.num"][2 * row] = static_cast<float>(fired);
      lists["in.num"][2 * row + 1] = static_cast<float>(listed);
      return test::error_of<UsageError>([&] { of.run(lists); });
    };
    EXPECT_EQ(error(counts, 65535, 1, 1), "step 2 of sample 3 lists input 65535; there are 30");
    EXPECT_EQ(error(counts, 0, 10, 10), "step 2 of sample 3 lists 10 spikes and 10 neurons, with room for 9");
    EXPECT_EQ(error(counts, 0, 2, 1), "step 2 of sample 3 lists 2 spikes and 1 neurons, with room for 9");
    EXPECT_EQ(error(counts, 65535, 0, 0), "(no error)");
    EXPECT_TRUE(test::says(error(session, 29, 1, 1), "there are 25"));
  }
}

TEST(SpikingGraphs, RejectListsOfFunctionsThatKernelsCannotRead) {
  const auto body = std::make_shared<Graph>();
  const Spikes inside = spike_input(*body, "in", kSteps, kBatch, kCapacity);
  body->output("counts", spike_counts(inside, kInputs));
  for (const bool repeats : {false, true}) {
    Graph g;
    const uint32_t passes = repeats ? 2 : 1;
    const Spikes in = spike_input(g, "in", passes * kSteps, kBatch, kCapacity);
    const Loop loop{.count = 2, .indexed = {"in.ids", "in.num"}, .summed = {"counts"}};
    g.output("y", (repeats ? g.loop(body, {in.ids, in.num}, loop) : g.call(body, {in.ids, in.num})).at(0));
    Arrays lists = random_lists(7);
    for (auto& [name, values] : lists)
      if (repeats) values.insert(values.end(), values.begin(), values.end());
    lists["in.num"].back() = kCapacity + 1;
    Session session(g, Machine::find("host"));
    EXPECT_TRUE(test::says(test::error_of<UsageError>([&] { session.run(lists); }), "with room for 9"))
        << repeats;
  }
}

TEST(SpikingGraphs, RejectListsOfWhichOnlyOneHalfWouldBeChecked) {
  Graph g;
  const Spikes in = spike_input(g, "in", kSteps, kBatch, kCapacity);
  const Value num = in.num + in.num;
  EXPECT_TRUE(test::says(test::error_of<UsageError>([&] {
                           spike_counts({in.ids, num, kBatch}, kInputs);
                         }),
                         "must both be inputs, or both results"));
  const auto body = std::make_shared<Graph>();
  body->output("counts", spike_counts(spike_input(*body, "in", kSteps, kBatch, kCapacity), kInputs));
  EXPECT_TRUE(test::says(test::error_of<UsageError>([&] {
                           g.call(body, {in.ids, num});
                         }),
                         "must both be inputs, or both results"));
  const Value two = g.input("two", {2 * kSteps, kBatch * 2}, Type::u32);
  EXPECT_TRUE(test::says(test::error_of<UsageError>([&] {
                           g.loop(body, {in.ids, two}, Loop{.count = 2, .indexed = {"in.num"}});
                         }),
                         "must be the same in all passes"));
}

TEST(SpikingGraphs, RejectListsInFloat64ThatKernelsCouldNotTrust) {
  Graph g;
  const std::vector<SpikingLayer> layers = {leaky(kInputs - 5, 2)};
  const Spikes in = spike_input(g, "in", kSteps, kBatch, kCapacity);
  g.output("y", *spiking(in, layers, spiking_parameters(g, "snn", layers)).potentials);
  WideArrays state = widened(initial_state(g));
  const auto error = [&](double id, double fired, double listed) {
    WideArrays lists = widened(random_lists(7));
    for (double& each : lists["in.ids"]) each = std::min(each, kInputs - 6.0);
    const size_t row = 2 * kBatch + 3;  // of step 2, sample 3
    lists["in.ids"][row * kCapacity] = id;
    lists["in.num"][2 * row] = fired;
    lists["in.num"][2 * row + 1] = listed;
    return test::error_of<UsageError>([&] { evaluate(g, lists, state); });
  };
  EXPECT_EQ(error(24, 1, 1), "(no error)");
  EXPECT_EQ(error(NAN, 0, 0), "(no error)");
  EXPECT_EQ(error(25, 1, 1), "step 2 of sample 3 lists input 25; there are 25");
  EXPECT_EQ(error(0, 10, 10), "step 2 of sample 3 lists 10 spikes and 10 neurons, with room for 9");
  EXPECT_EQ(error(0, 2, 1), "step 2 of sample 3 lists 2 spikes and 1 neurons, with room for 9");
  EXPECT_EQ(error(-1, 1, 1), "'in.ids' has -1, which is not a 16-bit number");
  EXPECT_EQ(error(0.5, 1, 1), "'in.ids' has 0.5, which is not a 16-bit number");
  EXPECT_EQ(error(65536, 1, 1), "'in.ids' has 65536, which is not a 16-bit number");
  EXPECT_EQ(error(0, NAN, 1), "'in.num' has nan, which is not a 32-bit number");
}

TEST(SpikingGraphs, CountTheFirstNeuronsOnly) {
  constexpr uint32_t kFew = 11;
  Graph g;
  const std::vector<SpikingLayer> layers = {{.inputs = kInputs, .neurons = 24}};
  const SpikingResults results =
      spiking(spike_input(g, "in", kSteps, kBatch, kCapacity), layers, spiking_parameters(g, "snn", layers));
  g.output("all", spike_counts(results.spikes[0], 24));
  g.output("few", spike_counts(results.spikes[0], kFew));
  for (const char* machine : {"host", "gc200"}) {
    const Arrays found = Session(g, Machine::find(machine), {.seed = 3}).run(random_lists(7));
    for (uint32_t b = 0; b < kBatch; ++b)
      for (uint32_t n = 0; n < kFew; ++n)
        EXPECT_EQ(found.at("few")[b * kFew + n], found.at("all")[b * 24 + n]) << machine;
  }
}

TEST(SpikingGraphs, HaveSizesOf32Bits) {
  Graph g;
  const Spikes in = spike_input(g, "in", 2, 1, 3);
  const auto counts = [&](int64_t neurons) {
    return g.apply("spike_counts", {in.ids, in.num}, {{"batch", int64_t{1}}, {"neurons", neurons}})[0];
  };
  EXPECT_EQ(counts(0xFFFFFFFF).shape(), (Shape{1, 0xFFFFFFFF}));
  for (const int64_t wrong : {int64_t{0}, int64_t{-1}, int64_t{1} << 32})
    EXPECT_EQ(test::error_of<UsageError>([&] { counts(wrong); }),
              "spiking: neurons = " + std::to_string(wrong) + " is out of range");
}

TEST(SpikingGraphs, RejectWhatDoesNotFit) {
  Graph g;
  const Spikes in = spike_input(g, "in", 4, 3, 5);
  const std::vector<SpikingLayer> layers = {leaky(8, 2)};
  const std::vector<Value> p = spiking_parameters(g, "snn", layers);
  const auto error = [&](const Spikes& spikes, const std::vector<SpikingLayer>& of,
                         const std::vector<Value>& with, const SpikingOptions& options = {}) {
    return test::error_of<UsageError>([&] { spiking(spikes, of, with, options); });
  };
  EXPECT_EQ(error(in, layers, {p[0]}), "spiking: the layers have 2 parameters; given are 1");
  EXPECT_EQ(error(in, layers, {p[1], p[0]}), "spiking: weight is f32[1, 1]; it must be f32[8, 2]");
  EXPECT_EQ(error({in.num, in.ids, 3}, layers, p),
            "spiking: ids are u32[4, 6]; they must be u16[steps, 3 · capacity]");
  EXPECT_EQ(error({in.ids, in.num, 5}, layers, p), "spiking: num is u32[4, 6]; it must be u32[4, 10]");
  EXPECT_EQ(error(in, {leaky(8, 2), leaky(2, 2)}, p), "layer 0 has no spikes, so it must be the last");
  EXPECT_EQ(error(in, layers, p, {.step = p[1]}), "spiking: the step is f32[1, 1]; it must be u32[]");
  // Lists of 12 neurons for 8 inputs, as they are or some steps of them.
  const std::vector<SpikingLayer> wide = {{.inputs = 8, .neurons = 12}, {.inputs = 12, .neurons = 8}};
  const std::vector<Spikes> made = spiking(in, wide, spiking_parameters(g, "wide", wide)).spikes;
  EXPECT_EQ(error(made[0], layers, p), "spiking: the lists name 12 neurons; the first layer has 8 inputs");
  EXPECT_EQ(error({slice(made[0].ids, 0, 1, 3), slice(made[0].num, 0, 1, 3), 3}, layers, p),
            "spiking: the lists name 12 neurons; the first layer has 8 inputs");
  EXPECT_EQ(error(made[1], layers, p), "(no error)");
}

}  // namespace
}  // namespace tessera::graph
