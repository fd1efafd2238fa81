// Embeddings: rows of a weight that products may have too.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <cmath>

#include "networks.h"
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

TEST(Embedding, OfAnIdBeyondTheRowsIsNaN) {
  for (const bool is_tied : {false, true})
    for (const Machine& machine : {Machine::host(2), Machine::find("gc200").with("tiles", 6)}) {
      Graph g;
      const Value ids = g.input("ids", {3}, Type::u32);
      const Value w = g.parameter("w", {kRows, kFeatures}, Initial::constant(1));
      g.output("y", embedding(ids, w));
      if (is_tied) g.output("z", linear(g.input("x", {3, kFeatures}), w));
      Arrays inputs = {{"ids", {kRows - 1, kRows, 4e9F}}};
      if (is_tied) inputs["x"] = std::vector<float>(3 * kFeatures);
      const std::vector<float> y = Session(g, machine).run(inputs).at("y");
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i >= kFeatures) << machine.name();
    }
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
