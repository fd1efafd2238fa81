// Training steps compared with float64, step by step.
#include <gtest/gtest.h>

#include "networks.h"

namespace tessera::model {
namespace {

constexpr uint32_t kSteps = 6;

struct Setting {
  const char* name;
  const char* machine;
  Layers layers;
  TrainingOptions options;
};

std::ostream& operator<<(std::ostream& out, const Setting& setting) { return out << setting.name; }

const Setting kSettings[] = {
    {"host_dense_sgd", "host", Layers::dense, {Sgd{}, {}}},
    {"host_dense_momentum", "host", Layers::dense, {Sgd{.momentum = 0.9}, {}}},
    {"host_dense_nesterov_clipped",
     "host",
     Layers::dense,
     {Sgd{.momentum = 0.9, .decay = 0.01, .nesterov = true}, 0.5}},
    {"host_dense_adamw",
     "host",
     Layers::dense,
     {Adam{.epsilon = 1e-3, .decay = 0.01, .decoupled = true}, {}}},
    {"host_sparse_momentum", "host", Layers::sparse, {Sgd{.momentum = 0.9}, {}}},
    {"host_sparse_adam_clipped", "host", Layers::sparse, {Adam{.epsilon = 1e-3}, 0.5}},
    {"host_dynamic_momentum_clipped", "host", Layers::dynamic, {Sgd{.momentum = 0.9}, 0.5}},
    {"host_dense_micro_batches", "host", Layers::dense, {Sgd{.momentum = 0.9}, 0.5, 3}},
    {"host_sparse_micro_batches", "host", Layers::sparse, {Adam{.epsilon = 1e-3}, {}, 4}},
    {"bow_dense_micro_batches", "bow", Layers::dense, {Sgd{.momentum = 0.9}, {}, 2}},
    {"bow_dense_momentum", "bow", Layers::dense, {Sgd{.momentum = 0.9}, {}}},
    {"bow_sparse_adam_clipped", "bow", Layers::sparse, {Adam{.epsilon = 1e-3}, 0.5}},
    {"bow_dynamic_momentum", "bow", Layers::dynamic, {Sgd{.momentum = 0.9}, {}}},
};

class Training : public testing::TestWithParam<Setting> {};

TEST_P(Training, AgreesWithFloat64) {
  const Setting& setting = GetParam();
  Classifier network(setting.layers, setting.options.micro_batches == 1);
  add_training(network.loss, setting.options);
  Session session(network.graph, Machine::find(setting.machine, 2));
  expect_steps_like_float64(network.graph, session, kSteps,
                            [&](uint32_t step) { return network.inputs(step); });
}

INSTANTIATE_TEST_SUITE_P(Model, Training, testing::ValuesIn(kSettings),
                         [](const auto& of) { return std::string(of.param.name); });

TEST(Training, LeavesFrozenParametersAlone) {
  Classifier network(Layers::dense);
  add_training(network.loss, {.frozen = {network.graph.find("first.weight")}});
  Session session(network.graph, Machine::host(1));
  const Arrays before = session.state();
  session.run(narrowed(network.inputs(1)));
  EXPECT_EQ(session.get("first.weight"), before.at("first.weight"));
  EXPECT_NE(session.get("first.bias"), before.at("first.bias"));
}

TEST(Training, InSixteenBits) {
  struct Numbers {
    const char* machine;
    Layers layers;
    Type type;
  };
  for (const auto& [machine, layers, type] : {Numbers{"host", Layers::dense, Type::bf16},
                                              {"host", Layers::sparse, Type::bf16},
                                              {"host", Layers::dense, Type::f16},
                                              {"host", Layers::dynamic, Type::f16},
                                              {"bow", Layers::dense, Type::f16},
                                              {"bow", Layers::sparse, Type::f16}}) {
    Classifier network(layers, true, type);
    add_training(network.loss, {Sgd{.momentum = 0.9}, {}});
    Session session(network.graph, Machine::find(machine, 2));
    WideArrays state = widened(session.state());
    for (uint32_t step = 1; step <= kSteps; ++step) {
      const WideArrays inputs = network.inputs(step);
      const double expected = evaluate(network.graph, inputs, state).at("loss")[0];
      // Errors of the weights' rounding grow from step to step.
      ASSERT_NEAR(session.run(narrowed(inputs)).at("loss")[0], expected,
                  8 * step * epsilon_of(type) * expected)
          << machine << ", " << name_of(type) << ", step " << step;
    }
  }
}

TEST(Training, NamesGradientsAfterTheirValues) {
  Classifier network(Layers::dense);
  add_training(network.loss);
  for (const char* name : {"first.weight.gradient", "second.bias.gradient", "third.weight.updated"})
    EXPECT_TRUE(network.graph.contains(name)) << name;
}

/// A layer with a residual connection.
std::shared_ptr<const Graph> residual_layer(uint32_t rows, uint32_t features) {
  auto layer = std::make_shared<Graph>();
  const Value x = layer->input("x", {rows, features});
  const Value weight = layer->input("weight", {features, features}), bias = layer->input("bias", {features});
  layer->output("y", x + gelu(linear(x, weight, bias)));
  return layer;
}

TEST(Training, OfAFunctionCalledWithOtherParameters) {
  constexpr uint32_t kRows = 12, kFeatures = 40;
  for (const char* machine : {"host", "bow"}) {
    uint64_t code_of_few = 0;
    for (uint32_t layers : {2U, 6U}) {
      const auto layer = residual_layer(kRows, kFeatures);
      Graph g;
      Value x = g.input("x", {kRows, kFeatures});
      for (uint32_t i = 0; i < layers; ++i) {
        const std::string name = "layer" + std::to_string(i);
        const Value weight = g.parameter(name + ".weight", {kFeatures, kFeatures}, Initial::normal(0.1));
        x = g.call(layer, {x, weight, g.parameter(name + ".bias", {kFeatures})})[0];
      }
      const Value loss = mean_squared_error(x, g.input("target", {kRows, kFeatures}));
      g.output("loss", loss);
      add_training(loss, {Sgd{.momentum = 0.9}, {}});
      Session session(g, Machine::find(machine, 2));
      SCOPED_TRACE(machine);
      expect_steps_like_float64(g, session, 3, [&](uint32_t step) {
        WideArrays inputs = {{"lr", {0.5}}};
        for (const char* name : {"x", "target"})
          inputs[name] = random_values(g.find(name).type(), -1, 1, 1, 3, step);
        return inputs;
      });
      const uint64_t sets = session.compute_sets();
      if (code_of_few == 0) code_of_few = sets;
      // Each further layer adds its calls and updates, not its operations.
      EXPECT_LE(sets, code_of_few + 5 * (layers - 2)) << machine;
    }
  }
}

/// The norm of the gradient is 3e-6; PyTorch divides by 1e-6 more.
TEST(Training, ClipsTinyGradientsAsPyTorchDoes) {
  Graph g;
  const Value loss = sum(g.parameter("w", {1}) * 3e-6);
  add_training(loss, {.clip_norm = 1e-6});
  WideArrays state = {{"w", {0}}};
  evaluate(g, {{"lr", {1e6}}}, state);
  EXPECT_NEAR(state.at("w")[0], -3.0 / 4, 1e-6);
}

}  // namespace
}  // namespace tessera::model
