// Loops: functions that run several times, on the host and on tiles.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "compare.h"
#include "graph/stages.h"
#include "graph/transforms/transforms.h"
#include "sparse/generate.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

using test::error_of;
using test::says;

/// Layers of equal size, whose weights lie one below the other.
std::shared_ptr<const Graph> layer(uint32_t rows, uint32_t width) {
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {rows, width});
  const Value w = body->input("w", {width, width}), b = body->input("b", {width});
  body->output("y", x + tanh(linear(x, w, b)));
  return body;
}

TEST(Loops, RunLayersWhoseWeightsAreStacked) {
  constexpr uint32_t kRows = 6, kWidth = 24, kLayers = 4;
  Graph looped;
  const Value w = looped.parameter("w", {kLayers * kWidth, kWidth}, Initial::normal(0.2));
  const Value b = looped.parameter("b", {kLayers * kWidth}, Initial::normal(0.1));
  const Value y = looped.loop(layer(kRows, kWidth), {looped.input("x", {kRows, kWidth}), w, b},
                              {.count = kLayers, .indexed = {"w", "b"}, .carried = {{"x", "y"}}})[0];
  const Value loss = mean(square(y));
  looped.output("loss", loss);
  Graph unrolled;
  Value h = unrolled.input("x", {kRows, kWidth});
  const Value uw = unrolled.parameter("w", w.shape()), ub = unrolled.parameter("b", b.shape());
  for (uint32_t i = 0; i < kLayers; ++i)
    h = unrolled.call(layer(kRows, kWidth), {h, slice(uw, 0, i * kWidth, (i + 1) * kWidth),
                                             slice(ub, 0, i * kWidth, (i + 1) * kWidth)})[0];
  unrolled.output("loss", mean(square(h)));
  for (Graph* g : {&looped, &unrolled}) add_training(g->value(g->outputs().at("loss")));
  WideArrays inputs = random_inputs(looped), state = widened(initial_state(looped, 3)), same = state;
  const double expected = evaluate(unrolled, inputs, same).at("loss")[0];
  EXPECT_NEAR(evaluate(looped, inputs, state).at("loss")[0], expected, 1e-12);
  for (const auto& [name, values] : same) test::expect_near(state.at(name), values, 1e-12, name);
  expect_like_float64(looped);
}

TEST(Loops, GiveRowsOfEachPassWhateverTheirDimensions) {
  for (const bool reversed : {false, true}) {
    auto body = std::make_shared<Graph>();
    const Value scalar = body->input("scalar", Shape{}), row = body->input("row", {7});
    const Value matrix = body->input("matrix", {3, 7}), many = body->input("many", {2, 3, 7});
    const Value ids = body->input("ids", {3}, Type::u32), all = body->input("all", {5, 7});
    body->output("scalars", scalar * 2);
    body->output("rows", row + scalar);
    body->output("matrices", embedding(ids, all) + matrix * row);
    body->output("many sums", many + matrix);
    body->output("total", sum(many));
    body->output("last", row * scalar);
    Graph g;
    const std::vector<Value> results =
        g.loop(body,
               {g.input("scalar", {4}), g.input("row", {28}), relu(g.input("matrix", {12, 7})),
                g.input("many", {8, 3, 7}), g.input("ids", {12}, Type::u32),
                g.parameter("all", {5, 7}, Initial::normal(1))},
               {.count = 4,
                .indexed = {"scalar", "row", "matrix", "many", "ids"},
                .stacked = {"scalars", "rows", "matrices", "many sums"},
                .summed = {"total"},
                .scale = -0.5,
                .reversed = reversed});
    for (size_t i = 0; i < results.size(); ++i) g.output(fmt::format("y{}", i), results[i]);
    g.output("used", results[2] + g.find("matrix"));
    g.output("rows used", reshape(results[3], {4, 7}) * 2);
    expect_like_float64(g);
  }
}

