// Updates of equal layers: on tiles they share code, and compute the same as separate updates.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/loop.h"
#include "networks.h"
#include "support/error_of.h"
#include "support/number_of.h"

namespace tessera::graph {
namespace {

constexpr uint32_t kRows = 6, kFeatures = 24;

/// A layer with parameters of several kinds.
std::shared_ptr<const Graph> layer(const Pattern& pattern, Type type) {
  auto f = std::make_shared<Graph>();
  const Value x = f->input("x", {kRows, kFeatures}, type);
  const Value first = f->input("first.weight", {2 * kFeatures, kFeatures}, type);
  const Value sparse =
      f->input("second.weight",
               TensorType{type, {kFeatures, 2 * kFeatures}, std::make_shared<const Pattern>(pattern), {}});
  const Value h = gelu(linear(x, first, f->input("first.bias", {2 * kFeatures}, type)));
  const Value y = linear(h, sparse, f->input("second.bias", {kFeatures}, type));
  f->output("y", layer_norm(x + y, f->input("norm.gain", {kFeatures}, type),
                            f->input("norm.bias", {kFeatures}, type)));
  return f;
}

/// Whether the updates of layers may share code: not if their results are outputs.
enum class Code : uint8_t { shared, own };

Graph network(uint32_t layers, const TrainingOptions& options, Type type, Code code,
              std::optional<uint32_t> stages = {}) {
  const Pattern pattern =
      sparse::generate_pattern({PatternKind::random, kFeatures, 2 * kFeatures, 0.25, 4, 3});
  const auto function = layer(pattern, type);
  Graph g;
  Value x = g.input("x", {kRows, kFeatures}, type);
  for (uint32_t l = 0; l < layers; ++l) {
    std::vector<Value> operands = {x};
    for (ValueId id : function->inputs()) {
      const TensorType& given = function->type(id);
      const std::string name = fmt::format("{}.{}", l, function->info(id).name);
      if (given.pattern)
        operands.push_back(g.sparse_parameter(name, pattern, Initial::normal(0.2), type));
      else if (function->info(id).name != "x")
        operands.push_back(g.parameter(name, given.shape, Initial::normal(0.2), type));
    }
    x = g.call(function, operands, {.stage = stages ? std::optional(l * *stages / layers) : std::nullopt})[0];
  }
  const Value loss = mean(square(cast(x, Type::f32) - g.input("target", {kRows, kFeatures})));
  g.output("loss", loss);
  add_training(loss, options);
  if (code == Code::own)
    for (ValueId id = 0; id < g.values().size(); ++id)
      if (const std::string name = g.info(id).name + ".updated";
          g.info(id).kind == Kind::parameter && !g.type(id).pattern)
        g.output(name + ".out", g.find(name));
  return g;
}

Arrays inputs(const Graph& g, uint32_t step) {
  Arrays arrays;
  for (ValueId id : g.inputs()) {
    const std::string& name = g.info(id).name;
    arrays[name] = name == "lr"     ? std::vector<float>{0.0625}
                   : name == "step" ? std::vector<float>{static_cast<float>(step)}
                                    : narrowed(random_values(g.bound_type(id), -1, 1, 1, step, id));
  }
  return arrays;
}

std::vector<Optimizer> optimizers() {
  return {Sgd{},
          Sgd{.momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
          Adam{.epsilon = 1e-3, .weight_decay = 0.01, .decoupled = true},
          Adam{.epsilon = 1e-3, .bias_correction = false},
          Lamb{.epsilon = 1e-3, .weight_decay = 0.01},
          Lars{.momentum = 0.9, .weight_decay = 0.01, .trust_coefficient = 0.01}};
}

Arrays trained(const Graph& graph, const Machine& machine) {
  Session session(graph, machine);
  EXPECT_TRUE(session.fits());
  for (uint32_t step = 1; step <= 2; ++step) session.run(inputs(graph, step));
  return session.state();
}

void expect_same_bits(const Arrays& found, const Arrays& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected)
    EXPECT_EQ(std::memcmp(found.at(name).data(), values.data(), values.size() * sizeof(float)), 0) << name;
}

void expect_near(const Arrays& found, const Arrays& expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected)
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(found.at(name)[i], values[i], tolerance * (1 + std::abs(values[i]))) << name;
}

TEST(UpdatesOfLayers, AreThoseOfCodeOfTheirOwn) {
  const Machine bow = Machine::find("bow").with("tiles", 9);
  uint32_t number = 0;
  for (const Optimizer& optimizer : optimizers())
    for (Type type : {Type::f32, Type::f16})
      for (Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
        if (!test::takes_half(number++)) continue;
        SCOPED_TRACE(fmt::format("{}, optimizer {}", name_of(type), optimizer.index()));
        TrainingOptions options{.optimizer = optimizer, .state = type, .rounding = rounding};
        options.groups = {{.names = {"*.bias"}, .lr_scale = 0.5, .weight_decay = 0, .trust_ratio = false}};
        if (number % 2 == 0) options.clip_norm = 0.5;
        if (number % 3 == 0) options.micro_batches = 2;
        if (type == Type::f16 && rounding == Rounding::stochastic && !std::holds_alternative<Lamb>(optimizer))
          options.loss_scale = LossScale{.initial = 64};
        expect_same_bits(trained(network(3, options, type, Code::shared), bow),
                         trained(network(3, options, type, Code::own), bow));
      }
}

TEST(UpdatesOfLayers, AreThoseOfCodeOfTheirOwnOnChips) {
  const Machine chips = Machine::find("m2000").with("chips", 2).with("tiles", 16);
  uint32_t number = 0;
  for (const Optimizer& optimizer : optimizers())
    for (const bool is_staged : {true, false}) {
      if (!test::takes_half(number++)) continue;
      TrainingOptions options{.optimizer = optimizer};
      std::optional<uint32_t> stages;
      if (is_staged)
        options.clip_norm = 0.5, stages = 2;
      else
        options.replicas = 2;
      expect_same_bits(trained(network(4, options, Type::f32, Code::shared, stages), chips),
                       trained(network(4, options, Type::f32, Code::own, stages), chips));
    }
}

/// Each replica has a part of an optimizer's state. Sums over two replicas have no order.
TEST(UpdatesInParts, AreThoseOfWholeParameters) {
  const Machine chips = Machine::find("m2000").with("chips", 2).with("tiles", 16);
  uint32_t number = 0;
  for (const Optimizer& optimizer : optimizers())
    for (Type type : {Type::f32, Type::f16}) {
      if (!test::takes_half(number++)) continue;
      SCOPED_TRACE(fmt::format("{}, optimizer {}", name_of(type), optimizer.index()));
      const bool has_norms =
          std::holds_alternative<Lamb>(optimizer) || std::holds_alternative<Lars>(optimizer);
      TrainingOptions options{.optimizer = optimizer, .replicas = 2, .state = type};
      const Graph whole = network(3, options, type, Code::shared);
      options.shard_from = 30;  // not the biases
      const Graph parts = network(3, options, type, Code::shared);
      const Arrays expected = trained(whole, chips), found = trained(parts, chips);
      if (!has_norms) {
        expect_same_bits(found, expected);
        continue;
      }
      expect_near(found, expected, type == Type::f32 ? 1e-5 : 2e-2);
    }
}

TEST(UpdatesInParts, TakeAFractionOfTheState) {
  const Machine chips = Machine::find("m2000").with("chips", 4).with("tiles", 16);
  TrainingOptions options{.optimizer = Adam{}, .replicas = 4};
  const RunCost whole = Session(network(3, options, Type::f16, Code::shared), chips).cost();
  options.shard_from = 0;
  const RunCost parts = Session(network(3, options, Type::f16, Code::shared), chips).cost();
  // Chunks of the few elements on each tile are rounded up.
  EXPECT_LT(static_cast<double>(parts.bytes.at("optimizer")),
            0.3 * static_cast<double>(whole.bytes.at("optimizer")));
}

/// A session continues from another's state with the same bits, although its own state lies elsewhere.
void expect_same_state(const TrainingOptions& options, const TrainingOptions& elsewhere,
                       const Machine& machine) {
  Session first(network(3, options, Type::f32, Code::shared), machine);
  Session other(network(3, elsewhere, Type::f32, Code::shared), machine);
  first.run(inputs(first.graph(), 1));
  other.set_state(first.state());
  expect_same_bits(other.state(), first.state());
  first.run(inputs(first.graph(), 2));
  other.run(inputs(other.graph(), 2));
  expect_same_bits(other.state(), first.state());
}

TEST(UpdatesInParts, SaveAndTakeWholeState) {
  const Adam adam{.epsilon = 1e-3};
  expect_same_state({.optimizer = adam, .replicas = 2}, {.optimizer = adam, .replicas = 2, .shard_from = 0},
                    Machine::find("m2000").with("chips", 2).with("tiles", 16));
}

TEST(UpdatesInParts, NeedSeveralReplicas) {
  EXPECT_USAGE_ERROR(
      "the optimizer's state is divided among replicas, but there is only one: ask for several",
      network(1, {.replicas = 1, .shard_from = 0}, Type::f32, Code::shared));
  EXPECT_USAGE_ERROR("parameters are divided among replicas, but there is only one: ask for several",
                     network(1, {.replicas = 1, .shard_weights_from = 0}, Type::f32, Code::shared));
  EXPECT_USAGE_ERROR(
      "parameters are divided among replicas",
      network(1, {.groups = {{.names = {"*.bias"}, .shard_weights = true}}}, Type::f32, Code::shared));
  EXPECT_USAGE_ERROR("sums of gradients are divided among replicas, but there is only one: ask for several",
                     network(1, {.micro_batches = 2, .shard_gradients_from = 0}, Type::f32, Code::shared));
}

TEST(UpdatesInParts, RefuseWhatNeedsWholeValues) {
  Graph g;
  const Value x = g.parameter("x", {4, 6}), shard = g.apply("shard", {x})[0];
  EXPECT_EQ(to_string(shard.type()), "sharded f32[4, 6]");
  EXPECT_ERROR("softmax: it takes whole values, not sharded f32[4, 6]", softmax(shard));
  EXPECT_ERROR("mul: f32[4, 6] beside sharded f32[4, 6], of which each replica has a part", shard * x);
  EXPECT_ERROR("sum: f32[6] of sharded f32[4, 6]", g.apply("sum", {shard}, {{"over", "rows"}}));
  EXPECT_ERROR("shard: it takes whole values, not sharded f32[4, 6]", g.apply("shard", {shard}));
}

/// State lies beside the chips, and is on their tiles while an update takes it.
TEST(OffloadedState, IsUpdatedAsOnTiles) {
  const Machine bow = Machine::find("bow").with("tiles", 9);
  const Machine chips = Machine::find("m2000").with("chips", 2).with("tiles", 16);
  uint32_t number = 0;
  test::EveryNth some(7);
  for (const Optimizer& optimizer : optimizers())
    for (Type type : {Type::f32, Type::f16}) {
      SCOPED_TRACE(fmt::format("{}, optimizer {}", name_of(type), optimizer.index()));
      for (Code code : {Code::shared, Code::own})
        for (Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
          if (!some.takes()) continue;
          TrainingOptions options{.optimizer = optimizer, .state = type, .rounding = rounding};
          const Arrays expected = trained(network(3, options, Type::f32, code), bow);
          options.offload_from = 30;  // not the biases'
          expect_same_bits(trained(network(3, options, Type::f32, code), bow), expected);
        }
      if (!test::takes_half(number++)) continue;
      TrainingOptions options{.optimizer = optimizer, .replicas = 2, .shard_from = 30, .state = type};
      const Arrays expected = trained(network(3, options, type, Code::shared), chips);
      options.offload_from = 0;
      expect_same_bits(trained(network(3, options, type, Code::shared), chips), expected);
    }
}

TEST(OffloadedState, IsNotOnTilesBetweenUpdates) {
  const Machine chips = Machine::find("m2000").with("chips", 2).with("tiles", 16);
  TrainingOptions options{.optimizer = Adam{}, .replicas = 2};
  const Graph graph = network(6, options, Type::f32, Code::shared);
  options.offload_from = 0;
  const Graph offloaded = network(6, options, Type::f32, Code::shared);
  const RunCost on_tiles = Session(graph, chips).cost(), beside = Session(offloaded, chips).cost();
  uint64_t state = 0;
  for (const ValueInfo& info : graph.values())
    if (info.kind == Kind::state) state += 4 * info.type.elements();
  EXPECT_EQ(on_tiles.streaming_bytes, 0);
  EXPECT_GE(beside.streaming_bytes, state);
  EXPECT_LE(beside.streaming_bytes, state + state / 20);  // boxes are aligned
  ASSERT_EQ(beside.chips.size(), 2);
  for (const ChipCost& chip : beside.chips) EXPECT_EQ(chip.streaming_bytes, beside.streaming_bytes);
  const auto left = beside.bytes.find("optimizer");  // for the updates that run when most bytes are alive
  EXPECT_LT(left == beside.bytes.end() ? 0 : left->second, on_tiles.bytes.at("optimizer") / 2);
  const std::string overflow = Session(graph, chips.with("tile_bytes", 10000)).cost().overflow;
  for (const char* part : {"chip 0, tile ", " bytes are the optimizer's state, which", "(offload)"})
    EXPECT_NE(overflow.find(part), std::string::npos) << overflow;
  // It is read and written once, at the rate of the streaming memory at least.
  EXPECT_GE(beside.seconds, on_tiles.seconds + 2 * static_cast<double>(state) / 20e9);
}

TEST(OffloadedState, IsSavedAndTakenAsOnTiles) {
  TrainingOptions beside{.optimizer = Adam{.epsilon = 1e-3}};
  beside.offload_from = beside.offload_weights_from = 0;
  expect_same_state({.optimizer = Adam{.epsilon = 1e-3}}, beside, Machine::find("bow").with("tiles", 9));
}

TEST(OffloadedState, NeedsStreamingMemory) {
  const Machine bow = Machine::find("bow").with("tiles", 9);
  const TrainingOptions options{.optimizer = Adam{}, .offload_from = 0};
  const Graph graph = network(3, options, Type::f32, Code::shared);
  EXPECT_ERROR(
      "it is to lie in streaming memory, which 'bow' does not have: set its 'streaming_bytes', use a",
      Session(graph, bow.with("streaming_bytes", 0)));
  EXPECT_ERROR("which cannot be read on 'bow': set its 'streaming_gb_per_second'",
               Session(graph, bow.with("streaming_gb_per_second", 0)));
  Session small(graph, bow.with("streaming_bytes", 100));
  EXPECT_FALSE(small.fits());
  const std::string overflow = small.cost().overflow;
  for (const char* part :
       {"the streaming memory of chip 0 needs ", " bytes and has 100; ",
        " bytes are the optimizer's state, which replicas can divide (shard); tiles may hold some",
        "(the machine's 'streaming_bytes')"})
    EXPECT_NE(overflow.find(part), std::string::npos) << overflow;
  EXPECT_ERROR("does not fit", small.run(inputs(graph, 1)));
  Graph g;
  EXPECT_ERROR("offload: 'x' is neither a parameter, nor state of one, nor a sum over the passes of a loop",
               g.offload(g.input("x", {4, 6})));
}

TEST(OffloadedState, IsNoSumInAFunction) {
  auto pass = std::make_shared<Graph>(), function = std::make_shared<Graph>();
  pass->output("square", square(pass->input("x", {4, 6})));
  const Loop loop{.count = 2, .indexed = {"x"}, .summed = {"square"}};
  const Value sum = function->loop(pass, {function->input("x", {8, 6})}, loop)[0];
  function->output("y", sum * 2);
  function->offload(sum);
  Graph g;
  const Value x = g.input("x", {8, 6});
  const char* expected = "a sum over passes that lies in streaming memory";
  EXPECT_ERROR(expected, g.call(function, {x}));
  EXPECT_ERROR(expected, g.loop(function, {x}, {.count = 3, .summed = {"y"}}));
  EXPECT_TRUE(g.nodes().empty());
  const size_t nodes = function->nodes().size();
  EXPECT_ERROR(expected, function->repeat_for_micro_batches(2));
  EXPECT_EQ(function->nodes().size(), nodes);
}

/// Parameters, and sums of their gradients over micro-batches, lie beside the chips too.
TEST(OffloadedWeights, AreTrainedAsOnTiles) {
  const Machine bow = Machine::find("bow").with("tiles", 9);
  const Machine chips = Machine::find("m2000").with("chips", 2).with("tiles", 16);
  uint32_t number = 0;
  test::EveryNth some(5);
  for (const Optimizer& optimizer : optimizers())
    for (Type type : {Type::f32, Type::f16}) {
      SCOPED_TRACE(fmt::format("{}, optimizer {}", name_of(type), optimizer.index()));
      TrainingOptions options{.optimizer = optimizer, .micro_batches = 1 + number++ % 3, .state = type};
      options.rounding = number % 2 == 0 ? Rounding::stochastic : Rounding::nearest;
      if (number % 4 == 0) options.clip_norm = 0.5;
      const auto expect_same = [&](Code code, const Machine& machine, uint64_t from) {
        if (!some.takes()) return;
        TrainingOptions offloaded = options;
        offloaded.offload_weights_from = offloaded.offload_gradients_from = from;
        if (from == 0) offloaded.offload_from = from;
        expect_same_bits(trained(network(3, offloaded, type, code), machine),
                         trained(network(3, options, type, code), machine));
      };
      expect_same(Code::own, bow, 30);  // not the biases
      expect_same(Code::shared, bow, 0);
      options.replicas = 2;
      expect_same(Code::shared, chips, 30);
      options.shard_from = 30;
      expect_same(Code::shared, chips, 0);
    }
}

TEST(OffloadedWeights, MayHaveOtherPatternsLater) {
  const auto state_of = [](std::optional<uint64_t> from) {
    Classifier c(Layers::dynamic);
    add_training(c.loss, {.optimizer = Adam{},
                          .micro_batches = 2,
                          .offload_from = from,
                          .offload_weights_from = from,
                          .offload_gradients_from = from});
    Session session(c.graph, Machine::find("bow").with("tiles", 12), {.seed = 3});
    session.run(inputs(c.graph, 1));
    constexpr uint32_t kHidden = Classifier::kHidden;
    session.set_pattern("second.weight",
                        sparse::generate_pattern({PatternKind::random, kHidden, kHidden, 0.25, 8, 4}));
    session.run(inputs(c.graph, 2));
    return session.state();
  };
  expect_same_bits(state_of(0), state_of({}));
}

/// Weights that other operations use or set.
TEST(OffloadedWeights, AreOutputsAndAssigned) {
  const auto results_of = [](bool offloaded) {
    Graph g;
    const Value a = g.parameter("a", {12, 8}, Initial::normal(1)),
                b = g.parameter("b", {12, 8}, Initial::normal(1));
    if (offloaded) g.offload(a), g.offload(b);
    g.output("y", linear(g.input("x", {4, 8}), a));
    g.output("before", a);
    g.output("halved", reshape(a, {8, 12}) * 0.5);
    g.assign(a, b);
    g.assign(b, a);
    Session session(g, Machine::find("bow").with("tiles", 5), {.seed = 7});
    const Arrays results = session.run(inputs(g, 1));
    return std::pair(results, session.state());
  };
  const auto [found, its_state] = results_of(true);
  const auto [expected, state] = results_of(false);
  expect_same_bits(found, expected);
  expect_same_bits(its_state, state);
  EXPECT_EQ(its_state.at("b"), found.at("before"));
}

TEST(OffloadedWeights, AreOnTilesOneLayerAtATime) {
  const Machine bow = Machine::find("bow").with("tiles", 9);
  for (const uint32_t micro_batches : {1U, 4U}) {
    SCOPED_TRACE(micro_batches);
    TrainingOptions options{.micro_batches = micro_batches};
    const Graph graph = network(6, options, Type::f32, Code::shared);
    options.offload_weights_from = options.offload_gradients_from = 0;
    const Graph offloaded = network(6, options, Type::f32, Code::shared);
    const RunCost on_tiles = Session(graph, bow).cost(), beside = Session(offloaded, bow).cost();
    uint64_t weights = 0;
    for (const ValueInfo& info : graph.values())
      if (info.kind == Kind::parameter) weights += 4 * info.type.elements();
    const uint64_t kept = (micro_batches > 1 ? 2U : 1U) * weights;  // gradients too
    EXPECT_EQ(on_tiles.streaming_bytes, 0);
    EXPECT_GE(beside.streaming_bytes, kept);
    EXPECT_LE(beside.streaming_bytes, 2 * kept);  // boxes are aligned, weights padded
    const auto bytes = [](const RunCost& cost, const char* purpose) {
      const auto found = cost.bytes.find(purpose);
      return found == cost.bytes.end() ? 0 : found->second;
    };
    EXPECT_LT(bytes(beside, "parameter"), bytes(on_tiles, "parameter") / 2);
    if (micro_batches > 1) {
      EXPECT_LT(bytes(beside, "gradient"), bytes(on_tiles, "gradient") / 2);
    }
    EXPECT_GT(beside.seconds, on_tiles.seconds);
  }
}

/// Operands are fetched while the operation before is computed, which takes memory of the tiles.
TEST(OffloadedWeights, MayBeFetchedAhead) {
  const Machine bow = Machine::find("bow").with("tiles", 9).with("streaming_gb_per_second", 1);
  const Machine chips =
      Machine::find("m2000").with("chips", 2).with("tiles", 16).with("streaming_gb_per_second", 1);
  uint32_t number = 0;
  for (const Optimizer& optimizer : optimizers()) {
    SCOPED_TRACE(fmt::format("optimizer {}", optimizer.index()));
    TrainingOptions options{.optimizer = optimizer, .micro_batches = 1 + number++ % 3};
    options.offload_from = options.offload_weights_from = options.offload_gradients_from = 0;
    const auto compare = [&](const Machine& machine) {
      TrainingOptions ahead = options;
      ahead.prefetch = true;
      const Graph waiting = network(4, options, Type::f32, Code::shared),
                  prefetched = network(4, ahead, Type::f32, Code::shared);
      expect_same_bits(trained(prefetched, machine), trained(waiting, machine));
      const RunCost cost = Session(waiting, machine).cost(), of_ahead = Session(prefetched, machine).cost();
      EXPECT_LT(of_ahead.seconds, cost.seconds);
      EXPECT_EQ(of_ahead.streaming_bytes, cost.streaming_bytes);
    };
    compare(bow);
    options.replicas = 2;
    compare(chips);
    options.shard_weights_from = options.shard_gradients_from = 30;
    compare(chips);
  }
}

TEST(OffloadedWeights, AreThoseThatGroupsAndSizesName) {
  TrainingOptions options{
      .optimizer = Adam{}, .micro_batches = 2, .replicas = 2, .shard_from = 30, .offload_weights_from = 30};
  options.groups = {{.names = {"0.*"}, .offload_weights = false},
                    {.names = {"*.bias"}, .offload = true},
                    {.names = {"1.first.weight"}, .shard = false, .offload_gradients = true}};
  const Graph g = network(2, options, Type::f32, Code::shared);
  const auto is_offloaded = [&](const std::string& name) {
    for (const ValueInfo& info : g.values())
      if (info.name == name) return info.offloaded;
    ADD_FAILURE() << name;
    return false;
  };
  EXPECT_FALSE(is_offloaded("0.first.weight"));
  EXPECT_TRUE(is_offloaded("1.first.weight"));
  EXPECT_FALSE(is_offloaded("1.norm.bias"));
  EXPECT_TRUE(is_offloaded("1.norm.bias.first_moment"));
  EXPECT_FALSE(is_offloaded("1.first.weight.first_moment"));
  size_t sums = 0;
  for (const ValueInfo& info : g.values()) {
    if (info.kind == Kind::result && info.offloaded) ++sums;
    if (info.name.ends_with("first.weight.first_moment")) {
      EXPECT_EQ(info.type.sharded, info.name.starts_with("0.")) << info.name;
    }
  }
  EXPECT_EQ(sums, 1);
}

/// Each replica keeps a part of a parameter, and all gather it before they take it.
TEST(DividedWeights, AreTrainedAsWholeOnes) {
  const Machine chips = Machine::find("m2000").with("chips", 2).with("tiles", 16);
  uint32_t number = 0;
  test::EveryNth some(3);  // every fifth has no LAMB
  for (const Optimizer& optimizer : optimizers())
    for (Type type : {Type::f32, Type::f16}) {
      SCOPED_TRACE(fmt::format("{}, optimizer {}", name_of(type), optimizer.index()));
      TrainingOptions options{
          .optimizer = optimizer, .micro_batches = 1 + number++ % 3, .replicas = 2, .state = type};
      options.rounding = number % 2 == 0 ? Rounding::stochastic : Rounding::nearest;
      for (const std::optional<uint64_t> shard_from :
           {std::optional<uint64_t>(30), std::optional<uint64_t>()}) {
        if (!some.takes()) continue;
        options.shard_from = shard_from;
        const Arrays expected = trained(network(3, options, type, Code::shared), chips);
        TrainingOptions divided = options;
        divided.shard_weights_from = 30;  // not the biases
        expect_same_bits(trained(network(3, divided, type, Code::shared), chips), expected);
        divided.shard_weights_from = 0;
        divided.offload_weights_from = 30;
        expect_same_bits(trained(network(3, divided, type, Code::own), chips), expected);
      }
    }
}

/// Equal updates, and their parts between collectives, are calls of one function, whichever of their operands
/// lie beside the tiles.
TEST(DividedWeights, ShareTheCodeOfUpdates) {
  const Machine chips = Machine::find("m2000").with("chips", 2).with("tiles", 16);
  for (const Optimizer& optimizer : {Optimizer(Adam{.epsilon = 1e-3, .weight_decay = 0.01}),
                                     Optimizer(Lamb{.epsilon = 1e-3, .weight_decay = 0.01})})
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      SCOPED_TRACE(fmt::format("optimizer {}, rounding {}", optimizer.index(), static_cast<int>(rounding)));
      TrainingOptions options{.optimizer = optimizer,
                              .micro_batches = 2,
                              .replicas = 2,
                              .shard_from = 30,
                              .state = Type::f16,
                              .rounding = rounding};
      const Arrays expected = trained(network(3, options, Type::f16, Code::own), chips);
      options.offload_from = options.offload_weights_from = options.offload_gradients_from = 0;
      expect_same_bits(trained(network(3, options, Type::f16, Code::shared), chips), expected);
      options.groups = {{.names = {"1.*"}, .shard_weights = true, .offload = false},
                        {.names = {"2.*"}, .offload_weights = false, .offload_gradients = false}};
      expect_same_bits(trained(network(3, options, Type::f16, Code::shared), chips), expected);
    }
}

