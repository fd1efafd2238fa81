// Embeddings: rows of a weight that products may have too.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/gradients.h>

#include <memory>
#include <optional>
#include <vector>

#include "networks.h"
#include "sparse/generate.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

using test::error_of;
using test::says;

constexpr uint32_t kRows = 70, kFeatures = 24, kIds = 9;

/// A tied weight: rows of it, a layer, and the product with all rows.
struct Tied {
  Graph graph;
  Value loss;
  WideArrays inputs;

  Tied() : loss(make()) {
    inputs["ids"] = {0, 69, 3, 3, 3, 17, 68, 1, 16};
    inputs["labels"] = {1, 0, 5, 69, 3, 3, 2, 0, 64};
  }

 private:
  Value make() {
    const Value ids = graph.input("ids", {3, 3}, Type::u32),
                labels = graph.input("labels", {kIds}, Type::u32);
    const Value w = graph.parameter("w", {kRows, kFeatures}, Initial::normal(0.5));
    const Value h = tanh(embedding(ids, w, 3));
    const Value logits = linear(reshape(h, {kIds, kFeatures}), w);
    graph.output("logits", logits);
    return cross_entropy(logits, labels);
  }
};

TEST(Embedding, TrainsAWeightThatAProductHasToo) {
  for (const Machine& machine :
       {Machine::host(1), Machine::host(2), Machine::find("gc200").with("tiles", 12)}) {
    SCOPED_TRACE(machine.name());
    Tied tied;
    Graph& g = tied.graph;
    g.output("loss", tied.loss);
    add_training(tied.loss, {.optimizer = Adam{}});
    tied.inputs["lr"] = {0.01};
    tied.inputs["step"] = {1};
    Session session(g, machine);
    const Arrays initial = session.state();
    WideArrays state;
    for (const auto& [name, values] : initial) state[name] = Array(values.begin(), values.end());
    for (int step = 1; step <= 3; ++step) {
      tied.inputs["step"] = {static_cast<double>(step)};
      const WideArrays expected = evaluate(g, tied.inputs, state);
      const Arrays found = session.run(narrowed(tied.inputs));
      EXPECT_NEAR(found.at("loss")[0], expected.at("loss")[0], 1e-4);
    }
    const std::vector<float> trained = session.get("w");
    for (size_t i = 0; i < trained.size(); ++i) EXPECT_NEAR(trained[i], state.at("w")[i], 2e-4) << i;
  }
}

TEST(Embedding, TakesRowsFromWhereProductsHaveTheWeightOnAHost) {
  Tied tied;
  const Session session(tied.graph, Machine::host(2));
  EXPECT_TRUE(session.cost().conversions.empty());
}

/// In the layout of its products, as long as that is not slower: for a large weight a conversion would be
/// slower.
TEST(Embedding, TakesRowsFromWhereProductsHaveTheWeightOnTiles) {
  constexpr uint32_t kMany = 3000;
  Graph g;
  const Value ids = g.input("ids", {kIds}, Type::u32), labels = g.input("labels", {kIds}, Type::u32);
  const Value w = g.parameter("w", {kMany, kFeatures}, Initial::normal(0.5));
  const Value loss = cross_entropy(linear(tanh(embedding(ids, w)), w), labels);
  g.output("loss", loss);
  add_training(loss, {.optimizer = Lamb{}});
  const RunCost cost = estimate(g, Machine::find("gc200").with("tiles", 64));
  for (const ConversionCost& conversion : cost.conversions)
    EXPECT_LT(conversion.bytes, kMany * kFeatures * sizeof(float)) << conversion.value;
}

/// Its gradients are summed in parts, as whole columns would take much of a tile.
TEST(Embedding, OfALargeTableIsTrainedOnTiles) {
  constexpr uint32_t kMany = 8000, kWide = 52;
  for (const Type type : {Type::f32, Type::f16}) {
    std::map<std::string, std::vector<float>> trained;
    for (const Machine& machine : {Machine::host(2), Machine::find("gc200").with("tiles", 24)}) {
      Graph g;
      const Value ids = g.input("ids", {kIds}, Type::u32);
      const Value w = g.parameter("w", {kMany, kWide}, Initial::normal(0.5), type);
      const Value loss = sum(square(cast(embedding(ids, w, 3), Type::f32)));
      g.output("loss", loss);
      add_training(loss, {.optimizer = Sgd{}});
      Session session(g, machine);
      session.run({{"ids", {0, 7999, 3, 3, 17, 17, 7998, 1, 4000}}, {"lr", {0.125F}}});
      trained[machine.name()] = session.get("w");
    }
    ASSERT_EQ(trained.size(), 2U);
    const std::vector<float>& one = trained.begin()->second;
    const std::vector<float>& other = trained.rbegin()->second;
    ASSERT_EQ(one.size(), size_t{kMany} * kWide);
    for (size_t i = 0; i < one.size(); ++i) ASSERT_NEAR(one[i], other[i], 0.004) << i;
  }
}

