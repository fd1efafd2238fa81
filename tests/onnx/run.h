// Handmade files, imported and evaluated in float64.
#pragma once

#include <tessera/onnx.h>

#include <span>
#include <string>
#include <vector>

#include "support/onnx_file.h"

namespace tessera::test {

using Numbers = std::vector<double>;

inline onnx::ImportedModel import(const OnnxFile& file, const onnx::ImportOptions& options = {}) {
  const std::string content = file.content();
  return onnx::Model::parse(std::as_bytes(std::span(content))).import(options);
}

inline graph::WideArrays run(const onnx::ImportedModel& imported, const graph::WideArrays& inputs) {
  graph::WideArrays state;
  for (const auto& [name, values] : initial_state(imported.graph))
    state[name].assign(values.begin(), values.end());
  return evaluate(imported.graph, inputs, state);
}

inline graph::WideArrays run(const OnnxFile& file, const graph::WideArrays& inputs,
                             const onnx::ImportOptions& options = {}) {
  return run(import(file, options), inputs);
}

/// Number of operations of a graph with this name.
inline size_t count(const graph::Graph& graph, const std::string& operation) {
  size_t found = 0;
  const std::string text = to_string(graph);
  for (size_t at = text.find(operation); at != std::string::npos; at = text.find(operation, at + 1)) ++found;
  return found;
}

}  // namespace tessera::test
