// Networks for tests.
#pragma once

#include <tessera/gradients.h>
#include <tessera/graph.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "compare.h"
#include "sparse/generate.h"

namespace tessera::graph {

enum class Layers : uint8_t { dense, sparse, dynamic };

inline Value layer(Graph& g, const std::string& name, Value x, uint32_t m, Layers kind) {
  const uint32_t k = x.shape().back();
  const Type type = x.type().type;
  const Value bias = g.parameter(name + ".bias", {m}, {}, type);
  if (kind == Layers::dense)
    return linear(x, g.parameter(name + ".weight", {m, k}, Initial::normal(1 / std::sqrt(k)), type), bias);
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, m, k, 0.25, 8, 3});
  const auto capacity = kind == Layers::dynamic ? std::optional(pattern.blocks() + 4) : std::nullopt;
  return linear(
      x, g.sparse_parameter(name + ".weight", pattern, Initial::normal(2 / std::sqrt(k)), type, capacity),
      bias);
}

/// A classifier of 3 layers with its loss.
struct Classifier {
  static constexpr uint32_t kBatch = 20, kInputs = 48, kHidden = 64, kClasses = 10;

  Graph graph;
  Value loss;

  explicit Classifier(Layers kind, bool with_dropout = false) {
    const Value x = graph.input("x", {kBatch, kInputs});
    Value h = relu(layer(graph, "first", x, kHidden, kind));
    if (with_dropout) h = dropout(h, 0.2, graph.input("step", {}, Type::u32), 5);
    h = gelu(layer(graph, "second", h, kHidden, kind));
    loss = cross_entropy(layer(graph, "third", h, kClasses, Layers::dense),
                         graph.input("labels", {kBatch}, Type::u32));
    graph.output("loss", loss);
  }

  WideArrays inputs(uint32_t step) const {
    WideArrays arrays;
    for (ValueId id : graph.inputs()) {
      const ValueInfo& info = graph.info(id);
      if (info.name == "lr")
        arrays["lr"] = {0.0625};
      else if (info.name == "step")
        arrays["step"] = {double{1} * step};
      else
        arrays[info.name] = random_values(graph.bound_type(id), -1, 1, kClasses, 100 + step, 0);
    }
    return arrays;
  }
};

inline constexpr uint32_t kCalledLayers = 6;

/// A step of layers with dropout, which are calls of one function, with as many on each stage.
inline Graph called_layers(const TrainingOptions& options, uint32_t stages = 1, bool recompute = false) {
  constexpr uint32_t kSize = 64;
  auto function = std::make_shared<Graph>();
  const Value in = function->input("x", {kSize, kSize}), weight = function->input("w", {kSize, kSize});
  const Value inside = tanh(linear(gelu(linear(in, weight)), weight));
  function->output("y", in + dropout(inside, 0.25, function->input("number", {}, Type::u32), 7));
  Graph g;
  Value h = g.input("x", {kSize, kSize});
  const Value number = g.input("number", {}, Type::u32);
  for (uint32_t i = 0; i < kCalledLayers; ++i) {
    const std::string name = "w" + std::to_string(i);
    Call how = {.recompute = recompute};
    if (stages > 1) how.stage = i * stages / kCalledLayers;
    h = g.call(function, {h, g.parameter(name, {kSize, kSize}, Initial::normal(0.1)), number}, how)[0];
  }
  const Value loss = mean(square(h));
  g.output("loss", loss);
  add_training(loss, options);
  return g;
}

}  // namespace tessera::graph
