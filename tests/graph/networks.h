// Networks for tests.
#pragma once

#include <tessera/graph.h>

#include <cmath>
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

}  // namespace tessera::graph