TEST(Embedding, OfATiedWeightInFp16IsTrainedOnTiles) {
  std::map<std::string, Arrays> trained;
  for (const Machine& machine : {Machine::host(2), Machine::find("gc200").with("tiles", 12)}) {
    Graph g;
    const Value ids = g.input("ids", {kIds}, Type::u32), labels = g.input("labels", {kIds}, Type::u32);
    const Value w = g.parameter("w", {kRows, kFeatures}, Initial::normal(0.5), Type::f16);
    const Value loss = cross_entropy(cast(linear(tanh(embedding(ids, w, 3)), w), Type::f32), labels);
    g.output("loss", loss);
    add_training(loss, {.optimizer = Sgd{.momentum = 0.9}});
    Session session(g, machine);
    const Arrays inputs = {
        {"ids", {0, 69, 3, 3, 3, 17, 68, 1, 16}}, {"labels", {1, 0, 5, 69, 3, 3, 2, 0, 64}}, {"lr", {0.05F}}};
    for (int step = 0; step < 3; ++step) trained[machine.name()]["loss"] = session.run(inputs).at("loss");
    trained[machine.name()]["w"] = session.get("w");
  }
  ASSERT_EQ(trained.size(), 2U);
  const Arrays &one = trained.begin()->second, &other = trained.rbegin()->second;
  EXPECT_NEAR(one.at("loss")[0], other.at("loss")[0], 0.02);
  for (size_t i = 0; i < kRows * kFeatures; ++i) EXPECT_NEAR(one.at("w")[i], other.at("w")[i], 0.02) << i;
}

/// The error of a run with these ids; expects the session to run again afterwards.
std::string refusal(const Graph& g, const Machine& machine, Arrays inputs, const std::string& ids,
                    std::vector<float> wrong) {
  Session session(g, machine);
  const Arrays before = session.run(inputs);
  Arrays others = inputs;
  others[ids] = std::move(wrong);
  const std::string why = error_of<UsageError>([&] { session.run(others); });
  EXPECT_EQ(session.run(inputs), before) << machine.name();
  return why;
}

/// A pattern of some elements or blocks.
Pattern pattern_of_table(uint32_t block_size, double density = 0.3, uint64_t seed = 5) {
  return sparse::generate_pattern({PatternKind::random, kRows, kFeatures, density, block_size, seed});
}

/// A tied weight that is sparse; a dynamic one has capacity for twice the number of blocks.
Value sparse_table(Graph& g, const Pattern& pattern, bool is_dynamic, Type type = Type::f32) {
  return g.sparse_parameter("w", pattern, Initial::normal(0.5), type,
                            is_dynamic ? std::optional(2 * pattern.blocks()) : std::nullopt);
}

Graph training_of_sparse_table(const Pattern& pattern, bool is_dynamic) {
  Graph g;
  const Value ids = g.input("ids", {kIds}, Type::u32), labels = g.input("labels", {kIds}, Type::u32);
  const Value w = sparse_table(g, pattern, is_dynamic);
  const Value loss = cross_entropy(linear(tanh(embedding(ids, w, 3)), w), labels);
  g.output("loss", loss);
  add_training(loss, {.optimizer = Adam{}});
  return g;
}

/// Three steps of a session whose parameters may have other patterns than the graph, and in float64.
void expect_trains_as_in_float64(const Graph& g, Session& session) {
  WideArrays inputs = {{"ids", {0, 69, 3, 3, 3, 17, 68, 1, 16}},
                       {"labels", {1, 0, 5, 69, 3, 3, 2, 0, 64}},
                       {"lr", {0.01}}},
             state;
  for (const auto& [name, values] : session.state()) state[name] = Array(values.begin(), values.end());
  for (int step = 1; step <= 3; ++step) {
    inputs["step"] = {static_cast<double>(step)};
    const WideArrays expected = evaluate(g, inputs, state);
    EXPECT_NEAR(session.run(narrowed(inputs)).at("loss")[0], expected.at("loss")[0], 1e-4);
  }
  const std::vector<float> trained = session.get("w");
  ASSERT_EQ(trained.size(), state.at("w").size());
  for (size_t i = 0; i < trained.size(); ++i) ASSERT_NEAR(trained[i], state.at("w")[i], 2e-4) << i;
}

