// Ranks that are processes: this program is started by mpirun, or alone.
#include <gtest/gtest.h>
#include <tessera/communicator.h>
#include <tessera/gradients.h>
#include <tessera/graph.h>
#include <tessera/pipeline.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "machine/host/affinity.h"
#include "machine/host/detect.h"
#include "ranks/cores.h"
#include "ranks/gather.h"

namespace tessera {
namespace {

constexpr uint32_t kReplicas = 4, kRows = 6, kFeatures = 24, kSteps = 3;

void expect_gathers(Communicator& ranks) {
  const uint32_t size = ranks.size();
  const std::vector<std::string> texts = ranks::all_gather(ranks, std::string(ranks.rank(), 'x'));
  // More than can be sent before the receiver takes it.
  const std::vector<uint32_t> own(1 << 20, ranks.rank());
  std::vector<uint32_t> all(own.size() * size);
  ranks::all_gather(ranks, std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(all)));
  ASSERT_EQ(texts.size(), size);
  for (uint32_t rank = 0; rank < size; ++rank) {
    EXPECT_EQ(texts[rank], std::string(rank, 'x'));
    const auto begin = all.begin() + static_cast<int64_t>(rank * own.size());
    EXPECT_EQ(std::count(begin, begin + static_cast<int64_t>(own.size()), rank),
              static_cast<int64_t>(own.size()));
  }
}

graph::Graph network() {
  graph::Graph g;
  graph::Value h = g.input("x", {kRows, kFeatures}, Type::bf16);
  for (const std::string name : {"first", "second"})
    h = gelu(linear(h, g.parameter(name, {kFeatures, kFeatures}, graph::Initial::normal(0.3), Type::bf16)));
  const graph::Value loss = mean(square(cast(h, Type::f32) - g.input("target", {kRows, kFeatures})));
  g.output("loss", loss);
  add_training(loss, {.optimizer = graph::Adam{.epsilon = 1e-3},
                      .replicas = kReplicas,
                      .shard_from = 30,
                      .state = Type::bf16,
                      .rounding = graph::Rounding::stochastic});
  return g;
}

/// Numbers that bf16 can represent, for some replicas in one step.
std::vector<float> numbers(uint32_t step, uint32_t first, uint32_t replicas) {
  std::vector<float> values;
  for (uint32_t i = first * kRows * kFeatures; i < (first + replicas) * kRows * kFeatures; ++i)
    values.push_back(static_cast<float>((i * 37 + step * 11) % 64) / 64 - 0.5F);
  return values;
}

void run(graph::Session& session, uint32_t step, uint32_t first, uint32_t replicas) {
  const std::vector<float> values = numbers(step, first, replicas);
  session.run({{"x", values}, {"target", values}, {"lr", {0.0625F}}, {"step", {static_cast<float>(step)}}});
}

void expect_same_bits(const std::shared_ptr<Communicator>& ranks) {
  const graph::Graph g = network();
  const Machine host = Machine::host(1);
  const uint32_t own = kReplicas / ranks->size();
  graph::Session whole(g, host), divided(g, host, {.communicator = ranks});
  for (uint32_t step = 1; step <= kSteps; ++step) {
    run(whole, step, 0, kReplicas);
    run(divided, step, ranks->rank() * own, own);
  }
  EXPECT_EQ(divided.state(), whole.state());
}

/// Two layers, each on its own stage.
graph::Graph network_on_stages(uint32_t replicas) {
  const auto layer = std::make_shared<graph::Graph>();
  {
    const graph::Value x = layer->input("x", {kRows, kFeatures}),
                       weight = layer->input("weight", {kFeatures, kFeatures});
    layer->output("y", gelu(linear(x, weight)));
  }
  graph::Graph g;
  graph::Value h = g.input("x", {kRows, kFeatures});
  for (const uint32_t stage : {0U, 1U}) {
    const graph::Value weight =
        g.parameter("weight" + std::to_string(stage), {kFeatures, kFeatures}, graph::Initial::normal(0.3));
    h = g.call(layer, {h, weight}, {.stage = stage})[0];
  }
  const graph::Value loss = mean(square(h - g.input("target", {kRows, kFeatures})));
  g.output("loss", loss);
  add_training(loss, {.optimizer = graph::Adam{.epsilon = 1e-3},
                      .micro_batches = 2,
                      .pipeline = {graph::PipelineKind::one_forward_one_backward},
                      .replicas = replicas});
  return g;
}

/// Every rank has one of two stages.
void expect_same_bits_of_stages(const std::shared_ptr<Communicator>& ranks) {
  if (ranks->size() % 2 != 0) return;
  constexpr uint32_t kMicroBatches = 2;
  const uint32_t replicas = ranks->size() / 2;
  const graph::Graph g = network_on_stages(replicas);
  const Machine host = Machine::host(1);
  graph::Session whole(g, host), divided(g, host, {.communicator = ranks});
  for (uint32_t step = 1; step <= kSteps; ++step) {
    run(whole, step, 0, replicas * kMicroBatches);
    run(divided, step, ranks->rank() / 2 * kMicroBatches, kMicroBatches);
  }
  EXPECT_GT(divided.sent_bytes(), 0U);
  EXPECT_EQ(divided.state(), whole.state());
}

/// As mpirun has not bound them, all of them may use all cores.
void expect_own_cores(Communicator& ranks) {
  const size_t cores = machine::cpus_of_cores().size();
  ranks::divide_cores(ranks, true);
  const std::vector<std::vector<int>> own = machine::cpus_of_cores();
  EXPECT_LE(own.size(), std::max<size_t>(1, cores / ranks.size()));
  if (cores < ranks.size()) return;
  std::set<std::string> firsts;
  for (const std::string& first : ranks::all_gather(ranks, std::to_string(own.front().front())))
    firsts.insert(first);
  EXPECT_EQ(firsts.size(), ranks.size());
}

TEST(Mpi, TrainsAsOneProcess) {
  const std::vector<int> before = machine::allowed_cpus();
  const std::shared_ptr<Communicator> ranks = connect_mpi(std::chrono::minutes(10), false);
  EXPECT_EQ(machine::allowed_cpus(), before);
  expect_gathers(*ranks);
  expect_own_cores(*ranks);
  expect_same_bits(ranks);
  expect_same_bits_of_stages(ranks);
}

}  // namespace
}  // namespace tessera
