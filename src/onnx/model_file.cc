#include "onnx/model_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "io/fail.h"
#include "io/source.h"

namespace tessera::onnx {
namespace {

using io::excerpt;

constexpr int kMostNested = 64;  // messages within messages, such as graphs in nodes
/// Messages, names included. Some take 100 times as much memory as in the file.
constexpr uint64_t kMostMessages = 1U << 23;

/// What a field of bytes holds.
enum class Held : uint8_t {
  bytes,
  model,
  graph,
  function,
  node,
  attribute,
  tensor,
  sparse_tensor,
  value,
  type,
  tensor_type,
  shape
};

Held held_by(Held message, int field) {
  const auto is = [&](std::initializer_list<int> fields) { return std::ranges::count(fields, field) > 0; };
  switch (message) {
    case Held::model:
      if (is({wire::ModelProto::kGraphFieldNumber})) return Held::graph;
      if (is({wire::ModelProto::kFunctionsFieldNumber})) return Held::function;
      break;
    case Held::graph:
      if (is({wire::GraphProto::kNodeFieldNumber})) return Held::node;
      if (is({wire::GraphProto::kInitializerFieldNumber})) return Held::tensor;
      if (is({wire::GraphProto::kSparseInitializerFieldNumber})) return Held::sparse_tensor;
      if (is({wire::GraphProto::kInputFieldNumber, wire::GraphProto::kOutputFieldNumber})) return Held::value;
      break;
    case Held::function:
      if (is({wire::FunctionProto::kNodeFieldNumber})) return Held::node;
      if (is({wire::FunctionProto::kAttributeProtoFieldNumber})) return Held::attribute;
      break;
    case Held::node:
      if (is({wire::NodeProto::kAttributeFieldNumber})) return Held::attribute;
      break;
    case Held::attribute:
      if (is({wire::AttributeProto::kGFieldNumber})) return Held::graph;
      if (is({wire::AttributeProto::kTFieldNumber, wire::AttributeProto::kTensorsFieldNumber}))
        return Held::tensor;
      if (is({wire::AttributeProto::kSparseTensorFieldNumber})) return Held::sparse_tensor;
      break;
    case Held::sparse_tensor:
      if (is({wire::SparseTensorProto::kValuesFieldNumber, wire::SparseTensorProto::kIndicesFieldNumber}))
        return Held::tensor;
      break;
    case Held::value:
      if (is({wire::ValueInfoProto::kTypeFieldNumber})) return Held::type;
      break;
    case Held::type:
      if (is({wire::TypeProto::kTensorTypeFieldNumber})) return Held::tensor_type;
      break;
    case Held::tensor_type:
      if (is({wire::TypeProto::Tensor::kShapeFieldNumber})) return Held::shape;
      break;
    case Held::bytes:
    case Held::tensor:
    case Held::shape: break;
  }
  return Held::bytes;
}

/// Counts messages and other fields of bytes, until they are too many, or damaged.
void count_messages(std::span<const std::byte> bytes, Held held, int depth, uint64_t& count) {
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  while (count <= kMostMessages) {
    const uint32_t tag = stream.ReadTag();
    uint64_t number = 0;
    uint32_t size = 0;
    switch (tag & 7U) {
      case 0:
        if (tag == 0 || !stream.ReadVarint64(&number)) return;
        continue;
      case 1: size = 8; break;
      case 2: {
        if (!stream.ReadVarint32(&size)) return;
        const auto begin = static_cast<size_t>(stream.CurrentPosition());
        if (size > bytes.size() - begin) return;
        ++count;
        const Held inside = held_by(held, static_cast<int>(tag >> 3));
        if (inside != Held::bytes && depth < kMostNested)
          count_messages(bytes.subspan(begin, size), inside, depth + 1, count);
        break;
      }
      case 5: size = 4; break;
      default: return;
    }
    if (!stream.Skip(static_cast<int>(size))) return;
  }
}

wire::ModelProto parsed(const std::string& name, std::span<const std::byte> content) {
  constexpr uint64_t kMost = std::numeric_limits<int>::max();
  if (content.size() > kMost)
    io::fail(name, "it has {} bytes; such files have at most 2 GiB: save large tensors as external data",
             content.size());
  uint64_t messages = 0;
  count_messages(content, Held::model, 0, messages);
  if (messages > kMostMessages) io::fail(name, "it has more than {} messages and names", kMostMessages);
  google::protobuf::io::ArrayInputStream bytes(content.data(), static_cast<int>(content.size()));
  google::protobuf::io::CodedInputStream stream(&bytes);
  stream.SetRecursionLimit(kMostNested);
  wire::ModelProto proto;
  if (!proto.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
    io::fail(name, "it is not an ONNX file, or damaged: its messages cannot be read");
  if (!proto.has_graph()) io::fail(name, "it is not an ONNX file, or damaged: it has no graph");
  return proto;
}

/// Checks that names are text: they become part of messages and of other languages' strings.
class NameCheck {
 public:
  explicit NameCheck(const std::string& file) : file_(file) {}

  void operator()(std::string_view name) const {
    if (!base::is_utf8(name)) io::fail(file_, "the name {} is not UTF-8", excerpt(name));
  }
  void operator()(const wire::GraphProto& graph) const {
    for (const wire::TensorProto& tensor : graph.initializer()) (*this)(tensor.name());
    for (const wire::SparseTensorProto& tensor : graph.sparse_initializer()) (*this)(tensor.values().name());
    for (const auto* values : {&graph.input(), &graph.output()})
      for (const wire::ValueInfoProto& value : *values) {
        (*this)(value.name());
        for (const auto& dim : value.type().tensor_type().shape().dim()) (*this)(dim.dim_param());
      }
    for (const wire::NodeProto& node : graph.node()) (*this)(node);
  }
  void operator()(const wire::FunctionProto& function) const {
    (*this)(function.name());
    (*this)(function.domain());
    for (const auto* names : {&function.input(), &function.output()})
      for (const std::string& name : *names) (*this)(name);
    for (const wire::NodeProto& node : function.node()) (*this)(node);
  }

 private:
  void operator()(const wire::NodeProto& node) const {
    for (const std::string* name : {&node.name(), &node.op_type(), &node.domain()}) (*this)(*name);
    for (const auto* names : {&node.input(), &node.output()})
      for (const std::string& name : *names) (*this)(name);
    for (const wire::AttributeProto& attribute : node.attribute()) {
      (*this)(attribute.name());
      if (attribute.has_g()) (*this)(attribute.g());
      if (attribute.has_t()) (*this)(attribute.t().name());
      if (attribute.has_sparse_tensor()) (*this)(attribute.sparse_tensor().values().name());
    }
  }

  const std::string& file_;
};

using Nodes = google::protobuf::RepeatedPtrField<wire::NodeProto>;

/// The nodes sorted so that each follows the nodes that compute its inputs; otherwise in their original
/// order. In a cycle, a node comes before one that it needs.
std::vector<size_t> sorted_nodes(const Nodes& nodes) {
  const auto count = static_cast<size_t>(nodes.size());
  const auto node = [&](size_t i) -> const wire::NodeProto& { return nodes.Get(static_cast<int>(i)); };
  std::map<std::string_view, size_t> makers;
  for (size_t i = 0; i < count; ++i)
    for (const std::string& name : node(i).output())
      if (!name.empty()) makers.emplace(name, i);
  std::vector<std::vector<size_t>> needed(count);
  for (size_t i = 0; i < count; ++i)
    each_input(node(i), [&](const std::string& name) {
      if (const auto maker = makers.find(name); maker != makers.end()) needed[i].push_back(maker->second);
    });
  std::vector<size_t> order;
  std::vector<bool> is_begun(count);
  std::vector<std::pair<size_t, size_t>> waiting;  // nodes, and how many of those that they need are done
  const auto begin = [&](size_t i) {
    if (!is_begun[i]) waiting.emplace_back(i, 0);
    is_begun[i] = true;
  };
  for (size_t i = 0; i < count; ++i) {
    begin(i);
    while (!waiting.empty()) {
      const auto [of, done] = waiting.back();
      if (done < needed[of].size()) {
        ++waiting.back().second;
        begin(needed[of][done]);
      } else {
        order.push_back(of);
        waiting.pop_back();
      }
    }
  }
  return order;
}

/// Sorts the nodes of a graph, and of graphs within it. The standard says that they are sorted, but
/// converters that append nodes do not sort them again, and other engines accept such files.
void sort_nodes(Nodes& nodes) {
  constexpr int kMost = 1 << 17;  // more are refused
  if (nodes.size() > kMost) return;
  for (wire::NodeProto& node : nodes)
    for (wire::AttributeProto& attribute : *node.mutable_attribute())
      if (attribute.has_g()) sort_nodes(*attribute.mutable_g()->mutable_node());
  const std::vector<size_t> order = sorted_nodes(nodes);
  if (std::ranges::is_sorted(order)) return;
  Nodes sorted;
  for (const size_t i : order) sorted.Add()->Swap(nodes.Mutable(static_cast<int>(i)));
  nodes.Swap(&sorted);
}

int64_t opset_of(const std::string& name, const wire::ModelProto& proto) {
  int64_t opset = 0;
  for (const wire::OperatorSetIdProto& each : proto.opset_import()) {
    if (!is_standard(each.domain())) continue;
    if (opset != 0 && opset != each.version())
      io::fail(name, "it has the operator sets {} and {}: only one is possible", opset, each.version());
    opset = each.version();
  }
  if (opset < kLeastOpset)
    io::fail(name, "its operator set is {}; {} and later can be read: export or convert it again", opset,
             kLeastOpset);
  return opset;
}

ValueType value_type_of(const std::string& name, const wire::ValueInfoProto& info, DataType& type) {
  if (!info.has_type() || !info.type().has_tensor_type())
    io::fail(name, "{} is not a tensor, or its type is missing", excerpt(info.name()));
  const auto& tensor = info.type().tensor_type();
  type = static_cast<DataType>(tensor.elem_type());
  if (!is_known(type) || bits_of(type) < 8)
    io::fail(name, "{} has elements of type {}, which is not possible", excerpt(info.name()),
             tensor.elem_type());
  ValueType value{info.name(), name_of(type), {}, tensor.has_shape()};
  for (const auto& dim : tensor.shape().dim()) {
    Dimension& to = value.shape.emplace_back();
    if (dim.value_case() == wire::TensorShapeProto::Dimension::kDimParam) to.name = dim.dim_param();
    if (dim.value_case() != wire::TensorShapeProto::Dimension::kDimValue) continue;
    if (dim.dim_value() < 0 || dim.dim_value() > std::numeric_limits<uint32_t>::max())
      io::fail(name, "{} has a dimension of {}", excerpt(info.name()), dim.dim_value());
    to.size = static_cast<uint32_t>(dim.dim_value());
  }
  return value;
}

void add_initializer(Model::Impl& model, const std::string& name, ConstantPointer constant) {
  if (name.empty()) throw Error("an initializer has no name");
  if (!model.initializers.emplace(name, std::move(constant)).second)
    throw Error(fmt::format("it has two initializers {}", excerpt(name)));
}

/// The file's own copies are released one by one.
void read_initializers(Model::Impl& model) {
  wire::GraphProto& graph = *model.proto.mutable_graph();
  for (wire::TensorProto& tensor : *graph.mutable_initializer()) {
    add_initializer(model, tensor.name(), read_tensor(tensor, model.folder));
    tensor = wire::TensorProto();
  }
  for (wire::SparseTensorProto& tensor : *graph.mutable_sparse_initializer()) {
    add_initializer(model, tensor.values().name(), read_sparse_tensor(tensor, model.folder));
    tensor = wire::SparseTensorProto();
  }
}

void read_interface(Model::Impl& model) {
  std::set<std::string> names;
  for (const wire::ValueInfoProto& info : model.proto.graph().input()) {
    if (model.initializers.contains(info.name())) continue;  // a default; imported as a constant
    DataType type = DataType::f32;
    model.inputs.push_back(value_type_of(model.name, info, type));
    model.input_types.push_back(type);
    if (info.name().empty() || !names.insert(info.name()).second)
      io::fail(model.name, "it has two inputs {}, or one without a name", excerpt(info.name()));
  }
  names.clear();
  for (const wire::ValueInfoProto& info : model.proto.graph().output()) {
    DataType type = DataType::f32;
    model.outputs.push_back(value_type_of(model.name, info, type));
    if (!names.insert(info.name()).second)
      io::fail(model.name, "it has two outputs {}", excerpt(info.name()));
  }
  if (model.outputs.empty()) io::fail(model.name, "it has no outputs");
}

std::shared_ptr<Model::Impl> read_model(std::span<const std::byte> content, const std::string& name,
                                        DataFolder folder) {
  auto model = std::make_shared<Model::Impl>();
  model->name = name;
  model->folder = std::move(folder);
  model->proto = parsed(name, content);
  const NameCheck check(name);
  check(model->proto.graph());
  for (const wire::FunctionProto& function : model->proto.functions()) check(function);
  sort_nodes(*model->proto.mutable_graph()->mutable_node());
  for (wire::FunctionProto& function : *model->proto.mutable_functions())
    sort_nodes(*function.mutable_node());
  model->opset = opset_of(name, model->proto);
  for (const wire::FunctionProto& function : model->proto.functions())
    if (!model->functions
             .emplace(std::tuple(function.domain(), function.name(), function.overload()), &function)
             .second)
      io::fail(name, "it has two functions {}", excerpt(function.name()));
  try {
    read_initializers(*model);
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", name, error.what()));
  }
  read_interface(*model);
  return model;
}

std::string text_of(const Dimension& dimension) {
  return dimension.size ? fmt::format("{}", *dimension.size) : dimension.name.empty() ? "?" : dimension.name;
}

std::string text_of(const std::vector<Missing>& missing) {
  std::string text;
  for (const Missing& each : missing)
    text += fmt::format("\n  {} ({}){}", each.op_type, excerpt(each.node, kLongestPlace),
                        each.reason.empty() ? "" : ": " + each.reason);
  return text;
}

}  // namespace

void each_input(const wire::NodeProto& node, const std::function<void(const std::string&)>& visit) {
  for (const std::string& name : node.input()) visit(name);
  for (const wire::AttributeProto& attribute : node.attribute()) {
    for (const wire::NodeProto& each : attribute.g().node()) each_input(each, visit);
    for (const wire::ValueInfoProto& output : attribute.g().output()) visit(output.name());
  }
}

std::string to_string(const ValueType& type) {
  if (!type.has_shape) return type.type;
  std::vector<std::string> sizes;
  for (const Dimension& dimension : type.shape) sizes.push_back(text_of(dimension));
  return fmt::format("{}[{}]", type.type, fmt::join(sizes, ", "));
}

std::pair<int64_t, int64_t> range_of(const ValueType& type) {
  const DataType named = type_named(type.type);
  const auto [least, most] = range_in_graph(named);
  if (bits_of(named) > 16) return {least, most};
  const int64_t count = int64_t{1} << bits_of(named);
  return type.type.starts_with('u') ? std::pair{int64_t{0}, count - 1} : std::pair{-count / 2, count / 2 - 1};
}

UnsupportedModelError::UnsupportedModelError(const std::string& name, std::vector<Missing> missing)
    : Error(fmt::format("{}: {} operator{} cannot be part of a graph:{}", name, missing.size(),
                        missing.size() == 1 ? "" : "s", text_of(missing))),
      missing_(std::move(missing)) {}

Model::Model(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Model Model::read(const std::string& path) {
  const io::Source source = io::Source::open(path);
  const std::vector<char> content = source.read_all();
  return Model(read_model(std::as_bytes(std::span(content)), path,
                          {std::filesystem::path(path).parent_path().string(), true}));
}

Model Model::parse(std::span<const std::byte> content, const std::string& name, const std::string& folder) {
  return Model(read_model(content, name, {folder, !folder.empty()}));
}

const std::vector<ValueType>& Model::inputs() const { return impl_->inputs; }
const std::vector<ValueType>& Model::outputs() const { return impl_->outputs; }

Description Model::description() const {
  const wire::ModelProto& proto = impl_->proto;
  Description found{.producer = proto.producer_name(),
                    .domain = proto.domain(),
                    .version = proto.model_version(),
                    .text = proto.doc_string(),
                    .graph_name = proto.graph().name(),
                    .graph_text = proto.graph().doc_string(),
                    .properties = {}};
  for (const wire::StringStringEntryProto& each : proto.metadata_props())
    found.properties[each.key()] = each.value();
  return found;
}

std::map<std::string, uint64_t> Model::operators() const {
  std::map<std::string, uint64_t> counts;
  for (const wire::NodeProto& node : impl_->proto.graph().node())
    ++counts[is_standard(node.domain()) ? node.op_type() : node.domain() + "." + node.op_type()];
  return counts;
}

}  // namespace tessera::onnx
