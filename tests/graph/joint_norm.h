// A network whose batch norm may share statistics among replicas.
#pragma once

#include <tessera/gradients.h>
#include <tessera/graph.h>
#include <tessera/vision.h>

#include <cstdint>
#include <string>

namespace tessera::graph {

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
    follow("mean", norm.mean);
    follow("variance", norm.variance);
    loss = mean(square(norm.y - x));
    graph.output("loss", loss);
    if (!has_rows) return;
    graph.output("y", norm.y);
    graph.output("slope", *gradients(loss, {x})[0]);
  }

 private:
  void follow(const std::string& name, Value statistic) {
    const Value running = graph.state(name, statistic.type(), Initial::constant(1));
    graph.assign(running, running * 0.9 + mean_over_replicas(statistic) * 0.1);
  }
};

}  // namespace tessera::graph
