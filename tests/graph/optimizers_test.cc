// Optimizers: LAMB and LARS beside float64, groups of parameters, schedules of the learning rate.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "graph/initial.h"
#include "networks.h"
#include "support/error_of.h"
#include "support/number_of.h"

namespace tessera::graph {
namespace {

using test::error_of;
using test::says;

struct Use {
  const char* name;
  TrainingOptions options;
};

std::vector<Use> uses() {
  const Lamb lamb{.epsilon = 1e-3, .weight_decay = 0.01};
  Lamb uncorrected = lamb;
  uncorrected.bias_correction = false;
  const Lars lars{.momentum = 0.9, .weight_decay = 0.01, .trust_coefficient = 0.1};
  const std::vector<ParameterGroup> groups = {
      {.names = {"*.bias"}, .weight_decay = 0, .trust_ratio = false},
      {.names = {"first.*"}, .lr_scale = 0.5},
  };
  return {{"lamb", {.optimizer = lamb}},
          {"lamb_uncorrected", {.optimizer = uncorrected}},
          {"lamb_clipped", {.optimizer = lamb, .clip_norm = 0.5, .groups = groups}},
          {"lamb_micro_batches", {.optimizer = lamb, .micro_batches = 2, .groups = groups}},
          {"lars", {.optimizer = lars}},
          {"lars_without_momentum", {.optimizer = Lars{.momentum = 0, .trust_coefficient = 0.1}}},
          {"lars_groups", {.optimizer = lars, .groups = groups}},
          {"sgd_groups", {.optimizer = Sgd{.momentum = 0.9, .weight_decay = 0.01}, .groups = groups}},
          {"adam_groups", {.optimizer = Adam{.epsilon = 1e-3, .weight_decay = 0.01}, .groups = groups}}};
}

class OptimizerTest : public testing::TestWithParam<std::tuple<const char*, Layers>> {};

TEST_P(OptimizerTest, TrainsLikeFloat64) {
  const auto& [machine, layers] = GetParam();
  const Machine whole = Machine::find(machine, 2);
  const bool is_divided = !whole.is_host() && !test::is_full();
  // On tiles, in the short run, each use with one kind of layers.
  auto number = static_cast<size_t>(layers);
  for (const Use& use : uses()) {
    if (is_divided && number++ % 3 != 0) continue;
    SCOPED_TRACE(use.name);
    Classifier network(layers);
    add_training(network.loss, use.options);
    Session session(network.graph, is_divided ? whole.with("tiles", 64) : whole, {.seed = 4});
    expect_steps_like_float64(network.graph, session, 6, [&](uint32_t step) { return network.inputs(step); });
  }
}

std::string name_of_layers(Layers layers) {
  return layers == Layers::dense ? "dense" : layers == Layers::sparse ? "sparse" : "dynamic";
}

INSTANTIATE_TEST_SUITE_P(Graph, OptimizerTest,
                         testing::Combine(testing::Values("host", "bow"),
                                          testing::Values(Layers::dense, Layers::sparse, Layers::dynamic)),
                         [](const auto& of) {
                           return std::string(std::get<0>(of.param)) + "_" +
                                  name_of_layers(std::get<1>(of.param));
                         });

TEST(Optimizers, TrainReplicasLikeFloat64) {
  Classifier network(Layers::dense);
  add_training(network.loss, {.optimizer = Lamb{.epsilon = 1e-3, .weight_decay = 0.01}, .replicas = 2});
  Session session(network.graph, Machine::find("m2000").with("chips", 2).with("tiles", 8));
  expect_steps_like_float64(network.graph, session, 3, [&](uint32_t step) { return network.inputs(step); });
}

/// The weight after a step with a constant gradient, in float64.
double after_step(const Optimizer& optimizer, double weight, double gradient, double lr) {
  Graph g;
  const Value w = g.parameter("w", {1});
  add_training(sum(w * gradient), {.optimizer = optimizer});
  WideArrays inputs = {{"lr", {lr}}}, state;
  for (const ValueInfo& info : g.values()) {
    if (is_kept(info)) state[info.name] = {0};
    if (info.name == "step") inputs["step"] = {1};
  }
  state.at("w") = {weight};
  evaluate(g, inputs, state);
  return state.at("w")[0];
}

TEST(Optimizers, TrustRatiosAreOneWhereANormIsZero) {
  const Lamb lamb{.epsilon = 1e-6};
  EXPECT_NEAR(after_step(lamb, 0, 2, 0.25), -0.25, 1e-6);  // u is 1
  EXPECT_NEAR(after_step(lamb, 4, 2, 0.25), 4 - 0.25 * 4, 1e-6);
  EXPECT_EQ(after_step(lamb, 4, 0, 0.25), 4);
  const Lars lars{.momentum = 0.9, .weight_decay = 0.5, .trust_coefficient = 0.1};
  EXPECT_NEAR(after_step(lars, 0, 2, 0.25), -0.25 * 2, 1e-12);
  // r = 0.1 · 4 / (2 + 0.5 · 4), of a gradient with decay of 2 + 0.5 · 4.
  EXPECT_NEAR(after_step(lars, 4, 2, 0.25), 4 - 0.25 * 0.1 * 4, 1e-12);
  EXPECT_NEAR(after_step(lars, 4, 0, 0.25), 4 - 0.25 * 0.5 * 4, 1e-12);
}

Arrays trained(const TrainingOptions& options) {
  Classifier network(Layers::dense);
  add_training(network.loss, options);
  Session session(network.graph, Machine::host(2), {.seed = 2});
  for (uint32_t step = 1; step <= 3; ++step) session.run(narrowed(network.inputs(step)));
  return session.state();
}

TEST(Optimizers, LambWithoutTrustRatiosIsAdamW) {
  const Lamb lamb{.epsilon = 1e-8, .weight_decay = 0.1};
  const Adam adam{.epsilon = 1e-8, .weight_decay = 0.1, .decoupled = true};
  EXPECT_EQ(trained({.optimizer = lamb, .groups = {{.names = {"*"}, .trust_ratio = false}}}),
            trained({.optimizer = adam}));
}

TEST(Optimizers, TheLastGroupThatGivesASettingCounts) {
  const Sgd sgd{.momentum = 0.5, .weight_decay = 0.1};
  const auto of = [&](std::vector<ParameterGroup> groups) {
    return trained({.optimizer = sgd, .groups = std::move(groups)});
  };
  EXPECT_EQ(of({{.names = {"*"}, .lr_scale = 0.5},
                {.names = {"*"}, .weight_decay = 0.2},
                {.names = {"*"}, .weight_decay = 0}}),
            of({{.names = {"first.*", "second.*", "third.*"}, .lr_scale = 0.5, .weight_decay = 0}}));
  EXPECT_EQ(of({{.names = {"*"}, .lr_scale = 1, .weight_decay = 0.1}}), of({}));
  EXPECT_NE(of({{.names = {"fi*t.wei*"}, .weight_decay = 0}}).at("first.weight"), of({}).at("first.weight"));
  EXPECT_EQ(
      of({{.names = {"fi*t.wei*"}, .weight_decay = 0}, {.names = {"first.weight"}, .weight_decay = 0.1}}),
      of({}));
}

/// The last one takes exponential time if each `*` tries all lengths.
TEST(Optimizers, PatternsOfGroupsMatchWholeNames) {
  const auto has = [](const std::string& name, const std::string& pattern) {
    Graph g;
    const Value w = g.parameter(name, {2}, Initial::constant(1));
    TrainingOptions options;
    options.groups = std::vector<ParameterGroup>(1);
    options.groups[0].names = {pattern};
    options.groups[0].lr_scale = 0.5;
    return error_of<UsageError>([&] { add_training(sum(w), options); }) == "(no error)";
  };
  for (const char* pattern :
       {"abcab", "*", "**", "abcab*", "*abcab", "a*b", "*ab", "ab*", "*b*a*", "ab*ab", "*c*"})
    EXPECT_TRUE(has("abcab", pattern)) << pattern;
  for (const char* pattern : {"", "abca", "bcab", "*a", "b*", "abc*cab", "*d*", "abcab*b", "a*c", "*b*b*b*"})
    EXPECT_FALSE(has("abcab", pattern)) << pattern;
  EXPECT_TRUE(has("a*b", "a*b"));
  const std::string name(60, 'a');
  std::string many;
  for (int i = 0; i < 20; ++i) many += "*a";
  EXPECT_TRUE(has(name, many));
  EXPECT_FALSE(has(name, many + "*b"));
}

TEST(Optimizers, OnlyBiasCorrectionsNeedTheStep) {
  for (const bool corrected : {false, true}) {
    Classifier of_lamb(Layers::dense), of_adam(Layers::dense);
    add_training(of_lamb.loss, {.optimizer = Lamb{.bias_correction = corrected}});
    add_training(of_adam.loss, {.optimizer = Adam{.bias_correction = corrected}});
    EXPECT_EQ(of_lamb.graph.contains("step"), corrected);
    EXPECT_EQ(of_adam.graph.contains("step"), corrected);
  }
}

/// On tiles the updates of two parameters are equal, and only rounding uses the step if there is no bias
/// correction.
TEST(Optimizers, CountAStepThatMicroBatchesTakeToo) {
  const std::vector<Optimizer> optimizers = {Adam{}, Sgd{.momentum = 0.9}};
  for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 6)})
    for (const Optimizer& optimizer : optimizers)
      for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
        SCOPED_TRACE(optimizer.index());
        std::vector<Arrays> states;
        for (const char* drawn : {"number", "step"}) {
          Graph g;
          const Value x = g.input("x", {4, 8}), a = g.parameter("a", {4, 8}, Initial::normal(1)),
                      b = g.parameter("b", {4, 8}, Initial::normal(1)),
                      w = g.parameter("w", {8, 8}, Initial::normal(0.25)), y = linear(x * (a * b), w);
          const Value loss = mean(square(dropout(y, 0.5, g.input(drawn, {}, Type::u32), 7)));
          add_training(
              loss, {.optimizer = optimizer, .micro_batches = 2, .state = Type::bf16, .rounding = rounding});
          Session session(g, machine, {.seed = 2});
          for (const float step : {1.0F, 2.0F, 3.0F}) {
            Arrays inputs = {{"x", std::vector<float>(64, 0.5F)}, {"lr", {0.125F}}, {drawn, {step, step}}};
            if (g.contains("step")) inputs.try_emplace("step", std::vector<float>{step});
            session.run(inputs);
          }
          states.push_back(session.state());
        }
        EXPECT_EQ(states[0], states[1]);
      }
}

