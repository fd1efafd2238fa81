// Cross-entropy of few and of many classes, on every machine, compared with float64.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/gradients.h>

#include <cmath>
#include <limits>
#include <vector>

#include "compare.h"
#include "support/number_of.h"

namespace tessera::graph {
namespace {

std::vector<Machine> machines() {
  return {Machine::host(2), Machine::find("gc200").with("tiles", 6),
          Machine::find("gc200").with("tiles", 100), Machine::find("gc200"),
          Machine::find("m2000").with("chips", 2).with("tiles", 40)};
}

/// Mean losses, with and without ignored labels, and their gradients, of a product's results or an input.
Graph losses(uint32_t rows, uint32_t classes, Type type, bool of_product) {
  Graph g;
  const Value x = g.input("x", {rows, of_product ? 16 : classes}, type);
  const Value logits = of_product ? linear(x, g.parameter("w", {classes, 16}, Initial::normal(1), type)) : x;
  const Value labels = g.input("labels", {rows}, Type::u32);
  const Value plain = cross_entropy(logits, labels), some = cross_entropy(logits, labels, {.ignored = 3});
  g.output("loss", plain);
  g.output("loss of some", some);
  g.output("gradient", *gradients(plain + some * 0.5, {x})[0]);
  return g;
}

TEST(CrossEntropy, IsThatInFloat64) {
  test::EveryNth some(7);
  for (const auto& [rows, classes] :
       {std::pair(3U, 2000U), {10U, 700U}, {64U, 10U}, {1U, 5000U}, {200U, 33U}, {7U, 5U}})
    for (const Type type : {Type::f32, Type::f16})
      for (const bool of_product : {false, true}) {
        const Graph g = losses(rows, classes, type, of_product);
        const WideArrays inputs = random_inputs(g);
        for (const Machine& machine : machines()) {
          if (!some.takes()) continue;
          SCOPED_TRACE(fmt::format("{} × {} {}, of a product {}, {}, {} tiles", rows, classes, name_of(type),
                                   of_product, machine.name(), machine.tiles()));
          Session session(g, machine, {.seed = 5});
          WideArrays state = widened(session.state());
          expect_near(session.run(narrowed(inputs)), evaluate(g, inputs, state), 32 * epsilon_of(type));
        }
      }
}

TEST(CrossEntropy, TakesLabelsOfTheShapeOfTheRows) {
  for (const Shape& shape : {Shape{2, 3}, {6, 1}, {1, 6}, {6}})
    for (const Machine& machine : machines()) {
      Shape of_logits = shape;
      of_logits.push_back(5);
      Graph g;
      const Value logits = g.input("logits", of_logits), labels = g.input("labels", shape, Type::u32);
      g.output("loss", cross_entropy(logits, labels));
      g.output("sum", cross_entropy(logits, labels, {.reduction = LossReduction::sum}));
      const WideArrays inputs = random_inputs(g);
      WideArrays state;
      expect_near(Session(g, machine).run(narrowed(inputs)), evaluate(g, inputs, state), 1e-5);
    }
}

TEST(CrossEntropy, LeavesOutIgnoredRowsWhateverTheyHold) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  Graph g;
  const Value logits = g.input("logits", {3, 4}), labels = g.input("labels", {3}, Type::u32);
  const Value loss = cross_entropy(logits, labels, {.ignored = 3, .smoothing = 0.25});
  g.output("loss", loss);
  g.output("gradient", *gradients(loss, {logits})[0]);
  g.output("loss of others",
           cross_entropy(slice(logits, 0, 1, 3), slice(labels, 0, 1, 3), {.smoothing = 0.25}));
  const Arrays inputs = {{"logits", {kNone, 1, kNone, 0.5, 2, 1, 0, -1, 0, 3, 1, 1}}, {"labels", {3, 0, 1}}};
  for (const Machine& machine : machines()) {
    SCOPED_TRACE(fmt::format("{}, {} tiles", machine.name(), machine.tiles()));
    const Arrays found = Session(g, machine).run(inputs);
    EXPECT_NEAR(found.at("loss")[0], found.at("loss of others")[0], 1e-5);
    const std::vector<float>& gradient = found.at("gradient");
    for (size_t i = 0; i < gradient.size(); ++i)
      EXPECT_TRUE(i < 4 ? gradient[i] == 0 : std::isfinite(gradient[i])) << i << ": " << gradient[i];
  }
}

/// As many classes as words of a vocabulary fit a machine, which computes their loss on all of its tiles.
TEST(CrossEntropy, OfManyClassesIsSpreadOverTiles) {
  const auto seconds_of = [](uint32_t classes) {
    const Session session(losses(10, classes, Type::f32, false), Machine::find("gc200"));
    EXPECT_EQ(session.cost().overflow, "");
    double seconds = 0;
    for (const OperationCost& operation : session.cost().operations)
      if (operation.operation == "cross_entropy") seconds += operation.seconds;
    return seconds;
  };
  EXPECT_LT(seconds_of(30'522), 4 * seconds_of(500));
}

}  // namespace
}  // namespace tessera::graph
