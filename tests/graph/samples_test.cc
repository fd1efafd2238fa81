// Graphs that run for some of their samples at a time.
#include "graph/transforms/samples.h"

#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/estimate.h>

#include "compare.h"
#include "sparse/generate.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

/// A part of an array, or the whole array if it is not divided.
std::vector<double> part_of(const std::vector<double>& whole, const TensorType& type, uint32_t part) {
  const uint64_t count = type.elements();
  if (count == whole.size()) return whole;
  return {whole.begin() + static_cast<int64_t>(part * count),
          whole.begin() + static_cast<int64_t>((part + 1) * count)};
}

void expect_parts_like_the_whole(const Graph& whole, const WideArrays& inputs, const WideArrays& state,
                                 uint32_t parts, const Graph& graph) {
  WideArrays own = state;
  const WideArrays expected = evaluate(whole, inputs, own);
  WideArrays found;
  for (uint32_t part = 0; part < parts; ++part) {
    WideArrays given;
    for (ValueId id : graph.inputs())
      given[graph.info(id).name] = part_of(inputs.at(graph.info(id).name), graph.type(id), part);
    for (const auto& [name, values] : evaluate(graph, given, own))
      found[name].insert(found[name].end(), values.begin(), values.end());
  }
  for (const auto& [name, values] : expected) {
    ASSERT_EQ(found.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) continue;
      ASSERT_NEAR(found.at(name)[i], values[i], 1e-9 * std::max(1.0, std::abs(values[i])))
          << name << ", element " << i;
    }
  }
}

class Samples : public testing::TestWithParam<const Operation*> {};