TEST(Optimizers, WrongSettingsAreRefused) {
  const auto error = [](const TrainingOptions& options) {
    Classifier network(Layers::dense);
    return error_of<UsageError>([&] { add_training(network.loss, options); });
  };
  EXPECT_TRUE(says(error({.optimizer = Lamb{.beta1 = 1}}), "a beta is 1; it must be in [0, 1)"));
  EXPECT_TRUE(says(error({.optimizer = Lamb{.epsilon = 0}}), "epsilon is 0; it must be positive"));
  EXPECT_TRUE(says(error({.optimizer = Lars{.momentum = 1}}), "the momentum is 1"));
  EXPECT_TRUE(says(error({.optimizer = Lars{.trust_coefficient = 0}}), "the trust coefficient is 0"));
  EXPECT_TRUE(says(error({.optimizer = Sgd{.weight_decay = NAN}}), "the weight decay is nan"));
  EXPECT_TRUE(
      says(error({.groups = {{.names = {"*"}, .weight_decay = -1}}}), "the weight decay of a group is -1"));
  EXPECT_TRUE(says(error({.groups = {{.names = {"*"}, .lr_scale = -1}}}), "a factor of the learning rate"));
  // Infinite in FP32.
  EXPECT_TRUE(says(error({.groups = {{.names = {"*"}, .lr_scale = 1e39}}}),
                   "a factor of the learning rate is 1e+39; it must be at least 0 and finite in FP32"));
  EXPECT_TRUE(says(error({.groups = {{.names = {"*"}, .weight_decay = 1e39}}}),
                   "the weight decay of a group is 1e+39"));
  for (const Optimizer& optimizer :
       {Optimizer(Sgd{.weight_decay = 1e39}), Optimizer(Adam{.weight_decay = 1e39}),
        Optimizer(Lamb{.epsilon = 1e39}), Optimizer(Lars{.trust_coefficient = 1e39})})
    EXPECT_TRUE(says(error({.optimizer = optimizer}), "is 1e+39; it must be"));
  EXPECT_EQ(error({.optimizer = Sgd{.weight_decay = 3e38}}), "(no error)");
  EXPECT_TRUE(says(error({.groups = {{.names = {"*.wieght"}}}}),
                   "no parameter has the name '*.wieght' of a group; there are first.bias, first.weight"));
  EXPECT_TRUE(says(error({.groups = {{.lr_scale = 0.5}}}), "a group of parameters is empty: name some"));
  Classifier network(Layers::dense);
  EXPECT_TRUE(says(error_of<UsageError>([&] {
                     add_training(network.loss, {.groups = {{.parameters = {network.graph.find("x")}}}});
                   }),
                   "'x' is in a group of parameters, but is not a parameter"));
}

