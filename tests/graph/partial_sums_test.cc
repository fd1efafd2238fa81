// The type in which tiles send each other the parts of products' sums, and its rounding.
#include <gtest/gtest.h>
#include <tessera/estimate.h>
#include <tessera/gradients.h>
#include <tessera/numbers.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compare.h"
#include "sparse/blocks/packed_blocks.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

constexpr uint32_t kOutputs = 16, kInner = 4096, kRows = 8;

enum class Form : uint8_t { dense, fixed, dynamic, in_function };
constexpr Form kForms[] = {Form::dense, Form::fixed, Form::dynamic, Form::in_function};

Machine tiles() { return Machine::find("bow").with("tiles", 64); }

/// Numbers in [0.5, 1) that FP16 can represent.
float number(uint64_t i) { return 0.5F + static_cast<float>(i * 7919 % 509) / 1024; }

/// The terms of a sum are positive in its first half and negative in the second, so that parts of it are
/// large beside the sum.
std::vector<float> weights() {
  std::vector<float> values(size_t{kOutputs} * kInner);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = i % kInner < kInner / 2 ? number(i + i / kInner) : -number(3 * i + i / kInner);
  return values;
}

std::vector<float> blocks_of(const Pattern& pattern, const std::vector<float>& rows) {
  const uint32_t b = pattern.block_size;
  std::vector<float> values;
  for (uint32_t block = 0; block < pattern.cols / b; ++block)
    for (uint32_t r = 0; r < b; ++r)
      for (uint32_t c = 0; c < b; ++c) values.push_back(rows[size_t{r} * pattern.cols + block * b + c]);
  return values;
}

Value product(Value x, Form form, Type type) {
  Graph& g = x.owner();
  if (form == Form::dense || form == Form::in_function) {
    const Value w = g.parameter("w", {kOutputs, kInner}, Initial::from(weights()), type);
    if (form == Form::dense) return linear(x, w);
    auto f = std::make_shared<Graph>();
    const Value in = f->input("x", {kRows, kInner}, type);
    f->output("y", linear(in, f->input("w", {kOutputs, kInner}, type)));
    return g.call(f, {x, w})[0];
  }
  const Pattern full = sparse::full_pattern(kOutputs, kInner, 16);
  const std::optional<uint64_t> capacity =
      form == Form::dynamic ? std::optional<uint64_t>(kInner / 16) : std::nullopt;
  return linear(x, g.sparse_parameter("w", full, Initial::from(blocks_of(full, weights())), type, capacity));
}

Graph network(Form form, std::optional<Type> partials, Type type = Type::f16) {
  Graph g;
  g.output("y", product(g.input("x", {kRows, kInner}, type), form, type));
  if (partials) g.set_partial_sums({partials});
  return g;
}

WideArrays inputs() {
  std::vector<double> x(size_t{kRows} * kInner);
  for (size_t i = 0; i < x.size(); ++i) x[i] = number(5 * i + 3 * (i / kInner));
  return {{"x", std::move(x)}};
}

std::vector<float> result(const Graph& graph, const Machine& machine, uint32_t threads = 1) {
  return Session(graph, machine, {.threads = threads}).run(narrowed(inputs())).at("y");
}

/// The largest error of a result.
double error_of_results(Form form, Type partials, const Machine& machine) {
  const Graph g = network(form, partials);
  Session session(g, machine);
  WideArrays state = widened(session.state());
  const std::vector<float> found = session.run(narrowed(inputs())).at("y");
  const std::vector<double> exact = evaluate(g, inputs(), state).at("y");
  double largest = 0;
  for (size_t i = 0; i < exact.size(); ++i) largest = std::max(largest, std::abs(found[i] - exact[i]));
  return largest;
}

TEST(PartialSums, InFP32KeepWhatFP16Loses) {
  for (const Form form : kForms) {
    SCOPED_TRACE(static_cast<int>(form));
    const double wide = error_of_results(form, Type::f32, tiles());
    EXPECT_LT(wide, 0.005);  // results are below 16, where FP16 has multiples of 2^-7
    EXPECT_GT(error_of_results(form, Type::f16, tiles()), 0.05);
  }
}

TEST(PartialSums, HaveTheTypeOfTheProductUnlessTheyAreGivenOne) {
  for (const Form form : kForms) {
    SCOPED_TRACE(static_cast<int>(form));
    const std::vector<float> found = result(network(form, {}), tiles());
    EXPECT_EQ(result(network(form, Type::f16), tiles()), found);
    EXPECT_NE(result(network(form, Type::f32), tiles()), found);
    EXPECT_EQ(result(network(form, Type::bf16), tiles()), result(network(form, Type::f32), tiles()));
    const std::vector<float> of_f32 = result(network(form, {}, Type::f32), tiles());
    for (const Type type : {Type::f16, Type::bf16, Type::f32})
      EXPECT_EQ(result(network(form, type, Type::f32), tiles()), of_f32);
  }
}

TEST(PartialSums, OfHostsAreFP32Anyway) {
  for (const Form form : kForms)
    EXPECT_EQ(result(network(form, Type::f16), Machine::host(2)),
              result(network(form, Type::f32), Machine::host(2)));
}

TEST(PartialSums, AreTheSameOnAnyNumberOfThreads) {
  for (const Form form : kForms)
    for (const Type type : {Type::f16, Type::f32})
      EXPECT_EQ(result(network(form, type), tiles(), 3), result(network(form, type), tiles(), 1));
}

Graph rounded(Form form, uint64_t seed, Type type = Type::f16) {
  Graph g = network(form, {}, type);
  g.set_partial_sums({.rounding = Rounding::stochastic, .seed = seed});
  return g;
}

