#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "io/safetensors.h"
#include "networks.h"
#include "support/allocations.h"
#include "support/error_of.h"
#include "support/rewritten_file.h"

namespace tessera::graph {
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
  g.parameter("w.col_indices", {3});
  const Session session(g, Machine::host(1));
  EXPECT_TRUE(test::says(test::error_of<UsageError>([&] { session.save(path); }),
                         "'w.col_indices' is the name of two"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

void copy_by_file(const Session& from, Session& to, const std::string& path, bool parameters_only) {
  if (parameters_only) {
    from.save_parameters(path);
    to.load_parameters(path);
  } else {
    from.save(path);
    to.load(path);
  }
}

TEST(Session, SavesIntegersAsThemselves) {
  for (const auto& [type, dtype] : {std::pair(Type::u32, "U32"), {Type::i32, "I32"}}) {
    Graph g;
    const Value counts = g.parameter("counts", {3}, Initial::from({1, 5, 1 << 20}), type);
    g.output("y", counts + counts);
    const std::string path = path_of("integers");
    for (const bool are_parameters : {true, false}) {
      Session session(g, Machine::host(1)), other(g, Machine::host(1));
      const std::vector<float> values = {7, 0, 3};
      session.set("counts", values);
      copy_by_file(session, other, path, are_parameters);
      EXPECT_EQ(other.get("counts"), values);
      EXPECT_EQ(io::list_safetensors(io::Source::open(path)).at(0).dtype, dtype);
    }
    std::filesystem::remove(path);
  }
}

/// All 32 bits of each.
TEST(Session, SavesIntegersThatFloatsLack) {
  Graph g;
  const Value n = g.parameter("n", {2, 3}, {}, Type::u32), m = g.input("m", {2, 3}, Type::u32);
  g.assign(n, n + m);
  g.output("y", n + m);
  const std::string path = path_of("large_integers");
  for (const auto& [machine, are_parameters] :
       {std::pair("host", false), {"host", true}, {"bow", false}, {"bow", true}}) {
    Session session(g, Machine::find(machine, 2)), other(g, Machine::find(machine, 2));
    std::vector<uint32_t> given = {1, (1 << 24) + 1, 0x7FFFFFFF, 0x80000001, 0xFFFFFFFF, 6}, found(6);
    const std::vector<Tensor> arrays = {{"m", given.data()}, {"y", found.data()}};
    session.run(arrays);
    copy_by_file(session, other, path, are_parameters);
    const std::vector<uint32_t> expected = given;
    std::ranges::fill(given, 0);
    other.run(arrays);
    EXPECT_EQ(found, expected) << machine;
  }
  std::filesystem::remove(path);
}

TEST(Session, GivesTheSameBitsOnOneThread) {
  for (Layers kind : {Layers::dense, Layers::sparse, Layers::dynamic}) {
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
    // These machines have one chip.
    EXPECT_TRUE(cost.placements.empty());
    EXPECT_TRUE(cost.links.empty());
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
                                           {"lr", arrays["lr"].data()},
                                           {"loss", loss.data()}};
      session.run(tensors);
      EXPECT_DOUBLE_EQ(session.last_seconds(), cost.seconds);
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
  // The input, the value between the products, on one side of relu, and the output.
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
  // Both products that take it, forward and for the gradient, have the same partition.
  EXPECT_EQ(std::ranges::count(names, "x"), 1);
}

/// A function sees only its own products; its callers also see the products of gradients.
TEST(Session, FunctionsHaveWeightsWhereTheirCallersHaveThem) {
  const auto body = std::make_shared<Graph>();
  const Value rows = body->input("rows", {256, 1024}, Type::f16);
  body->output("y", linear(rows, body->input("weight", {1024, 1024}, Type::f16)));
  Graph g;
  const Value w = g.parameter("w", {1024, 1024}, Initial::normal(0.1), Type::f16);
  const Value y = g.call(body, {g.input("x", {256, 1024}, Type::f16), w})[0];
  add_training(mean(square(cast(y, Type::f32))), {Sgd{}, {}});
  for (const ConversionCost& conversion : Session(g, Machine::find("gc200")).cost().conversions)
    EXPECT_LT(conversion.bytes, 1024 * 1024 * 2U) << conversion.value;
}

/// The value to which a product adds may be read by others, later or by the same product, or be bound by the
/// caller.
TEST(Session, AddsProductsToWhatOthersRead) {
  for (const bool is_input : {false, true})
    for (const bool is_read_later : {false, true})
      for (const bool is_factor : {false, true})
        for (const bool is_reshaped : {false, true}) {
          SCOPED_TRACE(testing::Message() << is_input << is_read_later << is_factor << is_reshaped);
          Graph g;
          const Value x = g.input("x", {2, 10, 32});
          const Value before = is_input ? x : layer(g, "first", x, 32, Layers::sparse);
          const Value h = is_reshaped ? reshape(before, {20, 32}) : before;
          const Value in = is_factor ? h : exp(h);
          g.output("y", exp(h + layer(g, "second", in, 32, Layers::sparse)));
          if (is_read_later) g.output("z", relu(before));
          const WideArrays inputs = {{"x", random_values(x.type(), -1, 1, 1, 5, 0)}};
          WideArrays state = widened(initial_state(g));
          const WideArrays expected = evaluate(g, inputs, state);
          Session session(g, Machine::host(2));
          for (int run = 0; run < 2; ++run) expect_near(session.run(narrowed(inputs)), expected, 1e-5);
        }
}

TEST(Session, LetsAllFollowAConversionThatOneAloneWouldOnlyMove) {
  Graph g;
  const Value x = g.input("x", {64, 48}), w = g.parameter("w", {48, 48});
  const Value y = linear(x, w);
  // Rows of y are read in one piece where features lie side by side, as products have them.
  g.output("sums", sum(square(cast(relu(y * 2), Type::f16)), {0}));
  const std::vector<std::string> names = converted(Session(g, Machine::find("bow")).cost());
  // The input, and no more than one value on the way to the sums.
  EXPECT_GE(names.size(), 1U);
  EXPECT_LE(names.size(), 2U);
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
  EXPECT_EQ(session.pattern("first.weight").col_indices, after.col_indices);
  EXPECT_EQ(session.get("first.bias"), bias);
  EXPECT_EQ(session.get("first.weight").size(), after.blocks() * 64);
  const auto losses = session.run(narrowed(network.inputs(2)));
  EXPECT_TRUE(std::isfinite(losses.at("loss")[0]));
  EXPECT_THROW(session.set_pattern("third.weight", after), UsageError);
}

TEST(Session, LoadsPatternsOfEarlierFiles) {
  Classifier network(Layers::dynamic);
  Session session(network.graph, Machine::host(2)), other(network.graph, Machine::host(2), {.seed = 1});
  const Pattern before = session.pattern("first.weight");
  session.set_pattern("first.weight",
                      sparse::generate_pattern({PatternKind::random, before.rows, before.cols, 0.25, 8, 99}));
  const std::string path = path_of("earlier");
  session.save(path);
  test::rewrite_safetensors(path, [](const std::string& name) {
    return test::with_all(test::with_all(name, ".crow_indices", ".row_begin"), ".col_indices", ".columns");
  });
  other.load(path);
  EXPECT_EQ(other.pattern("first.weight"), session.pattern("first.weight"));
  EXPECT_EQ(other.state(), session.state());
  std::filesystem::remove(path);
}

TEST(Session, NamesTheArrayOfAPatternThatAFileLacks) {
  Classifier network(Layers::dynamic);
  Session session(network.graph, Machine::host(2));
  for (const char* array : {".crow_indices", ".col_indices"}) {
    const std::string path = path_of("lacking");
    session.save(path);
    test::rewrite_safetensors(
        path, [&](const std::string& name) { return test::with_all(name, array, ".of_something_else"); });
    EXPECT_TRUE(test::says(test::error_of([&] { session.load(path); }),
                           "it lacks 'first.weight" + std::string(array) + "'"));
    std::filesystem::remove(path);
  }
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
        inputs.erase("lr");
        EXPECT_EQ(shared.run(inputs), own.run(inputs)) << machine << ", step " << step;
      }
      EXPECT_EQ(shared.get("first.bias"), training.get("first.bias"));
      const std::vector<float> bias(Classifier::kHidden);
      EXPECT_THROW(shared.set("first.bias", bias), UsageError);
      EXPECT_THROW(Session(network.graph, training), UsageError);
    }
}

TEST(Session, RunsWithThePatternThatItsOwnerHasNow) {
  const auto pattern_of = [](double density, uint64_t seed) {
    return sparse::generate_pattern({PatternKind::random, 64, 64, density, 8, seed});
  };
  const Pattern first = pattern_of(0.25, 1), second = pattern_of(0.5, 2);
  Graph g;
  const Value w = g.sparse_parameter("w", first, Initial::normal(1), Type::f32, second.blocks());
  g.output("y", linear(g.input("x", {3, 64}), w));
  std::vector<float> x(3 * 64, 1), expected(3 * 64), found(3 * 64);
  for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 12)}) {
    Session owner(g, machine), shared(g, owner);
    for (const Pattern& pattern : {first, second, first}) {
      owner.set_pattern("w", pattern);
      owner.set("w", std::vector<float>(pattern.blocks() * 64, 0.5F));
      owner.run(std::vector<Tensor>{{"x", x.data()}, {"y", expected.data()}});
      // Nothing else has looked at this session since: arrays(), say, would follow the pattern too.
      shared.run(std::vector<Tensor>{{"x", x.data()}, {"y", found.data()}});
      EXPECT_EQ(found, expected) << machine.name() << ", " << pattern.blocks() << " blocks";
    }
    for (const Pattern& pattern : {second, first}) {
      owner.set_pattern("w", pattern);
      const double own = shared.cost({}).seconds;
      EXPECT_EQ(own, owner.cost({}).seconds) << machine.name() << ", " << pattern.blocks() << " blocks";
    }
  }
}

