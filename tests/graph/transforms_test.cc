// Transforms of graphs: each keeps the results of a graph, and makes a valid graph.
#include "graph/transforms/transforms.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/vision.h>

#include <algorithm>
#include <cmath>

#include "graph/initial.h"
#include "graph/transforms/recompute.h"
#include "networks.h"
#include "random_graph.h"
#include "random_values.h"
#include "support/error_of.h"

namespace tessera::graph {
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
    if (!is_input && !is_kept(info)) continue;
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
  const machine::Machine bow = Machine::find("bow").model(), host = Machine::host(2).model();
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
      transform(graph, {&each, 1}, each.name == "join elementwise" ? host : bow);
      ASSERT_NO_THROW(verify(graph)) << each.name;
      changed[each.name] += to_string(graph) != to_string(built.graph) ? 1 : 0;
      WideArrays state = contents.state;
      expect_same(evaluate(graph, contents.inputs, state), expected);
      expect_same(state, expected_state);
    }
  }
  for (const Transform& each : session_transforms()) EXPECT_GT(changed[each.name], 0U) << each.name;
}

/// Half of the calls and stages that can be computed again, of graphs with and without replicas and stages.
TEST(Recomputation, LeavesWhatRandomGraphsCompute) {
  uint32_t calls = 0, calls_in_loops = 0, stages = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Recipe recipe =
        random_recipe(seed, {.operations = 2 + static_cast<uint32_t>(seed % 7), .most_replicas = 2});
    Built built;
    build(recipe, built);
    test::Random random(seed);
    std::vector<Recomputable> chosen;
    for (const RecomputationCandidate& candidate : recomputation_candidates(built.graph))
      if (random.coin()) chosen.push_back(candidate.what);
    if (chosen.empty()) continue;
    for (const Recomputable& each : chosen) ++(!each.call ? stages : each.loop ? calls_in_loops : calls);
    Graph graph = built.graph;
    recompute(graph, chosen);
    ASSERT_NO_THROW(verify(graph));
    const Contents contents = contents_for(recipe, built.graph, seed);
    WideArrays state = contents.state, expected_state = contents.state;
    expect_same(evaluate(graph, contents.inputs, state),
                evaluate(built.graph, contents.inputs, expected_state));
    expect_same(state, expected_state);
  }
  for (const uint32_t count : {calls, calls_in_loops, stages}) EXPECT_GT(count, 0U);
}

std::vector<std::string_view> operations_of(const Graph& graph) {
  std::vector<std::string_view> names;
  for (const Node& node : graph.nodes()) names.push_back(node.operation->name);
  return names;
}

/// A batch norm with its gradient: sums share passes, and nothing of x's size is stored but y, the expanded
/// gradient of the loss, and dx.
TEST(JoinElementwise, NormalisesInFewPasses) {
  Graph g;
  const Value x = g.parameter("x", {40, 12}), weight = g.parameter("weight", {12}),
              bias = g.parameter("bias", {12}), dy = g.input("dy", {40, 12});
  const Value y = relu(batch_norm_of_batch(x, weight, bias).y);
  g.output("y", y);
  const auto slopes = gradients(sum(y * dy), {x, weight, bias});
  for (size_t i = 0; i < slopes.size(); ++i) g.output(fmt::format("slope{}", i), *slopes[i]);
  transform(g, session_transforms(), Machine::host(2).model());
  size_t large = 0, reductions = 0;
  for (const Node& node : g.nodes()) {
    const bool takes_large =
        std::ranges::any_of(node.inputs, [&](ValueId id) { return g.type(id).rows() == 40; });
    const bool gives_large = g.type(node.outputs[0]).rows() == 40;
    large += gives_large ? 1 : 0;
    reductions += takes_large && !gives_large ? 1 : 0;
  }
  EXPECT_EQ(large, 3U) << to_string(g);
  EXPECT_EQ(reductions, 3U) << to_string(g);
}

