// Where the zeros of a model's weights are.
#include <fmt/format.h>
#include <tessera/convolution.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bound/zeros.h"
#include "onnx/importer.h"
#include "onnx/model_file.h"
#include "sparse/pattern.h"

namespace tessera::onnx {
namespace {

/// How an operator takes a weight.
enum class Use { as_outputs, as_inputs, as_taps };  // [outputs, inputs], [inputs, outputs], a convolution's

int64_t integer_of(const wire::NodeProto& node, std::string_view attribute, int64_t otherwise) {
  for (const wire::AttributeProto& each : node.attribute())
    if (each.name() == attribute) return each.i();
  return otherwise;
}

/// The product that takes a weight.
struct UsedIn {
  Use use;
  std::string computed;        ///< name of the weight in a graph, if it is computed from the initializer
  int64_t groups = 1;          ///< of a convolution
  bool is_transposed = false;  ///< whether nodes before it transpose the initializer
};
using Products = std::map<std::string, UsedIn>;

/// By the names of initializers: how products take them.
Products products_of(const wire::GraphProto& graph) {
  // What a node makes of an initializer without changing where its zeros are, and whether it transposes it.
  std::map<std::string, std::pair<std::string, bool>> made;
  Products products;
  for (const wire::NodeProto& node : graph.node()) {
    if (node.input_size() == 0 || node.output_size() == 0) continue;
    const std::string& type = node.op_type();
    if (type == "Transpose" || type == "Cast" || type == "DequantizeLinear" || type == "Identity")
      made[node.output(0)] = {node.input(0), type == "Transpose"};
    const bool is_convolution = type == "Conv";
    const bool is_product = type == "MatMul" || type == "Gemm" || is_convolution;
    if (!is_product || node.input_size() < 2) continue;
    const auto add = [&](std::string name, bool transposed) {
      bool by_nodes = false;
      for (auto found = made.find(name); found != made.end(); found = made.find(name)) {
        by_nodes = by_nodes || found->second.second;
        transposed = transposed != found->second.second;
        name = found->second.first;
        made.erase(found);  // so that cyclic names end the loop
      }
      if (is_convolution && transposed) return;  // in another order of dimensions
      const Use use = is_convolution ? Use::as_taps : transposed ? Use::as_inputs : Use::as_outputs;
      const int64_t groups = is_convolution ? integer_of(node, "group", 1) : 1;
      products.emplace(name, UsedIn{use, node.output(0) + ".weight", groups, by_nodes});
    };
    add(node.input(1), type == "MatMul" || (type == "Gemm" && integer_of(node, "transB", 0) == 0));
    if (!is_convolution) add(node.input(0), type == "Gemm" && integer_of(node, "transA", 0) != 0);
  }
  return products;
}

/// The quantised initializers of a model: those that DequantizeLinear takes.
class QuantisedInitializers {
 public:
  explicit QuantisedInitializers(const Model::Impl& model) : model_(model) {
    for (const wire::NodeProto& node : model.proto.graph().node()) {
      if (node.op_type() == "DequantizeLinear" && node.input_size() > 0)
        takers_.emplace(node.input(0), &node);
      if (node.op_type() == "Constant" && node.output_size() > 0) constants_.emplace(node.output(0), &node);
    }
  }

  /// The numbers for which one stands; null: it is not quantised, or its scale is computed.
  ConstantPointer numbers_of(const std::string& name) const {
    const auto taker = takers_.find(name);
    if (taker == takers_.end()) return {};
    std::vector<std::optional<Known>> inputs;
    for (const std::string& input : taker->second->input()) {
      const ConstantPointer constant = constant_of(input);
      if (!constant && !input.empty()) return {};
      inputs.push_back(constant ? std::optional(known(constant)) : std::nullopt);
    }
    return result_of(*taker->second, operator_table().at("DequantizeLinear").of_values, std::move(inputs));
  }

 private:
  ConstantPointer constant_of(const std::string& name) const {
    if (const auto found = model_.initializers.find(name); found != model_.initializers.end())
      return found->second;
    const auto node = constants_.find(name);
    if (node == constants_.end()) return {};
    return result_of(*node->second, operator_table().at("Constant").of_constants, {});
  }

