// Training steps: the parameters that they train, names, and shared code. Random graphs test their results.
#include <gtest/gtest.h>
#include <tessera/gradients.h>

#include <vector>

#include "networks.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

TEST(Training, LeavesFrozenParametersAlone) {
  Classifier network(Layers::dense);
  add_training(network.loss, {.frozen = {network.graph.find("first.weight")}});
  Session session(network.graph, Machine::host(1));
  const Arrays before = session.state();
  session.run(narrowed(network.inputs(1)));
  EXPECT_EQ(session.get("first.weight"), before.at("first.weight"));
  EXPECT_NE(session.get("first.bias"), before.at("first.bias"));
}

TEST(Training, NamesGradientsAfterTheirValues) {
  Classifier network(Layers::dense);
  add_training(network.loss);
  for (const char* name : {"first.weight.gradient", "second.bias.gradient", "third.weight.updated"})
    EXPECT_TRUE(network.graph.contains(name)) << name;
}

TEST(Training, LeavesAGraphAsItWasWhereItThrows) {
  Graph g;
  const Value y = linear(g.input("x", {4, 8}), g.parameter("w", {8, 8}, Initial::normal(0.25)));
  g.output("y", y);
  const Value loss = mean(square(y));
  g.output("loss", loss);
  const std::string before = to_string(g);
  EXPECT_USAGE_ERROR("the output 'y' is f32[4, 8]", add_training(loss, {.micro_batches = 2, .replicas = 2}));
  EXPECT_EQ(to_string(g), before);
  add_training(loss, {.replicas = 2});
  EXPECT_EQ(g.replicas(), 2U);
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
      // Each further layer adds its calls, and on the host its updates, not its operations.
      EXPECT_LE(sets, code_of_few + (machine == std::string("host") ? 5 : 2) * (layers - 2)) << machine;
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

/// By a factor of 2^-26, which FP16 cannot represent; the clipped gradients are 2^-12.
TEST(Training, ClipsGradientsOf16BitsInFP32) {
  for (const Machine& machine : {Machine::host(1), Machine::find("bow").with("tiles", 4)}) {
    Graph g;
    const Value w = g.parameter("w", {4}, Initial::constant(1), Type::f16);
    add_training(sum(cast(w, Type::f32)) * 16384, {.clip_norm = 0x1p-11});
    Session session(g, machine);
    session.run({{"lr", {2048.0F}}});
    EXPECT_EQ(session.get("w"), std::vector<float>(4, 0.5F));
  }
}

}  // namespace
}  // namespace tessera::graph