TEST(Embedding, TrainsASparseWeightThatAProductHasToo) {
  for (const uint32_t block_size : {1U, 4U, 16U})
    for (const bool is_dynamic : {false, true})
      for (const Machine& machine :
           {Machine::host(1), Machine::host(3), Machine::find("gc200").with("tiles", 12)}) {
        if (!machine.is_host() && (is_dynamic || block_size == 4)) continue;  // products' own tests have them
        SCOPED_TRACE(fmt::format("{}, blocks of {}, dynamic {}", machine.name(), block_size, is_dynamic));
        const Graph g = training_of_sparse_table(pattern_of_table(block_size), is_dynamic);
        Session session(g, machine);
        expect_trains_as_in_float64(g, session);
      }
}

/// The rows that are taken and the sums follow the pattern.
TEST(Embedding, OfASparseWeightFollowsItsPattern) {
  for (const uint32_t block_size : {1U, 8U}) {
    SCOPED_TRACE(block_size);
    const Pattern first = pattern_of_table(block_size, 0.3, 5), second = pattern_of_table(block_size, 0.3, 9);
    const Graph g = training_of_sparse_table(first, true), after = training_of_sparse_table(second, true);
    Session session(g, Machine::host(2));
    expect_trains_as_in_float64(g, session);
    session.set_pattern("w", second);
    std::vector<float> values(session.get("w").size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.01F * static_cast<float>(i % 50) - 0.2F;
    session.set("w", values);
    expect_trains_as_in_float64(after, session);
  }
}

/// Only the values and the index in the form of the product.
TEST(Embedding, OfASparseWeightTakesNoMemoryBesideItsProduct) {
  const auto bytes_of_weights = [](bool takes_rows, bool is_sparse) {
    Graph g;
    const Value ids = g.input("ids", {kIds}, Type::u32);
    const Value w = is_sparse ? sparse_table(g, pattern_of_table(1, 0.1), false)
                              : g.parameter("w", {kRows, kFeatures}, Initial::normal(0.5));
    const Value x = takes_rows ? embedding(ids, w) : g.input("x", {kIds, kFeatures});
    g.output("y", linear(x, w));
    return Session(g, Machine::host(2)).cost().bytes.at("parameter");
  };
  EXPECT_EQ(bytes_of_weights(true, true), bytes_of_weights(false, true));
  EXPECT_LT(bytes_of_weights(true, true), bytes_of_weights(true, false));
}

TEST(Embedding, OfASparseWeightRefusesIdsBeyondItsRows) {
  for (const uint32_t block_size : {1U, 4U}) {
    Graph g;
    g.output("y", embedding(g.input("ids", {2, 3}, Type::u32),
                            sparse_table(g, pattern_of_table(block_size), false)));
    EXPECT_EQ(
        refusal(g, Machine::host(2), {{"ids", {kRows - 1, 0, 1, 2, 3, 4}}}, "ids", {0, 0, 1, 2, kRows, 4e9F}),
        "sparse_embedding: entry [1, 1] of the ids, which come from 'ids', is 70; 'w' has rows 0 to 69");
  }
}

TEST(Embedding, OfPaddingHasNoGradient) {
  Graph g;
  const Value ids = g.input("ids", {kIds}, Type::u32), w = g.input("w", {kRows, kFeatures});
  g.output("dw", *gradients(sum(embedding(ids, w, 3)), {w})[0]);
  const Arrays found =
      Session(g, Machine::host(2))
          .run({{"ids", {0, 69, 3, 3, 3, 17, 0, 1, 16}}, {"w", std::vector<float>(kRows * kFeatures, 1)}});
  for (uint32_t row = 0; row < kRows; ++row) {
    const float count = row == 0 ? 2 : row == 69 || row == 17 || row == 1 || row == 16 ? 1 : 0;
    for (uint32_t c = 0; c < kFeatures; ++c) EXPECT_EQ(found.at("dw")[row * kFeatures + c], count) << row;
  }
}

std::vector<Machine> machines() { return {Machine::host(2), Machine::find("gc200").with("tiles", 6)}; }

TEST(Embedding, OfAnIdBeyondTheRowsIsAnErrorThatSaysWhere) {
  for (const bool is_tied : {false, true})
    for (const Machine& machine : machines()) {
      Graph g;
      const Value ids = g.input("ids", {2, 3}, Type::u32);
      const Value w = g.parameter("w", {kRows, kFeatures}, Initial::constant(1));
      g.output("y", embedding(ids, w));
      if (is_tied) g.output("z", linear(g.input("x", {3, kFeatures}), w));
      Arrays inputs = {{"ids", {kRows - 1, 0, 1, 2, 3, 4}}};
      if (is_tied) inputs["x"] = std::vector<float>(3 * kFeatures);
      EXPECT_EQ(refusal(g, machine, inputs, "ids", {0, 0, 1, 2, kRows, 4e9F}),
                "embedding: entry [1, 1] of the ids, which come from 'ids', is 70; 'w' has rows 0 to 69")
          << machine.name();
    }
}

TEST(Embedding, OfComputedIdsBelowZeroIsAnError) {
  for (const Machine& machine : machines()) {
    Graph g;
    const Value ids = g.input("ids", {3}, Type::i32), first = g.input("first", {1}, Type::i32);
    const Value w = g.parameter("w", {kRows, kFeatures}, Initial::constant(1));
    g.output("y", embedding(ids + first, w));
    EXPECT_EQ(refusal(g, machine, {{"ids", {0, 1, 2}}, {"first", {3}}}, "first", {-1}),
              "embedding: entry [0] of the ids, which come from 'ids', 'first', is -1; 'w' has rows 0 to 69")
        << machine.name();
  }
}

TEST(Embedding, InFunctionsAndLoopsRefusesIdsToo) {
  for (const Machine& machine : machines())
    for (const bool repeats : {false, true}) {
      Graph layer;
      const Value x = layer.input("x", {3, kFeatures}), rows = layer.input("ids", {3}, Type::u32);
      layer.output("y", x + embedding(rows, layer.input("w", {kRows, kFeatures})));
      const auto body = std::make_shared<const Graph>(layer);
      Graph g;
      const Value ids = g.input("ids", {3}, Type::u32);
      const std::vector<Value> inputs = {g.parameter("x", {3, kFeatures}), ids,
                                         g.parameter("w", {kRows, kFeatures}, Initial::constant(1))};
      g.output("y", repeats ? g.loop(body, inputs, {.count = 2, .carried = {{"x", "y"}}})[0]
                            : g.call(body, inputs)[0]);
      const std::string why = refusal(g, machine, {{"ids", {0, 1, 69}}}, "ids", {0, 1, 99});
      EXPECT_TRUE(says(why, "embedding: entry [2] of the ids") && says(why, " is 99; "))
          << machine.name() << ": " << why;
    }
}

TEST(Embedding, GradientsAndSumsRefuseIdsButPadding) {
  for (const Machine& machine : machines()) {
    Graph g;
    g.output("y", scatter_add(g.input("x", {3, 4}), 0, g.input("ids", {3}, Type::u32), 5));
    EXPECT_EQ(refusal(g, machine, {{"x", std::vector<float>(12, 1)}, {"ids", {0, 4, 4}}}, "ids", {0, 5, 4}),
              "embedding_gradient: entry [1] of the ids, which come from 'ids', is 5; there are rows 0 to 4");
  }
}

TEST(Embedding, GatherRefusesIndicesOfOtherRows) {
  for (const Machine& machine : machines()) {
    Graph g;
    g.output("y", gather(g.input("x", {2, 5}), 1, g.input("ids", {2, 2}, Type::u32)));
    EXPECT_EQ(
        refusal(g, machine, {{"x", std::vector<float>(10, 1)}, {"ids", {0, 4, 4, 0}}}, "ids", {5, 0, 0, 0}),
        "an index that comes from 'ids' is not one of a dimension of 5; it must be from 0 to 4");
  }
}

TEST(Embedding, InFloat64RefusesIdsToo) {
  Graph g;
  g.output("y", embedding(g.input("ids", {2}, Type::u32), g.parameter("w", {kRows, kFeatures})));
  WideArrays state = {{"w", std::vector<double>(kRows * kFeatures)}};
  EXPECT_TRUE(says(error_of<UsageError>([&] {
                     evaluate(g, {{"ids", {0, kRows}}}, state);
                   }),
                   "embedding: the id 70 is out of range for 70 rows"));
}

TEST(Embedding, RefusesWhatItCannotTake) {
  Graph g;
  const Value ids = g.input("ids", {3}, Type::u32), w = g.parameter("w", {5, 4});
  const auto refuses = [](const std::string& why, const auto& make) {
    EXPECT_TRUE(says(error_of<UsageError>(make), why));
  };
  refuses("they must be u32", [&] { embedding(g.input("x", {3}), w); });
  refuses("not a matrix", [&] { embedding(ids, g.parameter("v", {5})); });
  refuses("the padding is row 5 of 5", [&] { embedding(ids, w, 5); });
  for (const int64_t padding : {int64_t{-2}, (int64_t{1} << 32) + 3})
    refuses(fmt::format("the padding is row {} of 5", padding), [&] {
      g.apply("embedding", {ids, w}, {{"padding", padding}});
    });
}

}  // namespace
}  // namespace tessera::graph
