// Reductions on every machine, of values in all possible layouts, compared with float64.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/gradients.h>

#include "compare.h"
#include "sparse/generate.h"

namespace tessera::graph {
namespace {

constexpr const char* kReductions[] = {"sum", "max", "sum_of_squares"};

/// Hosts, fewer and more tiles than rows, and chips.
std::vector<Machine> machines() {
  return {Machine::host(1),
          Machine::host(3),
          Machine::find("gc200").with("tiles", 6),
          Machine::find("gc200").with("tiles", 100),
          Machine::find("gc200"),
          Machine::find("m2000").with("chips", 2).with("tiles", 40)};
}

/// Adds each reduction of a value, over each of these, as an output.
void reduce(Graph& g, const std::string& name, Value x, const std::vector<const char*>& overs) {
  for (const std::string operation : kReductions)
    for (const char* over : overs) {
      const bool is_scaled = operation != "max" && !is_integer(x.type().type);
      Attributes attributes = {{"over", over}};
      if (is_scaled) attributes["scale"] = 0.5;
      g.output(fmt::format("{} of {} over {}", operation, name, over),
               g.apply(operation, {x}, std::move(attributes))[0]);
    }
}

void expect_like_float64_everywhere(const Graph& g, double relative) {
  const WideArrays inputs = random_inputs(g);
  for (const Machine& machine : machines()) {
    SCOPED_TRACE(fmt::format("{}, {} tiles", machine.name(), machine.tiles()));
    Session session(g, machine, {.seed = 5});
    WideArrays state = widened(session.state());
    expect_near(session.run(narrowed(inputs)), evaluate(g, inputs, state), relative, 1);
  }
}

TEST(Reductions, OfAllShapesAreThoseInFloat64) {
  const base::RandomStream random(7, 0, 0);
  uint64_t next = 0;
  for (const Type type : {Type::f32, Type::f16, Type::i32, Type::u32})
    for (uint32_t dims = 0; dims <= 4; ++dims) {
      constexpr uint32_t kMost[] = {1, 3000, 90, 20, 9};
      Shape shape;
      for (uint32_t d = 0; d < dims; ++d) shape.push_back(1 + random.word(next++) % kMost[dims]);
      SCOPED_TRACE(to_string(TensorType{type, shape, {}, {}}));
      Graph g;
      reduce(g, "x", g.input("x", shape, type), {"rows", "columns", "all"});
      expect_like_float64_everywhere(g, 16 * epsilon_of(type));
    }
}

/// Weights, their gradients and activations lie as products have them.
TEST(Reductions, OfOperandsOfProductsAreThoseInFloat64) {
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, 64, 96, 0.25, 8, 3});
  for (const bool is_dynamic : {false, true}) {
    Graph g;
    const Value x = g.input("x", {12, 96}), dense = g.parameter("dense", {130, 64}, Initial::normal(1));
    const std::optional<uint64_t> capacity = is_dynamic ? std::optional(2 * pattern.blocks()) : std::nullopt;
    const Value sparse = g.sparse_parameter("sparse", pattern, Initial::normal(1), Type::f32, capacity);
    const Value hidden = relu(linear(x, sparse)), y = linear(hidden, dense);
    const auto found = gradients(sum(square(y)), {sparse, dense});
    reduce(g, "hidden", hidden, {"rows", "columns", "all"});
    reduce(g, "y", y, {"rows", "columns", "all"});
    reduce(g, "dense", dense, {"rows", "columns", "all"});
    reduce(g, "its gradient", *found[1], {"rows", "columns", "all"});
    for (const char* operation : {"sum", "sum_of_squares"})
      for (const auto& [name, value] : {std::pair("sparse", sparse), {"gradient of sparse", *found[0]}})
        g.output(fmt::format("{} of {}", operation, name), g.apply(operation, {value}, {{"over", "all"}})[0]);
    expect_like_float64_everywhere(g, 1e-5);
  }
}

/// Rows lie whole where there are almost as many as tiles, on the tiles of their means.
TEST(Reductions, OfRowsOnAFewMoreTilesExchangeNothing) {
  Graph g;
  const Value x = g.input("x", {80, 64});
  g.output("y", x - mean(x, {1}, true));
  const RunCost cost = Session(g, Machine::find("gc200").with("tiles", 100)).cost();
  EXPECT_EQ(cost.cycles.contains("exchange") ? cost.cycles.at("exchange") : 0.0, 0.0);
}

/// NaN and infinity reach the result from every place.
TEST(Reductions, OverAllKeepWhatIsNoNumber) {
  constexpr uint32_t kRows = 31, kCols = 7;
  Graph g;
  reduce(g, "x", g.input("x", {kRows, kCols}), {"all"});
  for (const Machine& machine : machines()) {
    SCOPED_TRACE(fmt::format("{}, {} tiles", machine.name(), machine.tiles()));
    Session session(g, machine);
    for (const uint32_t at : {0U, 100U, kRows * kCols - 1})
      for (const float value : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> x(kRows * kCols, 1);
        x[at] = value;
        WideArrays state;
        const WideArrays expected = evaluate(g, {{"x", {x.begin(), x.end()}}}, state);
        for (const auto& [name, found] : session.run({{"x", x}})) {
          const double wanted = expected.at(name)[0];
          EXPECT_TRUE(found[0] == wanted || (std::isnan(found[0]) && std::isnan(wanted)))
              << name << " with " << value << " at " << at << " is " << found[0] << ", not " << wanted;
        }
      }
  }
}

/// Padding of weights takes no part where it is 0 times an infinite number, or divided by 0.
TEST(Reductions, OverAllLeaveOutPadding) {
  Graph g;
  const Value x = g.input("x", {3, 19}), w = g.parameter("w", {7, 19}, Initial::constant(-0.5)),
              s = g.input("s", TensorType{});
  g.output("y", linear(x, w));
  g.output("of the product", sum(w * s));
  g.output("of the quotient", sum(w / s));
  g.output("of more", sum(w - w * s));
  g.output("of squares", g.apply("sum_of_squares", {w * s}, {{"over", "all"}})[0]);
  for (const Machine& machine : machines()) {
    SCOPED_TRACE(fmt::format("{}, {} tiles", machine.name(), machine.tiles()));
    Session session(g, machine);
    for (const float number : {2.0F, 0.0F, INFINITY, -INFINITY, NAN}) {
      const Arrays inputs = {{"x", std::vector<float>(3 * 19, 1)}, {"s", {number}}};
      WideArrays state = widened(session.state());
      const WideArrays expected = evaluate(g, widened(inputs), state);
      const Arrays found = session.run(inputs);
      for (const char* name : {"of the product", "of the quotient", "of more", "of squares"}) {
        const double wanted = expected.at(name)[0], sum = found.at(name)[0];
        EXPECT_TRUE(sum == wanted || (std::isnan(sum) && std::isnan(wanted)))
            << name << " with " << number << " is " << sum << ", not " << wanted;
      }
    }
  }
}

/// Updates by norms of parameters, of a size that one tile cannot take, fit a machine.
TEST(Reductions, OfNormsOfLargeParametersFit) {
  Graph g;
  const Value w = g.parameter("w", {1024, 2048}, Initial::normal(0.1));
  const Value loss = sum(square(linear(g.input("x", {8, 2048}), w)));
  g.output("loss", loss);
  add_training(loss, {.optimizer = Lamb{}});
  const Session session(g, Machine::find("gc200"));
  EXPECT_EQ(session.cost().overflow, "");
}

}  // namespace
}  // namespace tessera::graph