  ConstantPointer result_of(const wire::NodeProto& node, Handler handler,
                            std::vector<std::optional<Known>> inputs) const {
    graph::Graph graph;
    Context context(graph);
    context.left = UINT64_MAX;
    Call call(context, node, std::move(inputs), model_.opset, model_.folder);
    try {
      return handler(call).at(0).constant;
    } catch (const Error&) {  // importing the model reports this
      return {};
    }
  }

  const Model::Impl& model_;
  std::map<std::string, const wire::NodeProto*> takers_, constants_;
};

/// Whether products take a constant as one matrix, whose leading dimensions are all 1. Nodes that transpose
/// may move these dimensions.
bool is_one_matrix(const Dims& dims, const UsedIn& product) {
  if (dims.size() <= 2 || product.is_transposed) return dims.size() == 2;
  return std::all_of(dims.begin(), dims.end() - 2, [](int64_t size) { return size == 1; });
}

/// Whether a product with a constant may be sparse. Depthwise convolutions, whose groups have a channel each,
/// stay dense.
bool may_be_sparse(const Constant& constant, const UsedIn& product) {
  const Dims& dims = constant.dims;
  if (product.use != Use::as_taps) return is_one_matrix(dims, product);
  const bool is_kernel = dims.size() == 3 || dims.size() == 4;
  return is_kernel &&
         (product.groups == 1 || (product.groups > 1 && dims[1] > 1 && dims[0] % product.groups == 0));
}

/// The zeros of a constant as a matrix [outputs, others]; for convolutions [outputs, taps · channels].
Zeros zeros_of(const Constant& constant, const UsedIn* product, bound::ZerosAnalysis& analysis) {
  const Use use = product != nullptr ? product->use : Use::as_outputs;
  const size_t of_rows = product != nullptr && use != Use::as_taps ? constant.dims.size() - 2 : 0;
  const auto rows = static_cast<uint32_t>(constant.dims[of_rows]),
             cols = static_cast<uint32_t>(constant.size() / rows);
  std::vector<float> taps;
  if (use == Use::as_taps)
    taps = graph::convolution_weight(constant.floats(), {constant.dims.begin(), constant.dims.end()});
  const float* const values = taps.empty() ? constant.floats().data() : taps.data();
  SparseMatrix matrix = sparse::from_dense(row_major(values, cols), rows, cols);
  if (use == Use::as_inputs) matrix.pattern = sparse::transpose(matrix.pattern).pattern;
  if (product != nullptr && product->groups > 1)
    return analysis.analyse_groups(
        matrix.pattern, graph_type_of(constant.type),
        {static_cast<uint32_t>(product->groups), cols / static_cast<uint32_t>(constant.dims[1])});
  return analysis.analyse(std::move(matrix.pattern), graph_type_of(constant.type), product != nullptr);
}

/// Analyses weights, each for the rows of its layer.
class Analyses {
 public:
  /// Throws UsageError for options out of range.
  explicit Analyses(const ZerosOptions& options) : options_(options) { of(options.n); }

  bound::ZerosAnalysis& of(uint32_t rows) {
    const ZerosOptions options{.n = rows, .threads = options_.threads};
    return analyses_.try_emplace(rows, options).first->second;
  }
  bound::ZerosAnalysis& otherwise() { return of(options_.n); }

