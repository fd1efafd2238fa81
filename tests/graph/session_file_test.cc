// Executables of sessions in files: sessions from them equal compiled ones, and executables of other sessions
// are refused.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/checksum.h"
#include "io/files.h"
#include "networks.h"
#include "sparse/generate.h"
#include "support/error_of.h"
#include "support/numbers.h"
#include "support/random_choices.h"

namespace tessera::graph {
namespace {

Machine tiles(uint32_t count = 12) { return Machine::find("bow").with("tiles", count); }
Machine chips(uint32_t count, uint32_t tiles_each) {
  return Machine::find("m2000").with("chips", count).with("tiles", tiles_each);
}

bool has_pass(const RunCost& cost, std::string_view name) {
  return std::ranges::find(cost.passes, name, &PassRecord::name) != cost.passes.end();
}

/// Expects the same program and cost, without compiling.
void expect_found(const Session& found, const Session& compiled) {
  EXPECT_EQ(found.program(), compiled.program());
  EXPECT_EQ(found.fits(), compiled.fits());
  const RunCost cost = found.cost(), expected = compiled.cost();
  expect_equal(cost, expected);
  EXPECT_TRUE(has_pass(expected, "exchange"));
  EXPECT_FALSE(has_pass(cost, "exchange"));
  EXPECT_TRUE(has_pass(cost, "load"));
}

Graph layers_of(uint32_t count, uint32_t width) {
  Graph g;
  Value x = g.input("x", {8, width});
  for (uint32_t i = 0; i < count; ++i)
    x = relu(linear(x, g.parameter(fmt::format("w{}", i), {width, width}, Initial::normal(0.1))));
  g.output("y", x);
  return g;
}

class SessionExecutable : public ::testing::Test {
 protected:
  Session found(const Graph& graph, const Machine& machine, SessionOptions options = {}) const {
    options.executable = path_;
    return {graph, machine, options};
  }
  std::string error_of(const Graph& graph, const Machine& machine, const SessionOptions& options = {}) const {
    return test::error_of([&] { found(graph, machine, options); });
  }
  void write(const std::string& content) const { folder_.write("step", content); }