/// LAMB has two norms for each parameter, of the weight and of the step.
TEST(DividedWeights, HaveNormsWhoseSumsOverReplicasShareCode) {
  const Machine chips = Machine::find("m2000").with("chips", 4).with("tiles", 8);
  const TrainingOptions options{.optimizer = Lamb{.epsilon = 1e-3}, .replicas = 4, .shard_from = 0};
  const auto sums = [&](uint32_t layers) {
    const std::string program = Session(network(layers, options, Type::f32, Code::shared), chips).program();
    size_t found = 0;
    for (size_t at = program.find("sum over replicas by"); at != std::string::npos;
         at = program.find("sum over replicas by", at + 1))
      ++found;
    return found;
  };
  EXPECT_GE(sums(1), 1U);
  EXPECT_LE(sums(1), 2U);
  EXPECT_EQ(sums(3), sums(1));
}

TEST(DividedWeights, AreSavedAndTakenAsWholeOnes) {
  const TrainingOptions whole{.optimizer = Adam{.epsilon = 1e-3}, .replicas = 2};
  TrainingOptions parts = whole;
  parts.shard_from = parts.shard_weights_from = 0;
  expect_same_state(whole, parts, Machine::find("m2000").with("chips", 2).with("tiles", 16));
}

TEST(DividedWeights, TakeAFractionOfTheTiles) {
  const Machine chips = Machine::find("m2000").with("chips", 4).with("tiles", 16);
  TrainingOptions options{.optimizer = Adam{}, .micro_batches = 2, .replicas = 4, .shard_from = 0};
  const RunCost whole = Session(network(8, options, Type::f32, Code::shared), chips).cost();
  options.shard_weights_from = 0;
  const RunCost parts = Session(network(8, options, Type::f32, Code::shared), chips).cost();
  // The parts of all layers, and the whole parameters of one.
  EXPECT_LT(static_cast<double>(parts.bytes.at("parameter")),
            0.7 * static_cast<double>(whole.bytes.at("parameter")));
  EXPECT_GT(parts.seconds, whole.seconds);
}

