// Structured maps as plain PyTorch computes them: the same results and gradients as the merged form.
#include "operations/unfused.h"

#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/io.h>
#include <tessera/layers.h>

#include <cmath>

#include "base/random.h"
#include "compare.h"
#include "support/error_of.h"

namespace tessera::graph {
namespace {

constexpr uint32_t kRows = 12;

std::vector<double> random_array(uint64_t size, uint32_t stream) {
  std::vector<float> values(size);
  base::RandomStream(5, 0, stream).fill_normal(values);
  return {values.begin(), values.end()};
}

/// A layer's outputs and all gradients of a weighted sum of them.
struct Differentiated {
  Graph graph;
  std::vector<std::string> parameters;
  WideArrays state;
  WideArrays inputs;

  Differentiated(const LayerOptions& options, uint32_t features, uint32_t outputs) {
    const Value x = graph.input("x", {kRows, features});
    finish(x, linear_layer(graph, "layer", x, outputs, options));
  }
  Differentiated(const Butterfly& of, Form form) {
    const Value x = graph.input("x", {kRows, of.inputs});
    const Shape shape = of.tied ? Shape{of.stacks(), 4 * (of.size() - 1)}
                                : Shape{of.stacks(), of.nblocks, of.levels(), 2 * of.size()};
    const Value twiddle = graph.parameter("twiddle", shape, Initial::normal(0.7));
    finish(x, {butterfly(x, twiddle, of, form), {twiddle}});
  }