/// A training step with a lookup of `ids`, which fails for one that is too large: after the updates, or
/// before them.
Graph step_with_lookup(Layers kind, bool fails_late) {
  Classifier network(kind);
  Graph& g = network.graph;
  const Value ids = g.input("ids", {3}, Type::u32),
              table =
                  g.constant("table", {Classifier::kClasses, 1}, std::vector<float>(Classifier::kClasses));
  const auto look_up = [&] { g.output("rows", embedding(ids, table)); };
  if (!fails_late) look_up();
  add_training(network.loss, {Sgd{.momentum = 0.9}, {}});
  if (fails_late) look_up();
  return g;
}

TEST(Session, RefusesWhatAFailedRunHasHalfChanged) {
  const std::string path = path_of("before_a_failure"), parameters = path_of("parameters_before_a_failure");
  for (const Machine& machine : {Machine::host(2), Machine::find("gc200").with("tiles", 12)})
    for (const Layers kind : {Layers::dense, Layers::dynamic}) {
      const Classifier network(kind);
      const Graph g = step_with_lookup(kind, true);
      Session session(g, machine), sharing(network.graph, session);
      Arrays inputs = narrowed(network.inputs(1)), wrong;
      const Arrays evaluated = inputs;
      inputs["lr"] = {0.0625F};
      wrong = inputs;
      inputs["ids"] = {0, 9, 3};
      wrong["ids"] = {0, 10, 3};
      session.run(inputs);
      session.save(path);
      session.save_parameters(parameters);
      const Arrays before = session.state(), loss_before = sharing.run(evaluated);
      EXPECT_USAGE_ERROR("entry [1] of the ids, which come from 'ids', is 10", session.run(wrong));
      EXPECT_ERROR("may be half changed: load or set all of them", session.run(inputs));
      EXPECT_ERROR("may be half changed", session.get("third.bias"));
      EXPECT_ERROR("may be half changed", session.state());
      EXPECT_ERROR("may be half changed", session.save(path));
      EXPECT_ERROR("may be half changed", session.save_parameters(parameters));
      EXPECT_ERROR("may be half changed", sharing.run(evaluated));
      session.load_parameters(parameters);  // but not what the optimizer keeps
      EXPECT_EQ(session.get("third.bias"), before.at("third.bias"));
      EXPECT_ERROR(".velocity' and ", session.run(inputs));
      session.load(path);
      EXPECT_EQ(session.state(), before);
      EXPECT_EQ(sharing.run(evaluated), loss_before);
      session.run(inputs);
      for (const std::string& each : {path, parameters}) std::filesystem::remove(each);
    }
}