/// Each replica keeps a part of the sums of gradients over micro-batches. Gradients are summed over replicas
/// first, and so in another order; where sums lie and when they begin does not change them.
TEST(DividedGradients, AreTrainedWithAsWholeOnes) {
  const Machine chips = Machine::find("m2000").with("chips", 2).with("tiles", 16);
  const Machine slow = chips.with("link_gb_per_second", 0.01);  // sums are several collectives
  uint32_t number = 0;
  for (const Optimizer& optimizer : optimizers())
    for (Type type : {Type::f32, Type::f16}) {
      if (!test::takes_half(number++)) continue;
      SCOPED_TRACE(fmt::format("{}, optimizer {}", name_of(type), optimizer.index()));
      TrainingOptions options{.optimizer = optimizer, .micro_batches = 2 + number % 2, .replicas = 2};
      options.shard_from = 30;  // not the biases
      options.state = type;
      if (number % 3 == 0) options.clip_norm = 0.5;
      const Arrays whole = trained(network(3, options, type, Code::shared), chips);
      options.shard_gradients_from = 30;
      const Arrays expected = trained(network(3, options, type, Code::shared), chips);
      expect_near(expected, whole, type == Type::f32 ? 1e-5 : 2e-2);
      const auto expect_same = [&](const TrainingOptions& others, Code code, const Machine& machine) {
        expect_same_bits(trained(network(3, others, type, code), machine), expected);
      };
      expect_same(options, Code::own, slow);
      TrainingOptions others = options;
      others.overlap = false;
      expect_same(others, Code::shared, slow);
      others = options;
      others.offload_gradients_from = 0;
      expect_same(others, Code::shared, chips);
      others.offload_from = others.offload_weights_from = others.shard_weights_from = 0;
      expect_same(others, Code::shared, slow);
    }
}

