// Attention between products that have their activations transposed, and by its decomposition everywhere.
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "networks.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

/// Self-attention between layers. Bits say which weights are sparse: for q, k, v and the result.
struct Attending {
  Graph graph;
  WideArrays inputs;

  explicit Attending(uint32_t sparse) {
    constexpr uint32_t kFeatures = 32;
    const Value x = graph.input("x", {3, 21, kFeatures});
    inputs["x"] = random_values(x.type(), -1, 1, 1, 7, 0);
    const auto of = [&](const char* name, Value in, uint32_t bit) {
      return layer(graph, name, in, kFeatures, (sparse >> bit & 1) != 0 ? Layers::sparse : Layers::dense);
    };
    const Value y = attention(of("q", x, 0), of("k", x, 1), of("v", x, 2), {.heads = 4, .right = 0});
    graph.output("y", of("o", y, 3));
  }
};

std::vector<std::string> converted(const Session& session) {
  std::vector<std::string> names;
  const RunCost cost = session.cost();
  for (const ConversionCost& conversion : cost.conversions) names.push_back(conversion.value);
  return names;
}

TEST(Attention, TakesWhatItsNeighboursHaveInAnyLayout) {
  for (uint32_t sparse = 0; sparse < 16; ++sparse) {
    SCOPED_TRACE(testing::Message() << "sparse " << sparse << ", seed 7");
    const Attending attending(sparse);
    const WideArrays state = widened(initial_state(attending.graph));
    WideArrays changed = state;
    const WideArrays expected = evaluate(attending.graph, attending.inputs, changed);
    Session session(attending.graph, Machine::host(2));
    expect_near(session.run(narrowed(attending.inputs)), expected, 1e-5);
    // The input, unless all operations take it in one layout.
    const bool differ = (sparse & 7) != 0 && (sparse & 7) != 7;
    EXPECT_EQ(converted(session), differ ? std::vector<std::string>{"x"} : std::vector<std::string>{});
  }
}

TEST(Attention, HasGradientsBetweenSparseProducts) {
  Attending attending(15);
  Graph& graph = attending.graph;
  const Value y = graph.value(graph.outputs().at("y")), x = graph.value(graph.inputs()[0]);
  const std::vector<Value> of = {x};
  graph.output("dx", *gradients(sum(square(y)), of)[0]);
  WideArrays state = widened(initial_state(graph));
  const WideArrays expected = evaluate(graph, attending.inputs, state);
  Session session(graph, Machine::host(2));
  expect_near(session.run(narrowed(attending.inputs)), expected, 1e-5);
}

/// Queries, keys and values are transposed in the parts in which products return them. Only the input, the
/// result of attention, and the output are left to convert.
TEST(Attention, TakesThePartsOfProductsOnTiles) {
  const Machine machine = Machine::find("gc200").with("tiles", 16);
  Attending attending(0);
  Graph& graph = attending.graph;
  EXPECT_LE(converted(Session(graph, machine)).size(), 3U);
  const Value y = graph.value(graph.outputs().at("y")), x = graph.value(graph.inputs()[0]);
  const std::vector<Value> of = {x};
  graph.output("dx", *gradients(sum(square(y)), of)[0]);
  WideArrays state = widened(initial_state(graph));
  const WideArrays expected = evaluate(graph, attending.inputs, state);
  Session session(graph, machine);
  expect_near(session.run(narrowed(attending.inputs)), expected, 1e-4);
}

