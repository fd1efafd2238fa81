// Common parts of the commands that run ONNX models: shapes and arrays of inputs.
#pragma once

#include <tessera/graph.h>
#include <tessera/onnx.h>

#include <cstddef>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace CLI {
class App;
}

namespace tessera::cli {

/// The model to read, and its inputs.
struct ModelRequest {
  std::string path;
  std::vector<std::string> shapes;  ///< "ids=1,128"
  std::vector<std::string> inputs;  ///< "ids=ids.npy", "ids=random"
  bool dense = false;
  uint64_t seed = 0;
};

bool is_float(const onnx::ValueType& value);
/// For messages.
std::string names_of(const std::vector<onnx::ValueType>& values);

/// Adds --shape.
void add_shape_option(CLI::App& command, std::vector<std::string>& shapes);
/// The shapes that --shape gives.
onnx::Shapes shapes_of(const std::vector<std::string>& texts);

void add_model_options(CLI::App& command, ModelRequest& request);

/// Reads the model for the given shapes, or else for the shapes of the arrays in files. Throws UsageError for
/// an input that does not exist.
onnx::ImportedModel import(const ModelRequest& request, uint32_t threads);

/// Arrays for a session, in its types.
class ModelArrays {
 public:
  /// Reads arrays from files, or fills random ones: normally distributed numbers, integers and truth values 0
  /// and 1. Throws Error for a file of another shape.
  ModelArrays(const graph::Session& session, const onnx::ImportedModel& model, const ModelRequest& request);

  void run(graph::Session& session);
  graph::RunCost measure(graph::Session& session);
  /// An output, with the type and shape of the file.
  std::vector<double> output(const std::string& name) const;

 private:
  struct Array {
    graph::ArrayType type;
    std::vector<std::byte> bytes;
  };
  std::vector<graph::Tensor> tensors();

  std::vector<Array> arrays_;
  std::vector<void*> addresses_;
};

}  // namespace tessera::cli