/// A sum cannot share the pass of another one that takes its result.
TEST(JoinElementwise, ReducesWhatDependsOnAnotherReduction) {
  for (const uint32_t rows : {40U, 2500U}) {
    Graph g;
    const Value x = g.input("x", {rows, 12}), average = mean(x, {0}), most = max(x, {0});
    g.output("variance", mean(square(x - average), {0}));
    g.output("sum of exponentials", sum(exp(x - most), {0}));
    Graph joined = g;
    EXPECT_GT(transform(joined, session_transforms(), Machine::host(2).model()).size(), 0U);
    verify(joined);
    const WideArrays inputs = {{"x", random_values(g.type(x.id), -1, 1, 1, 5, 0)}};
    WideArrays state;
    expect_same(evaluate(joined, inputs, state), evaluate(g, inputs, state));
    Session session(g, Machine::host(2));
    const Arrays found = session.run(Arrays{{"x", narrowed(inputs.at("x"))}});
    for (const auto& [name, values] : evaluate(g, inputs, state))
      for (size_t i = 0; i < values.size(); ++i)
        EXPECT_NEAR(found.at(name)[i], values[i], 1e-5 * (1 + std::abs(values[i]))) << name;
  }
}

/// Between sparse products, whose activations are transposed: in rows of a few elements, of a piece, and of
/// two.
TEST(JoinElementwise, ReducesTransposedValues) {
  for (const uint32_t rows : {40U, 700U, 9000U}) {
    Graph g;
    const Value y = layer(g, "first", g.input("x", {rows, 16}), 24, Layers::sparse);
    const Value centred = y - mean(y, {0});
    const Value normal = centred * rsqrt(mean(square(centred), {0}) + 0.01);
    g.output("products", sum(normal * y, {0}));
    g.output("largest", max(exp(normal), {0}));
    g.output("z", layer(g, "second", relu(normal), 8, Layers::sparse));
    const WideArrays inputs = random_inputs(g);
    WideArrays state = widened(initial_state(g));
    Session session(g, Machine::host(2));
    expect_near(session.run(narrowed(inputs)), evaluate(g, inputs, state), 1e-4, 1);
    const RunCost cost = session.cost();
    const auto count = [&](std::string_view name) {
      return std::ranges::count(cost.operations, name, &OperationCost::operation);
    };
    EXPECT_EQ(count("sum"), 1);  // the mean of y
    EXPECT_EQ(count("max"), 0);
    for (const ConversionCost& conversion : cost.conversions)
      EXPECT_LT(conversion.bytes, rows * sizeof(float)) << conversion.value;
  }
}

TEST(JoinElementwise, KeepsStagesWeightsAndWhatIsStoredAnyway) {
  Graph g;
  const Value x = g.input("x", {6, 4}), w = g.parameter("w", {5, 4});
  const Value scaled = w * 2.0 + 1.0, a = x * 3.0;
  g.output("a", a);
  g.output("y", linear(relu(a + 1.0), scaled));
  Graph joined = g;
  EXPECT_EQ(join_elementwise(joined, Machine::host(2).model()), 1U);
  EXPECT_EQ(operations_of(joined),
            (std::vector<std::string_view>{"scale", "offset", "scale", "expression", "linear"}));
  EXPECT_EQ(join_elementwise(g, Machine::find("bow").model()), 0U);
}

TEST(Fuse, TakesAnActivationThatAloneUsesAProduct) {
  for (const bool is_shared : {false, true}) {
    Graph g;
    const Value y = linear(g.input("x", {3, 4}), g.parameter("w", {5, 4}));
    g.output("z", relu(y));
    if (is_shared) g.output("y", y);
    EXPECT_EQ(fuse(g), is_shared ? 0u : 1u);
    EXPECT_EQ(g.nodes().size(), is_shared ? 2U : 1U);
  }
}

