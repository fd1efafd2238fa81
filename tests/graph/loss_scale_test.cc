// Loss scales: a fixed scale changes only gradients that would vanish, and a dynamic scale leaves steps out.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "networks.h"
#include "support/error_of.h"
#include "support/number_of.h"

namespace tessera::graph {
namespace {

using test::error_of;
using test::says;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kRows = 4, kInputs = 24, kOutputs = 20;

/// A layer whose gradients follow its input.
struct Layer {
  Graph graph;
  std::vector<float> x;

  Layer(const TrainingOptions& options, Type type = Type::f32) {
    const Value in = graph.input("x", {kRows, kInputs}, type);
    const Value w = graph.parameter("w", {kOutputs, kInputs}, Initial::normal(0.25), type);
    const Value loss = mean(square(cast(linear(in, w), Type::f32)));
    graph.output("loss", loss);
    x = narrowed(random_values(graph.bound_type(in.id), -1, 1, 1, 3, 0));
    add_training(loss, options);
  }

  Arrays inputs(uint32_t step, float first) const {
    Arrays arrays;
    for (ValueId id : graph.inputs()) {
      const std::string& name = graph.info(id).name;
      arrays[name] = std::vector<float>(graph.bound_type(id).elements());
      if (name == "x")
        for (size_t i = 0; i < arrays["x"].size(); ++i) arrays["x"][i] = x[i % x.size()];
    }
    arrays.at("x")[0] = first;
    arrays.at("lr") = {0.0625};
    if (graph.contains("step")) arrays.at("step") = {static_cast<float>(step)};
    return arrays;
  }
};

std::vector<Machine> machines() { return {Machine::host(2), Machine::find("bow").with("tiles", 8)}; }

const std::vector<Optimizer> kOptimizers = {
    Sgd{}, Sgd{.momentum = 0.9, .weight_decay = 0.1}, Adam{.weight_decay = 0.1, .decoupled = true},
    Lamb{.weight_decay = 0.1}, Lars{.momentum = 0.9, .weight_decay = 0.1}};

TEST(LossScale, OfAPowerOfTwoChangesNothing) {
  for (const Machine& machine : machines())
    for (const Optimizer& optimizer : kOptimizers) {
      std::vector<Arrays> states;
      for (std::optional<LossScale> scale : {std::optional<LossScale>(), std::optional(LossScale{1024, 0}),
                                             std::optional(LossScale{1024, 100})}) {
        const Layer layer({.optimizer = optimizer, .clip_norm = 0.5, .loss_scale = scale});
        Session session(layer.graph, machine, {.seed = 2});
        for (uint32_t step = 1; step <= 3; ++step) session.run(layer.inputs(step, 0.5));
        states.push_back(session.state());
      }
      for (const auto& [name, values] : states[0])
        for (size_t i = 1; i < states.size(); ++i)
          test::expect_near(states[i].at(name), std::vector<double>(values.begin(), values.end()), 1e-6,
                            name);
    }
}

TEST(LossScale, KeepsGradientsThatWouldVanish) {
  std::vector<double> moved;
  for (std::optional<LossScale> scale : {std::optional<LossScale>(), std::optional(LossScale{65536, 0})}) {
    Graph g;
    const Value w = g.parameter("w", {50}, Initial::constant(1));
    const Value loss = sum(cast(cast(w, Type::f16) * 0x1p-14, Type::f32)) * 0x1p-13;
    add_training(loss, {.loss_scale = scale});
    Session session(g, Machine::host(1));
    session.run({{"lr", {0x1p20F}}});
    moved.push_back(1 - session.get("w")[0]);
  }
  EXPECT_EQ(moved[0], 0);
  EXPECT_NEAR(moved[1], 0x1p-7, 1e-5);
}

/// By a scale that FP16 cannot represent, although it holds the scaled gradients.
TEST(LossScale, ScalesTheGradientOfLogitsBeforeItIsRounded) {
  for (const Machine& machine : machines())
    for (const CrossEntropyOptions& options : {CrossEntropyOptions{}, CrossEntropyOptions{.ignored = 9},
                                               CrossEntropyOptions{.reduction = LossReduction::none}}) {
      Graph g;
      const Value logits = cast(g.parameter("w", {4, 10}), Type::f16);
      const Value losses = cross_entropy(logits, g.input("labels", {4}, Type::u32), options);
      const bool is_mean = losses.shape().empty();
      const double rows = is_mean ? 4 : 1;
      add_training(is_mean ? losses : sum(losses), {.loss_scale = LossScale{65536, 0}});
      Session session(g, machine);
      session.run({{"labels", {0, 1, 2, 3}}, {"lr", {1}}});
      EXPECT_NEAR(session.get("w")[0], 0.9 / rows, 1e-3);
      EXPECT_NEAR(session.get("w")[1], -0.1 / rows, 1e-4);
    }
}

/// After good and bad steps, state follows from the good steps alone.
TEST(LossScale, LeavesOutStepsWhoseGradientsAreNotFinite) {
  test::EveryNth some(7);
  for (const Machine& machine : machines())
    for (const Optimizer& optimizer : kOptimizers)
      for (uint32_t micro_batches : {1U, 2U})
        for (float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 1e30F}) {
          if (!some.takes()) continue;
          const TrainingOptions options{
              .optimizer = optimizer, .micro_batches = micro_batches, .loss_scale = LossScale{1024, 3}};
          const Layer layer(options);
          Session session(layer.graph, machine, {.seed = 2}), other(layer.graph, machine, {.seed = 2});
          const auto number = [&](const char* name) { return session.get(name).at(0); };
          uint32_t good = 0;
          for (uint32_t step = 1; step <= 8; ++step) {
            const bool is_bad = step == 1 || step == 3;
            const Arrays before = session.state();
            session.run(layer.inputs(step, is_bad ? bad : 0.5F));
            if (!is_bad) {
              other.run(layer.inputs(++good, 0.5F));
              continue;
            }
            for (const auto& [name, values] : before)
              if (!name.starts_with("loss_scale")) {
                ASSERT_EQ(session.get(name), values) << name;
              }
          }
          EXPECT_EQ(number("loss_scale"), 512);  // halved twice, and doubled after three good steps
          EXPECT_EQ(number("loss_scale.good_steps"), 2);
          EXPECT_EQ(number("loss_scale.skipped_steps"), 2);
          EXPECT_EQ(other.get("loss_scale"), std::vector<float>{4096});
          for (const auto& [name, values] : other.state())
            if (!name.starts_with("loss_scale")) {
              EXPECT_EQ(session.get(name), values) << name;
            }
        }
}

TEST(LossScale, LeavesParametersOf16BitsAsTheyAre) {
  const Layer layer(
      {.optimizer = Adam{}, .state = Type::bf16, .rounding = Rounding::stochastic, .loss_scale = LossScale{}},
      Type::bf16);
  Session session(layer.graph, Machine::host(2));
  session.run(layer.inputs(1, 0.5));
  const Arrays before = session.state();
  session.run(layer.inputs(2, kInfinity));
  for (const auto& [name, values] : before)
    if (!name.starts_with("loss_scale")) {
      EXPECT_EQ(session.get(name), values) << name;
    }
  session.run(layer.inputs(3, 0.5));
  EXPECT_NE(session.get("w"), before.at("w"));
}

TEST(LossScale, StaysWithinItsBounds) {
  const Layer layer({.loss_scale = LossScale{2, 1}});
  Session session(layer.graph, Machine::host(1));
  for (uint32_t step = 1; step <= 3; ++step) session.run(layer.inputs(step, kInfinity));
  EXPECT_EQ(session.get("loss_scale"), std::vector<float>{1});
  for (uint32_t step = 1; step <= 30; ++step) session.run(layer.inputs(step, 0));
  EXPECT_EQ(session.get("loss_scale"), std::vector<float>{0x1p24F});
}

TEST(LossScale, IsThatOfAllReplicas) {
  const Layer layer({.replicas = 2, .loss_scale = LossScale{1024, 3}});
  Session session(layer.graph, Machine::find("m2000").with("chips", 2).with("tiles", 6));
  const std::vector<float> before = session.get("w");
  session.run(layer.inputs(1, kInfinity));
  EXPECT_EQ(session.get("w"), before);
  session.run(layer.inputs(2, 0.5));
  EXPECT_NE(session.get("w"), before);
  EXPECT_EQ(session.get("loss_scale"), std::vector<float>{512});
}

TEST(LossScale, SaysWhatIsNone) {
  const auto message = [](LossScale scale) {
    return error_of<UsageError>([&] { Layer({.loss_scale = scale}); });
  };
  EXPECT_TRUE(says(message({0, 0}), "the loss scale is 0; it must be positive"));
  EXPECT_TRUE(says(message({NAN, 0}), "it must be positive"));
  EXPECT_TRUE(says(message({0.5, 10}), "must be from 1 to 16777216"));
  EXPECT_TRUE(says(message({64, (1U << 24) + 1}),
                   "the loss scale grows after 16777217 good steps; it must be at most 16777216"));
  EXPECT_EQ(message({64, 1U << 24}), "(no error)");
  for (const double beyond : {1e-40, 1e39, 1e300})
    EXPECT_TRUE(says(message({beyond, 0}), "it must be from 2^-126 to 2^126"));
}

}  // namespace
}  // namespace tessera::graph
