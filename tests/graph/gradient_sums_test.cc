// The type in which gradients are summed over micro-batches and replicas.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/gradients.h>
#include <tessera/numbers.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compare.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

constexpr uint32_t kInputs = 8, kOutputs = 16, kMicroBatches = 128;
/// A gradient that FP16 loses beside a gradient of 1, but whose sums FP16 holds.
constexpr float kTiny = 0x1p-13F;

std::vector<Machine> machines() { return {Machine::host(2), Machine::find("bow").with("tiles", 8)}; }
Machine chips() { return Machine::find("m2000").with("chips", 2).with("tiles", 8); }

/// A product and a vector whose gradients are the row of the micro-batch.
Graph network(const TrainingOptions& options) {
  Graph g;
  const Value x = g.input("x", {1, kInputs}, Type::f16);
  const Value w = g.parameter("w", {kOutputs, kInputs}, Initial::constant(1), Type::f16);
  const Value v = g.parameter("v", {kInputs}, Initial::constant(1), Type::f16);
  add_training(sum(cast(linear(x, w), Type::f32)) + sum(cast(x * v, Type::f32)), options);
  return g;
}

/// Two products, each in a function on its own stage.
Graph staged(const TrainingOptions& options) {
  const auto layer = [](uint32_t inputs, uint32_t outputs) {
    auto f = std::make_shared<Graph>();
    const Value x = f->input("x", {1, inputs}, Type::f16), w = f->input("w", {outputs, inputs}, Type::f16);
    f->output("y", linear(x, w));
    return f;
  };
  Graph g;
  const Value w = g.parameter("w", {kOutputs, kInputs}, Initial::constant(1), Type::f16);
  const Value last = g.parameter("last", {4, kOutputs}, Initial::constant(0.25), Type::f16);
  const Value h =
      g.call(layer(kInputs, kOutputs), {g.input("x", {1, kInputs}, Type::f16), w}, {.stage = 0})[0];
  add_training(sum(cast(g.call(layer(kOutputs, 4), {h, last}, {.stage = 1})[0], Type::f32)), options);
  return g;
}

/// A product and a vector that all passes of a loop take, each pass with its own row. The passes of the
/// gradient run from the first row to the last.
Graph looped(const TrainingOptions& options, uint32_t passes, Type type = Type::f16) {
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {1, kInputs}, type), w = body->input("w", {kOutputs, kInputs}, type),
              v = body->input("v", {kInputs}, type);
  body->output("loss", sum(cast(linear(x, w), Type::f32)) + sum(cast(x * v, Type::f32)));
  Graph g;
  const std::vector<Value> given = {g.input("x", {passes, kInputs}, type),
                                    g.parameter("w", {kOutputs, kInputs}, Initial::constant(1), type),
                                    g.parameter("v", {kInputs}, Initial::constant(1), type)};
  const Loop loop{.count = passes, .indexed = {"x"}, .summed = {"loss"}, .reversed = true};
  add_training(g.loop(body, given, loop)[0], options);
  return g;
}

/// The first gradient is 1, the others are tiny; the learning rate undoes their mean.
Arrays inputs(uint32_t rows) {
  std::vector<float> x(size_t{rows} * kInputs, kTiny);
  for (uint32_t i = 0; i < kInputs; ++i) x[i] = 1;
  return {{"x", std::move(x)}, {"lr", {static_cast<float>(rows)}}};
}

/// Expects that the gradient of 1 has made a parameter 0, and that tiny ones were subtracted from that.
void expect_tiny(const Session& session, const char* parameter, uint32_t gradients) {
  for (const float element : session.get(parameter))
    ASSERT_EQ(element, -kTiny * static_cast<float>(gradients)) << parameter;
}