TEST(Fuse, TakesWhatIsAddedToAProductIfItIsKnownBefore) {
  Graph g;
  const Value x = g.input("x", {3, 32}), row = g.input("row", {1, 32});
  const Value first = layer(g, "first", x, 32, Layers::sparse);
  const Value second = layer(g, "second", x, 32, Layers::sparse) + first;
  const Value early = exp(second);
  const Value third = early + layer(g, "third", second, 32, Layers::sparse);
  const Value fourth = layer(g, "fourth", third, 32, Layers::dense) + third;
  g.output("y", layer(g, "fifth", row, 32, Layers::sparse) + fourth);
  fuse(g);
  verify(g);
  // Not to a value that is broadcast.
  EXPECT_EQ(operations_of(g),
            (std::vector<std::string_view>{"linear", "linear", "exp", "linear", "linear", "linear", "add"}));
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

/// As attention splits features into heads, and joins them.
TEST(Fuse, JoinsAPermutationWithTheShapesAroundIt) {
  Graph g;
  const Value x = g.input("x", {2, 5, 12});
  const Value heads = permute(reshape(x, {2, 5, 3, 4}), {0, 2, 1, 3});
  g.output("joined", reshape(heads, {6, 20}));
  const Value rotated = permute(reshape(x, {2, 5, 3, 4}), {0, 2, 3, 1});
  g.output("rotated", rotated);
  g.output("across rows", reshape(permute(x, {1, 0, 2}), {8, 15}));
  g.output("column", reshape(permute(x, {0, 2, 1}), {120, 1}));
  Graph fused = g;
  fuse(fused);
  verify(fused);
  EXPECT_EQ(operations_of(fused), (std::vector<std::string_view>{"permute", "permute", "permute", "reshape",
                                                                 "permute", "reshape"}));
  WideArrays inputs, state;
  for (int i = 0; i < 120; ++i) inputs["x"].push_back(i);
  for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 4)}) {
    Session session(fused, machine);
    for (const auto& [name, values] : session.run(narrowed(inputs)))
      EXPECT_EQ(values, narrowed(evaluate(g, inputs, state).at(name))) << name;
  }
}

TEST(RemoveUnused, KeepsWhatOutputsAndStateNeed) {
  Graph g;
  const Value x = g.input("x", {3}), s = g.state("s", {Type::f32, {3}, {}, {}});
  const Value unused = exp(x);
  square(unused);
  g.output("y", x + x);
  g.assign(s, abs(x));
  EXPECT_EQ(remove_unused(g), 2u);
  EXPECT_EQ(operations_of(g), (std::vector<std::string_view>{"add", "abs"}));
}

TEST(Graphs, AreRewritten) {
  Graph g;
  const Value x = g.input("x", {3, 4}), y = exp(x), z = square(y);
  g.output("y", y);
  g.output("z", z);
  std::optional<Value> root;
  EXPECT_EQ(g.insert_before(0, [&] { root = sqrt(abs(x)); }), 2U);
  g.replace(y, *root);
  g.erase({false, false, true, false});
  verify(g);
  EXPECT_EQ(operations_of(g), (std::vector<std::string_view>{"abs", "sqrt", "square"}));
  WideArrays state;
  const WideArrays found = evaluate(g, {{"x", Array(12, -4)}}, state);
  EXPECT_EQ(found.at("y"), Array(12, 2));
  EXPECT_EQ(found.at("z"), Array(12, 4));
  EXPECT_TRUE(says(error_of<UsageError>([&] { g.replace(z, sum(y)); }), "cannot become"));
}