/// The ids of a pass, of which many tiles have a few each, are gathered on few tiles first.
TEST(Loops, TakeLongListsOfIds) {
  const auto looped = [](uint32_t rows, uint32_t ids, bool gives_last) {
    constexpr uint32_t kPasses = 3;
    auto body = std::make_shared<Graph>();
    const Value list = body->input("ids", {rows, ids}, Type::u32);
    const Value taken = embedding(list, body->input("table", {5, 8}));
    body->output("total", sum(taken * taken));
    if (gives_last) body->output("last", taken);
    Graph g;
    const Value all = g.input("ids", {kPasses * rows, ids}, Type::u32);
    const Value table = g.parameter("table", {5, 8}, Initial::normal(1));
    const std::vector<Value> results =
        g.loop(body, {all, table}, {.count = kPasses, .indexed = {"ids"}, .summed = {"total"}});
    for (size_t i = 0; i < results.size(); ++i) g.output(fmt::format("y{}", i), results[i]);
    return g;
  };
  expect_like_float64(looped(32, 16, true));
  constexpr uint32_t kIds = 512, kBytesOfTransfer = 36;
  const RunCost cost = estimate(looped(2, kIds, false), Machine::find("gc200"));
  for (const auto& tile : cost.tiles) EXPECT_LT(tile.at("other"), kIds * kBytesOfTransfer);
}

/// Images, whose channels are columns, lie on all tiles.
TEST(Loops, SpreadMatricesOfFewColumns) {
  const auto looped = [](uint32_t passes, const Shape& of_pass, Type type) {
    auto body = std::make_shared<Graph>();
    const Value x = cast(body->input("x", of_pass, type), Type::f32);
    body->output("sums", sum(x * x, {-1}));
    body->output("total", sum(x));
    Graph g;
    Shape all = of_pass;
    all[0] *= passes;
    const std::vector<Value> results =
        g.loop(body, {g.input("x", all, type)},
               {.count = passes, .indexed = {"x"}, .stacked = {"sums"}, .summed = {"total"}});
    for (size_t i = 0; i < results.size(); ++i) g.output(fmt::format("y{}", i), results[i]);
    return g;
  };
  for (const Type type : {Type::u8, Type::f32})
    for (const Shape& of_pass : {Shape{13, 1}, Shape{2, 3, 5, 1}})
      expect_like_float64(looped(3, of_pass, type));

  constexpr uint32_t kPasses = 3, kSize = 512;
  const RunCost cost =
      estimate(looped(kPasses, {1, kSize, kSize, 3}, Type::u8), Machine::find("gc200").with("tiles", 512));
  for (const auto& tile : cost.tiles) {
    uint64_t bytes = 0;
    for (const auto& [purpose, own] : tile) bytes += own;
    EXPECT_LT(bytes, kPasses * kSize * kSize / 8);  // of one channel
  }
}

/// Where passes have the terms of a sum, here whole columns, they exchange nothing to add them.
TEST(Loops, SumWhereValuesLie) {
  const auto syncs = [](uint32_t passes) {
    auto body = std::make_shared<Graph>();
    body->output("sum", body->input("x", {64, 96}) * 2);
    Graph g;
    const Value sums = g.loop(body, {g.input("x", {64 * passes, 96})},
                              {.count = passes, .indexed = {"x"}, .summed = {"sum"}})[0];
    g.output("y", relu(sums));
    const RunCost cost = estimate(g, Machine::find("gc200").with("tiles", 200));
    return cost.cycles.contains("sync") ? cost.cycles.at("sync") : 0;
  };
  EXPECT_EQ(syncs(2), syncs(7));
}

/// A sum of 1 and of numbers that FP16 loses beside it.
TEST(Loops, SumValuesOf16BitsInFP32WhereTheyAreToldTo) {
  constexpr uint32_t kPasses = 64, kElements = 4 * 8;
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {4, 8}, Type::f16);
  body->output("in f16", x * 2);
  body->output("in f32", x + x);
  Loop loop{.count = kPasses};
  loop.indexed = {"x"};
  loop.summed = {"in f16", "in f32"};
  loop.scale = 0.5;
  loop.summed_in_f32 = {"in f32"};
  Graph g;
  const std::vector<Value> sums = g.loop(body, {g.input("x", {4 * kPasses, 8}, Type::f16)}, loop);
  EXPECT_EQ(sums[0].type().type, Type::f16);
  EXPECT_EQ(sums[1].type().type, Type::f32);
  g.output("in f16", sums[0]);
  g.output("in f32", sums[1]);
  verify(g);
  std::vector<float> given(size_t{kPasses} * kElements, 0x1p-13F);
  std::fill_n(given.begin(), kElements, 1.0F);
  for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 12)}) {
    const Arrays found = Session(g, machine).run({{"x", given}});
    EXPECT_EQ(found.at("in f16"), std::vector<float>(kElements, 1));
    EXPECT_EQ(found.at("in f32"), std::vector<float>(kElements, 1 + 63 * 0x1p-13F));
  }
}