TEST(Session, GoesOnAfterARunThatFailedBeforeItChangedAnything) {
  const Classifier network(Layers::dense);
  const Graph g = step_with_lookup(Layers::dense, false);
  Arrays inputs = narrowed(network.inputs(1));
  inputs["lr"] = {0.0625F};
  Arrays wrong = inputs;
  inputs["ids"] = {0, 9, 3};
  wrong["ids"] = {0, 10, 3};
  for (const Machine& machine : {Machine::host(2), Machine::find("gc200").with("tiles", 12)}) {
    Session session(g, machine);
    session.run(inputs);
    const Arrays before = session.state();
    EXPECT_USAGE_ERROR("is 10", session.run(wrong));
    EXPECT_EQ(session.state(), before);
    session.run(inputs);
    EXPECT_NE(session.state(), before);
  }
}

/// Two products with weights whose patterns may change.
Graph two_dynamic(uint64_t spare) {
  Graph g;
  const Value x = g.input("x", {16, 256});
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, 256, 256, 0.1, 8, 1});
  const auto weight = [&](const char* name) {
    return g.sparse_parameter(name, pattern, Initial::normal(1), Type::f32, pattern.blocks() + spare);
  };
  g.output("y", linear(x, weight("a")) + linear(x, weight("b")));
  return g;
}