TEST(GradientSums, KeepInFP32WhatVanishesInFP16) {
  const std::vector<std::optional<LossScale>> scales = {std::nullopt, LossScale{64, 0}, LossScale{64, 100}};
  for (const Machine& machine : machines())
    for (const std::optional<LossScale>& scale : scales)
      for (const std::optional<double> clip_norm : {std::optional<double>(), std::optional(1e4)}) {
        SCOPED_TRACE(fmt::format("{}, scaled {}, clipped {}", machine.name(), scale.has_value(),
                                 clip_norm.has_value()));
        TrainingOptions options{.clip_norm = clip_norm, .micro_batches = kMicroBatches, .loss_scale = scale};
        for (const Type sums : {Type::f32, Type::f16}) {
          options.sums = sums;
          Session session(network(options), machine);
          session.run(inputs(kMicroBatches));
          for (const char* parameter : {"w", "v"})
            expect_tiny(session, parameter, sums == Type::f32 ? kMicroBatches - 1 : 0);
        }
      }
}

TEST(GradientSums, AreThoseOfFP32InPipelinesAndWherePassesAreComputedAgain) {
  for (const Machine& machine : {Machine::host(2), chips()})
    for (const PipelineKind kind :
         {PipelineKind::sequential, PipelineKind::grouped, PipelineKind::interleaved,
          PipelineKind::one_forward_one_backward, PipelineKind::zero_bubble})
      for (const std::set<uint32_t>& recomputed : {std::set<uint32_t>{}, {0, 1}}) {
        SCOPED_TRACE(fmt::format("{}, {}, {} recomputed", machine.name(), name_of(kind), recomputed.size()));
        Session session(staged({.micro_batches = kMicroBatches, .pipeline = {kind, recomputed}}), machine);
        session.run(inputs(kMicroBatches));
        expect_tiny(session, "w", kMicroBatches - 1);
      }
}

TEST(GradientSums, OverReplicasAreFP32WithWholeAndDividedState) {
  for (const uint32_t micro_batches : {1U, kMicroBatches})
    for (const std::optional<uint64_t> shard_from : {std::optional<uint64_t>(), std::optional<uint64_t>(0)}) {
      SCOPED_TRACE(fmt::format("{} micro-batches, divided {}", micro_batches, shard_from.has_value()));
      const uint32_t rows = 2 * micro_batches;
      Session session(network({.micro_batches = micro_batches, .replicas = 2, .shard_from = shard_from}),
                      chips());
      session.run(inputs(rows));
      for (const char* parameter : {"w", "v"}) expect_tiny(session, parameter, rows - 1);
    }
}

TEST(GradientSums, OverPassesOfLoopsAreFP32) {
  constexpr uint32_t kPasses = 129;  // FP16 has the sum of all gradients
  for (const Machine& machine : machines())
    for (const Type sums : {Type::f32, Type::f16}) {
      SCOPED_TRACE(fmt::format("{}, {}", machine.name(), name_of(sums)));
      Session session(looped({.sums = sums}, kPasses), machine);
      Arrays given = inputs(kPasses);
      given["lr"] = {1};
      session.run(given);
      for (const char* parameter : {"w", "v"})
        expect_tiny(session, parameter, sums == Type::f32 ? kPasses - 1 : 0);
    }
}

TEST(GradientSums, OverPassesAndMicroBatchesAreFP32) {
  constexpr uint32_t kPasses = 65;
  for (const Machine& machine : machines()) {
    Session session(looped({.micro_batches = 2}, kPasses), machine);
    Arrays given = inputs(2 * kPasses);
    given["lr"] = {2};
    session.run(given);
    for (const char* parameter : {"w", "v"}) expect_tiny(session, parameter, 2 * kPasses - 1);
  }
}

TEST(GradientSums, OfOnePassAndOfFP32AreAsWithoutTheChoice) {
  const auto text = [](Type sums, uint32_t passes, Type type) {
    return to_string(looped({.sums = sums}, passes, type));
  };
  EXPECT_EQ(text(Type::f32, 1, Type::f16), text(Type::f16, 1, Type::f16));
  EXPECT_EQ(text(Type::f32, 3, Type::f32), text(Type::f16, 3, Type::f32));
  EXPECT_NE(text(Type::f32, 3, Type::f16), text(Type::f16, 3, Type::f16));
}