/// Also with operands that are the same for all samples.
TEST_P(Samples, OfEachOperationGiveThePartsOfItsResults) {
  const Operation& operation = *GetParam();
  uint64_t seed = 3;
  for (const Case& c : operation.cases())
    for (uint32_t shared = 0; shared < 1U << std::min<size_t>(c.inputs.size(), 4); ++shared) {
      const CaseGraph of(operation, c, ++seed);
      Graph graph;
      WideArrays inputs = of.arrays, state = of.state;
      std::vector<Value> values;
      for (uint32_t i = 0; i < c.inputs.size(); ++i) {
        const std::string name = "x" + std::to_string(i);
        const TensorType& type = c.inputs[i];
        const bool is_list = operation.traits.lists != nullptr && i < 2;
        const bool is_input = inputs.contains(name) && (is_list || (shared >> i & 1) == 0);
        if (type.pattern)
          values.push_back(graph.sparse_parameter(name, *type.pattern, {}, type.type, type.capacity));
        else
          values.push_back(is_input ? graph.input(name, type.shape, type.type)
                                    : graph.parameter(name, type.shape, {}, type.type));
        if (!is_input && inputs.contains(name)) state[name] = inputs.extract(name).mapped();
      }
      const std::vector<Value> outputs =
          graph.apply(Node{.operation = &operation, .attributes = c.attributes, .body = c.body}, values);
      for (uint32_t i = 0; i < outputs.size(); ++i) graph.output("y" + std::to_string(i), outputs[i]);
      const uint32_t samples = samples_of(graph);
      for (uint32_t parts = 2; parts <= samples; ++parts)
        if (const std::optional<Graph> part = for_samples(graph, parts)) {
          SCOPED_TRACE(to_string(graph) + "\n" + to_string(*part));
          expect_parts_like_the_whole(graph, inputs, state, parts, *part);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Model, Samples,
                         testing::ValuesIn(std::vector(all_operations().begin(), all_operations().end())),
                         [](const auto& of) { return std::string(of.param->name); });

constexpr uint32_t kBatch = 6, kTokens = 5, kFeatures = 16;

/// Layers as in Transformers, with tokens of a class before the others, and positions.
Graph encoder() {
  Graph g;
  const Value ids = g.input("ids", {kBatch, kTokens - 1}, Type::u32);
  const Value mask = g.input("mask", {1, 1, kTokens, kTokens});
  const auto weight = [&](const char* name, uint32_t rows, uint32_t cols) {
    return g.parameter(name, {rows, cols}, Initial::normal(0.3));
  };
  const Value table = weight("table", 40, kFeatures);
  const Value first =
      expand(g.parameter("first", {1, 1, kFeatures}, Initial::normal(1)), {kBatch, 1, kFeatures});
  Value x = concatenate({first, embedding(ids, table)}, 1);
  std::vector<float> kinds(size_t{kBatch} * kTokens * kFeatures, 0.25F);
  x = x + weight("positions", kTokens, kFeatures) +
      g.constant("kinds", {kBatch, kTokens, kFeatures}, std::move(kinds));
  Attention of{.heads = 4, .bias = mask};
  const Value attended =
      attention(linear(x, weight("q", kFeatures, kFeatures)), linear(x, weight("k", kFeatures, kFeatures)),
                linear(x, weight("v", kFeatures, kFeatures)), of);
  x = layer_norm(x + attended, g.parameter("scale", {kFeatures}, Initial::constant(1.5)));
  const Value h = gelu(linear(reshape(x, {kBatch * kTokens, kFeatures}), weight("up", 32, kFeatures)));
  x = x + reshape(linear(h, weight("down", kFeatures, 32)), {kBatch, kTokens, kFeatures});
  const Value by_head = permute(reshape(x, {kBatch, kTokens, 4, 4}), {0, 2, 1, 3});
  g.output("scores", softmax(matmul(by_head, by_head, false, true)));
  g.output("classes", reshape(linear(slice(x, 1, 0, 1), table), {kBatch, 40}));
  return g;
}

WideArrays inputs_of(const Graph& graph, uint64_t seed) {
  WideArrays inputs;
  uint32_t stream = 0;
  for (ValueId id : graph.inputs())
    inputs[graph.info(id).name] = random_values(graph.type(id), -1, 1, 40, seed, stream++);
  return inputs;
}

TEST(Samples, OfAnEncoderRunSideBySide) {
  const Graph graph = encoder();
  WideArrays state = widened(initial_state(graph, 1));
  for (uint32_t threads : {1U, 2U, 3U})
    for (uint32_t parts : {1U, 2U, 3U, 6U}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, " << parts << " parts");
      Session session(graph, Machine::host(threads), {.seed = 1, .parts = parts});
      ASSERT_EQ(session.arrays()[0].type.shape, (Shape{kBatch, kTokens - 1}));
      ASSERT_EQ(session.arrays()[2].type.shape, (Shape{kBatch, 40}));
      for (uint64_t seed = 0; seed < 3; ++seed) {
        const WideArrays inputs = inputs_of(graph, seed);
        expect_near(session.run(narrowed(inputs)), evaluate(graph, inputs, state), 1e-5);
      }
      EXPECT_GT(session.cost().seconds, 0);
    }
}

TEST(Samples, ReadParametersThatChange) {
  const Graph graph = encoder();
  Session session(graph, Machine::host(2), {.seed = 1, .parts = 3});
  const WideArrays inputs = inputs_of(graph, 5);
  WideArrays state = widened(initial_state(graph, 1));
  state["up"].assign(state["up"].size(), 0.125);
  session.run(narrowed(inputs));
  session.set("up", narrowed(state["up"]));
  expect_near(session.run(narrowed(inputs)), evaluate(graph, inputs, state), 1e-5);
  Session sharing(graph, session);
  expect_near(sharing.run(narrowed(inputs)), evaluate(graph, inputs, state), 1e-5);
  EXPECT_EQ(session.state().size(), graph.values().size() == 0 ? 0 : initial_state(graph).size());
}

TEST(Samples, OfGraphsWithWideConstantsAndDynamicGradientsStayTogether) {
  Graph column;
  const Value x = column.input("x", {64, 8, 16});
  column.output("y", relu(x + expand(column.parameter("p", {512, 1}), {64, 8, 16})));
  EXPECT_FALSE(for_samples(column, 4));
  EXPECT_TRUE(Session(column, Machine::host(2)).fits());
  Graph fast;
  const Value w = fast.parameter("w", {8, 16}), a = fast.parameter("a", {6, 16}),
              d = fast.parameter("d", {6, 8});
  const Value gradient = fast.apply("linear_weight_gradient", {a, d, w})[0];
  fast.output("y", linear(fast.input("x", {4, 16}), w) + linear(fast.input("z", {4, 16}), gradient));
  EXPECT_FALSE(for_samples(fast, 2));
}

TEST(Samples, KeepTheirNames) {
  const Graph whole = encoder(), part = *for_samples(whole, 3);
  for (const auto& [name, id] : whole.outputs())
    EXPECT_EQ(part.info(part.outputs().at(name)).name, whole.info(id).name);
  ASSERT_EQ(part.nodes().size(), whole.nodes().size());
  for (size_t n = 0; n < part.nodes().size(); ++n)
    EXPECT_EQ(part.info(part.nodes()[n].outputs[0]).name, whole.info(whole.nodes()[n].outputs[0]).name);
}

TEST(Samples, AreMeasuredInPlace) {
  Graph g;
  g.output("y", g.input("x", {8, 6}) * 2 + 1);
  Session session(g, Machine::host(2), {.parts = 4});
  std::vector<float> array(48, 3);
  const RunCost cost = session.measure(std::vector<Tensor>{{"x", array.data()}, {"y", array.data()}});
  EXPECT_EQ(array, std::vector<float>(48, 7));
  EXPECT_EQ(cost.cycles, session.cost().cycles);
}

TEST(Samples, OfSharingSessionsAreTheirOwn) {
  const auto network = [](uint32_t batch, bool mean_of_all) {
    Graph g;
    const Value y = linear(g.input("x", {batch, 6}), g.parameter("w", {4, 6}, Initial::normal(1)));
    g.output("y", mean_of_all ? mean(y) : y);
    return g;
  };
  const Session owner(network(8, false), Machine::host(2), {.parts = 4});
  EXPECT_EQ(Session(network(6, false), owner).arrays()[0].type.shape, (Shape{6, 6}));
  EXPECT_EQ(Session(network(8, true), owner).arrays()[0].type.shape, (Shape{8, 6}));
}

TEST(Samples, AreMeasured) {
  const Graph graph = encoder();
  Session session(graph, Machine::host(2), {.parts = 3});
  std::vector<Tensor> tensors;
  std::vector<std::vector<uint32_t>> storage;
  for (const ArrayType& type : session.arrays()) {
    storage.emplace_back(type.type.elements());
    tensors.push_back({type.name, storage.back().data()});
  }
  const RunCost cost = session.measure(tensors);
  double seconds = 0;
  for (const OperationCost& operation : cost.operations) seconds += operation.seconds;
  EXPECT_GT(cost.seconds, 0);
  EXPECT_LE(seconds, 1.0001 * cost.seconds);
}

constexpr uint32_t kSize = 256;

Pattern half_full(uint64_t seed) {
  return sparse::generate_pattern({PatternKind::random, kSize, kSize, 0.5, 16, seed});
}

/// Dense, dynamic and sparse products of a number of samples.
Graph products(uint32_t samples, const Pattern& dynamic) {
  Graph g;
  const Initial initial = Initial::normal(0.1);
  Value x = g.input("x", {samples, 128, kSize});
  x = relu(linear(x, g.parameter("dense", {kSize, kSize}, initial)));
  x = relu(linear(x, g.sparse_parameter("dynamic", dynamic, initial, Type::f32, dynamic.blocks())));
  g.output("y", linear(x, g.sparse_parameter("sparse", half_full(2), initial)));
  return g;
}

TEST(Samples, ThatWouldLeaveThreadsIdleTakeAllOfThem) {
  constexpr uint32_t kSamples = 5;
  const Graph graph = products(kSamples, half_full(1)), changed = products(kSamples, half_full(5));
  Session session(graph, Machine::host(2), {.seed = 1, .parts = kSamples});
  Session sharing(graph, session);
  const double part = Session(products(1, half_full(1)), Machine::host(1)).cost().seconds;
  EXPECT_LT(session.cost().seconds, 2.9 * part);
  // It runs all samples at once if that takes about as long.
  EXPECT_LE(0.96 * sharing.cost().seconds, session.cost().seconds);
  WideArrays state = widened(initial_state(graph, 1));
  const WideArrays inputs = inputs_of(graph, 2);
  expect_near(session.run(narrowed(inputs)), evaluate(graph, inputs, state), 1e-5);
  expect_near(sharing.run(narrowed(inputs)), evaluate(graph, inputs, state), 1e-5);
  session.set_state({{"dynamic", narrowed(state.at("dynamic"))}}, {{"dynamic", half_full(5)}});
  expect_near(session.run(narrowed(inputs)), evaluate(changed, inputs, state), 1e-5);
  expect_near(sharing.run(narrowed(inputs)), evaluate(changed, inputs, state), 1e-5);

  const Session dense(products(1, half_full(1)), Machine::host(2), {.seed = 1});
  Session with_own(products(kSamples, half_full(1)), dense);
  expect_near(with_own.run(narrowed(inputs)), evaluate(graph, inputs, state), 1e-5);
}

/// Also where the last part would leave a tile idle.
TEST(Samples, GiveTheSameBitsOnAnyNumberOfThreads) {
  constexpr uint32_t kSamples = 5;
  const Graph graph = products(kSamples, half_full(1));
  const Arrays inputs = narrowed(inputs_of(graph, 2));
  for (const uint32_t parts : {0U, kSamples}) {
    const auto session = [&](uint32_t threads) {
      return Session(graph, Machine::host(3), {.seed = 1, .threads = threads, .parts = parts});
    };
    Session all = session(3);
    const Arrays expected = all.run(inputs);
    for (const uint32_t threads : {1U, 2U}) {
      Session few = session(threads), sharing(graph, few);
      EXPECT_EQ(few.program(), all.program());
      EXPECT_EQ(few.run(inputs), expected) << threads << " threads, " << parts << " parts";
      EXPECT_EQ(sharing.run(inputs), Session(graph, all).run(inputs)) << threads << " threads";
    }
  }
}

TEST(Samples, ThatDependOnEachOtherStayTogether) {
  const auto is_divided = [](const std::function<Value(Graph&, Value)>& network) {
    Graph g;
    g.output("y", network(g, g.input("x", {4, 4, 8})));
    return for_samples(g, 2).has_value();
  };
  EXPECT_TRUE(is_divided([](Graph&, Value x) { return relu(x); }));
  EXPECT_FALSE(is_divided([](Graph&, Value x) { return softmax(x, 0); }));
  EXPECT_FALSE(is_divided([](Graph&, Value x) { return cumsum(x, 0); }));
  EXPECT_FALSE(is_divided([](Graph&, Value x) { return sum(x, {0}, true) + x; }));
  EXPECT_FALSE(is_divided([](Graph&, Value x) { return permute(x, {1, 0, 2}); }));
  EXPECT_FALSE(is_divided([](Graph&, Value x) { return concatenate({x, x}, 0); }));
  EXPECT_FALSE(is_divided([](Graph& g, Value x) { return x + g.input("table", {4, 8}); }));
  EXPECT_FALSE(is_divided([](Graph& g, Value x) { return dropout(x, 0.5, g.input("step", {}, Type::u32)); }));
  Graph matrix;  // tokens of one sequence
  const Value x = matrix.input("x", {8, 12});
  matrix.output("y", attention(x, x, x, {.heads = 2}));
  EXPECT_FALSE(for_samples(matrix, 2));
}

TEST(Samples, AreRefusedWhereTheyCannotBeDivided) {
  const Graph graph = encoder();
  const auto made = [&](const Machine& machine, uint32_t parts) {
    return test::error_of<UsageError>([&] { Session(graph, machine, {.parts = parts}); });
  };
  EXPECT_EQ(made(Machine::host(1), 4),
            "6 samples cannot be run in 4 parts on host: parts must be equal, on a host, and no sample may "
            "depend on another; use another number, or 0");
  EXPECT_NE(made(Machine::find("bow"), 2).find("2 parts on bow"), std::string::npos);
}

TEST(Samples, OfALargeNetworkAreDividedWherePredictedToBeFaster) {
  Graph g;
  Value x = g.input("x", {64, 64, 512});
  for (uint32_t i = 0; i < 3; ++i)
    x = relu(linear(x, g.parameter("w" + std::to_string(i), {512, 512}, Initial::normal(0.05))));
  g.output("y", x);
  const auto seconds = [&](uint32_t parts) {
    return Session(g, Machine::host(2), {.parts = parts}).cost().seconds;
  };
  EXPECT_LE(seconds(0), seconds(1));
  EXPECT_EQ(estimate(g, Machine::host(2)).seconds, seconds(0));
}

}  // namespace
}  // namespace tessera::graph
