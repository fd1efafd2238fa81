// Graphs in files: what is read computes what was written, and bad files are refused.
#include "graph/graph_file.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/graph_file.h>

#include <fstream>
#include <iterator>

#include "graph/stages.h"
#include "io/safetensors.h"
#include "networks.h"
#include "random_graph.h"
#include "support/error_of.h"
#include "support/rewritten_file.h"

namespace tessera::graph {
namespace {

std::string path_of(const std::string& name) { return testing::TempDir() + "/" + name + ".safetensors"; }

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A graph as it is read after it was written.
Graph reread(const Graph& graph, const std::string& name) {
  const std::string path = path_of(name);
  save_graphs(path, {{graph}, {}});
  return load_graphs(path).graphs.at(0);
}

/// Initial state, and outputs in float64.
void expect_same(const Graph& found, const Graph& expected, const WideArrays& inputs, WideArrays state) {
  ASSERT_EQ(initial_state(found, 7), initial_state(expected, 7));
  WideArrays same = state;
  const WideArrays outputs = evaluate(found, inputs, same);
  for (const auto& [name, values] : evaluate(expected, inputs, state)) {
    ASSERT_EQ(outputs.at(name).size(), values.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) continue;
      ASSERT_EQ(outputs.at(name)[i], values[i]) << name << ", element " << i;
    }
  }
}

class GraphFiles : public testing::TestWithParam<const Operation*> {};

TEST_P(GraphFiles, KeepWhatEachCaseComputes) {
  const Operation& operation = *GetParam();
  const std::vector<Case> cases = operation.cases();
  for (size_t i = 0; i < cases.size(); ++i) {
    const CaseGraph c(operation, cases[i], i);
    const bool has_state =
        std::ranges::any_of(c.graph.values(), [](const ValueInfo& info) { return info.kind == Kind::state; });
    const std::string name = fmt::format("{}{}", operation.name, i);
    if (has_state || !c.graph.assignments().empty())
      EXPECT_USAGE_ERROR("save", save_graphs(path_of(name), {{c.graph}, {}}));
    else
      expect_same(reread(c.graph, name), c.graph, c.arrays, c.state);
  }
}

INSTANTIATE_TEST_SUITE_P(Model, GraphFiles,
                         testing::ValuesIn(all_operations().begin(), all_operations().end()),
                         [](const auto& of) { return std::string(of.param->name); });

TEST(GraphFile, KeepsRandomGraphsWithFunctions) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Recipe recipe = random_recipe(seed, {.operations = 8, .hosts_only = true});
    recipe.lesson = {};
    recipe.assignments.clear();
    for (Item& item : recipe.items)
      if (item.kind == Kind::state) item.kind = Kind::parameter;
    Built built;
    try {
      build(recipe, built);
    } catch (const UsageError&) {
      continue;  // not a training step without its lesson
    }
    WideArrays inputs;
    for (ValueId id : built.graph.inputs())
      inputs[built.graph.info(id).name] = random_values(built.graph.bound_type(id), 0.25, 1, 1, seed, id);
    expect_same(reread(built.graph, "random"), built.graph, inputs, widened(initial_state(built.graph, 7)));
  }
}

Graph network(uint32_t rows, const std::vector<float>& weight) {
  Graph g;
  const auto layer = std::make_shared<Graph>();
  const Value v = layer->input("v", {rows, 4}), w = layer->input("w", {4, 4});
  layer->output("y", relu(linear(v, w) + layer->constant("", {4}, {1, 2, 3, 4})));
  const Value x = g.input("x", {rows, 4});
  const Value parameter = g.parameter("w", {4, 4}, Initial::from(weight));
  const Value sparse = g.sparse_parameter("s", {4, 4, 4, {0, 1}, {0}}, Initial::constant(0.5), Type::f16, 1);
  const Value h = g.call(layer, {g.call(layer, {x, parameter}, {}).at(0), parameter}, {}).at(0);
  Value y = linear(cast(h, Type::f16), sparse);
  g.rename(y, "result");
  g.output("y", y);
  return g;
}