TEST(PartialSums, AreRoundedStochasticallyByTheSeedAlone) {
  for (const Form form : kForms) {
    SCOPED_TRACE(static_cast<int>(form));
    const std::vector<float> found = result(rounded(form, 3), tiles());
    for (const uint32_t threads : {1U, 3U}) EXPECT_EQ(result(rounded(form, 3), tiles(), threads), found);
    EXPECT_NE(result(rounded(form, 4), tiles()), found);
    EXPECT_NE(result(network(form, {}), tiles()), found);
    EXPECT_EQ(result(rounded(form, 3), Machine::host(2)), result(rounded(form, 4), Machine::host(2)));
    EXPECT_EQ(result(rounded(form, 3, Type::f32), tiles()), result(network(form, {}, Type::f32), tiles()));
  }
}

/// Values that are computed again for gradients equal the first ones.
TEST(PartialSums, OfPassesThatAreComputedAgainAreRoundedAlike) {
  constexpr uint32_t kWidth = 256;
  const auto trained = [](bool recompute) {
    auto f = std::make_shared<Graph>();
    const Value in = f->input("x", {4, kWidth}, Type::f16), w = f->input("w", {kWidth, kWidth}, Type::f16);
    f->output("y", tanh(linear(in, w)));
    Graph g;
    Value x = g.input("x", {4, kWidth}, Type::f16);
    for (const char* name : {"a", "b"}) {
      const Value own = g.parameter(name, {kWidth, kWidth}, Initial::normal(0.1), Type::f16);
      x = g.call(f, {x, own}, {.recompute = recompute})[0];
    }
    add_training(mean(square(cast(x, Type::f32))), {.rounding = Rounding::stochastic});
    Session session(g, tiles(), {.seed = 2});
    const Arrays given = narrowed(random_inputs(g));
    session.run({{"x", given.at("x")}, {"lr", {1}}, {"step", {1}}});
    return session.get("a");
  };
  EXPECT_EQ(trained(true), trained(false));
}

/// Two tiles have a half of each sum, as there is no second row of a batch to divide.
TEST(PartialSums, TakeTwiceTheBytesInFP32) {
  const auto cost = [](Type partials) {
    Graph g;
    const Value w = g.parameter("w", {kOutputs, kInner}, Initial::normal(1), Type::f16);
    g.output("y", linear(g.input("x", {1, kInner}, Type::f16), w));
    g.set_partial_sums({partials});
    return estimate(g, Machine::find("bow").with("tiles", 2));
  };
  const RunCost narrow = cost(Type::f16), wide = cost(Type::f32);
  EXPECT_GT(wide.cycles.at("exchange"), narrow.cycles.at("exchange"));
  EXPECT_GE(wide.total_bytes, narrow.total_bytes);
}

TEST(PartialSums, AreChosenByTrainingsAndKeptWithoutAChoice) {
  const auto type_after = [](std::optional<Type> of_graph, std::optional<Type> of_training) {
    Graph g;
    const Value w = g.parameter("w", {4, 8}, Initial::normal(1), Type::f16);
    const Value loss = mean(cast(square(linear(g.input("x", {2, 8}, Type::f16), w)), Type::f32));
    if (of_graph) g.set_partial_sums({of_graph});
    add_training(loss, {.partials = of_training});
    return g.partial_sums().type;
  };
  EXPECT_FALSE(type_after({}, {}));
  EXPECT_EQ(type_after(Type::f16, {}), Type::f16);
  EXPECT_EQ(type_after(Type::f16, Type::f32), Type::f32);
  const auto rounding_after = [](Rounding rounding, uint64_t seed, std::optional<Rounding> own = {}) {
    Graph g;
    const Value w = g.parameter("w", {4, 8}, Initial::normal(1), Type::f16);
    const Value loss = mean(cast(square(linear(g.input("x", {2, 8}, Type::f16), w)), Type::f32));
    add_training(loss, {.rounding = rounding, .roundings = {.partials = own}, .seed = seed});
    return g.partial_sums();
  };
  EXPECT_EQ(rounding_after(Rounding::nearest, 3), PartialSums{});
  EXPECT_EQ(rounding_after(Rounding::stochastic, 3).rounding, Rounding::stochastic);
  EXPECT_NE(rounding_after(Rounding::stochastic, 3), rounding_after(Rounding::stochastic, 4));
  EXPECT_EQ(rounding_after(Rounding::stochastic, 3, Rounding::nearest), PartialSums{});
  EXPECT_EQ(rounding_after(Rounding::nearest, 3, Rounding::stochastic),
            rounding_after(Rounding::stochastic, 3));
  EXPECT_USAGE_ERROR("partial sums of products cannot be u32: use f32, f16 or bf16",
                     type_after({}, Type::u32));
}

TEST(PartialSums, AreNamedByThePublishedNumbers) {
  const auto partials = [](const char* name) { return numbers_named(name).partials; };
  EXPECT_FALSE(partials("fp32"));
  EXPECT_EQ(partials("bf16"), Type::f32);
  for (const char* name : {"mlperf-v1", "mlperf-v2", "mlperf-slides"})
    EXPECT_EQ(partials(name), Type::f16) << name;
  TrainingOptions options;
  set_numbers(options, numbers_named("mlperf-v1"));
  EXPECT_EQ(options.partials, Type::f16);
}

TEST(PartialSums, ArePartOfWhatAGraphIs) {
  EXPECT_NE(to_string(network(Form::dense, Type::f32)), to_string(network(Form::dense, {})));
  EXPECT_NE(to_string(rounded(Form::dense, 1)), to_string(rounded(Form::dense, 2)));
  EXPECT_EQ(to_string(network(Form::dense, {})).find("partial sums"), std::string::npos);
}

}  // namespace
}  // namespace tessera::graph