 private:
  void finish(Value x, const Layer& layer) {
    graph.output("y", layer.y);
    const std::vector<double> weights = random_array(layer.y.type().elements(), 1);
    const Value loss = sum(layer.y * graph.constant("weights", layer.y.shape(), narrowed(weights)));
    std::vector<Value> of = layer.parameters;
    of.push_back(x);
    const auto found = gradients(loss, of);
    for (size_t i = 0; i < of.size(); ++i) {
      parameters.push_back(graph.info(of[i].id).name);
      graph.output("d " + parameters.back(), found[i].value());
    }
    for (const auto& [name, values] : initial_state(graph, 3)) state[name] = {values.begin(), values.end()};
    inputs["x"] = random_array(x.type().elements(), 2);
  }
};

Arrays run_on(const Differentiated& d, const Machine& machine) {
  Session session(d.graph, machine);
  for (const auto& [name, values] : d.state) session.set(name, narrowed(values));
  return session.run({{"x", narrowed(d.inputs.at("x"))}});
}

/// Both forms in float64 agree; the unfused one agrees with it on a host and on a modelled machine.
void expect_same(Differentiated best, Differentiated unfused, const WideArrays& expected) {
  expect_each_near(evaluate(unfused.graph, unfused.inputs, unfused.state), expected, 1e-10);
  for (const char* machine : {"host", "gc200"}) {
    SCOPED_TRACE(machine);
    expect_near(run_on(unfused, Machine::find(machine, 2)), expected, 4e-6);
  }
  expect_near(run_on(best, Machine::find("gc200")), evaluate(best.graph, best.inputs, best.state), 4e-6);
}
void expect_same(Differentiated best, const Differentiated& unfused) {
  const WideArrays expected = evaluate(best.graph, best.inputs, best.state);
  expect_same(std::move(best), unfused, expected);
}

class UnfusedLayer : public testing::TestWithParam<LayerStructure> {};

TEST_P(UnfusedLayer, ComputesWhatTheBestFormDoes) {
  for (const auto& [inputs, outputs] : {std::pair(32U, 32U), {20U, 44U}, {36U, 24U}}) {
    SCOPED_TRACE(testing::Message() << inputs << " to " << outputs);
    LayerOptions options{.structure = GetParam()};
    const Differentiated best(options, inputs, outputs);
    options.form = Form::unfused;
    const Differentiated unfused(options, inputs, outputs);
    EXPECT_EQ(best.parameters, unfused.parameters);
    EXPECT_EQ(best.state, unfused.state);
    EXPECT_GT(unfused.graph.nodes().size(), best.graph.nodes().size());
    expect_same(best, unfused);
  }
}

INSTANTIATE_TEST_SUITE_P(Model, UnfusedLayer,
                         testing::Values(LayerStructure::butterfly, LayerStructure::bpbp,
                                         LayerStructure::fastfood, LayerStructure::monarch),
                         [](const auto& of) { return std::string(name_of(of.param)); });

TEST(Unfused, ButterfliesOfEveryShapeAgree) {
  const Butterfly shapes[] = {
      {.inputs = 16, .outputs = 16},
      {.inputs = 16, .outputs = 16, .decreasing = true},
      {.inputs = 13, .outputs = 37, .nblocks = 2},
      {.inputs = 16, .outputs = 9, .tied = true, .decreasing = true},
      {.inputs = 2, .outputs = 2},
  };
  for (const Butterfly& of : shapes) {
    SCOPED_TRACE(testing::Message() << of.inputs << " to " << of.outputs << ", " << of.nblocks << " blocks");
    expect_same({of, Form::fused}, {of, Form::unfused});
  }
}

/// The same matrix, whose blocks are parameters in another order.
TEST(Unfused, PixelflyAgrees) {
  for (const auto& [inputs, outputs] : {std::pair(64U, 64U), {64U, 32U}}) {
    LayerOptions options{
        .structure = LayerStructure::pixelfly, .rank = 3, .block_size = 8, .butterfly_size = 4};
    const Differentiated best(options, inputs, outputs);
    options.form = Form::unfused;
    const Differentiated unfused(options, inputs, outputs);
    const Pattern pattern = flat_butterfly(outputs, inputs, 8, 4);
    WideArrays state = best.state;
    WideArrays expected = evaluate(best.graph, best.inputs, state);
    for (const char* name : {"d layer.weight"}) {
      const std::vector<float> values = unfused_block_values(pattern, narrowed(expected.at(name)));
      expected[name] = {values.begin(), values.end()};
    }
    WideArrays of_unfused = unfused.state;
    const WideArrays found = evaluate(unfused.graph, unfused.inputs, of_unfused);
    for (const auto& [name, values] : expected)
      for (size_t i = 0; i < values.size(); ++i)
        ASSERT_NEAR(found.at(name)[i], values[i], 1e-6 * std::max(1.0, std::abs(values[i]))) << name;
    for (const char* machine : {"host", "gc200"}) {
      SCOPED_TRACE(machine);
      expect_near(run_on(unfused, Machine::find(machine, 2)), found, 4e-6);
    }
  }
}

TEST(Unfused, RefusesWhatItCannotBe) {
  Graph graph;
  const Value x = graph.input("x", {4, 24});
  const auto message = [&](const LayerOptions& options) {
    return test::error_of<UsageError>([&] { linear_layer(graph, "hidden", x, 24, options); });
  };
  LayerOptions options{.structure = LayerStructure::pixelfly, .form = Form::unfused};
  options.block_size = 16;
  options.butterfly_size = 2;
  EXPECT_TRUE(test::says(message(options), "multiples of the block size, 16; they are 24 and 24"));
  options.block_size = 4;
  options.butterfly_size = 8;
  EXPECT_TRUE(test::says(message(options), "equally many blocks in each row"));
  const Butterfly complex{.inputs = 12, .outputs = 12, .complex = true};
  const Value twiddle = graph.parameter("twiddle", {1, 1, 4, 64});
  EXPECT_TRUE(test::says(test::error_of<UsageError>([&] { butterfly(x, twiddle, complex, Form::unfused); }),
                         "no complex numbers"));
  EXPECT_TRUE(test::says(test::error_of<UsageError>([] { form_named("merged"); }),
                         "unknown form 'merged' (choose from fused, unfused)"));
}

}  // namespace
}  // namespace tessera::graph
