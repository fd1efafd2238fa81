// Gradients of every differentiable case compared with finite differences, in float64.
#include <gtest/gtest.h>
#include <tessera/gradients.h>

#include <algorithm>

#include "base/integer_types.h"
#include "random_values.h"
#include "support/number_of.h"

namespace tessera::graph {
namespace {

constexpr uint64_t kSeed = 23;
constexpr double kStep = 1e-5;
constexpr size_t kChecked = 40;

/// The case with a loss: a random weighted sum of its first output.
Value weighted_sum(CaseGraph& c) {
  const Value y = c.graph.value(c.graph.outputs().at("y0"));
  std::vector<double> weights = random_values({Type::f32, y.shape(), {}, {}}, -1, 1, 1, kSeed, 77);
  const Value weight = c.graph.constant("weights", y.shape(), narrowed(weights), y.type().type);
  return sum(y * weight);
}

class Gradients : public testing::TestWithParam<const Operation*> {};

TEST_P(Gradients, AgreeWithFiniteDifferences) {
  const Operation& operation = *GetParam();
  const std::vector<Case> cases = operation.cases();
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i].differentiable) continue;
    SCOPED_TRACE(testing::Message() << "case " << i << ", seed " << kSeed);
    CaseGraph c(operation, cases[i], kSeed + i);
    const Value loss = weighted_sum(c);
    std::vector<Value> of;
    for (const Value& input : c.inputs)
      if (!is_integer(input.type().type)) of.push_back(input);
    const auto found = gradients(loss, of);
    c.graph.output("loss", loss);
    for (size_t k = 0; k < of.size(); ++k)
      if (found[k]) c.graph.output("gradient" + std::to_string(k), *found[k]);
    const WideArrays exact = evaluate(c.graph, c.arrays, c.state);
    for (size_t k = 0; k < of.size(); ++k) {
      const std::string& name = c.graph.info(of[k].id).name;
      if (!found[k] && cases[i].given.contains(of[k].id)) continue;  // a condition
      ASSERT_TRUE(found[k]) << name;
      EXPECT_EQ(found[k]->shape(), of[k].shape());
      std::vector<double>& values = (c.arrays.contains(name) ? c.arrays : c.state).at(name);
      const size_t stride = std::max<size_t>(1, values.size() / kChecked) * test::number_of_cases(5, 1);
      for (size_t e = 0; e < values.size(); e += stride) {
        const double before = values[e];
        values[e] = before + kStep;
        const double above = evaluate(c.graph, c.arrays, c.state).at("loss")[0];
        values[e] = before - kStep;
        const double below = evaluate(c.graph, c.arrays, c.state).at("loss")[0];
        values[e] = before;
        const double expected = (above - below) / (2 * kStep);
        ASSERT_NEAR(exact.at("gradient" + std::to_string(k))[e], expected,
                    1e-6 * std::max(1.0, std::abs(expected)))
            << name << ", element " << e;
      }
    }
  }
}

std::vector<const Operation*> differentiable() {
  std::vector<const Operation*> found;
  for (const Operation* operation : all_operations())
    if (operation->is_differentiable()) found.push_back(operation);
  return found;
}

INSTANTIATE_TEST_SUITE_P(Model, Gradients, testing::ValuesIn(differentiable()),
                         [](const auto& of) { return std::string(of.param->name); });

TEST(Gradients, AreScaledAsTheirLossIs) {
  const auto gradient_of = [](double factor, bool as_constant) {
    Graph g;
    const Value x = g.parameter("x", {4, 6}, Initial::normal(1));
    const Value loss = cross_entropy(x, g.input("labels", {4}, Type::u32));
    const Value scaled =
        as_constant ? loss * g.constant("factor", {}, {static_cast<float>(factor)}) : loss * factor;
    g.output("gradient", *gradients(scaled, {x})[0]);
    const std::vector<double> values = random_values(x.type(), -1, 1, 1, kSeed, 0);
    WideArrays state = {{"x", values}};
    return evaluate(g, {{"labels", {0, 5, 2, 1}}}, state).at("gradient");
  };
  const Array once = gradient_of(1, false);
  for (const bool as_constant : {false, true}) {
    const Array scaled = gradient_of(3, as_constant);
    for (size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(scaled[i], 3 * once[i], 1e-12);
  }
}

/// Also of a function whose weight comes first, and of an output that has two names.
TEST(Gradients, OfAFunctionAreThoseOfItsBody) {
  const auto of_body = [](Value w, Value x) { return relu(linear(x, w)); };
  const auto results_of = [&](bool is_called) {
    Graph g;
    const Value x = g.input("x", {5, 8}), w = g.parameter("w", {6, 8}, Initial::normal(1));
    std::vector<Value> y(2, Value{});
    if (is_called) {
      const auto function = std::make_shared<Graph>();
      const Value own_w = function->input("w", {6, 8});
      const Value own_y = of_body(own_w, function->input("x", {5, 8}));
      function->output("first", own_y);
      function->output("second", own_y);
      function->output("unused number", function->constant("", {}, {1}));
      y = g.call(function, {w, x});
    } else {
      y[0] = y[1] = of_body(w, x);
    }
    const Value loss = sum(square(y[0])) + sum(y[1]) * 3;
    const auto found = gradients(loss, {x, w});
    g.output("dx", *found[0]);
    g.output("dw", *found[1]);
    const WideArrays inputs = {{"x", random_values(x.type(), -1, 1, 1, kSeed, 0)}};
    WideArrays state = {{"w", random_values(w.type(), -1, 1, 1, kSeed, 1)}};
    Session session(g, Machine::host(2));
    session.set("w", narrowed(state["w"]));
    const WideArrays exact = evaluate(g, inputs, state);
    for (const auto& [name, values] : session.run({{"x", narrowed(inputs.at("x"))}}))
      for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], exact.at(name)[i], 1e-4) << name;
    return exact;
  };
  const WideArrays expected = results_of(false);
  for (const auto& [name, values] : results_of(true))
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected.at(name)[i], 1e-12) << name;
}

TEST(Gradients, EndAtFunctionsThatHaveNone) {
  Graph g;
  const Value w = g.parameter("w", {4});
  const auto function = std::make_shared<Graph>();
  const Value x = function->input("x", {4});
  function->output("y", equal(x, x));
  g.output("dw", *gradients(sum(g.call(function, {w})[0] + w), {w})[0]);
  WideArrays state = {{"w", Array(4, 0.5)}};
  EXPECT_EQ(evaluate(g, {}, state).at("dw"), Array(4, 1));
}

}  // namespace
}  // namespace tessera::graph
