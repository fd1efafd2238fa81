// Every case of every operation, on a host and on a modelled machine, compared with its float64 reference.
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>

#include "compare.h"
#include "support/number_of.h"

namespace tessera::graph {
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

/// The host, or 64 tiles of a modelled machine; with --full all tiles.
Machine machine_of(const std::string& name) {
  const Machine whole = Machine::find(name, 2);
  return whole.is_host() || test::is_full() ? whole : whole.with("tiles", 64);
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
    Session session(c.graph, machine_of(machine));
    Arrays inputs;
    for (const auto& [name, values] : c.arrays) inputs[name] = narrowed(values);
    for (const auto& [name, values] : c.state) session.set(name, narrowed(values));
    const WideArrays expected = evaluate(c.graph, c.arrays, c.state);
    expect_near(c.graph, session.run(inputs), expected);
  }
}

/// An attribute in other forms, of which most make no sense.
std::vector<Attribute> others_of(const Attribute& attribute) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  std::vector<Attribute> others = {int64_t{-1},      int64_t{0},
                                   int64_t{3},       int64_t{1} << 32,
                                   kLeast,           kMost,
                                   double{-0.5},     double{NAN},
                                   double{INFINITY}, std::string("nonsense"),
                                   std::string(),    std::vector<int64_t>()};
  if (const auto* list = std::get_if<std::vector<int64_t>>(&attribute)) {
    for (int64_t changed : {int64_t{-1}, int64_t{0}, int64_t{1} << 32, kLeast, kMost})
      for (size_t i = 0; i < list->size(); ++i) {
        std::vector<int64_t> other = *list;
        other[i] = changed;
        others.emplace_back(std::move(other));
      }
    others.emplace_back(std::vector<int64_t>(list->size() + 1, 1));
  }
  return others;
}

class Attributed : public testing::TestWithParam<const Operation*> {};

TEST_P(Attributed, TakesOtherAttributesOrRefusesThem) {
  const Operation& operation = *GetParam();
  for (const Case& c : operation.cases())
    for (const auto& [name, attribute] : c.attributes) {
      std::vector<std::optional<Attribute>> others = {std::nullopt};
      std::ranges::copy(others_of(attribute), std::back_inserter(others));
      for (const std::optional<Attribute>& other : others) {
        Case changed = c;
        if (other)
          changed.attributes[name] = *other;
        else
          changed.attributes.erase(name);
        try {
          const CaseGraph graph(operation, changed, kSeed);
          EXPECT_FALSE(to_string(graph.graph).empty());
        } catch (const UsageError& error) {
          EXPECT_FALSE(std::string_view(error.what()).empty());
        }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Model, Attributed,
                         testing::ValuesIn(std::vector(all_operations().begin(), all_operations().end())),
                         [](const auto& of) { return std::string(of.param->name); });

INSTANTIATE_TEST_SUITE_P(
    Model, Cases,
    testing::Combine(testing::Values("host", "bow"),
                     testing::ValuesIn(std::vector(all_operations().begin(), all_operations().end()))),
    [](const auto& of) {
      return std::string(std::get<0>(of.param)) + "_" + std::string(std::get<1>(of.param)->name);
    });

}  // namespace
}  // namespace tessera::graph