TEST(DividedGradients, HaveTheBitsOfWholeOnesWhereSumsAreExact) {
  const auto state_of = [](std::optional<uint64_t> shard_gradients_from) {
    Graph g;
    const Value w = g.parameter("w", {4, 16}, Initial::constant(0.5));
    const Value loss = mean(w * g.input("x", {4, 16}));
    g.output("loss", loss);
    add_training(loss, {.optimizer = Sgd{.momentum = 0.5},
                        .micro_batches = 4,
                        .replicas = 4,
                        .shard_from = 0,
                        .shard_gradients_from = shard_gradients_from});
    std::vector<float> x(g.bound_type(g.find("x").id).elements());
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * i % 7) - 3;
    Session session(g, Machine::find("m2000").with("chips", 4).with("tiles", 8));
    for (int step = 0; step < 3; ++step) session.run({{"x", x}, {"lr", {0.5F}}});
    return session.state();
  };
  expect_same_bits(state_of(0), state_of({}));
}

TEST(DividedGradients, AreThoseThatGroupsAndSizesName) {
  TrainingOptions options{.optimizer = Adam{}, .micro_batches = 2, .replicas = 2, .shard_gradients_from = 30};
  options.groups = {{.names = {"0.*"}, .shard = false},
                    {.names = {"1.norm.bias"}, .shard_gradients = true},
                    {.names = {"1.second.weight"}, .shard_gradients = false}};
  const Graph g = network(2, options, Type::f32, Code::shared);
  std::set<std::string> sums, moments;
  for (const ValueInfo& info : g.values()) {
    if (!info.type.sharded) continue;
    if (info.kind == Kind::state && info.name.ends_with("first_moment"))
      moments.insert(g.info(info.belongs.value()).name);
    if (info.node && is_loop(g.nodes()[*info.node])) sums.insert(g.info(info.belongs.value()).name);
  }
  EXPECT_EQ(sums, (std::set<std::string>{"1.first.bias", "1.first.weight", "1.norm.bias"}));
  EXPECT_EQ(moments, sums);
}