TEST(GraphFile, HasParametersOfSeveralGraphsOnce) {
  const Graph one = network(2, std::vector<float>(16, 0.25F)),
              three = network(6, std::vector<float>(16, 0.25F));
  const std::string path = path_of("several");
  EXPECT_USAGE_ERROR("parameters of the same name are one", save_graphs(path, {{one, three}, {}}));
  Graph same = load_graphs((save_graphs(path, {{one}, {}}), path)).graphs.at(0);
  const Arrays values = {{"w", std::vector<float>(16, 0.75F)}, {"s", std::vector<float>(16, 0.5F)}};
  save_graphs(path, {{one, same}, {{"title", "two sizes"}}}, values);
  const GraphFile file = load_graphs(path);
  ASSERT_EQ(file.graphs.size(), 2);
  EXPECT_EQ(file.texts, (std::map<std::string, std::string>{{"title", "two sizes"}}));
  EXPECT_EQ(initial_state(file.graphs[0], 0).at("w"), values.at("w"));
  const auto contents = [&](size_t i) {
    return file.graphs[i].info(file.graphs[i].inputs().at(0) + 1).initial.values;
  };
  EXPECT_EQ(contents(0), contents(1)) << "the graphs have copies of a parameter";
  EXPECT_EQ(file.graphs[0].nodes().at(0).body, file.graphs[0].nodes().at(1).body)
      << "a function is there twice";
  Session session(file.graphs[0], Machine::host(1));
  session.load(path);  // it is a file of parameters as well
  EXPECT_EQ(session.get("w"), values.at("w"));
}

TEST(GraphFile, KeepsWhereParametersAndSumsLie) {
  Graph g;
  const Value x = g.input("x", {4, 6}), offloaded = g.parameter("offloaded", {4, 6}),
              divided = g.parameter("divided", {4, 6}), both = g.parameter("both", {4, 6});
  for (const Value& value : {offloaded, both}) g.offload(value);
  for (const Value& value : {divided, both}) g.shard(value);
  g.output("y", x * offloaded + divided * both);
  Graph same = reread(g, "places");
  for (const char* name : {"offloaded", "divided", "both"}) {
    const ValueInfo &found = same.info(same.find(name).id), &expected = g.info(g.find(name).id);
    EXPECT_EQ(found.offloaded, expected.offloaded) << name;
    EXPECT_EQ(found.divided, expected.divided) << name;
  }
  Graph micro;
  const Value product = micro.input("x", {4, 6}) * micro.parameter("w", {4, 6});
  const std::vector<Value> sums = micro.repeat_for_micro_batches(2, {product, product});
  micro.rename(sums[0], "near");
  micro.rename(sums[1], "far");
  micro.offload(sums[1]);
  micro.set_prefetch(true);
  micro.set_memory_budget(1'000'000);
  micro.output("sum", sums[0] + sums[1]);
  Graph again = reread(micro, "sums");
  EXPECT_TRUE(again.prefetch());
  EXPECT_EQ(again.memory_budget(), 1'000'000U);
  EXPECT_FALSE(again.info(again.find("near").id).offloaded);
  EXPECT_TRUE(again.info(again.find("far").id).offloaded);
}

TEST(GraphFile, RefusesWhatItCannotKeep) {
  Classifier trained(Layers::dense);
  const std::string path = path_of("refused");
  add_training(trained.loss);
  EXPECT_USAGE_ERROR("a graph with updates", save_graphs(path, {{trained.graph}, {}}));
  const Graph g = network(2, std::vector<float>(16));
  EXPECT_USAGE_ERROR("'w' has 16 elements; given are 3", save_graphs(path, {{g}, {}}, {{"w", {1, 2, 3}}}));
  EXPECT_USAGE_ERROR("is not a name for a text", save_graphs(path, {{g}, {{"tessera_graphs", ""}}}));
  EXPECT_FALSE(std::ifstream(path).good()) << "something was written";
}