  test::TemporaryFolder folder_;
  const std::string path_ = folder_.file("step");
};

TEST_F(SessionExecutable, TrainsAndCostsAsTheOneThatWasCompiled) {
  for (const Machine& machine : {Machine::host(2), tiles()})
    for (const Layers layers : {Layers::dense, Layers::sparse, Layers::dynamic}) {
      SCOPED_TRACE(fmt::format("{}, {}", machine.name(), static_cast<int>(layers)));
      Classifier network(layers, true);
      add_training(network.loss, {.optimizer = Sgd{.momentum = 0.9}});
      Session compiled(network.graph, machine, {.seed = 1});
      compiled.save_executable(path_);
      Session other = found(network.graph, machine, {.seed = 2});
      expect_found(other, compiled);
      EXPECT_NE(other.state(), compiled.state());
      other.set_state(compiled.state());
      for (uint32_t step = 1; step <= 3; ++step) {
        if (layers == Layers::dynamic && step == 3) {
          const Pattern before = compiled.pattern("first.weight");
          const Pattern after =
              sparse::generate_pattern({PatternKind::random, before.rows, before.cols, 0.25, 8, 99});
          for (Session* each : {&compiled, &other}) each->set_pattern("first.weight", after);
        }
        const Arrays inputs = narrowed(network.inputs(step));
        EXPECT_EQ(other.run(inputs), compiled.run(inputs)) << "step " << step;
      }
      EXPECT_EQ(other.state(), compiled.state());
    }
}

TEST_F(SessionExecutable, OfReplicasIsFound) {
  const Machine machine = chips(4, 8);
  Classifier network(Layers::sparse);
  add_training(network.loss, {.optimizer = Sgd{.momentum = 0.9}, .replicas = 2});
  Session compiled(network.graph, machine);
  compiled.save_executable(path_);
  Session other = found(network.graph, machine);
  expect_found(other, compiled);
  const Arrays inputs = narrowed(network.inputs(1));
  EXPECT_EQ(other.run(inputs), compiled.run(inputs));
  EXPECT_EQ(other.state(), compiled.state());
}

/// On one of the chips, on stages of whole layers, and on several chips that work as one.
TEST_F(SessionExecutable, IsPlacedAsTheOneThatWasCompiled) {
  const Machine machine = chips(4, 4);
  for (const auto& [count, width] : {std::pair(2U, 32U), {4U, 448U}, {1U, 1024U}}) {
    SCOPED_TRACE(width);
    const Graph graph = layers_of(count, width);
    Session compiled(graph, machine);
    compiled.save_executable(path_);
    Session other = found(graph, machine);
    ASSERT_GT(other.cost().placements.size(), 1u);
    expect_found(other, compiled);
    const Arrays inputs = {{"x", std::vector<float>(uint64_t{8} * width, 0.5F)}};
    EXPECT_EQ(other.run(inputs), compiled.run(inputs));
  }
  const Graph graph = layers_of(2, 32);
  const Session two(graph, machine, {.on_chips = 2});
  two.save_executable(path_);
  expect_found(found(graph, machine, {.on_chips = 2}), two);
  EXPECT_TRUE(test::says(error_of(graph, machine), "another number of chips"));
}

TEST_F(SessionExecutable, OfAPipelineThatWasChosenIsFound) {
  Graph g = layers_of(4, 384);
  const Value loss = mean_squared_error(g.value(g.outputs().at("y")), g.input("target", {8, 384}));
  g.remove_output("y");
  g.output("loss", loss);
  add_training(loss, {.micro_batches = 8});
  const Session compiled(g, chips(4, 4));
  const std::vector<PlacementCost> placements = compiled.cost().placements;
  const auto chosen = std::ranges::find(placements, true, &PlacementCost::chosen);
  ASSERT_NE(chosen, placements.end());
  ASSERT_TRUE(chosen->placement.ends_with("as a pipeline")) << chosen->placement;
  compiled.save_executable(path_);
  expect_found(found(g, chips(4, 4)), compiled);
}

TEST_F(SessionExecutable, ComputesAgainWhatWasChosenForAMemoryBudget) {
  const Machine machine = tiles(6);
  TrainingOptions options{.optimizer = Sgd{}, .micro_batches = 2};
  const uint64_t all = Session(called_layers(options), machine).cost().fullest_tile_bytes,
                 least = Session(called_layers(options, 1, true), machine).cost().fullest_tile_bytes;
  options.memory_budget = (all + least) / 2;
  const Graph graph = called_layers(options);
  Session compiled(graph, machine);
  ASSERT_LT(compiled.cost().fullest_tile_bytes, all);
  compiled.save_executable(path_);
  Session other = found(graph, machine);
  expect_found(other, compiled);
  const Arrays inputs = narrowed(random_inputs(graph));
  EXPECT_EQ(other.run(inputs), compiled.run(inputs));
  options.memory_budget = all;
  EXPECT_TRUE(test::says(error_of(called_layers(options), machine), "another memory budget"));
  options.memory_budget.reset();
  EXPECT_TRUE(test::says(error_of(called_layers(options), machine), "another memory budget"));
}

/// Two parts side by side, and a last one on both threads.
TEST_F(SessionExecutable, OfPartsIsFound) {
  Graph g;
  Value x = g.input("x", {3, 128, 32});
  for (const char* name : {"v", "w"}) x = relu(linear(x, g.parameter(name, {32, 32}, Initial::normal(0.2))));
  g.output("y", x);
  const Machine machine = Machine::host(2);
  Session compiled(g, machine, {.parts = 3});
  compiled.save_executable(path_);
  Session other = found(g, machine, {.parts = 3});
  expect_found(other, compiled);
  const Arrays inputs = {{"x", test::random_floats(uint64_t{3} * 128 * 32, 1)}};
  EXPECT_EQ(other.run(inputs), compiled.run(inputs));
  EXPECT_TRUE(test::says(error_of(g, machine), "another number of parts"));
  EXPECT_TRUE(test::says(error_of(g, tiles()), "another machine"));
}

TEST_F(SessionExecutable, OfAnEvaluationReadsParametersOfItsTraining) {
  for (const Machine& machine : {Machine::host(2), tiles()}) {
    SCOPED_TRACE(machine.name());
    Classifier network(Layers::sparse);
    add_training(network.loss, {.optimizer = Sgd{.momentum = 0.9}});
    Session training(network.graph, machine);
    const Classifier evaluation(Layers::sparse);
    Session compiled(evaluation.graph, training);
    compiled.save_executable(path_);
    Session other(evaluation.graph, training, path_);
    expect_found(other, compiled);
    training.run(narrowed(network.inputs(1)));
    const Arrays inputs = narrowed(evaluation.inputs(2));
    EXPECT_EQ(other.run(inputs), compiled.run(inputs));
    // On a host it reads the parameters in place.
    if (machine.is_host()) {
      EXPECT_TRUE(test::says(error_of(evaluation.graph, machine), "the executable of another program"));
    }
  }
}

/// A product with a static weight on tiles, whose pattern and bias are constants.
Graph product(uint64_t seed, float bias, uint32_t rows = 8) {
  Graph g;
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, 64, 64, 0.25, 8, seed});
  const Value w = g.sparse_parameter("w", pattern, Initial::normal(1));
  g.output("y", linear(g.input("x", {rows, 64}), w) + g.constant("b", {64}, std::vector<float>(64, bias)));
  return g;
}