TEST(DividedGradients, LeaveLoopsAsSums) {
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {4, 6}), w = body->input("w", {4, 6});
  body->output("part", body->apply("mean_shard", {x * w, w})[0]);
  Graph g;
  const Value all = g.input("all", {8, 6}), own = g.parameter("own", {4, 6});
  const Value sum = g.loop(body, {all, own}, {.count = 2, .indexed = {"x"}, .summed = {"part"}})[0];
  EXPECT_EQ(to_string(sum.type()), "sharded f32[4, 6]");
  EXPECT_EQ(g.info(sum.id).belongs, own.id);
  EXPECT_ERROR("loop: 'part' is sharded f32[4, 6]: parts of replicas leave it as sums only",
               g.loop(body, {all, own}, {.count = 2, .indexed = {"x"}}));
  EXPECT_ERROR("and lie as what is the same in all passes",
               g.loop(body, {all, all}, {.count = 2, .indexed = {"x", "w"}, .summed = {"part"}}));
}

TEST(DividedWeights, AreParametersOfReplicas) {
  Graph g;
  const Value w = g.parameter("w", {4, 6}), one = g.parameter("one", {1}), x = g.input("x", {4, 6});
  for (const Value& value : {one, x})
    EXPECT_ERROR("' is not a parameter of several floating-point numbers whose pattern is fixed",
                 g.shard(value));
  g.shard(w);
  EXPECT_NE(to_string(g).find("w: f32[4, 6], divided"), std::string::npos);
  // A graph of one replica has all of it.
  g.output("y", x * w);
  Session session(g, Machine::find("bow").with("tiles", 4), {.seed = 2});
  EXPECT_EQ(session.run(inputs(g, 1)).at("y").size(), 24);
}