TEST(GraphFile, RefusesOtherFiles) {
  const std::string path = path_of("other");
  io::write_safetensors(path, {}, {});
  EXPECT_ERROR("other.safetensors: it holds no graphs", load_graphs(path));
  io::write_safetensors(path, {}, {{"tessera_graphs", R"({"version": 7})"}});
  EXPECT_ERROR("its version is 7; this library reads 1 to 4", load_graphs(path));
  EXPECT_ERROR("missing.safetensors", load_graphs(path_of("missing")));
  for (const char* shape : {"[1099511627776]", "[-1]", "[2.5]", R"(["2"])"}) {
    const std::string input =
        R"({"name": "x", "kind": "input", "type": "f32", "shape": )" + std::string(shape);
    io::write_safetensors(path, {},
                          {{"tessera_graphs", R"({"version": 1, "functions": [], "graphs": [{"values": [)" +
                                                  input + R"(}], "nodes": [], "outputs": {}}]})"}});
    EXPECT_ERROR("is not a whole number up to 4294967295", load_graphs(path)) << shape;
  }
  for (const char* sums : {"[]", "3", "null", R"("f16")"}) {
    const std::string graph =
        R"({"values": [], "nodes": [], "outputs": {}, "partial_sums": )" + std::string(sums) + "}";
    io::write_safetensors(
        path, {}, {{"tessera_graphs", R"({"version": 3, "functions": [], "graphs": [)" + graph + "]}"}});
    EXPECT_ERROR("they must be an object", load_graphs(path)) << sums;
  }
  constexpr size_t kDeep = 200'000;
  const std::string deep = std::string(kDeep, '[') + std::string(kDeep, ']');
  io::write_safetensors(path, {},
                        {{"tessera_graphs", R"({"version": 3, "functions": [], "graphs": [)" + deep + "]}"}});
  EXPECT_ERROR("nests deeper than 32 levels", load_graphs(path));
}

TEST(GraphFile, RefusesFunctionsThatCallEachOtherWithoutEnd) {
  const std::string path = path_of("calls");
  const std::string x = R"("values": [{"name": "x", "kind": "input", "type": "f32", "shape": [2]}])";
  std::string functions =
      "{" + x +
      R"(, "nodes": [{"operation": "relu", "inputs": [0], "results": ["y"]}], "outputs": {"y": 1}})";
  for (int called = 0; called < 60; ++called) {
    const auto call = [&](int input, const char* result) {
      return fmt::format(R"({{"operation": "call", "inputs": [{}], "results": ["{}"], "function": {}}})",
                         input, result, called);
    };
    functions +=
        ", {" + x + R"(, "nodes": [)" + call(0, "h") + ", " + call(1, "y") + R"(], "outputs": {"y": 2}})";
  }
  io::write_safetensors(
      path, {}, {{"tessera_graphs", R"({"version": 3, "functions": [)" + functions + R"(], "graphs": []})"}});
  EXPECT_ERROR("call each other too often", load_graphs(path));
}