/// The first blocks of a matrix, row by row.
Pattern first_blocks(const Pattern& like, uint64_t blocks) {
  Pattern pattern{like.rows, like.cols, like.block_size, {0}, {}};
  for (uint32_t row = 0; row < like.block_rows(); ++row) {
    for (uint32_t col = 0; col < like.block_cols() && pattern.col_indices.size() < blocks; ++col)
      pattern.col_indices.push_back(col);
    pattern.crow_indices.push_back(pattern.col_indices.size());
  }
  return pattern;
}

TEST(Session, ChangesAllPatternsOrNone) {
  const Graph g = two_dynamic(40);
  Session host(g, Machine::host(1), {.seed = 1}), tiles(g, Machine::find("bow", 64), {.seed = 2});
  const Pattern before = host.pattern("a");
  const Pattern fits = sparse::generate_pattern({PatternKind::random, 256, 256, 0.1, 8, 9});
  const Pattern full = first_blocks(before, before.blocks() + 40);
  const Pattern large = first_blocks(before, before.blocks() + 41);
  const auto expect_unchanged = [&](Session& session, const auto& change) {
    const Arrays state = session.state();
    EXPECT_THROW(change(), Error);
    for (const char* name : {"a", "b"}) {
      EXPECT_EQ(session.pattern(name).crow_indices, before.crow_indices);
      EXPECT_EQ(session.pattern(name).col_indices, before.col_indices);
    }
    EXPECT_EQ(session.state(), state);
  };
  const std::vector<float> few(3), values(fits.blocks() * 64, 2.0F);
  for (Session* session : {&host, &tiles}) {
    expect_unchanged(*session, [&] { session->set_state({}, {{"a", fits}, {"b", large}}); });
    expect_unchanged(*session, [&] { session->set_state({}, {{"a", large}, {"b", fits}}); });
    expect_unchanged(*session, [&] { session->set_state({{"b", few}}, {{"a", fits}}); });
    expect_unchanged(*session, [&] { session->set_state({{"a", values}}, {{"a", fits}, {"x", full}}); });
    session->set_state({{"a", values}}, {{"a", fits}, {"b", full}});
    EXPECT_EQ(session->get("a"), values);
    EXPECT_EQ(session->pattern("a").col_indices, fits.col_indices);
    EXPECT_EQ(session->pattern("b").col_indices, full.col_indices);
  }
}