/// Two parameters with equal updates, each in the gradient of the other.
TEST(UpdatesOfLayers, RunAfterTheGradientsOfOthers) {
  for (bool reshaped : {false, true}) {
    Graph g;
    const Value a = g.parameter("a", {6}, Initial::normal(1)), b = g.parameter("b", {6}, Initial::normal(1));
    const Value product = reshaped ? reshape(reshape(a, {2, 3}) * reshape(b, {2, 3}), {6}) : a * b;
    const Value loss = mean(square(product));
    g.output("loss", loss);
    add_training(loss, {});
    Session session(g, Machine::find("bow").with("tiles", 12), {.seed = 5});
    Session on_host(g, Machine::host(2), {.seed = 5});
    for (uint32_t step = 1; step <= 2; ++step) {
      session.run(inputs(g, step));
      on_host.run(inputs(g, step));
    }
    for (const auto& [name, values] : on_host.state())
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(session.state().at(name)[i], values[i], 1e-5) << name;
  }
}

/// Operations are counted where their code is first called.
ptrdiff_t updates_with_code(const RunCost& cost) {
  return std::ranges::count_if(cost.operations, [](const OperationCost& each) {
    return each.seconds > 0 && (each.operation == "sgd" || each.operation.starts_with("adam"));
  });
}