TEST(GraphFile, KeepsStagesOfLayers) {
  Graph g;
  Value h = g.input("x", {3, 4});
  for (const std::string name : {"w0", "w1"}) h = linear(h, g.parameter(name, {4, 4}, Initial::normal(0.5)));
  g.output("y", h);
  g.begin_stages({g.find("w1")});
  EXPECT_EQ(stages_of(g).nodes, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(stages_of(reread(g, "stages")).nodes, stages_of(g).nodes);
  g.balance_stages(2);
  EXPECT_EQ(reread(g, "stages").balanced_stages(), 2U);
}

TEST(GraphFile, KeepsWhatComputesGradients) {
  Graph g;
  const Value w = g.parameter("w", {4, 4}, Initial::normal(0.5));
  const Value loss = mean(square(linear(g.input("x", {3, 4}), w)));
  g.output("gradient", *gradients(loss, {w})[0]);
  g.place_stages({0, 1, 0});
  g.set_partial_sums({Type::f16, Rounding::stochastic, ~uint64_t{0}});
  const Graph same = reread(g, "gradients");
  EXPECT_EQ(same.stage_places(), g.stage_places());
  EXPECT_EQ(same.partial_sums(), g.partial_sums());
  ASSERT_EQ(same.nodes().size(), g.nodes().size());
  for (size_t n = 0; n < g.nodes().size(); ++n) {
    EXPECT_EQ(same.nodes()[n].backward, g.nodes()[n].backward);
    EXPECT_EQ(same.nodes()[n].gradient_of.has_value(), g.nodes()[n].gradient_of.has_value());
  }
  EXPECT_TRUE(same.nodes().back().backward);
}

TEST(GraphFile, OfVersion2HasStagesBesideAttributes) {
  const std::string path = path_of("version2");
  io::write_safetensors(path, {}, {{"tessera_graphs", R"({"version": 2, "functions": [{
      "values": [{"name": "x", "kind": "input", "type": "f32", "shape": [2]}],
      "nodes": [{"operation": "relu", "inputs": [0], "results": ["y"]}], "outputs": {"y": 1}}],
    "graphs": [{"values": [{"name": "x", "kind": "input", "type": "f32", "shape": [2]}],
      "nodes": [{"operation": "relu", "inputs": [0], "results": ["g"]},
                {"operation": "call", "inputs": [1], "results": ["h"], "stage": 1, "function": 0},
                {"operation": "relu", "inputs": [2], "results": ["i"], "stage": 1},
                {"operation": "call", "inputs": [3], "results": ["y"], "function": 0}],
      "outputs": {"y": 4}}]})"}});
  EXPECT_EQ(stages_of(load_graphs(path).graphs.at(0)).nodes, (std::vector<uint32_t>{1, 1, 1, 0}));
}

/// A graph from the content of a file.
Graph graph_in(const std::string& content) {
  return load_graphs(io::Source("w", std::as_bytes(std::span(content)))).graphs.at(0);
}

TEST(GraphFile, RefusesWhatIsCutShort) {
  const std::string path = path_of("cut");
  save_graphs(path, {{network(2, std::vector<float>(16, 0.5F))}, {}});
  const std::string whole = content_of(path);
  for (size_t size = 0; size < whole.size(); size += 7)
    EXPECT_ERROR("w", graph_in(whole.substr(0, size))) << "cut to " << size;
}

TEST(GraphFile, NeverGivesAnotherGraphAfterAFlippedBit) {
  const std::string path = path_of("flipped");
  save_graphs(path, {{network(2, std::vector<float>(16, 0.5F))}, {}});
  const std::string whole = content_of(path);
  const Graph graph = graph_in(whole);
  uint32_t refused = 0;
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    try {
      const Graph read = graph_in(damaged);  // blanks of the header do no harm
      EXPECT_EQ(to_string(read), to_string(graph));
      EXPECT_EQ(initial_state(read, 7), initial_state(graph, 7));
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("w: ")) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 7 * whole.size());
}

TEST(GraphFile, RefusesDamageWithoutAChecksum) {
  const std::string path = path_of("damaged");
  save_graphs(path, {{network(2, std::vector<float>(16, 0.5F))}, {}});
  test::rewrite_safetensors(path, [](const std::string& text) { return text; });
  EXPECT_ERROR("damaged.safetensors: it lacks its checksum", load_graphs(path));
  test::rewrite_safetensors(
      path, [](const std::string& text) { return test::with_all(text, R"("version":4)", R"("version":3)"); });
  const std::string whole = content_of(path);
  ASSERT_FALSE(graph_in(whole).nodes().empty());
  test::Random random(5);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (uint32_t n = 1 + random.below(3); n > 0; --n)
      damaged[random.below(static_cast<uint32_t>(whole.size()))] = static_cast<char>(' ' + random.below(95));
    try {
      EXPECT_FALSE(to_string(graph_in(damaged)).empty());  // some changes do no harm
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("w: ")) << error.what();
    }
  }
}

}  // namespace
}  // namespace tessera::graph
