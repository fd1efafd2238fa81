// Networks whose batch norms may share statistics among replicas.
#pragma once

#include <tessera/convolution.h>
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
    // A norm does not depend on a factor of its input.
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

/// Two blocks of a ResNet, each of two convolutions with a norm over two replicas.
struct NormedBlocks {
  static constexpr uint32_t kChannels = 4;
  enum class How : uint8_t { in_line, called, recomputed };

  Graph graph;
  Value loss;

  explicit NormedBlocks(How how) {
    const auto block = std::make_shared<Graph>();
    const Value x = block->input("x", kImages), first = block->input("first", kWeight),
                second = block->input("second", kWeight), scale = block->input("scale", {kChannels});
    block->output("y", add_block(x, first, second, scale,
                                 [&](const std::string& name, Value value) { block->output(name, value); }));
    Value h = graph.input("x", kImages);
    for (uint32_t l = 0; l < 2; ++l) {
      const std::string prefix = std::to_string(l) + ".";
      const auto weight = [&](const std::string& name) {
        return graph.parameter(prefix + name, kWeight, Initial::normal(0.25));
      };
      const Value w1 = weight("first"), w2 = weight("second");
      const Value factor = graph.parameter(prefix + "scale", {kChannels}, Initial::constant(1.5));
      const auto follow = [&](const std::string& name, Value value) {
        follow_statistic(graph, prefix + name, value);
      };
      if (how == How::in_line) {
        h = add_block(h, w1, w2, factor, follow);
        continue;
      }
      const std::vector<Value> results =
          graph.call(block, {h, w1, w2, factor}, {.recompute = how == How::recomputed});
      follow("1.mean", results[0]);
      follow("1.variance", results[1]);
      follow("2.mean", results[2]);
      follow("2.variance", results[3]);
      h = results[4];
    }
    loss = mean(square(h - graph.input("target", kImages)));
    graph.output("loss", loss);
  }

 private:
  template <class Take>
  static Value add_block(Value x, Value first, Value second, Value scale, const Take& take) {
    const auto normed = [&](const std::string& name, Value value, Value weight) {
      const Value y = convolution(value, weight, {}, {.kernel = {3, 3}, .padding = {1, 1}});
      const BatchNorm norm = batch_norm_of_batch(y, scale, {}, 1e-5, 2);
      take(name + ".mean", norm.mean);
      take(name + ".variance", norm.variance);
      return norm.y;
    };
    // Smooth, as rounding decides where a ReLU begins.
    return gelu(x + normed("2", gelu(normed("1", x, first)), second));
  }

  inline static const Shape kImages = {2, 3, 4, kChannels}, kWeight = {kChannels, 9 * kChannels};
};

}  // namespace tessera::graph
