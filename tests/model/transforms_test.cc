// Transforms of graphs: each leaves what a graph computes, and a graph that is valid.
#include "model/transforms/transforms.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>

#include "random_graph.h"
#include "support/error_of.h"

namespace tessera::model {
namespace {

using test::error_of;
using test::says;

struct Contents {
  WideArrays inputs;
  WideArrays state;
};

/// Leaves of a recipe are named by their items: "v3".
Contents contents_for(const Recipe& recipe, const Graph& graph, uint64_t seed) {
  Contents contents;
  for (ValueId id = 0; id < graph.values().size(); ++id) {
    const ValueInfo& info = graph.info(id);
    const bool is_input = info.kind == Kind::input;
    if (!is_input && info.kind != Kind::parameter && info.kind != Kind::state) continue;
    const uint64_t elements = is_input ? graph.bound_type(id).elements() : info.type.elements();
    const bool is_item = info.name[0] == 'v' && info.name.find('.') == std::string::npos;
    const size_t item = is_item ? std::stoull(info.name.substr(1)) : 0;
    (is_input ? contents.inputs : contents.state)[info.name] =
        is_item ? contents_of(recipe.items[item], elements, seed, static_cast<uint32_t>(item))
                : Array(elements, is_input ? 1 : 0);
  }
  return contents;
}

void expect_same(const WideArrays& found, const WideArrays& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, values] : expected)
    for (size_t i = 0; i < values.size(); ++i)
      if (!std::isnan(values[i]) || !std::isnan(found.at(name)[i])) {
        ASSERT_NEAR(found.at(name)[i], values[i], 1e-12 * (1 + std::abs(values[i])))
            << name << ", element " << i;
      }
}

TEST(Transforms, LeaveWhatRandomGraphsCompute) {
  std::map<std::string_view, uint32_t> changed;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Recipe recipe = random_recipe(seed, {.operations = 2 + static_cast<uint32_t>(seed % 7)});
    Built built;
    build(recipe, built);
    verify(built.graph);
    const Contents contents = contents_for(recipe, built.graph, seed);
    WideArrays expected_state = contents.state;
    const WideArrays expected = evaluate(built.graph, contents.inputs, expected_state);
    for (const Transform& each : session_transforms()) {
      Graph graph = built.graph;
      transform(graph, {&each, 1});
      ASSERT_NO_THROW(verify(graph)) << each.name;
      changed[each.name] += graph.nodes().size() < built.graph.nodes().size() ? 1 : 0;
      WideArrays state = contents.state;
      expect_same(evaluate(graph, contents.inputs, state), expected);
      expect_same(state, expected_state);
    }
  }
  for (const Transform& each : session_transforms()) EXPECT_GT(changed[each.name], 0U) << each.name;
}

std::vector<std::string_view> operations_of(const Graph& graph) {
  std::vector<std::string_view> names;
  for (const Node& node : graph.nodes()) names.push_back(node.operation->name);
  return names;
}

TEST(Fuse, TakesAnActivationThatAloneUsesAProduct) {
  for (const bool is_shared : {false, true}) {
    Graph g;
    const Value y = linear(g.input("x", {3, 4}), g.parameter("w", {5, 4}));
    g.output("z", relu(y));
    if (is_shared) g.output("y", y);
    EXPECT_EQ(fuse(g), is_shared ? "0 operations" : "1 operations");
    EXPECT_EQ(g.nodes().size(), is_shared ? 2U : 1U);
  }
}

TEST(Fuse, TakesAMaskThatIsKnownBeforeTheProduct) {
  Graph g;
  const Value dy = g.input("dy", {3, 5}), w = g.parameter("w", {5, 4}), x = g.input("x", {3, 4});
  const Value early = exp(x), dx = g.apply("linear_input_gradient", {dy, w})[0], late = exp(early);
  g.output("late", g.apply("relu_gradient", {dx, late})[0]);
  g.output("early", g.apply("relu_gradient", {g.apply("linear_input_gradient", {dy, w})[0], early})[0]);
  fuse(g);
  verify(g);
  EXPECT_EQ(operations_of(g), (std::vector<std::string_view>{"exp", "linear_input_gradient", "exp",
                                                             "relu_gradient", "linear_input_gradient"}));
}

TEST(RemoveUnused, KeepsWhatOutputsAndStateNeed) {
  Graph g;
  const Value x = g.input("x", {3}), s = g.state("s", {Type::f32, {3}, {}, {}});
  const Value unused = exp(x);
  square(unused);
  g.output("y", x + x);
  g.assign(s, abs(x));
  EXPECT_EQ(remove_unused(g), "2 operations");
  EXPECT_EQ(operations_of(g), (std::vector<std::string_view>{"add", "abs"}));
}

TEST(Verify, NamesWhatIsNotValid) {
  Graph g;
  const Value x = g.input("x", {3, 4}), y = exp(x);
  g.output("z", sum(y, "rows"));
  verify(g);
  const std::vector<Node> nodes = g.nodes();
  const auto fault_of = [&](std::vector<Node> wrong) {
    Graph copy = g;
    copy.set_nodes(std::move(wrong));
    return error_of<Error>([&] { verify(copy); });
  };
  EXPECT_TRUE(says(fault_of({nodes[1], nodes[0]}), "used before it is computed"));
  EXPECT_TRUE(says(fault_of({nodes[0]}), "is an output, and nothing computes it"));
  EXPECT_TRUE(says(fault_of({nodes[0], nodes[0], nodes[1]}), "names another operation"));
  std::vector<Node> wrong = nodes;
  wrong[1].attributes["over"] = std::string("all");
  EXPECT_TRUE(says(fault_of(wrong), "another type than its operation gives it"));
}

TEST(Sessions, RecordTheirPasses) {
  Graph g;
  g.output("y", relu(linear(g.input("x", {3, 4}), g.parameter("w", {5, 4}))));
  for (const char* machine : {"host", "gc200"}) {
    const RunCost cost = Session(g, Machine::find(machine, 2)).cost();
    std::vector<std::string> names;
    for (const PassRecord& pass : cost.passes) names.push_back(pass.name);
    EXPECT_EQ(std::vector(names.begin(), names.begin() + 4),
              (std::vector<std::string>{"remove unused", "fuse", "lower", "verify"}));
    EXPECT_EQ(cost.passes[1].did, "1 operations");
  }
}

}  // namespace
}  // namespace tessera::model