TEST(Attention, LeavesOutKeysAfterTheLengths) {
  Graph g;
  const Value q = g.input("q", {3, 5, 8}), k = g.input("k", {3, 7, 8}), v = g.input("v", {3, 7, 8}),
              lengths = g.input("lengths", {3}, Type::u32);
  g.output("y", attention(q, k, v, {.heads = 2, .lengths = lengths}));
  for (const uint32_t i : {0U, 1U}) {
    const auto tokens = [&](Value x) { return slice(slice(x, 0, i, i + 1), 1, 0, i == 0 ? 4 : 7); };
    const Value alone = attention(slice(q, 0, i, i + 1), tokens(k), tokens(v), {.heads = 2});
    g.output("alone" + std::to_string(i), alone);
  }
  WideArrays inputs = {{"lengths", {4, 7, 0}}}, state;
  for (const Value& x : {q, k, v}) inputs[g.info(x.id).name] = random_values(x.type(), -1, 1, 1, 3, x.id);
  Array expected(g.type(q.id).elements());  // 0 of a sequence without keys
  WideArrays found = evaluate(g, inputs, state);
  for (const char* name : {"alone0", "alone1"})
    std::ranges::copy(found.at(name), expected.begin() + (name[5] - '0') * 5 * 8);
  found["y"] = expected;
  expect_near(evaluate(g, inputs, state), found, 1e-12);
  Session session(g, Machine::host(2));
  expect_near(session.run(narrowed(inputs)), found, 1e-5);
  EXPECT_USAGE_ERROR(
      "the lengths are u32[3]; they must be u32, one for each sequence of f32[1, 7, 8]",
      attention(slice(q, 0, 0, 1), slice(k, 0, 0, 1), slice(v, 0, 0, 1), {.lengths = lengths}));
  const Value ids = g.input("ids", {3, 7}, Type::u32);
  EXPECT_USAGE_ERROR("ids or lengths",
                     attention(k, k, v, {.query_ids = ids, .key_ids = ids, .lengths = lengths}));
}

TEST(Attention, TakesNegativeLengthsAsZero) {
  Graph g;
  const Value x = g.input("x", {3, 4, 8}), lengths = g.input("lengths", {3}, Type::i32);
  g.output("y", attention(x, x, x, {.heads = 2, .lengths = lengths}));
  const WideArrays inputs = {{"lengths", {-1, 3, -2147483648.0}},
                             {"x", random_values(x.type(), -1, 1, 1, 3, x.id)}};
  WideArrays state;
  const WideArrays expected = evaluate(g, inputs, state);
  const Array& y = expected.at("y");
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i] == 0, i < 32 || i >= 64) << "element " << i;
  Session session(g, Machine::host(2));
  expect_near(session.run(narrowed(inputs)), expected, 1e-5);
}

/// Each call, micro-batch and replica drops other probabilities, and the same ones in the gradient.
TEST(Attention, DropsProbabilitiesAsDropoutDoes) {
  auto function = std::make_shared<Graph>();
  const Value x = function->input("x", {2, 21, 16}), step = function->input("step", {}, Type::u32);
  function->output("y", attention(x, x, x, {.heads = 2, .dropout = 0.4, .step = step, .seed = 7}));
  for (const uint32_t replicas : {1U, 2U})
    for (const uint32_t micro_batches : {1U, 3U}) {
      SCOPED_TRACE(testing::Message() << replicas << " replicas, " << micro_batches << " micro-batches");
      Graph g;
      const Value w = g.parameter("w", {2, 21, 16}), number = g.input("step", {}, Type::u32);
      const Value first = g.call(function, {w, number})[0], second = g.call(function, {w, number})[0];
      const Value other = attention(w, w, w, {.heads = 2, .dropout = 0.4, .step = number, .seed = 7});
      const Value loss = sum(square(first - second)) + sum(square(second - other));
      g.output("loss", loss);
      add_training(loss, {.optimizer = Sgd{}, .micro_batches = micro_batches, .replicas = replicas});
      const WideArrays inputs = {{"step", Array(g.bound_type(number.id).elements(), 3)}, {"lr", {0.25}}};
      for (const Machine& machine :
           {Machine::host(2), Machine::find("m2000").with("chips", 2).with("tiles", 8)}) {
        if (replicas == 2 && machine.name() == "host") continue;
        Session session(g, machine);
        session.set("w", narrowed({{"w", random_values(w.type(), -1, 1, 1, 5, 0)}}).at("w"));
        WideArrays state = widened(session.state());
        const WideArrays expected = evaluate(g, inputs, state);
        const Arrays found = session.run(narrowed(inputs));
        EXPECT_GT(found.at("loss")[0], 1);
        expect_near(found, expected, 1e-4);
        expect_near(session.state(), state, 1e-4);
      }
    }
}