TEST(Session, SetsAllStateOrNone) {
  Classifier network(Layers::sparse);
  Session session(network.graph, Machine::host(1));
  const Arrays before = session.state();
  Arrays changed = before;
  for (auto& [name, values] : changed) values.assign(values.size(), 3);
  changed.rbegin()->second.push_back(1);
  EXPECT_THROW(session.set_state(changed), UsageError);
  EXPECT_EQ(session.state(), before);
  changed.rbegin()->second.pop_back();
  changed["unknown"] = {1};
  EXPECT_THROW(session.set_state(changed), UsageError);
  EXPECT_EQ(session.state(), before);
  changed.erase("unknown");
  session.set_state(changed);
  EXPECT_EQ(session.state(), changed);
}

TEST(Session, KeepsStateOfSharedParameters) {
  const std::string path = path_of("sums");
  for (const bool is_dynamic : {false, true}) {
    const Pattern pattern = sparse::generate_pattern({PatternKind::random, 64, 64, 0.25, 8, 1});
    const Pattern other = sparse::generate_pattern({PatternKind::random, 64, 64, 0.25, 8, 2});
    const auto weight = [&](Graph& g) {
      return g.sparse_parameter("w", pattern, Initial::normal(1), Type::f32,
                                is_dynamic ? std::optional(pattern.blocks() + 8) : std::nullopt);
    };
    Graph g, summing;
    g.output("y", linear(g.input("x", {3, 64}), weight(g)));
    const Value w = weight(summing), sums = summing.state("sums", w.type(), Initial::normal(1), w);
    summing.output("y", linear(summing.input("x", {3, 64}), w));
    summing.assign(sums, sums + w);
    for (const char* machine : {"host", "bow"}) {
      Session owner(g, Machine::find(machine, 2)), first(summing, owner), second(summing, owner);
      Arrays x = {{"x", std::vector<float>(3 * 64, 1)}};
      first.run(x);
      if (is_dynamic) {
        owner.set_pattern("w", other);
        EXPECT_EQ(first.pattern("w").col_indices, other.col_indices);
        EXPECT_EQ(first.get("sums").size(), other.blocks() * 64);
      }
      first.run(x);
      first.save(path);
      second.load(path);
      EXPECT_EQ(second.state(), first.state());
      if (!is_dynamic) continue;
      owner.set_pattern("w", pattern);
      const Arrays before = second.state();
      EXPECT_TRUE(test::says(test::error_of<Error>([&] { second.load(path); }), "load that one first"));
      EXPECT_EQ(second.state(), before);
      // A session that is made after the pattern has changed has contents for the new one.
      owner.set_pattern("w", other);
      EXPECT_EQ(Session(summing, owner).get("sums").size(), other.blocks() * 64);
    }
  }
  std::filesystem::remove(path);
}

TEST(Session, RefusesArraysForAnotherPattern) {
  Classifier network(Layers::dynamic);
  network.graph.output("w", network.graph.find("first.weight"));
  Session session(network.graph, Machine::host(1));
  std::map<std::string, std::vector<std::byte>> bytes;
  std::vector<Tensor> tensors;
  for (const ArrayType& array : session.arrays()) {
    bytes[array.name].resize(array.type.bytes());
    tensors.push_back({array.name, bytes[array.name].data(), array.type.elements()});
  }
  session.run(tensors);
  const Pattern before = session.pattern("first.weight");
  session.set_pattern("first.weight", first_blocks(before, before.blocks() + 1));
  EXPECT_TRUE(test::says(test::error_of<UsageError>([&] { session.run(tensors); }),
                         "the array of 'w' has " + std::to_string(before.blocks() * 64)));
  EXPECT_THROW(session.measure(tensors), UsageError);
  session.set_pattern("first.weight", before);
  session.run(tensors);
}