TEST_F(SessionExecutable, OfAnotherSessionIsRefused) {
  Session(product(1, 1), tiles()).save_executable(path_);
  EXPECT_EQ(error_of(product(1, 1), tiles()), "(no error)");
  const auto refused_for = [&](const std::string& what) {
    return fmt::format("{}: it was made for another {} than this session's: leave it out, and save another",
                       path_, what);
  };
  EXPECT_EQ(error_of(product(1, 1, 16), tiles()), refused_for("graph"));
  EXPECT_EQ(error_of(product(1, 1), tiles(6)), refused_for("machine"));
  EXPECT_EQ(error_of(product(1, 1), tiles().with("exchange_cycles", 12345)), refused_for("machine"));
  EXPECT_EQ(error_of(product(1, 1), Machine::host(2)), refused_for("machine"));
  EXPECT_EQ(error_of(product(1, 1), tiles(), {.on_chips = 1}), refused_for("number of chips"));
  const std::string other_program =
      path_ + ": it is the executable of another program: leave it out, and save another";
  EXPECT_EQ(error_of(product(1, 2), tiles()), other_program);
  EXPECT_TRUE(test::says(error_of(product(2, 1), tiles()), "another"));

  Session(product(1, 1), Machine::host(2)).save_executable(path_);
  EXPECT_EQ(error_of(product(1, 1), Machine::host(1)), refused_for("machine"));
  EXPECT_EQ(error_of(product(1, 1), Machine::host(2), {.threads = 1}), refused_for("number of threads"));
  EXPECT_EQ(error_of(product(1, 1), tiles()), refused_for("machine"));
}

TEST_F(SessionExecutable, SaysWhatIsWrongWithItsFile) {
  const Graph graph = layers_of(1, 8);
  Session(graph, Machine::host(1)).save_executable(path_);
  const std::string whole = test::content_of(path_);
  write("some other kind of file, as long as a header");
  EXPECT_TRUE(test::says(error_of(graph, Machine::host(1)), "it is not the executable of a session"));
  std::string version = whole;
  version[8] = 77;
  write(version);
  EXPECT_TRUE(test::says(error_of(graph, Machine::host(1)), "it has format version 77, this build reads 2"));
  write(whole + "x");
  EXPECT_TRUE(test::says(error_of(graph, Machine::host(1)), "it is damaged"));
  std::filesystem::remove(path_);
  EXPECT_TRUE(test::says(error_of(graph, Machine::host(1)), path_));
}

TEST_F(SessionExecutable, ThatIsCutOrDamagedIsRefused) {
  const Graph graph = layers_of(1, 8);
  Session(graph, Machine::host(1)).save_executable(path_);
  const std::string whole = test::content_of(path_);
  for (size_t at = 0; at < whole.size(); at += 1 + whole.size() / 150) {
    SCOPED_TRACE(at);
    write(whole.substr(0, at));
    EXPECT_TRUE(error_of(graph, Machine::host(1)).starts_with(path_ + ": "));
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << at % 8));
    write(damaged);
    EXPECT_TRUE(error_of(graph, Machine::host(1)).starts_with(path_ + ": "));
  }
}

/// Damage of the choices that no checksum detects.
TEST_F(SessionExecutable, IsNotTrusted) {
  const Graph graph = layers_of(2, 8);
  const Machine machine = chips(2, 2);
  Session(graph, machine).save_executable(path_);
  const std::string whole = test::content_of(path_);
  constexpr size_t kSizeAt = 12, kSumAt = 20, kHeader = 28;
  uint64_t size = 0;
  std::memcpy(&size, &whole[kSizeAt], sizeof(size));
  test::Random random(1);
  uint32_t refused = 0;
  for (int i = 0; i < 200; ++i) {
    std::string other = whole;
    const size_t at = kHeader + random.below(static_cast<uint32_t>(size));
    other[at] = static_cast<char>(random.coin() ? 0xFF : random.below(256));
    const uint64_t sum = base::checksum(std::as_bytes(std::span(other).subspan(kHeader, size)));
    std::memcpy(&other[kSumAt], &sum, sizeof(sum));
    write(other);
    if (error_of(graph, machine) != "(no error)") ++refused;
  }
  EXPECT_GT(refused, 50u);
}

TEST_F(SessionExecutable, OnlyReplacesAFileByACompleteOne) {
  const Session session(layers_of(1, 8), Machine::host(1));
  const std::string path = folder_.file("missing/step");
  EXPECT_THROW(session.save_executable(path), Error);
  write("what was there");
  const test::FileLimit limit(100);
  EXPECT_THROW(session.save_executable(path_), Error);
  EXPECT_EQ(test::content_of(path_), "what was there");
  EXPECT_EQ(folder_.count(), 1u);
}

}  // namespace
}  // namespace tessera::graph
