#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "networks.h"
#include "support/error_of.h"

namespace tessera::model {
namespace {

std::string path_of(const std::string& name) { return testing::TempDir() + "/" + name + ".safetensors"; }

TEST(Session, ResumesBitIdenticallyFromAFile) {
  for (Layers kind : {Layers::dense, Layers::sparse, Layers::dynamic}) {
    Classifier network(kind);
    add_training(network.loss, {Sgd{.momentum = 0.9}, {}});
    const std::string path = path_of("resumed");
    Session whole(network.graph, Machine::host(2)), first(network.graph, Machine::host(2), {.seed = 1});
    first.set_state(whole.state());
    for (uint32_t step = 1; step <= 3; ++step) {
      whole.run(narrowed(network.inputs(step)));
      first.run(narrowed(network.inputs(step)));
    }
    first.save(path);
    Session resumed(network.graph, Machine::host(2), {.seed = 2});
    resumed.load(path);
    for (uint32_t step = 4; step <= 6; ++step) {
      whole.run(narrowed(network.inputs(step)));
      resumed.run(narrowed(network.inputs(step)));
    }
    EXPECT_EQ(whole.state(), resumed.state());
    std::filesystem::remove(path);
  }
}

TEST(Session, SavesOnlyWhatItCanLoad) {
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, 16, 16, 0.5, 4, 1});
  Graph g;
  const Value w = g.sparse_parameter("w", pattern, Initial::normal(1));
  const Value s = g.state("s", w.type(), Initial::normal(1));
  g.output("y", linear(g.input("x", {3, 16}), w));
  g.assign(s, s * 2);
  const std::string path = path_of("own_state");
  for (const char* machine : {"host", "bow"}) {
    const Session session(g, Machine::find(machine, 2), {.seed = 1});
    session.save(path);
    Session other(g, Machine::find(machine, 2), {.seed = 2});
    other.load(path);
    EXPECT_EQ(other.state(), session.state());
  }
  std::filesystem::remove(path);
  g.parameter("w.columns", {3});
  const Session session(g, Machine::host(1));
  EXPECT_TRUE(
      test::says(test::error_of<UsageError>([&] { session.save(path); }), "'w.columns' is the name of two"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Session, GivesTheSameBitsOnOneThread) {
  for (Layers kind : {Layers::dense, Layers::sparse}) {
    Classifier network(kind);
    add_training(network.loss, {Sgd{.momentum = 0.9}, {}});
    Session two(network.graph, Machine::host(2)), one(network.graph, Machine::host(2), {.threads = 1});
    for (uint32_t step = 1; step <= 3; ++step)
      EXPECT_EQ(two.run(narrowed(network.inputs(step))), one.run(narrowed(network.inputs(step))));
    EXPECT_EQ(two.state(), one.state());
  }
}

TEST(Session, ReportsCostBeforeItRuns) {
  for (const char* machine : {"host", "bow"}) {
    Classifier network(Layers::sparse);
    add_training(network.loss, {Sgd{.momentum = 0.9}, {}});
    Session session(network.graph, Machine::find(machine, 2));
    const RunCost cost = session.cost();
    EXPECT_TRUE(session.fits());
    EXPECT_TRUE(cost.overflow.empty());
    EXPECT_GT(cost.bytes.at("parameter"), 0);
    EXPECT_GT(cost.bytes.at("optimizer"), 0);
    EXPECT_GT(cost.bytes.at("stash"), 0);
    EXPECT_EQ(cost.operations.size(), session.graph().nodes().size());
    uint64_t fullest = 0;
    for (const auto& tile : cost.tiles) {
      uint64_t bytes = 0;
      for (const auto& [purpose, count] : tile) bytes += count;
      fullest = std::max(fullest, bytes);
    }
    EXPECT_EQ(fullest, cost.fullest_tile_bytes);
    EXPECT_FALSE(cost.lifetimes.empty());
    for (const Lifetime& lifetime : cost.lifetimes) {
      EXPECT_LE(lifetime.first, lifetime.last) << lifetime.value;
      EXPECT_LT(lifetime.last, cost.operations.size()) << lifetime.value;
      if (lifetime.value == network.graph.info(network.loss.id).name) {
        EXPECT_EQ(lifetime.last, cost.operations.size() - 1);
      }
    }
    const std::set<std::string> phases = {"rearrange", "compute", "reduce", "exchange", "sync", "control"};
    for (const auto& [phase, cycles] : cost.cycles) {
      EXPECT_TRUE(phases.contains(phase)) << phase;
      EXPECT_GE(cycles, 1) << phase;
    }
    double sum = 0;
    for (const OperationCost& operation : cost.operations) sum += operation.seconds;
    EXPECT_LE(sum, cost.seconds * (1 + 1e-9));
    EXPECT_GE(sum, 0.5 * cost.seconds);
    if (std::string(machine) == "bow") {
      const Arrays inputs = narrowed(network.inputs(1));
      std::map<std::string, std::vector<float>> arrays(inputs.begin(), inputs.end());
      std::vector<uint32_t> labels(inputs.at("labels").begin(), inputs.at("labels").end());
      std::vector<float> loss(1);
      const std::vector<Tensor> tensors = {{"x", arrays["x"].data()},
                                           {"labels", labels.data()},
                                           {"rate", arrays["rate"].data()},
                                           {"loss", loss.data()}};
      EXPECT_DOUBLE_EQ(session.run(tensors), cost.seconds);
    }
  }
}

/// y = the layers, with relu between them.
Graph chain(const std::vector<uint32_t>& sizes) {
  Graph g;
  Value x = g.input("x", {16, sizes[0]});
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    if (i > 0) x = relu(x);
    x = linear(x, g.parameter(fmt::format("w{}", i), {sizes[i + 1], sizes[i]}));
  }
  g.output("y", x);
  return g;
}

/// Names of converted values, once for each conversion.
std::vector<std::string> converted(const RunCost& cost) {
  std::vector<std::string> names;
  for (const ConversionCost& conversion : cost.conversions) names.push_back(conversion.value);
  return names;
}

TEST(Session, KeepsActivationsInThePartsOfProducts) {
  const Machine& machine = Machine::find("bow");
  const auto cost = [&](const std::vector<uint32_t>& sizes) { return Session(chain(sizes), machine).cost(); };
  const RunCost both = cost({256, 192, 320});
  // The input, what is between the products, on one side of relu, and the output.
  EXPECT_EQ(converted(both).size(), 3);
  const RunCost first = cost({256, 192}), second = cost({192, 320});
  for (const char* phase : {"exchange", "sync"})
    EXPECT_LT(both.cycles.at(phase), first.cycles.at(phase) + second.cycles.at(phase)) << phase;
}

TEST(Session, ConvertsAnActivationOnceForAllProducts) {
  Graph g = chain({64, 48, 32});
  const Value y = g.value(g.outputs().at("y"));
  add_training(mean(y * y), {Sgd{}, {}});
  const std::vector<std::string> names = converted(Session(g, Machine::find("bow")).cost());
  // In both products that take it, forward and of the gradient, in one partition.
  EXPECT_EQ(std::ranges::count(names, "x"), 1);
}

TEST(Session, LetsAllFollowAConversionThatOneAloneWouldOnlyMove) {
  Graph g;
  const Value x = g.input("x", {64, 48}), w = g.parameter("w", {48, 48});
  const Value y = linear(x, w);
  // Rows of y are read in one piece where features lie side by side, as products have them.
  g.output("sums", sum(square(cast(relu(y * 2), Type::f16)), "rows"));
  const std::vector<std::string> names = converted(Session(g, Machine::find("bow")).cost());
  // The input, and one value on the way to the sums.
  EXPECT_EQ(names.size(), 2);
}

TEST(Session, SaysWhatDoesNotFit) {
  Graph g;
  g.output("y", linear(g.input("x", {1, 16384}), g.parameter("w", {16384, 16384})));
  Session session(g, Machine::find("bow"));
  EXPECT_FALSE(session.fits());
  EXPECT_NE(session.cost().overflow.find("bytes and has 638976; it holds"), std::string::npos);
}

TEST(Session, SaysThatMapOperationsDoNotFit) {
  Graph g;
  const Value a = g.input("a", {20000, 20000});
  g.output("y", relu(a) + a);
  Session session(g, Machine::find("bow"));
  EXPECT_FALSE(session.fits());
  EXPECT_NE(session.cost().overflow.find("bytes and has 638976; it holds"), std::string::npos);
}

TEST(Session, TakesEachInputAndOutputOnce) {
  Graph g;
  g.output("y", relu(g.input("x", {2, 2})));
  Session session(g, Machine::host(1));
  std::vector<float> x(4), y(4);
  const auto message = [&](const std::vector<Tensor>& arrays) {
    try {
      session.run(arrays);
    } catch (const UsageError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const Tensor in{"x", x.data()}, out{"y", y.data()};
  EXPECT_EQ(message({in, out}), "");
  EXPECT_EQ(message({in, out, {"z", y.data()}}),
            "'z' is neither an input nor an output of the graph, which has 'x', 'y'");
  EXPECT_EQ(message({in, out, in}), "'x' is given twice: pass one array");
  EXPECT_THROW(session.run(Arrays{{"x", x}, {"z", x}}), UsageError);
}

TEST(Session, ChangesPatterns) {
  Classifier network(Layers::dynamic);
  add_training(network.loss, {Sgd{.momentum = 0.9}, {}});
  Session session(network.graph, Machine::host(2));
  WideArrays state = widened(session.state());
  session.run(narrowed(network.inputs(1)));
  const Pattern before = session.pattern("first.weight");
  const Pattern after =
      sparse::generate_pattern({PatternKind::random, before.rows, before.cols, 0.25, 8, 99});
  const std::vector<float> bias = session.get("first.bias");
  session.set_pattern("first.weight", after);
  EXPECT_EQ(session.pattern("first.weight").columns, after.columns);
  EXPECT_EQ(session.get("first.bias"), bias);
  EXPECT_EQ(session.get("first.weight").size(), after.blocks() * 64);
  const auto losses = session.run(narrowed(network.inputs(2)));
  EXPECT_TRUE(std::isfinite(losses.at("loss")[0]));
  EXPECT_THROW(session.set_pattern("third.weight", after), UsageError);
}

/// The classifier without updates.
Graph evaluation(Layers kind) { return Classifier(kind).graph; }

TEST(Session, SharesParametersWithAnEvaluation) {
  for (const char* machine : {"host", "bow"})
    for (Layers kind : {Layers::dense, Layers::sparse, Layers::dynamic}) {
      Classifier network(kind);
      add_training(network.loss, {Sgd{.momentum = 0.9}, {}});
      Session training(network.graph, Machine::find(machine, 2));
      const Graph graph = evaluation(kind);
      Session shared(graph, training), own(graph, Machine::find(machine, 2));
      for (uint32_t step = 1; step <= 2; ++step) {
        training.run(narrowed(network.inputs(step)));
        if (kind == Layers::dynamic && step == 2) {
          const Pattern before = training.pattern("first.weight");
          const Pattern after =
              sparse::generate_pattern({PatternKind::random, before.rows, before.cols, 0.25, 8, 99});
          training.set_pattern("first.weight", after);
          own.set_pattern("first.weight", after);
        }
        for (const auto& [name, values] : training.state())
          if (!name.ends_with("velocity")) own.set(name, values);
        Arrays inputs = narrowed(network.inputs(7));
        inputs.erase("rate");
        EXPECT_EQ(shared.run(inputs), own.run(inputs)) << machine << ", step " << step;
      }
      EXPECT_EQ(shared.get("first.bias"), training.get("first.bias"));
      const std::vector<float> bias(Classifier::kHidden);
      EXPECT_THROW(shared.set("first.bias", bias), UsageError);
      EXPECT_THROW(Session(network.graph, training), UsageError);
    }
}

TEST(Session, RejectsBadInput) {
  Classifier network(Layers::dense);
  Session session(network.graph, Machine::host(1));
  EXPECT_THROW(session.run(Arrays{}), UsageError);
  EXPECT_THROW(session.run(Arrays{{"x", {1}}, {"labels", {1}}}), UsageError);
  EXPECT_THROW(session.get("nothing"), UsageError);
  const std::vector<float> few(3);
  EXPECT_THROW(session.set("first.weight", few), UsageError);
  EXPECT_THROW(session.load(path_of("missing")), Error);
  const std::string path = path_of("broken");
  std::ofstream(path) << "not a file of tensors";
  const Arrays before = session.state();
  EXPECT_THROW(session.load(path), Error);
  EXPECT_EQ(session.state(), before);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tessera::model
