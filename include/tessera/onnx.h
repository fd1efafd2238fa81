// Models in ONNX files, as graphs.
#pragma once

#include <tessera/error.h>
#include <tessera/graph.h>
#include <tessera/inspect.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tessera::onnx {

/// A dimension of an input or output: a size, a name that stands for one, or neither.
struct Dimension {
  std::string name = {};
  std::optional<uint32_t> size = {};
};

/// An input or output as the file describes it.
struct ValueType {
  std::string name;
  std::string type;  ///< "float32", "int64", "bool", …
  std::vector<Dimension> shape;
  bool has_shape = true;  ///< false: the file does not even say how many dimensions it has
};

/// "float32[batch, 3, 224, 224]"
std::string to_string(const ValueType& type);
/// The smallest and the largest number that an input of integers takes: integers of a graph have 32 bits.
std::pair<int64_t, int64_t> range_of(const ValueType& type);

/// What a file says about its model. Texts are as they are in the file, usually UTF-8.
struct Description {
  std::string producer;  ///< the exporter
  std::string domain;
  int64_t version = 0;
  std::string text;
  std::string graph_name;
  std::string graph_text;
  std::map<std::string, std::string> properties;  ///< such as the names of classes, by names of their own
};

/// Shapes of inputs whose sizes a file leaves open, by the input's name, and sizes of named dimensions, by
/// the dimension's name: {"batch", {8}}.
using Shapes = std::map<std::string, graph::Shape>;

struct ImportOptions {
  Shapes shapes = {};
  /// Whether weights of products become sparse where zeros_of() predicts that it pays.
  bool sparse = true;
  uint32_t threads = 0;  ///< threads of the host, for the predictions of zeros_of(); 0: one per physical core
  /// Maximum number of elements, in total, of constants that are computed while the model is read, and of
  /// padding and tables of indices that its nodes need; repeats count too. Computing constants takes at most
  /// 32 times as many steps, such as products.
  uint64_t most_computed = uint64_t{1} << 27;
};

/// A weight of a model, and whether it became sparse.
struct LayerChoice {
  std::string name;
  uint32_t rows = 0;  ///< rows of the layer's input
  Zeros zeros;  ///< of the weight [outputs, inputs]; for a convolution in groups, [outputs, inputs of one
                ///< group]
  bool is_sparse = false;
  /// Why no sparse form is possible: "not a product" of embeddings, "depthwise convolution", "transposed
  /// convolution in groups", "batched product". Only sizes and the density are known then. Empty: its zeros
  /// decide.
  std::string reason{};
  /// Bytes of the product's own copy of the weight, if other operations take the weight in another form; else
  /// 0.
  uint64_t copy_bytes = 0;

  /// Why the weight stays dense: `reason`, "no zeros", or the name of zeros.reason; empty if it is sparse.
  std::string_view why_dense() const;
};

/// An operator of a file that graphs do not support.
using Missing = UnsupportedOperator;

/// A model has operators that graphs do not support; the message lists all of them.
class UnsupportedModelError : public Error {
 public:
  UnsupportedModelError(const std::string& name, std::vector<Missing> missing);
  const std::vector<Missing>& missing() const { return missing_; }

 private:
  std::vector<Missing> missing_;
};

/// The graph of a model for inputs of given shapes, simplified for inference by graph::folded(): a parameter
/// into which operations after its product were folded has a name that ends in "folded". Integers have 32
/// bits in a graph, truth values are f32 0 and 1, and float64 becomes f32; `inputs` and `outputs` have the
/// types of the file.
struct ImportedModel {
  graph::Graph graph;
  std::vector<ValueType> inputs;
  std::vector<ValueType> outputs;
  std::vector<LayerChoice> layers;
  /// Conversions made while the model was read, such as the conversion of quantised weights.
  std::vector<std::string> notes;
};

/// A model that has been read, from which graphs for several shapes can be made. Parameters of the same name
/// have the same values and form in all of these graphs.
class Model {
 public:
  /// Reads a file of operator sets 13 and later, and the files beside it that its tensors name. Throws Error,
  /// naming the file and the tensor or node, if a file or tensor is missing, malformed or larger than
  /// announced.
  static Model read(const std::string& path);
  /// Reads a model from the content of a file. External data is looked for in `folder`; without a folder it
  /// is refused.
  static Model parse(std::span<const std::byte> content, const std::string& name = "model",
                     const std::string& folder = "");

  const std::vector<ValueType>& inputs() const;
  const std::vector<ValueType>& outputs() const;
  Description description() const;
  /// Number of nodes of each operator.
  std::map<std::string, uint64_t> operators() const;
  /// The graph for inputs of these shapes, with the initial values of its parameters. Throws UsageError for a
  /// shape that is missing or does not fit, UnsupportedModelError for operators that graphs do not support,
  /// Error for a model that contradicts itself, and for values that do not fit in the host's memory.
  ImportedModel import(const ImportOptions& options = {}) const;

  struct Impl;
  /// The library's internal form.
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  explicit Model(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

/// Reads a model and makes its graph.
ImportedModel read_onnx(const std::string& path, const ImportOptions& options = {});

/// As tessera::inspect(), for the initializers of an ONNX model. Products have the number of rows that they
/// have in the model's graph, if its inputs have fixed shapes or get them from `shapes`; without a graph,
/// products have options.n rows. Throws UsageError for shapes that do not fit.
InspectedModel inspect(const std::string& path, const std::string& tensor = "",
                       const ZerosOptions& options = {}, const InspectProgress& progress = {},
                       const Shapes& shapes = {});

}  // namespace tessera::onnx