 private:
  ZerosOptions options_;
  std::map<uint32_t, bound::ZerosAnalysis> analyses_;
};

using RowsOfLayers = std::map<std::string, uint32_t>;

/// The rows of the layer in a graph that has the initializer as its weight.
std::optional<uint32_t> rows_of(const RowsOfLayers& rows, const std::string& initializer,
                                const UsedIn& product) {
  for (const std::string& name : {initializer, product.computed})
    if (const auto found = rows.find(name); found != rows.end()) return found->second;
  return {};
}

InspectedTensor inspected(const std::string& name, const Constant& constant, const Products& products,
                          const QuantisedInitializers& quantised, const RowsOfLayers& rows,
                          Analyses& analyses) {
  InspectedTensor tensor{.name = name,
                         .form = "dense",
                         .dtype = short_name_of(constant.type),
                         .shape = {constant.dims.begin(), constant.dims.end()},
                         .elements = constant.size(),
                         .dense_bytes = 0,
                         .zeros = {}};
  tensor.dense_bytes = constant.size() * size_of(graph_type_of(constant.type));
  const ConstantPointer numbers = constant.has_floats() ? nullptr : quantised.numbers_of(name);
  const Constant& weight = numbers ? *numbers : constant;
  if (!weight.has_floats() || constant.size() == 0 || constant.dims.empty()) return tensor;
  if (constant.dims[0] > sparse::kMaxDimension ||
      constant.size() / static_cast<uint64_t>(constant.dims[0]) > sparse::kMaxDimension)
    return tensor;
  const auto found = products.find(name);
  const UsedIn* product = found != products.end() ? &found->second : nullptr;
  if (product != nullptr && !may_be_sparse(constant, *product)) product = nullptr;
  if (product != nullptr) tensor.n = rows_of(rows, name, *product).value_or(0);
  tensor.zeros = zeros_of(weight, product, tensor.n != 0 ? analyses.of(tensor.n) : analyses.otherwise());
  return tensor;
}

/// Adds the operators that are not supported at all, those in branches included.
void add_unsupported(const Model::Impl& model,
                     const google::protobuf::RepeatedPtrField<wire::NodeProto>& nodes,
                     std::vector<Missing>& missing) {
  for (const wire::NodeProto& node : nodes) {
    if (!is_supported(model, node)) missing.push_back({type_of(node), name_of(node), ""});
    for (const wire::AttributeProto& attribute : node.attribute())
      if (attribute.has_g()) add_unsupported(model, attribute.g().node(), missing);
  }
}

bool has_fixed_shapes(const Model& model) {
  return std::ranges::all_of(model.inputs(), [](const ValueType& input) {
    return input.has_shape && std::ranges::all_of(input.shape, [](const Dimension& dimension) {
             return dimension.size.has_value();
           });
  });
}

/// A graph of a model, as far as it can be made.
struct Imported {
  RowsOfLayers rows = {};
  std::vector<Missing> missing = {};
};

Imported imported(const Model& model, const Shapes& shapes) {
  Imported result;
  add_unsupported(*model.impl(), model.impl()->proto.graph().node(), result.missing);
  for (const auto& [name, function] : model.impl()->functions)
    add_unsupported(*model.impl(), function->node(), result.missing);
  if (shapes.empty() && !has_fixed_shapes(model)) return result;
  model.impl()->forms.leave_out_zeros();
  try {
    const ImportedModel graph = model.import({.shapes = shapes, .sparse = false});
    for (const LayerChoice& layer : graph.layers)
      if (layer.rows > 0) result.rows.emplace(layer.name, std::min(layer.rows, sparse::kMaxDimension));
  } catch (const UnsupportedModelError& error) {
    result.missing = error.missing();
  } catch (const UsageError&) {
    if (!shapes.empty()) throw;
  } catch (const Error&) {  // the zeros do not depend on it; importing the model reports it
  }
  return result;
}

}  // namespace

InspectedModel inspect(const std::string& path, const std::string& tensor, const ZerosOptions& options,
                       const InspectProgress& progress, const Shapes& shapes) {
  Analyses analyses(options);
  const Model file = Model::read(path);
  const std::shared_ptr<Model::Impl>& model = file.impl();
  const Products products = products_of(model->proto.graph());
  const QuantisedInitializers quantised(*model);
  if (!tensor.empty() && !model->initializers.contains(tensor))
    throw UsageError(
        fmt::format("{}: it has no initializer '{}'; without a name, all are listed", path, tensor));
  const Imported graph = imported(file, shapes);
  InspectedModel result{.path = path, .n = options.n, .tensors = {}, .totals = {}};
  size_t done = 0;
  for (const auto& [name, constant] : model->initializers) {
    if (!tensor.empty() && name != tensor) continue;
    if (progress) progress(done++, model->initializers.size(), name);
    result.tensors.push_back(inspected(name, *constant, products, quantised, graph.rows, analyses));
  }
  result.totals = bound::totals_of(result.tensors);
  if (tensor.empty()) result.unsupported = graph.missing;
  return result;
}

}  // namespace tessera::onnx
