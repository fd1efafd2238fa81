// Runs a model of an ONNX file on random inputs, and says what became of its layers.
//
//   example_onnx_model MODEL.onnx [SIZE]
//
// SIZE is the size of all dimensions that the file leaves open, 1 by default.
#include <tessera/error.h>
#include <tessera/machine.h>
#include <tessera/onnx.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using namespace tessera;

void run(const std::string& path, uint32_t size) {
  const onnx::Model model = onnx::Model::read(path);
  onnx::ImportOptions options;
  for (const onnx::ValueType& input : model.inputs()) {
    if (!input.has_shape) continue;                    // which the error says
    graph::Shape& shape = options.shapes[input.name];  // dimensions may lack names
    for (const onnx::Dimension& dimension : input.shape) shape.push_back(dimension.size.value_or(size));
  }
  const onnx::ImportedModel imported = model.import(options);
  for (const onnx::LayerChoice& layer : imported.layers)
    std::printf("%s: density %.3f, %s\n", layer.name.c_str(), layer.zeros.density,
                layer.is_sparse ? "sparse" : "dense");

  graph::Session session(imported.graph, Machine::host());
  graph::Arrays inputs;
  for (const graph::ArrayType& array : session.arrays())
    if (array.is_input) inputs[array.name].assign(array.type.elements(), 1);
  for (const auto& [name, values] : session.run(inputs))
    std::printf("%s: %zu numbers, the first %g\n", name.c_str(), values.size(), values.front());
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2 || argc > 3) {
    std::fputs("usage: example_onnx_model MODEL.onnx [SIZE]\n", stderr);
    return 2;
  }
  run(argv[1], argc > 2 ? static_cast<uint32_t>(std::atoi(argv[2])) : 1);
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