/// The time of a run, which an estimate with the same ids also predicts.
double seconds_with(const Graph& g, Session& session, const std::vector<float>& ids) {
  Arrays inputs;
  for (ValueId id : g.inputs())
    inputs[g.info(id).name] = narrowed(random_values(g.type(id), -1, 1, 1, 3, id));
  inputs["ids"] = ids;
  session.run(inputs);
  std::vector<uint32_t> words(ids.begin(), ids.end());
  const Tensor tensor{"ids", words.data(), words.size()};
  EXPECT_NEAR(session.cost({&tensor, 1}).seconds, session.last_seconds(), 1e-12);
  return session.last_seconds();
}

TEST(Attention, SkipsBlocksOfOtherSequencesOnTiles) {
  constexpr uint32_t kTokens = 128;
  Graph g;
  const auto operand = [&](const char* name) { return g.input(name, {1, kTokens, 32}); };
  const Value q = operand("q"), k = operand("k"), v = operand("v"),
              ids = g.input("ids", {1, kTokens}, Type::u32);
  const Value y = attention(q, k, v, {.heads = 2, .query_ids = ids, .key_ids = ids});
  const std::vector<Value> of = {q, k, v};
  g.output("y", y);
  for (const auto& gradient : gradients(sum(square(y)), of))
    g.output("d" + g.info(gradient->id).name, *gradient);
  Session session(g, Machine::find("bow").with("tiles", 64));
  std::vector<float> one(kTokens, 1), eight, padding(kTokens, 0);
  for (uint32_t i = 0; i < kTokens; ++i) eight.push_back(static_cast<float>(1 + i / 16));
  const double whole = seconds_with(g, session, one), packed = seconds_with(g, session, eight);
  EXPECT_LT(packed, 0.8 * whole);
  EXPECT_LT(seconds_with(g, session, padding), packed);
}

/// A tile cannot hold the queries of all heads that share keys.
TEST(Attention, OfManyHeadsThatShareKeysHasGradientsOnTiles) {
  constexpr uint32_t kTokens = 48, kHeads = 32, kSize = 64;
  Graph g;
  const Value q = g.input("q", {1, kTokens, kHeads * kSize}), k = g.input("k", {1, kTokens, kSize}),
              v = g.input("v", {1, kTokens, kSize});
  const Value y = attention(q, k, v, {.heads = kHeads, .kv_heads = 1});
  const std::vector<Value> of = {q, k, v};
  g.output("y", y);
  const auto found = gradients(sum(square(y)), of);
  for (size_t i = 0; i < found.size(); ++i) g.output("gradient" + std::to_string(i), *found[i]);
  const WideArrays inputs = random_inputs(g);
  WideArrays state;
  const WideArrays expected = evaluate(g, inputs, state);
  Session session(g, Machine::find("bow").with("tiles", 64));
  expect_near(session.run(narrowed(inputs)), expected, 1e-4);
}

TEST(Attention, RefusesDropoutWithoutAStep) {
  Graph g;
  const Value x = g.input("x", {3, 8}), step = g.input("step", {}, Type::u32);
  EXPECT_THROW(attention(x, x, x, {.heads = 2, .dropout = 0.1}), UsageError);
  for (const double p : {-0.1, 1.0, std::nan("")})
    EXPECT_THROW(attention(x, x, x, {.heads = 2, .dropout = p, .step = step}), UsageError);
  EXPECT_THROW(attention(x, x, x, {.heads = 2, .dropout = 0.1, .step = x}), UsageError);
}

}  // namespace
}  // namespace tessera::graph