TEST(Loops, HaveGradientsOfSumsInFP32) {
  auto body = std::make_shared<Graph>();
  const Value rows = body->input("x", {4, 8}, Type::f16), factors = body->input("w", {8}, Type::f16);
  body->output("sum", rows * factors);
  Graph g;
  const Value w = g.parameter("w", {8}, Initial::constant(1), Type::f16);
  const Value y =
      g.loop(body, {g.input("x", {12, 8}, Type::f16), w},
             {.count = 3, .indexed = {"x"}, .summed = {"sum"}, .scale = 0.5, .summed_in_f32 = {"sum"}})[0];
  add_training(sum(y));
  for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 12)}) {
    Session session(g, machine);
    session.run({{"x", std::vector<float>(96, 0.25F)}, {"lr", {0.5F}}});
    EXPECT_EQ(session.get("w"), std::vector<float>(8, 0.25F));  // 1 - 0.5 · 0.5 · 12 · 0.25
  }
}

TEST(Loops, LeaveWhatAllPassesTake) {
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {4, 8}), w = body->input("w", {16, 8});
  // A sum to which the product could be added where it lies.
  body->output("y", linear(x, w) + reshape(body->input("c", {2, 2, 16}), {4, 16}));
  Graph g;
  const Value c = relu(g.input("c", {2, 2, 16}));
  g.output("y", g.loop(body, {g.input("x", {12, 8}), g.parameter("w", {16, 8}, Initial::normal(1)), c},
                       {.count = 3, .indexed = {"x"}, .stacked = {"y"}})[0]);
  g.output("sum", sum(c));
  expect_like_float64(g);
}

TEST(Loops, StandInLoopsAndFunctions) {
  auto inner = std::make_shared<Graph>();
  const Value x = inner->input("x", {4, 6}), h = inner->input("h", {4, 6});
  inner->output("h next", tanh(h + x));
  const Loop how{.count = 2, .indexed = {"x"}, .carried = {{"h", "h next"}}};
  auto outer = std::make_shared<Graph>();
  const Value y = outer->input("y", {8, 6}), z = outer->input("z", {4, 6});
  outer->output("z next", outer->loop(inner, {y, z}, how)[0] * 0.75);
  Graph g;
  const Value in = g.parameter("in", {24, 6}, Initial::normal(1)), start = g.input("start", {4, 6});
  const Value looped =
      g.loop(outer, {in, start}, {.count = 3, .indexed = {"y"}, .carried = {{"z", "z next"}}})[0];
  const Value called = g.call(outer, {slice(in, 0, 0, 8), looped})[0];
  const Value loss = mean(square(called));
  g.output("loss", loss);
  add_training(loss, {.optimizer = Sgd{.momentum = 0.5}});
  expect_like_float64(g);
}

TEST(Loops, ShareTheCodeOfTheirPasses) {
  const auto compute_sets = [](uint32_t count) {
    Graph g;
    g.output("y",
             g.loop(layer(6, 24), {g.input("x", {6, 24}), g.parameter("w", {24, 24}), g.parameter("b", {24})},
                    {.count = count, .carried = {{"x", "y"}}})[0]);
    return Session(g, Machine::find("bow").with("tiles", 12)).compute_sets();
  };
  EXPECT_EQ(compute_sets(2), compute_sets(20));
}

TEST(Loops, DrawInEachPassAndAgainInTheirGradient) {
  constexpr uint32_t kRows = 4, kCols = 32;
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {kRows, kCols}), step = body->input("step", {}, Type::u32);
  body->output("y", dropout(x, 0.5, step, 7));
  Graph g;
  const Value in = g.parameter("in", {kRows, kCols}, Initial::constant(1)),
              number = g.input("step", {}, Type::u32);
  const Loop how{.count = 3, .stacked = {"y"}};
  const Value first = g.loop(body, {in, number}, how)[0], second = g.loop(body, {in, number}, how)[0];
  g.output("first", first);
  g.output("second", second);
  g.output("gradient", *gradients(sum(first), {in})[0]);
  const WideArrays inputs = {{"step", {3}}};
  std::set<std::vector<float>> masks;
  for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 6)}) {
    Session session(g, machine);
    const Arrays found = session.run(narrowed(inputs));
    WideArrays state = widened(session.state());
    expect_each_near(found, evaluate(g, inputs, state), 1e-6);
    for (const char* name : {"first", "second"})
      for (auto pass = found.at(name).begin(); pass != found.at(name).end(); pass += kRows * kCols)
        masks.emplace(pass, pass + kRows * kCols);
    for (size_t i = 0; i < kRows * kCols; ++i) {
      float kept = 0;
      for (size_t pass = 0; pass < 3; ++pass) kept += found.at("first")[pass * kRows * kCols + i];
      EXPECT_FLOAT_EQ(found.at("gradient")[i], kept);
    }
  }
  EXPECT_EQ(masks.size(), 6u) << "equal on all machines, and different in all passes";
}

