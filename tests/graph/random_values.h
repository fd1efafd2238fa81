// Random contents of the values of a graph.
#pragma once

#include <tessera/graph.h>

#include <cmath>
#include <vector>

#include "base/integer_types.h"
#include "base/random.h"
#include "graph/operation.h"
#include "kernels/common/element.h"

namespace tessera::graph {

/// Random values, rounded to the value's type; integers are below `below`.
inline std::vector<double> random_values(const TensorType& type, double low, double high, uint32_t below,
                                         uint64_t seed, uint32_t stream) {
  const base::RandomStream random(seed, 0, stream);
  std::vector<double> values(type.elements());
  for (uint64_t i = 0; i < values.size(); ++i) {
    if (is_integer(type.type)) {
      values[i] = random.word(i) % below;
      continue;
    }
    std::byte element[8];
    kernels::store_number(type.type, element,
                          static_cast<float>(low + (high - low) * static_cast<double>(random.uniform(i))));
    values[i] = kernels::load_number(type.type, element);
  }
  return values;
}

inline std::vector<float> narrowed(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

inline bool is_update(const Operation& operation) { return !operation.traits.updates.empty(); }

/// A case as a graph: its inputs "x0", "x1", …, and outputs "y0", …
struct CaseGraph {
  Graph graph;
  std::vector<Value> inputs;
  WideArrays arrays;
  WideArrays state;

  CaseGraph(const Operation& operation, const Case& c, uint64_t seed) {
    const auto& weight = operation.traits.weight;
    for (uint32_t i = 0; i < c.inputs.size(); ++i) {
      const std::string name = "x" + std::to_string(i);
      const TensorType& type = c.inputs[i];
      const bool updated = is_update(operation) && i >= 2 && type.type != Type::u32;
      const bool is_weight =
          updated || (operation.name == "call" && type.rows() > 6) || (weight && i == weight->operand);
      if (type.pattern)
        inputs.push_back(graph.sparse_parameter(name, *type.pattern, {}, type.type, type.capacity));
      else if (is_weight)
        inputs.push_back(graph.parameter(name, type.shape, {}, type.type));
      else
        inputs.push_back(graph.input(name, type.shape, type.type));
      const auto given = c.given.find(i);
      (is_weight ? state : arrays)[name] =
          given != c.given.end() ? given->second : random_values(type, c.low, c.high, c.below, seed, i);
    }
    const std::vector<Value> outputs =
        graph.apply(Node{.operation = &operation, .attributes = c.attributes, .body = c.body}, inputs);
    for (uint32_t i = 0; i < outputs.size(); ++i) graph.output("y" + std::to_string(i), outputs[i]);
  }
};

}  // namespace tessera::graph
