// Sessions of ranks that divide replicas among them: the bits of one process, and what ranks agree on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/communicator.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/gradients.h>
#include <tessera/pipeline.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "joint_norm.h"
#include "networks.h"
#include "support/number_of.h"
#include "support/on_ranks.h"

namespace tessera::graph {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ranks = std::shared_ptr<Communicator>;

constexpr uint32_t kSteps = 3;

Machine chips(uint32_t count) { return Machine::find("m2000").with("chips", count).with("tiles", 8); }

SessionOptions of_rank(const Ranks& ranks) { return {.threads = 1, .communicator = ranks}; }

/// Threads need time to compile.
std::vector<Ranks> patient(uint32_t ranks) { return connect_threads(ranks, std::chrono::minutes(10)); }

/// The replicas of one of `ranks` ranks.
struct Share {
  uint32_t rank = 0;
  uint32_t ranks = 1;
};

/// The share of a rank, which may have stages of one replica only.
Share share_of(const Graph& graph, const Communicator& ranks) {
  const uint32_t groups = std::min(ranks.size(), graph.replicas());
  return {ranks.rank() / (ranks.size() / groups), groups};
}

/// The part that a rank binds of an array with the rows of all replicas.
std::vector<float> part_of(const Graph& graph, ValueId id, const std::vector<float>& all, Share share) {
  const size_t each = graph.bound_type(id, graph.replicas() / share.ranks).elements();
  if (all.size() == each) return all;
  const auto begin = all.begin() + static_cast<int64_t>(share.rank * each);
  return {begin, begin + static_cast<int64_t>(each)};
}

/// Inputs of all replicas in one step.
Arrays inputs(const Graph& graph, uint32_t step) {
  Arrays arrays;
  for (const ValueId id : graph.inputs()) {
    const std::string& name = graph.info(id).name;
    arrays[name] = name == "lr"     ? std::vector<float>{0.0625}
                   : name == "step" ? std::vector<float>{static_cast<float>(step)}
                                    : narrowed(random_values(graph.bound_type(id), -1, 1, 10, step, id));
  }
  return arrays;
}

/// The results of steps, and the state after them.
struct Trained {
  std::vector<Arrays> outputs;
  Arrays state;
};

Trained train(Session& session, Share share = {}) {
  const Graph& graph = session.graph();
  Trained result;
  for (uint32_t step = 1; step <= kSteps; ++step) {
    Arrays own = inputs(graph, step);
    for (const ValueId id : graph.inputs()) {
      std::vector<float>& array = own.at(graph.info(id).name);
      array = part_of(graph, id, array, share);
    }
    result.outputs.push_back(session.run(own));
  }
  result.state = session.state();
  return result;
}

/// Trains on several numbers of ranks as in one process.
void expect_same_bits(const Graph& graph, const Machine& machine, const std::vector<uint32_t>& counts) {
  Session whole(graph, machine);
  ASSERT_TRUE(whole.fits());
  const Trained expected = train(whole);
  for (const uint32_t count : counts) {
    SCOPED_TRACE(std::to_string(count) + " ranks");
    const auto errors = test::errors_on_ranks(patient(count), [&](const Ranks& ranks) {
      const Share share = share_of(graph, *ranks);
      Session session(graph, machine, of_rank(ranks));
      const Trained found = train(session, share);
      EXPECT_EQ(found.state, expected.state);
      for (uint32_t step = 0; step < kSteps; ++step)
        for (const auto& [name, values] : expected.outputs[step])
          EXPECT_EQ(found.outputs[step].at(name), part_of(graph, graph.outputs().at(name), values, share))
              << name << " of step " << step + 1;
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

void expect_same_bits(const Graph& graph, const Machine& machine) {
  std::vector<uint32_t> counts;
  for (uint32_t count = 2; count <= graph.replicas(); ++count)
    if (graph.replicas() % count == 0) counts.push_back(count);
  expect_same_bits(graph, machine, counts);
}

TEST(RanksOfSessions, TrainAsOneProcess) {
  for (const Layers layers : {Layers::dense, Layers::sparse, Layers::dynamic}) {
    SCOPED_TRACE(static_cast<int>(layers));
    Classifier network(layers, true);
    add_training(network.loss, {.optimizer = Sgd{.momentum = 0.9}, .replicas = 4});
    for (const Machine& machine : {chips(4), Machine::host(2)}) expect_same_bits(network.graph, machine);
  }
}

/// Each rank chooses for itself what it computes again.
TEST(RanksOfSessions, FitAMemoryBudgetAsOneProcess) {
  for (const Machine& machine : {chips(2), Machine::host(2)}) {
    TrainingOptions options{.micro_batches = 2, .replicas = 2};
    const uint64_t most = estimate(called_layers(options), machine).fullest_tile_bytes,
                   least = estimate(called_layers(options, 1, true), machine).fullest_tile_bytes;
    ASSERT_LT(least, most);
    options.memory_budget = (most + least) / 2;
    expect_same_bits(called_layers(options), machine);
  }
}

TEST(RanksOfSessions, ShareStatisticsOfNormsAsOneProcess) {
  JointNorm network(JointNorm::kRows, 2);
  add_training(network.loss, {.replicas = 4});
  NormedBlocks blocks(NormedBlocks::How::recomputed);
  add_training(blocks.loss, {.micro_batches = 2, .replicas = 4});
  for (const Machine& machine : {chips(4), Machine::host(2)}) expect_same_bits(network.graph, machine);
  expect_same_bits(blocks.graph, Machine::host(2));
}

/// Two layers of functions, on two stages if wanted.
struct Stack {
  static constexpr uint32_t kRows = 6, kFeatures = 24;

  Graph graph;
  Value y, loss;

  explicit Stack(Type type, bool on_stages = false, const Initial& bias = Initial::normal(0.1)) {
    const auto function = std::make_shared<Graph>();
    const Value x = function->input("x", {kRows, kFeatures}, type),
                weight = function->input("weight", {kFeatures, kFeatures}, type);
    function->output("y", gelu(linear(x, weight, function->input("bias", {kFeatures}, type))));
    Value h = graph.input("x", {kRows, kFeatures}, type);
    for (uint32_t l = 0; l < 2; ++l) {
      const std::string name = std::to_string(l);
      const Value own = graph.parameter(name + ".weight", {kFeatures, kFeatures}, Initial::normal(0.3), type);
      h = graph.call(function, {h, own, graph.parameter(name + ".bias", {kFeatures}, bias, type)},
                     {.stage = on_stages ? std::optional(l) : std::nullopt})[0];
    }
    y = cast(h, Type::f32);
    loss = mean(square(y - graph.input("target", {kRows, kFeatures})));
    graph.output("loss", loss);
  }
};

TEST(RanksOfSessions, RoundStochasticallyAsOneProcess) {
  for (const bool is_divided : {false, true})
    for (const Type type : {Type::f16, Type::bf16}) {
      SCOPED_TRACE(is_divided);
      Stack network(type);
      network.graph.output("y", network.y);
      add_training(network.loss, {.optimizer = Adam{.epsilon = 1e-3},
                                  .clip_norm = 0.5,
                                  .replicas = 4,
                                  .shard_from = is_divided ? std::optional<uint64_t>(30) : std::nullopt,
                                  .state = type,
                                  .rounding = Rounding::stochastic,
                                  .loss_scale = LossScale{.initial = 1024, .grow_after = 2}});
      // Tiles have no bf16.
      expect_same_bits(network.graph, type == Type::bf16 ? Machine::host(2) : chips(4));
    }
}

TEST(RanksOfSessions, DivideParametersAndStateAsOneProcess) {
  for (const Optimizer& optimizer : {Optimizer(Adam{.epsilon = 1e-3}), Optimizer(Lamb{.epsilon = 1e-3})}) {
    Stack network(Type::f32);
    add_training(network.loss, {.optimizer = optimizer,
                                .micro_batches = 2,
                                .replicas = 4,
                                .shard_from = 30,
                                .shard_weights_from = 30,
                                .offload_from = 0});
    for (const Machine& machine : {chips(4), Machine::host(2)}) expect_same_bits(network.graph, machine);
  }
}

/// Sums over slow links, and on hosts, go on while other gradients are computed.
TEST(RanksOfSessions, SumBesideTheRest) {
  for (const uint32_t micro_batches : {1U, 3U}) {
    Graph g;
    Value h = g.input("x", {64, 128});
    for (uint32_t l = 0; l < 4; ++l)
      h = relu(linear(h, g.parameter("w" + std::to_string(l), {128, 128}, Initial::normal(0.1))));
    const Value loss = mean_squared_error(h, g.input("target", {64, 128}));
    g.output("loss", loss);
    add_training(
        loss,
        {.optimizer = Sgd{.momentum = 0.9}, .clip_norm = 1, .micro_batches = micro_batches, .replicas = 2});
    for (const Machine& machine : {chips(2).with("link_gb_per_second", 1), Machine::host(2)}) {
      EXPECT_THAT(Session(g, machine).program(), HasSubstr("beside it"));
      expect_same_bits(g, machine);
    }
  }
}

TEST(RanksOfSessions, HavePipelinesOfTheirOwn) {
  Stack network(Type::f32, true);
  add_training(network.loss, {.optimizer = Sgd{.momentum = 0.9},
                              .micro_batches = 4,
                              .pipeline = {PipelineKind::one_forward_one_backward},
                              .replicas = 2});
  expect_same_bits(network.graph, chips(4));
}

/// A layer with dropout on each stage. The last one also takes the result of the first one, and its weight.
Graph staged(uint32_t stages, Type type, TrainingOptions options) {
  constexpr uint32_t kRows = 6, kFeatures = 24;
  const auto function = std::make_shared<Graph>();
  {
    const Value x = function->input("x", {kRows, kFeatures}, type),
                weight = function->input("weight", {kFeatures, kFeatures}, type),
                bias = function->input("bias", {kFeatures}, type),
                number = function->input("number", {}, Type::u32);
    function->output("y", x + dropout(gelu(linear(x, weight, bias)), 0.25, number, 7));
  }
  Graph g;
  const Value number = g.input("number", {}, Type::u32),
              first = g.parameter("first", {kFeatures, kFeatures}, Initial::normal(0.2), type),
              begin = linear(g.input("x", {kRows, kFeatures}, type), first);
  Value h = begin;
  for (uint32_t s = 0; s < stages; ++s) {
    const std::string name = std::to_string(s);
    const Value weight = g.parameter(name + ".weight", {kFeatures, kFeatures}, Initial::normal(0.2), type),
                bias = g.parameter(name + ".bias", {kFeatures}, Initial::normal(0.1), type);
    h = g.call(function, {h, weight, bias, number}, {.stage = s})[0];
  }
  const Value y = cast(linear(h + begin, permute(first, {1, 0})), Type::f32);
  const Value loss = mean(square(y - g.input("target", {kRows, kFeatures})));
  g.output("loss", loss);
  add_training(loss, options);
  return g;
}

TEST(RanksOfSessions, DivideStagesAsOneProcess) {
  for (const PipelineKind kind : {PipelineKind::sequential, PipelineKind::grouped, PipelineKind::interleaved,
                                  PipelineKind::one_forward_one_backward, PipelineKind::zero_bubble}) {
    SCOPED_TRACE(name_of(kind));
    const Graph g =
        staged(2, Type::f32, {.optimizer = Sgd{.momentum = 0.9}, .micro_batches = 4, .pipeline = {kind}});
    expect_same_bits(g, Machine::host(2), {2});
  }
  const Graph without = staged(2, Type::f32, {.optimizer = Sgd{.momentum = 0.9}});
  expect_same_bits(without, Machine::host(2), {2});
}

TEST(RanksOfSessions, DivideFourStagesAsOneProcess) {
  const Graph g = staged(4, Type::f32,
                         {.optimizer = Adam{.epsilon = 1e-3},
                          .micro_batches = 5,
                          .pipeline = {PipelineKind::one_forward_one_backward, {0, 2}}});
  expect_same_bits(g, Machine::host(2), {2, 4});
}

/// The first and the last, as an embedding and a head do, neighbours, or all by turns.
TEST(RanksOfSessions, DivideStagesThatShareParts) {
  const std::vector<std::vector<uint32_t>> all_places = {{0, 1, 1, 0}, {0, 0, 1, 1}, {0, 1, 0, 1}};
  test::EveryNth some(4);
  for (const std::vector<uint32_t>& places : all_places)
    for (const PipelineKind kind :
         {PipelineKind::grouped, PipelineKind::interleaved, PipelineKind::one_forward_one_backward}) {
      if (!some.takes()) continue;
      SCOPED_TRACE(fmt::format("{}, the last stage on part {}", name_of(kind), places.back()));
      Graph g = staged(4, Type::f32,
                       {.optimizer = Sgd{.momentum = 0.9}, .micro_batches = 8, .pipeline = {kind, {0, 2}}});
      g.place_stages(places);
      expect_same_bits(g, Machine::host(2), {2});
    }
}

/// On the chips of a replica, which a rank has whole, and on hosts, where ranks divide them too.
TEST(RanksOfSessions, HaveReplicasWhoseStagesShareParts) {
  Graph g = staged(4, Type::f32,
                   {.optimizer = Sgd{.momentum = 0.9},
                    .micro_batches = 4,
                    .pipeline = {PipelineKind::interleaved},
                    .replicas = 2});
  g.place_stages({0, 1, 1, 0});
  expect_same_bits(g, chips(4), {2});
  expect_same_bits(g, Machine::host(2), {4});
}

/// One rank computes nothing.
TEST(RanksOfSessions, DividePartsWithoutStages) {
  Graph g = staged(2, Type::f32,
                   {.optimizer = Sgd{.momentum = 0.9},
                    .micro_batches = 2,
                    .pipeline = {PipelineKind::one_forward_one_backward}});
  g.place_stages({0, 0, 1});
  expect_same_bits(g, Machine::host(2), {2});
}

TEST(RanksOfSessions, DivideStagesThatRoundStochastically) {
  const Graph g = staged(2, Type::bf16,
                         {.optimizer = Adam{.epsilon = 1e-3},
                          .clip_norm = 0.5,
                          .micro_batches = 3,
                          .pipeline = {PipelineKind::one_forward_one_backward},
                          .state = Type::bf16,
                          .rounding = Rounding::stochastic});
  expect_same_bits(g, Machine::host(2), {2});
}

/// As many ranks as replicas have stages in all, or as replicas.
TEST(RanksOfSessions, DivideReplicasAndTheirStages) {
  for (const bool is_divided : {false, true}) {
    SCOPED_TRACE(is_divided);
    const Graph g = staged(2, Type::f32,
                           {.optimizer = Adam{.epsilon = 1e-3},
                            .clip_norm = 0.5,
                            .micro_batches = 2,
                            .pipeline = {PipelineKind::one_forward_one_backward},
                            .replicas = 2,
                            .shard_from = is_divided ? std::optional<uint64_t>(30) : std::nullopt});
    expect_same_bits(g, Machine::host(2), {2, 4});
  }
}

/// Ranks with stages and a single process can read each other's files, and an evaluation has the parameters
/// of all ranks.
TEST(RanksOfSessions, SaveAndEvaluateStages) {
  const std::string path = (std::filesystem::path(::testing::TempDir()) / "ranks_stages").string();
  Stack network(Type::f32, true), evaluation(Type::f32, true);
  add_training(network.loss, {.optimizer = Adam{.epsilon = 1e-3}});
  const Arrays given = inputs(evaluation.graph, 9);
  const Machine host = Machine::host(2);
  Session whole(network.graph, host, {.seed = 1, .threads = 1});
  train(whole);
  whole.save(path + "1");
  train(whole);
  const Arrays expected = Session(evaluation.graph, whole).run(given);
  const auto errors = test::errors_on_ranks(patient(2), [&](const Ranks& ranks) {
    Session session(network.graph, host, of_rank(ranks));
    session.load(path + "1");
    train(session);
    Session evaluated(evaluation.graph, session);
    EXPECT_EQ(evaluated.run(given), expected);
    EXPECT_EQ(session.state(), whole.state());
    session.save(path + "2");
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  Session other(network.graph, host, {.seed = 2, .threads = 1});
  other.load(path + "2");
  EXPECT_EQ(other.state(), whole.state());
  for (const char* number : {"1", "2"}) std::filesystem::remove(path + number);
}

void expect_predicted_bytes(const Graph& g, uint32_t count) {
  const auto errors = test::errors_on_ranks(patient(count), [&](const Ranks& ranks) {
    Session session(g, Machine::host(1), of_rank(ranks));
    for (uint32_t step = 1; step <= kSteps; ++step) {
      const uint64_t before = session.sent_bytes(), predicted = session.cost().sent_bytes;
      EXPECT_GT(predicted, 0U);
      Arrays own = inputs(g, step);
      for (const ValueId id : g.inputs()) {
        std::vector<float>& array = own.at(g.info(id).name);
        array = part_of(g, id, array, share_of(g, *ranks));
      }
      session.run(own);
      EXPECT_EQ(session.sent_bytes() - before, predicted);
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(RanksOfSessions, SendWhatIsPredictedOfStages) {
  expect_predicted_bytes(staged(2, Type::f32,
                                {.optimizer = Sgd{.momentum = 0.9},
                                 .micro_batches = 2,
                                 .pipeline = {PipelineKind::one_forward_one_backward},
                                 .replicas = 2}),
                         4);
  Graph shared = staged(
      4, Type::f32,
      {.optimizer = Sgd{.momentum = 0.9}, .micro_batches = 4, .pipeline = {PipelineKind::interleaved, {1}}});
  shared.place_stages({0, 1, 1, 0});
  expect_predicted_bytes(shared, 2);
}

/// Two ranks and a single process can read each other's files.
TEST(RanksOfSessions, SaveWholeFiles) {
  const std::filesystem::path folder = ::testing::TempDir();
  const auto path = [&](const std::string& name) { return (folder / ("ranks_" + name)).string(); };
  Stack network(Type::f32);
  add_training(network.loss, {.optimizer = Adam{.epsilon = 1e-3}, .replicas = 2, .shard_from = 30});
  Session whole(network.graph, chips(2), {.seed = 1});
  train(whole);
  whole.save(path("whole"));
  const auto errors = test::errors_on_ranks(patient(2), [&](const Ranks& ranks) {
    Session session(network.graph, chips(2), of_rank(ranks));
    EXPECT_NE(session.state(), whole.state());
    session.load(path("whole"));
    EXPECT_EQ(session.state(), whole.state());
    train(session, {ranks->rank(), 2});
    session.save(path("divided"));
    EXPECT_TRUE(std::filesystem::exists(path("divided")));
    session.save_parameters(path("parameters"));
    try {
      session.save((folder / "no folder" / "file").string());
      ADD_FAILURE() << "it saves a file nowhere";
    } catch (const Error& error) {
      const bool is_first = ranks->rank() == 0;
      EXPECT_EQ(dynamic_cast<const RankError*>(&error) == nullptr, is_first);
      EXPECT_EQ(std::string(error.what()).starts_with("rank 0: "), !is_first);
    }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  train(whole);
  Session other(network.graph, chips(2), {.seed = 2});
  other.load(path("divided"));
  EXPECT_EQ(other.state(), whole.state());
  Session third(network.graph, chips(2), {.seed = 2});
  third.load_parameters(path("parameters"));
  EXPECT_EQ(third.get("0.weight"), whole.get("0.weight"));
  for (const char* name : {"whole", "divided", "parameters"}) std::filesystem::remove(path(name));
}

TEST(RanksOfSessions, ReadTheSameState) {
  Stack network(Type::f32);
  add_training(network.loss, {.optimizer = Sgd{.momentum = 0.9}, .replicas = 2, .shard_from = 30});
  const auto errors = test::errors_on_ranks(patient(2), [&](const Ranks& ranks) {
    Session session(network.graph, chips(2), of_rank(ranks));
    session.get(ranks->rank() == 0 ? "0.weight.velocity" : "1.weight.velocity");
  });
  EXPECT_THAT(errors, Each(HasSubstr("is elsewhere in the program than rank")));
}

TEST(RanksOfSessions, LoadTogetherOrNotAtAll) {
  const std::filesystem::path folder = ::testing::TempDir();
  const auto path = [&](const std::string& name) { return (folder / ("ranks_load_" + name)).string(); };
  Stack network(Type::f32);
  add_training(network.loss, {.optimizer = Adam{.epsilon = 1e-3}, .replicas = 2});
  for (const uint64_t seed : {1U, 2U}) {
    const Session session(network.graph, chips(2), {.seed = seed});
    session.save(path(std::to_string(seed)));
    session.save_parameters(path("parameters" + std::to_string(seed)));
  }
  const auto errors = test::errors_on_ranks(patient(2), [&](const Ranks& ranks) {
    Session session(network.graph, chips(2), of_rank(ranks));
    const Arrays before = session.state();
    const bool is_first = ranks->rank() == 0;
    const auto error_of = [&](const auto& load) -> std::string {
      try {
        load();
      } catch (const Error& error) {
        return error.what();
      }
      return "";
    };
    const std::string other = "rank 1 has another file to load than rank 0";
    EXPECT_THAT(error_of([&] { session.load(path(is_first ? "1" : "none")); }), HasSubstr("none"));
    EXPECT_THAT(error_of([&] { session.load(path(is_first ? "1" : "2")); }), HasSubstr(other));
    EXPECT_THAT(error_of([&] { session.load_parameters(path(is_first ? "none" : "parameters1")); }),
                HasSubstr("none"));
    EXPECT_THAT(error_of([&] { session.load_parameters(path(is_first ? "parameters1" : "parameters2")); }),
                HasSubstr(other));
    EXPECT_EQ(session.state(), before);
    train(session, {ranks->rank(), 2});
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  for (const char* name : {"1", "2", "parameters1", "parameters2"}) std::filesystem::remove(path(name));
}

/// A graph without replicas, with the parameters of a graph that has some.
TEST(RanksOfSessions, EvaluateForThemselves) {
  Stack network(Type::f32), evaluation(Type::f32);
  add_training(network.loss, {.replicas = 2, .shard_weights_from = 30});
  const Arrays given = inputs(evaluation.graph, 9);
  Session whole(network.graph, chips(2));
  train(whole);
  const Arrays expected = Session(evaluation.graph, whole).run(given);
  const auto errors = test::errors_on_ranks(patient(2), [&](const Ranks& ranks) {
    Session session(network.graph, chips(2), of_rank(ranks));
    train(session, {ranks->rank(), 2});
    EXPECT_EQ(Session(evaluation.graph, session).run(given), expected);
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(RanksOfSessions, CostWhatOneProcessDoes) {
  Classifier network(Layers::dense);
  add_training(network.loss, {.replicas = 2});
  const Session whole(network.graph, chips(2));
  const auto errors = test::errors_on_ranks(patient(2), [&](const Ranks& ranks) {
    const Session session(network.graph, chips(2), of_rank(ranks));
    const RunCost cost = session.cost(), expected = whole.cost();
    EXPECT_EQ(cost.seconds, expected.seconds);
    EXPECT_EQ(cost.chips.size(), expected.chips.size());
    EXPECT_EQ(cost.links.size(), expected.links.size());
    for (const ArrayType& array : session.arrays())
      if (array.name == "x") {
        EXPECT_EQ(array.type.shape, (Shape{Classifier::kBatch, Classifier::kInputs}));
      }
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(RanksOfSessions, SendWhatIsPredicted) {
  for (const bool is_divided : {false, true}) {
    Stack network(Type::f32);
    add_training(network.loss, {.optimizer = Sgd{.momentum = 0.9},
                                .clip_norm = 1,
                                .micro_batches = 2,
                                .replicas = 4,
                                .shard_from = is_divided ? std::optional<uint64_t>(30) : std::nullopt});
    for (const Machine& machine : {chips(4), Machine::host(1)})
      for (const uint32_t count : {1U, 2U, 4U}) {
        SCOPED_TRACE(std::to_string(count) + " ranks of " + machine.name());
        const auto errors = test::errors_on_ranks(patient(count), [&](const Ranks& ranks) {
          Session session(network.graph, machine, of_rank(ranks));
          const uint64_t predicted = session.cost().sent_bytes;
          EXPECT_EQ(predicted > 0, count > 1);
          train(session, {ranks->rank(), count});
          EXPECT_EQ(session.sent_bytes(), kSteps * predicted);
        });
        EXPECT_THAT(errors, Each(IsEmpty()));
      }
  }
}

/// The errors of two ranks that make sessions.
template <class Make>
std::vector<std::string> errors_of_making(const Make& make) {
  return test::errors_on_ranks(patient(2), make);
}

TEST(RanksOfSessions, RefuseOthers) {
  Classifier dense(Layers::dense), sparse(Layers::sparse);
  for (Classifier* network : {&dense, &sparse}) add_training(network->loss, {.replicas = 2});
  const auto expect_refused = [](const std::vector<std::string>& errors, const std::string& what) {
    EXPECT_THAT(errors, Each(HasSubstr("rank 1 has another " + what + " than rank 0")));
  };
  expect_refused(errors_of_making([&](const Ranks& ranks) {
                   Session(ranks->rank() == 0 ? dense.graph : sparse.graph, chips(2), of_rank(ranks));
                 }),
                 "graph");
  expect_refused(errors_of_making([&](const Ranks& ranks) {
                   SessionOptions options = of_rank(ranks);
                   options.seed = ranks->rank();
                   Session(dense.graph, chips(2), options);
                 }),
                 "seed");
  expect_refused(errors_of_making([&](const Ranks& ranks) {
                   const Machine machine = chips(2).with("link_gb_per_second", 1 + ranks->rank());
                   Session(dense.graph, machine, of_rank(ranks));
                 }),
                 "machine");
  expect_refused(errors_of_making([&](const Ranks& ranks) {
                   Session(dense.graph, Machine::host(1 + ranks->rank()), of_rank(ranks));
                 }),
                 "number of tiles");
  expect_refused(errors_of_making([&](const Ranks& ranks) {
                   const std::vector<float> bias(Stack::kFeatures, static_cast<float>(ranks->rank()));
                   Stack network(Type::f32, false, Initial::from(bias));
                   add_training(network.loss, {.replicas = 2});
                   Session(network.graph, chips(2), of_rank(ranks));
                 }),
                 "set of values");
  // More digits than the text of a graph has.
  expect_refused(errors_of_making([&](const Ranks& ranks) {
                   Stack network(Type::f32);
                   add_training(network.loss,
                                {.optimizer = Adam{.beta2 = 0.999 + 1e-7 * ranks->rank()}, .replicas = 2});
                   Session(network.graph, chips(2), of_rank(ranks));
                 }),
                 "set of values");
}

TEST(RanksOfSessions, RefuseOthersFunctions) {
  const auto errors = errors_of_making([](const Ranks& ranks) {
    const auto function = std::make_shared<Graph>();
    const Value x = function->input("x", {4, 16});
    function->output("y", ranks->rank() == 0 ? sin(x) : cos(x));
    Graph graph;
    const Value h = graph.input("x", {4, 16}) * graph.parameter("w", {4, 16}, Initial::normal(1));
    const Value loss = mean(square(graph.call(function, {h})[0]));
    graph.output("loss", loss);
    add_training(loss, {.replicas = 2});
    Session(graph, chips(2), of_rank(ranks));
  });
  EXPECT_THAT(errors, Each(HasSubstr("rank 1 has another ")));
}

TEST(RanksOfSessions, AreRefusedTogether) {
  Classifier network(Layers::dense), alone(Layers::dense), three(Layers::dense);
  add_training(network.loss, {.replicas = 2});
  add_training(three.loss, {.replicas = 3});
  const auto errors = errors_of_making(
      [&](const Ranks& ranks) { Session(network.graph, chips(ranks->rank() == 0 ? 2 : 1), of_rank(ranks)); });
  EXPECT_THAT(errors[1], HasSubstr("2 replicas of a program need a machine of whole chips"));
  EXPECT_EQ(errors[0], "rank 1: " + errors[1]);
  EXPECT_THAT(errors_of_making([&](const Ranks& ranks) { Session(alone.graph, chips(1), of_rank(ranks)); }),
              Each(HasSubstr("2 ranks divide the replicas of a graph among them, but there is only one")));
  EXPECT_THAT(errors_of_making([&](const Ranks& ranks) { Session(three.graph, chips(6), of_rank(ranks)); }),
              Each(HasSubstr("3 replicas cannot be divided among 2 ranks equally")));
  const Graph staged_on_three = staged(3, Type::f32, {});
  EXPECT_THAT(errors_of_making(
                  [&](const Ranks& ranks) { Session(staged_on_three, Machine::host(1), of_rank(ranks)); }),
              Each(HasSubstr("1 replicas with 3 stages each cannot be divided among 2 ranks equally")));
  EXPECT_THAT(
      errors_of_making([&](const Ranks& ranks) { Session(staged_on_three, chips(2), of_rank(ranks)); }),
      Each(HasSubstr("2 ranks divide the replicas of a graph among them, but there is only one")));
  // No rank waits in vain, so they can go on.
  EXPECT_THAT(errors_of_making([&](const Ranks& ranks) {
                EXPECT_THROW(Session(alone.graph, chips(1), of_rank(ranks)), UsageError);
                Session(network.graph, chips(2), of_rank(ranks));
              }),
              Each(IsEmpty()));
}

/// Equal sessions at the same place: one rank runs or reads another session than the other rank.
TEST(RanksOfSessions, DoNotMixSessions) {
  Stack network(Type::f32);
  add_training(network.loss, {.optimizer = Sgd{.momentum = 0.9}, .replicas = 2, .shard_from = 30});
  for (const bool is_read : {false, true}) {
    const auto errors = test::errors_on_ranks(patient(2), [&](const Ranks& ranks) {
      Session first(network.graph, chips(2), of_rank(ranks)), second(network.graph, chips(2), of_rank(ranks));
      const Share share{ranks->rank(), 2};
      EXPECT_EQ(train(first, share).state, train(second, share).state);
      Session& chosen = ranks->rank() == 0 ? first : second;
      if (is_read)
        chosen.state();
      else
        train(chosen, share);
    });
    EXPECT_THAT(errors, Each(HasSubstr("is elsewhere in the program than rank")));
  }
}

/// A row of an embedding that does not exist ends the run of the rank that has it, and of the other.
TEST(RanksOfSessions, EndWithTheErrorOfOne) {
  Graph graph;
  const Value ids = graph.input("ids", {4}, Type::u32);
  const Value rows = embedding(ids, graph.parameter("table", {8, 16}, Initial::normal(1)));
  const Value loss = mean(square(rows));
  graph.output("loss", loss);
  add_training(loss, {.replicas = 2});
  const auto errors = test::errors_on_ranks(patient(2), [&](const Ranks& ranks) {
    Session session(graph, chips(2), of_rank(ranks));
    const auto given = [](float last) { return Arrays{{"ids", {0, 1, 2, last}}, {"lr", {0.1F}}}; };
    session.run(given(7));
    session.run(given(ranks->rank() == 1 ? 8.0F : 7.0F));
  });
  EXPECT_EQ(errors[1],
            "embedding: entry [3] of the ids, which come from 'ids', is 8; 'table' has rows 0 to 7");
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1: entry "), HasSubstr(" is 8; it must name a row of ")));
}

}  // namespace
}  // namespace tessera::graph