/// A parameter of integers, to which an input is added.
Graph integers(Type type, std::vector<float> initial) {
  Graph g;
  const Value n = g.parameter("n", {3}, Initial::from(std::move(initial)), type);
  g.output("y", cast(n + g.input("m", {3}, type), Type::f32));
  return g;
}

TEST(Session, RefusesWhatIntegersCannotBe) {
  Session session(integers(Type::u32, {0, 1, 2}), Machine::host(1));
  for (const float wrong : {-1.0F, 0.5F, 0x1p32F, std::numeric_limits<float>::quiet_NaN()}) {
    const std::vector<float> numbers = {0, wrong, 2};
    EXPECT_USAGE_ERROR("'n' has the entry", session.set("n", numbers));
    EXPECT_USAGE_ERROR("'n' has the entry", session.set_state({{"n", numbers}}));
    EXPECT_USAGE_ERROR("the input 'm' has the entry", session.run(Arrays{{"m", numbers}}));
    EXPECT_USAGE_ERROR("'n' has the entry", initial_state(integers(Type::u32, numbers)));
    EXPECT_USAGE_ERROR("a constant has the entry", Graph().constant("", {3}, numbers, Type::u32));
  }
  EXPECT_EQ(session.run(Arrays{{"m", {1, 2, 3}}}).at("y"), (std::vector<float>{1, 3, 5}));
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

TEST(Session, TakesArraysInTheirOrder) {
  Graph g;
  const Value x = g.input("x", {2, 3}), y = g.input("a", {3});
  g.output("z", x * 2);
  g.output("b", x + y);
  Session session(g, Machine::host(1));
  std::vector<float> xs = {1, 2, 3, 4, 5, 6}, ys = {10, 20, 30}, sums(6), doubles(6);
  const std::vector<void*> arrays = {xs.data(), ys.data(), sums.data(), doubles.data()};
  session.run_in_order(arrays);
  EXPECT_EQ(sums, (std::vector<float>{11, 22, 33, 14, 25, 36}));
  EXPECT_EQ(doubles, (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_TRUE(test::says(test::error_of<UsageError>([&] { session.run_in_order({}); }),
                         "0 arrays; the graph has 4 inputs and outputs"));
}

/// After the first run, which takes memory.
TEST(Session, RunsWithoutAllocations) {
  constexpr uint32_t kBatch = 4, kInputs = 16, kOutputs = 32;
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, kOutputs, kOutputs, 0.5, 4, 1});
  Graph g;
  const Value dense = g.parameter("dense", {kOutputs, kInputs}, Initial::normal(1));
  const Value sparse = g.sparse_parameter("sparse", pattern, Initial::normal(1));
  g.output("y", linear(relu(linear(g.input("x", {kBatch, kInputs}), dense)), sparse));
  Session owner(g, Machine::host(2)), sharing(g, owner);
  std::vector<float> in(kBatch * kInputs, 0.5F), of_owner(kBatch * kOutputs), out(of_owner.size());
  void* const for_owner[] = {in.data(), of_owner.data()};
  void* const arrays[] = {in.data(), out.data()};
  const auto run = [&] {
    owner.run_in_order(for_owner);
    sharing.run_in_order(arrays);
  };
  run();
  EXPECT_EQ(test::allocations_in([&] {
              for (int i = 0; i < 3; ++i) run();
            }),
            0U);
  EXPECT_EQ(out, of_owner);
}

}  // namespace
}  // namespace tessera::graph
