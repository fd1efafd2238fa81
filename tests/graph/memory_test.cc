// Memory of an encoder: activations share one arena, and weights are held once.
#include <gtest/gtest.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <map>
#include <string>

#include "networks.h"

namespace tessera::graph {
namespace {

/// A batch so large that the scratch of kernels, which does not grow with it, is small.
constexpr uint32_t kBatch = 128, kTokens = 128, kFeatures = 128;

/// Layers of BERT (Devlin et al. 2018), on a host.
struct Encoder {
  Graph graph;

  Encoder(uint32_t layers, Layers kind, bool trains) {
    Value x = graph.input("x", {kBatch, kTokens, kFeatures});
    for (uint32_t i = 0; i < layers; ++i) x = encoded(x, std::to_string(i), kind);
    if (!trains) {
      graph.output("y", x);
      return;
    }
    const Value loss = mean(square(x));
    graph.output("loss", loss);
    add_training(loss, {.optimizer = Adam{}});
  }

  /// For all samples at once: for parts, the scratch of kernels is as large as values.
  RunCost cost() const { return Session(graph, Machine::host(2), {.parts = 1}).cost(); }

 private:
  Value norm(Value x, const std::string& name) {
    return layer_norm(x, graph.parameter(name + ".weight", {kFeatures}, Initial::constant(1)),
                      graph.parameter(name + ".bias", {kFeatures}));
  }
  Value encoded(Value x, const std::string& name, Layers kind) {
    const auto of = [&](const char* part, Value in, uint32_t features) {
      return layer(graph, name + part, in, features, kind);
    };
    const Value y =
        attention(of("q", x, kFeatures), of("k", x, kFeatures), of("v", x, kFeatures), {.heads = 4});
    x = norm(x + of("o", y, kFeatures), name + "first");
    return norm(x + of("down", gelu(of("up", x, 4 * kFeatures)), kFeatures), name + "second");
  }
};

uint64_t sum_of(const std::map<std::string, uint64_t>& bytes) {
  uint64_t sum = 0;
  for (const auto& [purpose, of] : bytes) sum += of;
  return sum;
}

/// The most bytes of results that are alive at once.
uint64_t most_alive(const RunCost& cost) {
  uint64_t most = 0;
  for (size_t i = 0; i < cost.operations.size(); ++i) {
    uint64_t alive = 0;
    for (const Lifetime& value : cost.lifetimes)
      if (value.first <= i && i <= value.last) alive += value.bytes;
    most = std::max(most, alive);
  }
  return most;
}

uint64_t bytes_of(const Graph& graph, Kind kind) {
  uint64_t bytes = 0;
  for (const ValueInfo& info : graph.values())
    if (info.kind == kind) bytes += info.type.bytes();
  return bytes;
}

class Memory : public testing::TestWithParam<std::tuple<Layers, bool>> {
 protected:
  Layers kind = std::get<0>(GetParam());
  bool trains = std::get<1>(GetParam());
};

TEST_P(Memory, IsThatOfWhatIsAliveAtOnce) {
  const Encoder encoder(3, kind, trains);
  const RunCost cost = encoder.cost();
  uint64_t arena = cost.total_bytes - bytes_of(encoder.graph, Kind::input);
  for (const auto& [name, id] : encoder.graph.outputs()) arena -= encoder.graph.type(id).bytes();
  for (const char* lasting : {"parameter", "optimizer", "metadata"})
    if (const auto found = cost.bytes.find(lasting); found != cost.bytes.end()) arena -= found->second;
  EXPECT_LE(static_cast<double>(arena), 1.1 * static_cast<double>(most_alive(cost)));
  EXPECT_LE(cost.total_bytes - sum_of(cost.bytes), arena / 100) << "unused between what is alive";
}

TEST_P(Memory, HoldsWeightsOnce) {
  const Encoder encoder(3, kind, trains);
  const auto parameters = static_cast<double>(bytes_of(encoder.graph, Kind::parameter));
  const std::map<std::string, uint64_t> bytes = encoder.cost().bytes;
  EXPECT_LE(static_cast<double>(bytes.at("parameter")), 1.02 * parameters);
  if (!trains) return;
  EXPECT_LE(static_cast<double>(bytes.at("optimizer")), 2.04 * parameters) << "two moments";
}

TEST_P(Memory, OfActivationsDoesNotGrowWithLayers) {
  const auto activations = [&](uint32_t layers) {
    return Encoder(layers, kind, trains).cost().bytes.at("activation");
  };
  EXPECT_EQ(activations(5), activations(3));
}

INSTANTIATE_TEST_SUITE_P(OfAnEncoder, Memory,
                         testing::Combine(testing::Values(Layers::dense, Layers::sparse), testing::Bool()),
                         [](const auto& of) {
                           return std::string(std::get<0>(of.param) == Layers::dense ? "dense" : "sparse") +
                                  (std::get<1>(of.param) ? "_training" : "_inference");
                         });

}  // namespace
}  // namespace tessera::graph
