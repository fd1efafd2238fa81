// Networks whose batch norms may share statistics among replicas.
#pragma once

#include <tessera/gradients.h>
#include <tessera/graph.h>
#include <tessera/vision.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::graph {

/// A running statistic, which is the same in all replicas.
inline void follow_statistic(Graph& graph, const std::string& name, Value statistic) {
  const Value running = graph.state(name, statistic.type(), Initial::constant(1));
  graph.assign(running, running * 0.9 + mean_over_replicas(statistic) * 0.1);
}

struct JointNorm {
  static constexpr uint32_t kRows = 20, kChannels = 5;

  Graph graph;
  Value loss;

  /// With outputs that have rows, or with the loss alone.
  explicit JointNorm(uint32_t rows, uint32_t replicas, bool has_rows = true) {
    const auto of_channels = [&](const std::string& name, double value) {
      return graph.parameter(name, {kChannels}, Initial::constant(value));
    };
    const Value x = graph.input("x", {rows, 3, 2, kChannels});
    // A norm does not depend on a factor of what it takes.
    const Value h = tanh(x * of_channels("factor", 2)) + 3;
    const BatchNorm norm =
        batch_norm_of_batch(h, of_channels("scale", 1.5), of_channels("bias", 0.25), 1e-5, replicas);
    follow_statistic(graph, "mean", norm.mean);
    follow_statistic(graph, "variance", norm.variance);
    loss = mean(square(norm.y - x));
    graph.output("loss", loss);
    if (!has_rows) return;
    graph.output("y", norm.y);
    graph.output("slope", *gradients(loss, {x})[0]);
  }
};

/// Two residual blocks, each a product with a norm over two replicas.
struct NormedBlocks {
  static constexpr uint32_t kRows = 6, kFeatures = 8;
  enum class How : uint8_t { in_line, called, recomputed };

  Graph graph;
  Value loss;

  explicit NormedBlocks(How how) {
    const auto block = std::make_shared<Graph>();
    const Value x = block->input("x", {kRows, kFeatures}), weight = block->input("w", {kFeatures, kFeatures}),
                factor = block->input("scale", {kFeatures});
    block->output("y", add_block(x, weight, factor,
                                 [&](const std::string& name, Value value) { block->output(name, value); }));
    Value h = graph.input("x", {kRows, kFeatures});
    for (uint32_t l = 0; l < 2; ++l) {
      const std::string prefix = std::to_string(l) + ".";
      const Value w = graph.parameter(prefix + "w", {kFeatures, kFeatures}, Initial::normal(0.5)),
                  scale = graph.parameter(prefix + "scale", {kFeatures}, Initial::constant(1.5));
      const auto follow = [&](const std::string& name, Value value) {
        follow_statistic(graph, prefix + name, value);
      };
      if (how == How::in_line) {
        h = add_block(h, w, scale, follow);
        continue;
      }
      const std::vector<Value> results =
          graph.call(block, {h, w, scale}, {.recompute = how == How::recomputed});
      follow("mean", results[0]);
      follow("variance", results[1]);
      h = results[2];
    }
    loss = mean_squared_error(h, graph.input("target", {kRows, kFeatures}));
    graph.output("loss", loss);
  }

 private:
  template <class Take>
  static Value add_block(Value x, Value w, Value scale, const Take& take) {
    const BatchNorm norm = batch_norm_of_batch(linear(x, w), scale, {}, 1e-5, 2);
    take("mean", norm.mean);
    take("variance", norm.variance);
    return x + tanh(norm.y);
  }
};

}  // namespace tessera::graph
