// Every case of every operation, on a host and on a modelled machine, compared with its float64 reference.
#include <gtest/gtest.h>

#include <algorithm>

#include "compare.h"

namespace tessera::model {
namespace {

constexpr uint64_t kSeed = 11;

/// Rounding of inputs' sums and of results, relative to the largest result.
double tolerance(const Graph& graph, ValueId output) {
  double epsilon = epsilon_of(Type::f32);
  for (const ValueInfo& info : graph.values()) epsilon = std::max(epsilon, epsilon_of(info.type.type));
  epsilon = std::max(epsilon, epsilon_of(graph.type(output).type));
  return 16 * epsilon;
}

void expect_near(const Graph& graph, const Arrays& found, const WideArrays& expected) {
  for (const auto& [name, values] : expected) {
    const double allowed = tolerance(graph, graph.outputs().at(name)) * test::largest(values, 1);
    ASSERT_EQ(found.at(name).size(), values.size());
    // An operation may leave elements unspecified: its reference has no number there.
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) continue;
      ASSERT_NEAR(found.at(name)[i], values[i], allowed) << name << ", element " << i;
    }
  }
}

bool is_supported(const std::string& machine, const Case& c) {
  const auto is_bf16 = [](const TensorType& type) { return type.type == Type::bf16; };
  return machine == "host" || (!c.hosts_only && std::ranges::none_of(c.inputs, is_bf16));
}

class Cases : public testing::TestWithParam<std::tuple<const char*, const Operation*>> {};

TEST_P(Cases, AgreeWithTheReference) {
  const auto& [machine, operation] = GetParam();
  const std::vector<Case> cases = operation->cases();
  ASSERT_FALSE(cases.empty());
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!is_supported(machine, cases[i])) continue;
    SCOPED_TRACE(testing::Message() << "case " << i << ", seed " << kSeed);
    CaseGraph c(*operation, cases[i], kSeed + i);
    Session session(c.graph, Machine::find(machine, 2));
    Arrays inputs;
    for (const auto& [name, values] : c.arrays) inputs[name] = narrowed(values);
    for (const auto& [name, values] : c.state) session.set(name, narrowed(values));
    const WideArrays expected = evaluate(c.graph, c.arrays, c.state);
    expect_near(c.graph, session.run(inputs), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Model, Cases,
    testing::Combine(testing::Values("host", "bow"),
                     testing::ValuesIn(std::vector(all_operations().begin(), all_operations().end()))),
    [](const auto& of) {
      return std::string(std::get<0>(of.param)) + "_" + std::string(std::get<1>(of.param)->name);
    });

}  // namespace
}  // namespace tessera::model