TEST(Loops, DrawInLoopsOfLoopsAndFunctions) {
  constexpr uint32_t kCols = 40;
  auto inner = std::make_shared<Graph>();
  const Value x = inner->input("x", {2, kCols}), step = inner->input("step", {}, Type::u32);
  inner->output("y", dropout(x, 0.5, step, 7));
  auto outer = std::make_shared<Graph>();
  const Value z = outer->input("z", {2, kCols}), number = outer->input("step", {}, Type::u32);
  outer->output("all", outer->loop(inner, {z, number}, {.count = 2, .stacked = {"y"}})[0]);
  Graph g;
  const Value w = g.parameter("w", {2, kCols}, Initial::constant(1)), run = g.input("step", {}, Type::u32);
  const Value looped = g.loop(outer, {w, run}, {.count = 3, .stacked = {"all"}, .reversed = true})[0];
  const Value called = g.call(outer, {w, run})[0];
  g.output("looped", looped);
  g.output("called", called);
  const WideArrays inputs = {{"step", {3}}};
  for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 6)}) {
    Session session(g, machine);
    const Arrays found = session.run(narrowed(inputs));
    WideArrays state = widened(session.state());
    expect_each_near(found, evaluate(g, inputs, state), 1e-6);
    std::set<std::vector<float>> masks;
    for (const auto& [name, values] : found)
      for (auto pass = values.begin(); pass != values.end(); pass += 2 * kCols)
        masks.emplace(pass, pass + 2 * kCols);
    EXPECT_EQ(masks.size(), 3u * 2 + 2);
  }
  for (const char* name : {"looped", "called"}) g.remove_output(name);
  const Value loss = sum(square(looped)) + sum(called);
  g.output("loss", loss);
  add_training(loss, {.micro_batches = 2});
  WideArrays arrays = {{"step", {3, 4}}, {"lr", {0.01}}};
  for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 6)}) {
    Session session(g, machine);
    WideArrays state = widened(session.state());
    const double expected = evaluate(g, arrays, state).at("loss")[0];
    EXPECT_NEAR(session.run(narrowed(arrays)).at("loss")[0], expected, 1e-4 * expected);
    test::expect_near(session.get("w"), state.at("w"), 1e-5, "w");
  }
}

TEST(Loops, RunOnTheStageWhereTheyStandForMicroBatches) {
  Graph g;
  const Value x = g.input("x", {6, 24});
  const Value w = g.parameter("w", {24, 24}, Initial::normal(0.2)), b = g.parameter("b", {24});
  Loop how{.count = 2, .carried = {{"x", "y"}}};
  Value h = g.loop(layer(6, 24), {x, w, b}, how)[0];
  how.stage = 1;
  h = g.loop(layer(6, 24), {h, g.parameter("v", {24, 24}, Initial::normal(0.2)), b}, how)[0];
  const Value loss = mean(square(h));
  g.output("loss", loss);
  EXPECT_EQ(stages_of(g).loops.at(0).count(), 1U);
  EXPECT_EQ(stages_of(g).loops.at(1).count(), 2U);
  add_training(loss, {.micro_batches = 2});
  expect_like_float64(g);
}

