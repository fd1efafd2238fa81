#include <tessera/onnx.h>

#include <stdexcept>

#include "fuzz/formats.h"

namespace tessera::fuzz {
namespace {

/// The graph of a model has what it says.
void read_onnx_graph(const io::Source& source) {
  const std::vector<char> content = source.read_all();
  const onnx::Model model = onnx::Model::parse(std::as_bytes(std::span(content)));
  onnx::ImportOptions options{.sparse = false, .threads = 1, .most_computed = 1 << 16};
  for (const onnx::ValueType& input : model.inputs())
    for (const onnx::Dimension& dimension : input.shape)
      if (!dimension.size && !dimension.name.empty()) options.shapes[dimension.name] = {2};
  for (const onnx::ValueType& input : model.inputs()) options.shapes.erase(input.name);
  const onnx::ImportedModel imported = model.import(options);
  if (imported.graph.outputs().size() != model.outputs().size())
    throw std::logic_error("a model without all its outputs");
  for (const onnx::ValueType& output : imported.outputs)
    if (!imported.graph.outputs().contains(output.name))
      throw std::logic_error("an output that does not exist");
}

constexpr Format kGraphFormats[] = {{"onnx_graph", read_onnx_graph, onnx_examples}};

}  // namespace

std::span<const Format> graph_formats() { return kGraphFormats; }

}  // namespace tessera::fuzz