TEST(Graphs, BecomeLoopsOverMicroBatches) {
  Graph g;
  const Value x = g.input("x", {3, 4}), state = g.state("state", {Type::f32, {3, 4}, {}, {}});
  const Value total = sum(x + state);
  g.output("total", total);
  g.assign(state, x);
  const Value sums = g.repeat_for_micro_batches(2, {square(total)}, 0.5)[0];
  verify(g);
  EXPECT_EQ(operations_of(g), (std::vector<std::string_view>{"loop"}));
  EXPECT_EQ(x.shape(), (Shape{6, 4}));
  g.output("squares", sums);
  WideArrays arrays = {{"state", Array(12, 1)}};
  Array given(12, 3);
  given.resize(24, 5);
  const WideArrays found = evaluate(g, {{"x", given}}, arrays);
  EXPECT_EQ(found.at("total"), Array(1, 12 * (4 + 6) * 0.5));
  EXPECT_EQ(found.at("squares"), Array(1, 144 * (16 + 36) * 0.5));
  EXPECT_EQ(arrays.at("state"), Array(12, 5)) << "what the last micro-batch gives";
}

/// Operations that are lowered on hosts and defined by others.
std::vector<const Operation*> decomposed() {
  std::vector<const Operation*> found;
  for (const Operation* operation : all_operations())
    if (operation->decompose != nullptr) found.push_back(operation);
  return found;
}

class Decompose : public testing::TestWithParam<const Operation*> {};

TEST_P(Decompose, AgreesWithWhatIsLowered) {
  const Operation& operation = *GetParam();
  for (const Case& c : operation.cases()) {
    CaseGraph whole(operation, c, 5);
    Graph parts = whole.graph;
    decompose(parts, [](const Node& node) { return node.operation->decompose != nullptr; });
    verify(parts);
    WideArrays state = whole.state;
    const WideArrays expected = evaluate(parts, whole.arrays, state);
    expect_same(evaluate(whole.graph, whole.arrays, state), expected);
    Arrays inputs;
    for (const auto& [name, values] : whole.arrays) inputs[name] = narrowed(values);
    double epsilon = epsilon_of(Type::f32);
    for (const TensorType& type : c.inputs) epsilon = std::max(epsilon, epsilon_of(type.type));
    for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 64)}) {
      const bool has_bf16 = std::ranges::any_of(c.inputs, [](auto& of) { return of.type == Type::bf16; });
      if (operation.is_decomposed_on(machine.model(), whole.graph, whole.graph.nodes().back()) ||
          (!machine.is_host() && has_bf16))
        continue;
      const Arrays lowered = Session(whole.graph, machine).run(inputs);
      for (const auto& [name, values] : Session(parts, machine).run(inputs))
        test::expect_near(lowered.at(name), values, 16 * epsilon * test::largest(expected.at(name), 1), name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Model, Decompose, testing::ValuesIn(decomposed()),
                         [](const auto& of) { return std::string(of.param->name); });

TEST(Decompose, LeavesValuesWhereTheyAre) {
  Graph g;
  const Value x = g.parameter("x", {3, 8}, Initial::normal(1));
  const Value y = layer_norm(relu(x));
  g.rename(y, "normal");
  g.output("y", y);
  add_training(mean(square(y)));
  Graph parts = g;
  EXPECT_EQ(decompose(parts, Machine::find("bow").model()), 2u);
  verify(parts);
  EXPECT_EQ(parts.outputs().at("y"), y.id);
  EXPECT_EQ(parts.info(y.id).name, "normal");
}

TEST(Verify, NamesWhatIsNotValid) {
  Graph g;
  const Value x = g.input("x", {3, 4}), y = exp(x);
  g.output("z", sum(y, {0}));
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
    EXPECT_EQ(std::vector(names.begin(), names.begin() + 8),
              (std::vector<std::string>{"move permutations", "decompose", "remove unused", "fuse",
                                        "join elementwise", "weights", "layouts", "lower"}));
    EXPECT_EQ(cost.passes[0].did, "0 operations");
    EXPECT_EQ(cost.passes[3].did, "1 operations");
    EXPECT_EQ(cost.passes[5].did, "1 weights");
  }
}

}  // namespace
}  // namespace tessera::graph
