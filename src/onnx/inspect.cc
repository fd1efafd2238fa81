// Where the zeros of a model's weights are.
#include <fmt/format.h>

#include <map>
#include <utility>

#include "bound/zeros.h"
#include "onnx/model_file.h"
#include "sparse/pattern.h"

namespace tessera::onnx {
namespace {

/// How products take weights: by the names of initializers, whether as [inputs, outputs].
std::map<std::string, bool> products_of(const wire::GraphProto& graph) {
  // What a node makes of an initializer without changing where its zeros are, and whether it transposes it.
  std::map<std::string, std::pair<std::string, bool>> made;
  std::map<std::string, bool> products;
  for (const wire::NodeProto& node : graph.node()) {
    if (node.input_size() == 0 || node.output_size() == 0) continue;
    const std::string& type = node.op_type();
    if (type == "Transpose" || type == "Cast" || type == "DequantizeLinear" || type == "Identity")
      made[node.output(0)] = {node.input(0), type == "Transpose"};
    const bool is_product = type == "MatMul" || type == "Gemm" || type == "Conv";
    if (!is_product || node.input_size() < 2) continue;
    std::string name = node.input(1);
    bool transposed = type == "MatMul" || type == "Gemm";
    for (const wire::AttributeProto& attribute : node.attribute())
      if (type == "Gemm" && attribute.name() == "transB" && attribute.i() != 0) transposed = false;
    for (auto found = made.find(name); found != made.end(); found = made.find(name)) {
      transposed = transposed != found->second.second;
      name = found->second.first;
      made.erase(found);  // so that names in a circle end
    }
    products.emplace(name, transposed);
  }
  return products;
}

/// As a matrix [outputs, others].
Zeros zeros_of(const Constant& constant, bool transposed, bool is_product, bound::ZerosAnalysis& analysis) {
  auto rows = static_cast<uint32_t>(constant.dims[0]), cols = static_cast<uint32_t>(constant.size() / rows);
  SparseMatrix matrix = sparse::from_dense(row_major(constant.floats().data(), cols), rows, cols);
  if (transposed) matrix.pattern = sparse::transpose(matrix.pattern).pattern;
  return analysis.analyse(std::move(matrix.pattern), graph_type_of(constant.type), is_product);
}

InspectedTensor inspected(const std::string& name, const Constant& constant,
                          const std::map<std::string, bool>& products, bound::ZerosAnalysis& analysis) {
  InspectedTensor tensor{.name = name,
                         .form = "dense",
                         .dtype = short_name_of(constant.type),
                         .shape = {constant.dims.begin(), constant.dims.end()},
                         .elements = constant.size(),
                         .dense_bytes = 0,
                         .zeros = {}};
  tensor.dense_bytes = constant.size() * size_of(graph_type_of(constant.type));
  if (!constant.has_floats() || constant.size() == 0 || constant.dims.empty()) return tensor;
  if (constant.dims[0] > sparse::kMaxDimension ||
      constant.size() / static_cast<uint64_t>(constant.dims[0]) > sparse::kMaxDimension)
    return tensor;
  const auto product = products.find(name);
  const bool is_product = product != products.end() && constant.dims.size() > 1;
  tensor.zeros =
      zeros_of(constant, is_product && product->second && constant.dims.size() == 2, is_product, analysis);
  return tensor;
}

}  // namespace

InspectedModel inspect(const std::string& path, const std::string& tensor, const ZerosOptions& options,
                       const InspectProgress& progress) {
  bound::ZerosAnalysis analysis(options);
  const std::shared_ptr<Model::Impl> model = Model::read(path).impl();
  const std::map<std::string, bool> products = products_of(model->proto.graph());
  if (!tensor.empty() && !model->initializers.contains(tensor))
    throw UsageError(
        fmt::format("{}: it has no initializer '{}'; without a name, all are listed", path, tensor));
  InspectedModel result{.path = path, .n = options.n, .tensors = {}, .totals = {}};
  size_t done = 0;
  for (const auto& [name, constant] : model->initializers) {
    if (!tensor.empty() && name != tensor) continue;
    if (progress) progress(done++, model->initializers.size(), name);
    result.tensors.push_back(inspected(name, *constant, products, analysis));
  }
  result.totals = bound::totals_of(result.tensors);
  return result;
}

}  // namespace tessera::onnx