TEST(GradientSums, TakeHalfOfTheBytesInFP16) {
  constexpr uint32_t kFeatures = 64;
  constexpr double kBytesOfFP16 = 2.0 * kFeatures * kFeatures;
  for (const Machine& machine : machines()) {
    const auto bytes = [&](Type sums) {
      Graph g;
      const Value x = g.input("x", {4, kFeatures}, Type::f16);
      const Value y = linear(x, g.parameter("w", {kFeatures, kFeatures}, Initial::normal(0.1), Type::f16));
      add_training(mean(square(cast(y, Type::f32))), {.micro_batches = 4, .sums = sums});
      return static_cast<double>(Session(g, machine).cost().bytes.at("gradient"));
    };
    EXPECT_NEAR(bytes(Type::f32) - bytes(Type::f16), kBytesOfFP16, 0.1 * kBytesOfFP16) << machine.name();
  }
}

/// A micro-batch adds the gradients of one layer at a time.
TEST(GradientSums, HaveGradientsOfALayerAddedBeforeTheNext) {
  constexpr uint32_t kFeatures = 64, kLayers = 6;
  constexpr double kSums = 4.0 * (kLayers - 2) * kFeatures * kFeatures;
  for (const Machine& machine : machines()) {
    const auto bytes = [&](uint32_t layers) {
      Graph g;
      Value h = g.input("x", {4, kFeatures});
      for (uint32_t i = 0; i < layers; ++i)
        h = gelu(linear(h, g.parameter(fmt::format("w{}", i), {kFeatures, kFeatures}, Initial::normal(0.1))));
      add_training(mean(square(h)), {.micro_batches = 4});
      return static_cast<double>(Session(g, machine).cost().bytes.at("gradient"));
    };
    EXPECT_LT(bytes(kLayers) - bytes(2), 1.3 * kSums) << machine.name();
  }
}

TEST(GradientSums, OfFP32GradientsAreFP32Anyway) {
  std::vector<std::string> graphs;
  for (const Type sums : {Type::f32, Type::f16, Type::bf16}) {
    Graph g;
    const Value x = g.input("x", {2, kInputs}), w = g.parameter("w", {kOutputs, kInputs}, Initial::normal(1));
    add_training(mean(square(linear(x, w))), {.micro_batches = 3, .replicas = 2, .sums = sums});
    graphs.push_back(to_string(g));
  }
  EXPECT_EQ(graphs[1], graphs[0]);
  EXPECT_EQ(graphs[2], graphs[0]);
}

TEST(GradientSums, AreNamedByThePublishedNumbers) {
  const auto sums = [](const char* name) { return numbers_named(name).sums; };
  for (const char* name : {"fp32", "bf16", "mlperf-slides"}) EXPECT_EQ(sums(name), Type::f32) << name;
  for (const char* name : {"mlperf-v1", "mlperf-v2"}) EXPECT_EQ(sums(name), Type::f16) << name;
  TrainingOptions options;
  EXPECT_EQ(options.sums, Type::f32);
  set_numbers(options, numbers_named("mlperf-v2"));
  EXPECT_EQ(options.sums, Type::f16);
}

TEST(GradientSums, OfOtherTypesAreRefused) {
  EXPECT_USAGE_ERROR("sums of gradients cannot be u32", network({.micro_batches = 2, .sums = Type::u32}));
  for (const TrainingOptions& options : {TrainingOptions{.micro_batches = 2, .sums = Type::bf16},
                                         TrainingOptions{.replicas = 2, .sums = Type::bf16}})
    EXPECT_USAGE_ERROR("gradients are f16, and their sums bf16: use f32 or f16", network(options));
  EXPECT_NO_THROW(network({.sums = Type::bf16}));
}

}  // namespace
}  // namespace tessera::graph