TEST(Schedules, HaveTheirRates) {
  const Schedule linear{.kind = ScheduleKind::linear, .steps = 110, .warmup = 10};
  EXPECT_EQ(linear.factor(0), 0);
  EXPECT_DOUBLE_EQ(linear.factor(5), 0.5);
  EXPECT_EQ(linear.factor(10), 1);
  EXPECT_DOUBLE_EQ(linear.factor(60), 0.5);
  EXPECT_EQ(linear.factor(110), 0);
  EXPECT_EQ(linear.factor(std::numeric_limits<uint64_t>::max()), 0);
  const Schedule polynomial{ScheduleKind::polynomial, 110, 10, 2, 0.1};
  EXPECT_DOUBLE_EQ(polynomial.factor(60), 0.1 + 0.9 / 4);
  EXPECT_DOUBLE_EQ(polynomial.factor(110), 0.1);
  const Schedule cosine{.kind = ScheduleKind::cosine, .steps = 100, .end = 0.5};
  EXPECT_DOUBLE_EQ(cosine.factor(0), 1);
  EXPECT_DOUBLE_EQ(cosine.factor(25), 0.5 + 0.25 * (1 + std::numbers::sqrt2 / 2));
  EXPECT_DOUBLE_EQ(cosine.factor(50), 0.75);
  const Schedule constant{.warmup = 4};
  EXPECT_DOUBLE_EQ(constant.factor(1), 0.25);
  EXPECT_EQ(constant.factor(1000), 1);
  const Schedule step{.kind = ScheduleKind::step, .steps = 64, .warmup = 4};
  EXPECT_DOUBLE_EQ(step.factor(2), 0.5);
  EXPECT_EQ(step.factor(31), 1);
  EXPECT_DOUBLE_EQ(step.factor(32), 0.1);
  EXPECT_DOUBLE_EQ(step.factor(47), 0.1);
  EXPECT_DOUBLE_EQ(step.factor(48), 0.01);
  EXPECT_DOUBLE_EQ(step.factor(1000), 0.01);
  const Schedule halves{.kind = ScheduleKind::step, .steps = 10, .decay_at = {0.26, 0.1, 0.9}, .decay = 0.5};
  EXPECT_EQ(halves.factor(0), 1);
  EXPECT_EQ(halves.factor(1), 0.5);
  EXPECT_EQ(halves.factor(3), 0.25);
  EXPECT_EQ(halves.factor(9), 0.125);
  for (const Schedule& schedule : {linear, polynomial, cosine, constant, step, halves}) check(schedule);
}