TEST(UpdatesOfLayers, AddNoCodeForEachLayer) {
  const Machine bow = Machine::find("bow").with("tiles", 9);
  uint32_t number = 0;
  for (const Optimizer& optimizer : optimizers())
    for (Type state : {Type::f32, Type::f16}) {
      if (!test::takes_half(number++)) continue;
      SCOPED_TRACE(fmt::format("{}, optimizer {}", name_of(state), optimizer.index()));
      const TrainingOptions options{.optimizer = optimizer, .state = state};
      const auto cost = [&](uint32_t layers, Code code) {
        return Session(network(layers, options, Type::f32, code), bow).cost();
      };
      const RunCost few = cost(3, Code::shared);
      // One or two for each parameter of a layer.
      EXPECT_LE(updates_with_code(few), 2 * 5);
      EXPECT_EQ(updates_with_code(cost(7, Code::shared)), updates_with_code(few));
      EXPECT_LE(few.seconds, cost(3, Code::own).seconds);
    }
}

TEST(UpdatesInParts, AddNoCodeForEachLayer) {
  const Machine chips = Machine::find("m2000").with("chips", 2).with("tiles", 16);
  for (const Optimizer& optimizer : optimizers()) {
    SCOPED_TRACE(fmt::format("optimizer {}", optimizer.index()));
    const TrainingOptions options{.optimizer = optimizer, .replicas = 2, .shard_from = 30};
    const auto cost = [&](uint32_t layers) {
      return Session(network(layers, options, Type::f16, Code::shared), chips).cost();
    };
    const RunCost few = cost(3), many = cost(7);
    const auto with_code = [](const RunCost& of, const char* operation) {
      return std::ranges::count_if(of.operations, [&](const OperationCost& each) {
        return each.seconds > 0 && each.operation.starts_with(operation);
      });
    };
    for (const char* operation : {"sgd", "adam", "sum_of_squares"}) {
      SCOPED_TRACE(operation);
      // One or two for each parameter of a layer.
      EXPECT_LE(with_code(few, operation), 2 * 6);
      EXPECT_EQ(with_code(many, operation), with_code(few, operation));
    }
  }
}

/// A new part is rounded by random numbers before the parts are gathered.
TEST(UpdatesInParts, OfLayersAreThoseOfCodeOfTheirOwn) {
  const Machine chips = Machine::find("m2000").with("chips", 2).with("tiles", 16);
  uint32_t number = 0;
  for (const Optimizer& optimizer : optimizers())
    for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
      if (!test::takes_half(number++)) continue;
      SCOPED_TRACE(fmt::format("optimizer {}", optimizer.index()));
      const TrainingOptions options{
          .optimizer = optimizer, .replicas = 2, .shard_from = 30, .state = Type::f16, .rounding = rounding};
      expect_same_bits(trained(network(3, options, Type::f16, Code::shared), chips),
                       trained(network(3, options, Type::f16, Code::own), chips));
    }
}

}  // namespace
}  // namespace tessera::graph
