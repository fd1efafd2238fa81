// Batch norms with the statistics of several replicas, which equal those of one batch with all their rows.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/communicator.h>
#include <tessera/gradients.h>
#include <tessera/vision.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compare.h"
#include "graph/operation.h"
#include "joint_norm.h"
#include "support/error_of.h"
#include "support/numbers.h"
#include "support/on_ranks.h"

namespace tessera::graph {
namespace {

constexpr uint32_t kRows = JointNorm::kRows;

Machine chips(uint32_t count) { return Machine::find("m2000").with("chips", count).with("tiles", 8); }

Graph trained(uint32_t replicas, uint32_t rows, uint32_t group) {
  JointNorm network(rows, group);
  add_training(network.loss, {.replicas = replicas});
  return network.graph;
}

WideArrays inputs_of(const Graph& graph) {
  WideArrays inputs = random_inputs(graph);
  inputs["lr"] = {0.5};
  return inputs;
}

/// The outputs of a step, and the state that it leaves.
struct Step {
  WideArrays outputs, state;
};

/// The results of separate batches, each with the rows of `replicas` replicas: their outputs one after the
/// other, and means of their losses and of their final states.
Step of_joint_batches(uint32_t batches, uint32_t replicas, const WideArrays& inputs,
                      const WideArrays& before) {
  const Graph graph = trained(1, replicas * kRows, 1);
  const Array& x = inputs.at("x");
  const auto size = static_cast<std::ptrdiff_t>(x.size() / batches);
  Step step;
  const auto add_to = [&](Array& mean, const Array& values) {
    mean.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i) mean[i] += values[i] / batches;
  };
  for (uint32_t batch = 0; batch < batches; ++batch) {
    WideArrays own = inputs, state = before;
    own["x"] = Array(x.begin() + batch * size, x.begin() + (batch + 1) * size);
    const WideArrays outputs = evaluate(graph, own, state);
    add_to(step.outputs["loss"], outputs.at("loss"));
    for (const char* name : {"y", "slope"}) {
      Array& all = step.outputs[name];
      all.insert(all.end(), outputs.at(name).begin(), outputs.at(name).end());
    }
    for (const auto& [name, values] : state) add_to(step.state[name], values);
  }
  // In a replica, they are the slopes of the sum of the group's losses.
  for (double& slope : step.outputs["slope"]) slope *= replicas;
  return step;
}

/// Ranks have a replica each, with its rows.
void expect_on_ranks(const Graph& graph, const Machine& machine, const WideArrays& inputs,
                     const Step& expected) {
  const uint32_t replicas = graph.replicas();
  const auto rows_of = [&](uint32_t rank, WideArrays arrays) {
    for (const char* name : {"x", "y", "slope"}) {
      const auto found = arrays.find(name);
      if (found == arrays.end()) continue;
      const auto size = static_cast<std::ptrdiff_t>(found->second.size() / replicas);
      const auto begin = found->second.begin() + rank * size;
      found->second = Array(begin, begin + size);
    }
    return arrays;
  };
  const auto errors = test::errors_on_ranks(
      connect_threads(replicas, std::chrono::minutes(10)), [&](const std::shared_ptr<Communicator>& ranks) {
        Session session(graph, machine, {.threads = 1, .communicator = ranks});
        const Arrays found = session.run(narrowed(rows_of(ranks->rank(), inputs)));
        expect_each_near(found, rows_of(ranks->rank(), expected.outputs), 3e-5);
        expect_each_near(session.state(), expected.state, 3e-5);
      });
  EXPECT_EQ(errors, std::vector<std::string>(replicas));
}

TEST(JointNorms, EqualThoseOfOneBatch) {
  for (const auto& [replicas, group] :
       {std::pair(1U, 2U), std::pair(2U, 1U), std::pair(2U, 2U), std::pair(2U, 0U), std::pair(4U, 2U)}) {
    SCOPED_TRACE(fmt::format("{} replicas in groups of {}", replicas, group));
    const Graph graph = trained(replicas, kRows, group);
    const uint32_t joint = group == 0 ? replicas : std::min(group, replicas);
    const WideArrays inputs = inputs_of(graph);
    const WideArrays before = widened(initial_state(graph));
    const Step expected = of_joint_batches(replicas / joint, joint, inputs, before);
    WideArrays state = before;
    const WideArrays found = evaluate(graph, inputs, state);
    for (const auto& [name, values] : expected.outputs)
      test::expect_near(found.at(name), values, 1e-10, name);
    for (const auto& [name, values] : expected.state) test::expect_near(state.at(name), values, 1e-10, name);
    for (const Machine& machine : {Machine::host(2), chips(replicas)}) {
      SCOPED_TRACE(machine.name());
      Session session(graph, machine);
      expect_each_near(session.run(narrowed(inputs)), expected.outputs, 3e-5);
      expect_each_near(session.state(), expected.state, 3e-5);
      if (joint > 1) expect_on_ranks(graph, machine, inputs, expected);
    }
  }
}

/// Running statistics are the statistics of the last micro-batches, which are the same in all replicas,
/// within the loop too.
TEST(JointNorms, FollowTheLastMicroBatch) {
  constexpr uint32_t kReplicas = 2, kMicroBatches = 2;
  JointNorm network(kRows, kReplicas, false);
  add_training(network.loss, {.micro_batches = kMicroBatches, .replicas = kReplicas});
  const Graph& graph = network.graph;
  const WideArrays inputs = inputs_of(graph);
  const WideArrays before = widened(initial_state(graph));
  WideArrays state = before, of_last = before, last = inputs;
  const Array& x = inputs.at("x");
  const auto size = static_cast<std::ptrdiff_t>(x.size() / (kReplicas * kMicroBatches));
  last["x"].clear();
  for (uint32_t replica = 0; replica < kReplicas; ++replica) {
    const auto end = x.begin() + (replica + 1) * kMicroBatches * size;
    last["x"].insert(last["x"].end(), end - size, end);
  }
  evaluate(graph, inputs, state);
  evaluate(trained(1, kReplicas * kRows, 1), last, of_last);
  for (const char* name : {"mean", "variance"})
    test::expect_near(state.at(name), of_last.at(name), 1e-10, name);
  for (const Machine& machine : {Machine::host(2), chips(kReplicas)}) {
    SCOPED_TRACE(machine.name());
    Session session(graph, machine);
    session.run(narrowed(inputs));
    expect_each_near(session.state(), state, 3e-5);
  }
}

/// Values that a loop carries differ as soon as one of its passes computes another value.
TEST(JointNorms, LeaveNoStateThatPassesMakeDiffer) {
  const auto body = std::make_shared<Graph>();
  const Value own = body->input("own", {3}), carried = body->input("carried", {3});
  body->output("carried on", -own);
  body->output("of the pass before", mean_over_replicas(own) + carried);
  for (const bool is_own : {false, true}) {
    Graph g;
    const Value running = g.state("running", {Type::f32, {3}, {}, {}});
    const Loop loop{.count = 2, .carried = {{"carried", is_own ? "carried on" : "of the pass before"}}};
    const std::vector<Value> results = g.loop(body, {g.input("x", {3}), running}, loop);
    g.output("own", results[0]);
    g.assign(running, results[1]);
    g.replicate(2);
    if (is_own) {
      EXPECT_USAGE_ERROR("replicas would set it to values of their own", Session(g, chips(2)));
      continue;
    }
    const WideArrays inputs = random_inputs(g);
    WideArrays state = widened(initial_state(g));
    evaluate(g, inputs, state);
    Session session(g, chips(2));
    session.run(narrowed(inputs));
    expect_each_near(session.state(), state, 1e-6);
  }
}

TEST(JointNorms, MayBePartOfFunctions) {
  using How = NormedBlocks::How;
  for (const uint32_t micro_batches : {1U, 2U}) {
    const auto trained_blocks = [&](How how) {
      NormedBlocks network(how);
      add_training(network.loss, {.micro_batches = micro_batches, .replicas = 4});
      return network.graph;
    };
    const Graph in_line = trained_blocks(How::in_line);
    WideArrays inputs = random_inputs(in_line);
    inputs["lr"] = {0.25};
    const WideArrays before = widened(initial_state(in_line, 3));
    WideArrays expected_state = before;
    const WideArrays expected = evaluate(in_line, inputs, expected_state);
    for (const How how : {How::called, How::recomputed}) {
      SCOPED_TRACE(
          fmt::format("{} micro-batches{}", micro_batches, how == How::called ? "" : ", recomputed"));
      const Graph graph = trained_blocks(how);
      WideArrays state = before;
      const WideArrays found = evaluate(graph, inputs, state);
      test::expect_near(found.at("loss"), expected.at("loss"), 1e-10, "loss");
      for (const auto& [name, values] : expected_state)
        test::expect_near(state.at(name), values, 1e-10, name);
      for (const Machine& machine : {Machine::host(2), chips(4)}) {
        SCOPED_TRACE(machine.name());
        Session session(graph, machine, {.seed = 3});
        expect_each_near(session.run(narrowed(inputs)), expected, 1e-4);
        expect_each_near(session.state(), expected_state, 1e-4);
      }
    }
  }
}

TEST(JointNorms, TakeSingleRowsOfReplicas) {
  Graph g;
  const Value x = g.input("x", {1, 3});
  EXPECT_USAGE_ERROR("has one element of each channel", batch_norm_of_batch(x));
  g.output("variance", batch_norm_of_batch(x, {}, {}, 1e-5, 2).variance);
  g.replicate(2);
  WideArrays state;
  const Array found = evaluate(g, {{"x", {1, 2, 3, 3, 2, -1}}}, state).at("variance");
  const Array expected = {2, 0, 8, 2, 0, 8};
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12);
}

TEST(JointNorms, AreOfWholeGroups) {
  Graph g;
  g.output("y", batch_norm_of_batch(g.input("x", {4, 3}), {}, {}, 1e-5, 3).y);
  g.replicate(4);
  EXPECT_USAGE_ERROR("a divisor of 4 is needed as the group or, for statistics of batch norms, as replicas",
                     Session(g, chips(4)));
}

TEST(JointNorms, OfGroupsLeaveNoStateOfTheirOwn) {
  Graph g;
  const Value running = g.state("running", {Type::f32, {3}, {}, {}});
  g.assign(running, batch_norm_of_batch(g.input("x", {4, 3}), {}, {}, 1e-5, 2).variance);
  g.replicate(4);
  EXPECT_USAGE_ERROR("replicas would set it to values of their own", Session(g, chips(4)));
}

}  // namespace
}  // namespace tessera::graph