TEST(Schedules, AreNamed) {
  for (const char* name : {"constant", "linear", "polynomial", "cosine", "step"})
    EXPECT_EQ(name_of(schedule_named(name)), name);
  EXPECT_TRUE(says(error_of<UsageError>([] { schedule_named("steep"); }),
                   "'steep' (choose from constant, linear, polynomial, cosine, step)"));
}

TEST(Schedules, RefuseWhatDoesNotGoTogether) {
  const auto error = [](const Schedule& schedule) { return error_of<UsageError>([&] { check(schedule); }); };
  EXPECT_TRUE(says(error({.kind = ScheduleKind::cosine, .steps = 10, .warmup = 10}),
                   "a cosine schedule of 10 steps, 10 of them warm-up, leaves none to decay in"));
  EXPECT_TRUE(
      says(error({.kind = ScheduleKind::linear, .steps = 10, .power = 2}), "a linear schedule has no power"));
  EXPECT_TRUE(says(error({.kind = ScheduleKind::polynomial, .steps = 10, .power = 0}),
                   "the power of a schedule is 0"));
  EXPECT_TRUE(
      says(error({.kind = ScheduleKind::linear, .steps = 10, .end = 2}), "ends with 2 of the learning rate"));
  EXPECT_TRUE(says(error({.end = 0.5}), "a constant schedule has no end"));
  EXPECT_TRUE(says(error({.kind = ScheduleKind::linear, .steps = 10, .decay = 0.5}),
                   "a linear schedule has no decay; it is for step"));
  const auto error_of_step = [&](std::vector<double> decay_at, double decay, double end = 0) {
    return error({ScheduleKind::step, 10, 0, 1, end, std::move(decay_at), decay});
  };
  EXPECT_EQ(error_of_step({0.5}, 1), "(no error)");
  EXPECT_TRUE(says(error_of_step({}, 0.1), "names no fraction of the steps"));
  EXPECT_TRUE(says(error_of_step({0.5, 1}, 0.1), "a schedule decays after 1 of the steps"));
  EXPECT_TRUE(says(error_of_step({0.5}, 0), "multiplies the learning rate by 0"));
  EXPECT_TRUE(says(error_of_step({0.5}, 0.1, 0.1), "a step schedule has no end"));
}

TEST(Packs, ChangeWhatMomentsForget) {
  const Betas betas = betas_of_packs({0.9, 0.999}, 2);
  EXPECT_DOUBLE_EQ(betas.beta1, 0.81);
  EXPECT_DOUBLE_EQ(betas.beta2, 0.998001);
  EXPECT_EQ(packs_per_batch(1000, 2), 500U);
  EXPECT_EQ(packs_per_batch(1, 4), 1U);
  EXPECT_TRUE(says(error_of<UsageError>([] { betas_of_packs({}, 0.5); }), "a packing factor of 0.5"));
  EXPECT_TRUE(says(error_of<UsageError>([] { betas_of_packs({1, 0.9}, 2); }), "a beta is 1"));
  EXPECT_TRUE(says(error_of<UsageError>([] { packs_per_batch(8, NAN); }), "a packing factor of nan"));
}

}  // namespace
}  // namespace tessera::graph