/// Conversions are counted once, among the costs of operations.
TEST(Loops, AndFunctionsReportTheirConversions) {
  auto body = std::make_shared<Graph>();
  const Value in = body->input("x", {64, 64}), weight = body->input("w", {64, 64});
  body->output("y", softmax(linear(linear(in, weight), weight)));
  for (const bool loop : {false, true}) {
    Graph g;
    const std::vector<Value> given = {g.input("x", {64, 64}),
                                      g.parameter("w", {64, 64}, Initial::normal(0.1))};
    g.output("y",
             loop ? g.loop(body, given, {.count = 3, .carried = {{"x", "y"}}})[0] : g.call(body, given)[0]);
    const RunCost cost = estimate(g, Machine::find("bow").with("tiles", 12));
    double listed = 0, of_operations = 0;
    for (const ConversionCost& conversion : cost.conversions) listed += conversion.seconds;
    for (const OperationCost& operation : cost.operations) {
      EXPECT_LE(operation.conversion_seconds, operation.seconds) << operation.value;
      of_operations += operation.conversion_seconds;
    }
    EXPECT_GT(listed, 0.05 * cost.seconds);
    EXPECT_NEAR(listed, of_operations, 1e-9 * listed);
  }
}

TEST(Loops, TakeWeightsWhosePatternChanges) {
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, 32, 32, 0.25, 8, 3});
  Pattern other = sparse::generate_pattern({PatternKind::random, 32, 32, 0.25, 8, 4});
  Graph g;
  const Value w = g.sparse_parameter("w", pattern, Initial::normal(0.3), Type::f32,
                                     std::max(pattern.blocks(), other.blocks()));
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {5, 32}), in = body->input("w", w.type());
  body->output("y", tanh(linear(x, in)));
  const Value loss =
      mean(square(g.loop(body, {g.input("x", {5, 32}), w}, {.count = 2, .carried = {{"x", "y"}}})[0]));
  g.output("loss", loss);
  add_training(loss);
  for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 12)}) {
    Session session(g, machine);
    session.set_pattern("w", other);
    Graph same;
    const Value v = same.sparse_parameter("w", other, {}, Type::f32, w.type().capacity);
    auto again = std::make_shared<Graph>();
    const Value ax = again->input("x", {5, 32}), aw = again->input("w", v.type());
    again->output("y", tanh(linear(ax, aw)));
    const Value expected = mean(
        square(same.loop(again, {same.input("x", {5, 32}), v}, {.count = 2, .carried = {{"x", "y"}}})[0]));
    same.output("loss", expected);
    add_training(expected);
    const WideArrays inputs = random_inputs(g);
    for (uint32_t step = 0; step < 2; ++step) {
      WideArrays state = widened(session.state());
      const double wanted = evaluate(same, inputs, state).at("loss")[0];
      EXPECT_NEAR(session.run(narrowed(inputs)).at("loss")[0], wanted, 1e-5);
      test::expect_near(session.get("w"), state.at("w"), 1e-4, "w");
    }
  }
}

TEST(Loops, SayWhatTheyDoNotTake) {
  const auto error = [](const Loop& how, const Shape& x = {6, 24}) {
    return error_of<UsageError>([&] {
      Graph g;
      g.loop(layer(6, 24), {g.input("x", x), g.input("w", {24, 24}), g.input("b", {24})}, how);
    });
  };
  EXPECT_TRUE(says(error({.count = 0}), "its number of passes is 0; it must be at least 1"));
  EXPECT_TRUE(says(error({.indexed = {"z"}}), "no input 'z'; it has x, w, b"));
  EXPECT_TRUE(says(error({.stacked = {"z"}}), "no output 'z'; it has y"));
  EXPECT_TRUE(says(error({.carried = {{"w", "y"}}}), "'w', f32[24, 24], cannot become f32[6, 24]"));
  EXPECT_TRUE(
      says(error({.indexed = {"x"}, .carried = {{"x", "y"}}}), "input 0 cannot be carried from output 0"));
  EXPECT_TRUE(says(error({.stacked = {"y"}, .summed = {"y"}}), "an output only one of stacked and summed"));
  EXPECT_TRUE(says(error({.summed_in_f32 = {"y"}}), "output 0 is not summed, and its sum is to be FP32"));
  EXPECT_TRUE(
      says(error({.count = 2, .indexed = {"x"}}), "2 passes take f32[12, 24], and given is f32[6, 24]"));
  EXPECT_TRUE(says(error({}, {6, 12}), "take f32[6, 24], and given is f32[6, 12]"));
  auto body = std::make_shared<Graph>();
  body->output("w", body->parameter("w", {2, 3}) * 2);
  Graph g;
  EXPECT_TRUE(says(error_of<UsageError>([&] { g.loop(body, {}, {}); }), "pass it as an input"));
  EXPECT_TRUE(says(error_of<UsageError>([&] { g.loop(nullptr, {}, {}); }), "there is no function"));
}

}  // namespace
}  // namespace tessera::graph
