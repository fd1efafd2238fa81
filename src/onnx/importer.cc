#include "onnx/importer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/inference.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <utility>

#include "base/memory.h"
#include "graph/operation.h"
#include "graph/transforms/transforms.h"
#include "io/fail.h"
#include "onnx/values.h"

namespace tessera::onnx {
namespace {

using graph::Value;
using io::excerpt;

constexpr int kMostDepth = 32;              // functions that call functions
constexpr uint64_t kMostNodes = 1U << 17;   // nodes of functions count once per call
constexpr int64_t kNewestOpset = 28;        // the operator set of ONNX 1.23, whose own cases the tests run
constexpr uint64_t kMostCopied = 1U << 28;  // bytes of nodes of functions
constexpr double kMostStepsOfEach = 32;     // of computing constants, by ImportOptions::most_computed

/// The values and attributes that a caller passes to a function, substituted in its nodes and in their
/// branches.
class OfCaller {
 public:
  using Count = std::function<void(uint64_t)>;

  /// `count`: called with the bytes of an attribute before it is copied.
  OfCaller(const wire::FunctionProto& function, const wire::NodeProto& caller, Count count)
      : function_(function), caller_(caller), count_(std::move(count)) {
    for (int i = 0; i < function.input_size(); ++i)
      if (i >= caller.input_size() || caller.input(i).empty()) left_out_.insert(function.input(i));
  }

  void fill(wire::NodeProto& node) const {
    for (std::string& name : *node.mutable_input())
      if (left_out_.contains(name)) name.clear();
    google::protobuf::RepeatedPtrField<wire::AttributeProto> filled;
    for (wire::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g())
        for (wire::NodeProto& each : *attribute.mutable_g()->mutable_node()) fill(each);
      if (attribute.ref_attr_name().empty()) {
        filled.Add()->Swap(&attribute);
      } else if (const wire::AttributeProto* const from = attribute_of(attribute.ref_attr_name())) {
        count_(from->ByteSizeLong());
        wire::AttributeProto& to = *filled.Add();
        to = *from;
        to.set_name(attribute.name());
      }
    }
    node.mutable_attribute()->Swap(&filled);
  }

 private:
  /// The caller's, or else the function's own; null: neither has one of this name.
  const wire::AttributeProto* attribute_of(const std::string& name) const {
    for (const auto* attributes : {&caller_.attribute(), &function_.attribute_proto()})
      for (const wire::AttributeProto& each : *attributes)
        if (each.name() == name) return &each;
    return nullptr;
  }

  const wire::FunctionProto& function_;
  const wire::NodeProto& caller_;
  const Count count_;
  std::set<std::string> left_out_;  ///< inputs of the function that the caller does not give
};

/// Name and operator, for messages.
std::string place_of(const wire::NodeProto& node) {
  return fmt::format("{} ({})", excerpt(name_of(node), kLongestPlace), excerpt(type_of(node)));
}

/// Throws UsageError for more inputs than an operator or function has, which would be left out.
void require_inputs(const std::vector<std::optional<Known>>& inputs, size_t most) {
  size_t given = inputs.size();
  while (given > 0 && !inputs[given - 1]) --given;
  if (given > most) refuse("it is given {} inputs; it takes at most {}", given, most);
}

}  // namespace

std::string name_of(const wire::NodeProto& node) {
  if (!node.name().empty()) return node.name();
  return node.output_size() > 0 ? node.output(0) : "";
}

std::string type_of(const wire::NodeProto& node) {
  return is_standard(node.domain()) ? node.op_type() : node.domain() + "." + node.op_type();
}

const std::map<std::string, Handlers, std::less<>>& operator_table() {
  static const auto table = [] {
    std::map<std::string, Handlers, std::less<>> all;
    for (const auto& list :
         {elementwise_operators(), comparison_operators(), shape_operators(), selection_operators(),
          reduction_operators(), product_operators(), convolution_operators(), norm_operators(),
          image_operators(), attention_operators(), quantised_operators()})
      for (const Operator& each : list)
        all[std::string(each.name)] = {.of_values = each.handler, .most_inputs = each.most_inputs};
    for (const Operator& each : constant_operators()) {
      Handlers& handlers = all[std::string(each.name)];
      handlers.of_constants = each.handler;
      if (handlers.of_values == nullptr) handlers.most_inputs = each.most_inputs;
    }
    return all;
  }();
  return table;
}

bool is_supported(const Model::Impl& model, const wire::NodeProto& node) {
  if (model.function_of(node) != nullptr) return true;
  return is_standard(node.domain()) && (node.op_type() == "If" || operator_table().contains(node.op_type()));
}

const std::optional<Known>* Importer::Scope::find(const std::string& name) const {
  const auto found = values.find(name);
  if (found != values.end()) return &found->second;
  return around != nullptr ? around->find(name) : nullptr;
}

Importer::Importer(Model::Impl& model, const ImportOptions& options, bool is_again)
    : file_(model), options_(options), is_again_(is_again), context_(imported_.graph) {
  context_.weights = &file_.forms;
  context_.options = &options_;
  context_.left = options_.most_computed;
  context_.work = kMostStepsOfEach * static_cast<double>(options_.most_computed);
  context_.memory = base::available_memory();
}

ImportedModel Importer::run() {
  Scope scope{.opset = file_.opset};
  for (const auto& [name, constant] : file_.initializers) scope.values.emplace(name, known(constant));
  add_inputs(scope);
  if (file_.opset > kNewestOpset)
    context_.notes.insert(fmt::format(
        "the model is of operator set {}, newer than {}, the newest that is known: its operators are read as "
        "operators of that set",
        file_.opset, kNewestOpset));
  run(file_.proto.graph().node(), scope);
  if (missing_.empty()) add_outputs(scope);
  if (!missing_.empty()) throw UnsupportedModelError(file_.name, std::move(missing_));
  // Embeddings come before the products that decide the form of their tables.
  if (!is_again_ && context_.note_tables()) return Importer(file_, options_, true).run();
  context_.note_copies();
  fold();
  require_memory();
  imported_.layers = std::move(context_.layers);
  imported_.notes.assign(context_.notes.begin(), context_.notes.end());
  return std::move(imported_);
}

// Inputs and outputs.

std::map<std::string, uint32_t> Importer::sizes_given() const {
  std::map<std::string, uint32_t> sizes;
  const auto set = [&](const std::string& name, uint32_t size) {
    if (name.empty()) return;
    if (const auto [known, is_new] = sizes.emplace(name, size); known->second != size)
      throw UsageError(
          fmt::format("'{}' has the sizes {} and {} in the shapes given", name, known->second, size));
  };
  for (const auto& [name, shape] : options_.shapes) {
    const auto input = std::ranges::find(file_.inputs, name, &ValueType::name);
    bool is_dimension = false;
    for (const ValueType& each : file_.inputs)
      is_dimension =
          is_dimension || std::ranges::find(each.shape, name, &Dimension::name) != each.shape.end();
    if (input == file_.inputs.end() && !(is_dimension && shape.size() == 1)) {
      std::vector<std::string> names;
      for (const ValueType& each : file_.inputs) names.push_back(each.name + " " + to_string(each));
      throw UsageError(fmt::format("{}: a shape is given for '{}'; its inputs are {}", file_.name, name,
                                   fmt::join(names, ", ")));
    }
    if (input == file_.inputs.end()) set(name, shape[0]);
    if (input != file_.inputs.end() && shape.size() == input->shape.size())
      for (size_t d = 0; d < shape.size(); ++d) set(input->shape[d].name, shape[d]);
  }
  return sizes;
}

graph::Shape Importer::shape_of(const ValueType& input, const std::map<std::string, uint32_t>& sizes) const {
  const auto given = options_.shapes.find(input.name);
  const auto refuse_shape = [&](const std::string& why) {
    throw UsageError(
        fmt::format("{}: the input '{}' is {}: {}", file_.name, input.name, to_string(input), why));
  };
  if (given != options_.shapes.end() && given->second.size() != input.shape.size() && !input.shape.empty())
    refuse_shape(fmt::format("the shape [{}] has other dimensions", fmt::join(given->second, ", ")));
  if (given != options_.shapes.end() && input.shape.empty()) return given->second;  // the file may have none
  if (!input.has_shape) refuse_shape("the file lacks its shape: give it");
  graph::Shape shape;
  for (size_t d = 0; d < input.shape.size(); ++d) {
    const Dimension& dimension = input.shape[d];
    const auto named = sizes.find(dimension.name);
    std::optional<uint32_t> size = dimension.size;
    if (given != options_.shapes.end()) {
      if (size && *size != given->second[d])
        refuse_shape(fmt::format("the shape [{}] does not fit", fmt::join(given->second, ", ")));
      size = given->second[d];
    } else if (!size && named != sizes.end()) {
      size = named->second;
    }
    if (!size) refuse_shape("give its shape, or the sizes of its named dimensions");
    shape.push_back(*size);
  }
  return shape;
}

void Importer::add_inputs(Scope& scope) {
  const std::map<std::string, uint32_t> sizes = sizes_given();
  for (size_t i = 0; i < file_.inputs.size(); ++i) {
    const ValueType& input = file_.inputs[i];
    const graph::Shape shape = shape_of(input, sizes);
    const DataType type = file_.input_types[i];
    const Value value = add_input(input.name, shape, type);
    if (type == DataType::f64) context_.notes.insert("numbers of 64 bits are computed with in 32 bits");
    set(scope, input.name, known(value, type));
    ValueType& fixed = imported_.inputs.emplace_back(input);
    fixed.shape.clear();
    fixed.has_shape = true;
    for (const uint32_t size : shape) fixed.shape.push_back({{}, size});
  }
}

Value Importer::add_input(const std::string& name, const graph::Shape& shape, DataType type) {
  try {
    return imported_.graph.input(name, shape, graph_type_of(type));
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: the input {}", file_.name, error.what()));
  }
}

void Importer::add_outputs(const Scope& scope) {
  for (const ValueType& output : file_.outputs) {
    const std::optional<Known>* found = scope.find(output.name);
    if (found == nullptr) io::fail(file_.name, "nothing computes its output {}", excerpt(output.name));
    Known result = **found;
    wire::NodeProto place;
    place.set_op_type("output");
    place.set_name(output.name);
    const auto fail = [&](const std::string& why) { missing_.push_back({"output", output.name, why}); };
    try {
      if (!result.constant && is_integer(result.type) != is_integer(*result.value)) {
        fail("it is quantised, which a graph is not");
        continue;
      }
      if (bits_of(result.type) < 8) {
        fail(fmt::format("it is {}: cast it to 8 bits or more", onnx::name_of(result.type)));
        continue;
      }
      const Call call(context_, place, {result}, file_.opset, file_.folder);
      Value value = call.value(0);
      // An output must be the result of an operation.
      if (!imported_.graph.info(value.id).node) value = reshape(value, value.shape());
      imported_.graph.output(output.name, value);
    } catch (const UsageError& error) {
      fail(error.what());
      continue;
    }
    ValueType& fixed = imported_.outputs.emplace_back(ValueType{output.name, onnx::name_of(result.type), {}});
    for (const int64_t size : result.dims) fixed.shape.push_back({{}, static_cast<uint32_t>(size)});
  }
}

/// Folds operations that follow products into their weights. Other graphs of the model may keep these
/// unchanged.
void Importer::fold() {
  graph::FoldedGraph folded = graph::folded(imported_.graph);
  graph::Graph& graph = folded.graph;
  for (const std::string& name : folded.changed) {
    if (!graph.contains(name)) continue;
    const Value value = graph.find(name);
    const graph::ValueInfo& info = graph.info(value.id);
    if (info.kind != graph::Kind::parameter) continue;
    graph.rename(value, file_.forms.name_of_folded(name, *info.initial.values));
  }
  imported_.graph = std::move(graph);
}

/// Requires at least the memory of each operation's values.
void Importer::require_memory() const {
  const graph::Graph& graph = imported_.graph;
  const auto bytes_of = [&](const auto& ids) {
    uint64_t bytes = 0;
    for (const graph::ValueId id : ids)
      if (!graph.type(id).pattern) bytes += graph.type(id).bytes();
    return bytes;
  };
  for (const graph::Node& node : graph.nodes())
    require_memory(bytes_of(node.inputs) + bytes_of(node.outputs), node.operation->name);
}

void Importer::require_memory(uint64_t bytes, std::string_view what) const {
  try {
    context_.require_memory(bytes, excerpt(what));
  } catch (const Error& error) {
    io::fail(file_.name, "{}", error.what());
  }
}

// Nodes.

void Importer::set(Scope& scope, const std::string& name, std::optional<Known> value) {
  if (name.empty()) return;
  if (value && value->value) require_memory(value->value->type().bytes(), name);
  if (!scope.values.emplace(name, std::move(value)).second)
    io::fail(file_.name, "{} is computed, or given, twice", excerpt(name));
}

void Importer::set_missing(const wire::NodeProto& node, Scope& scope) {
  for (const std::string& output : node.output()) set(scope, output, {});
}

void Importer::note_missing(const wire::NodeProto& node, const std::string& reason, Scope& scope) {
  missing_.push_back({type_of(node), scope.path + name_of(node), reason});
  set_missing(node, scope);
}

bool Importer::is_taken(const std::string& name) {
  if (!taken_.empty()) return taken_.contains(name);
  const auto take = [&](const std::string& each) { taken_.insert(each); };
  for (const wire::NodeProto& node : file_.proto.graph().node()) each_input(node, take);
  for (const ValueType& output : file_.outputs) take(output.name);
  for (const auto& [key, own] : file_.functions) {
    for (const wire::NodeProto& node : own->node()) each_input(node, take);
    for (const std::string& output : own->output()) take(output);
  }
  return taken_.contains(name);
}

void Importer::count_copied(uint64_t bytes) {
  copied_ += bytes;
  if (copied_ > kMostCopied)
    io::fail(file_.name,
             "copies of the nodes of its functions, as often as they are called, take more than {}",
             base::bytes_text(kMostCopied));
}

void Importer::run(const Nodes& nodes, Scope& scope) {
  for (const wire::NodeProto& node : nodes) {
    if (++nodes_ > kMostNodes)
      io::fail(file_.name, "it has more than {} nodes, with the nodes of the functions that it calls, at {}",
               kMostNodes, place_of(node));
    try {
      apply(node, scope);
    } catch (const UsageError& error) {
      note_missing(node, error.what(), scope);
    }
  }
}

std::optional<std::vector<std::optional<Known>>> Importer::inputs_of(const wire::NodeProto& node,
                                                                     const Scope& scope) const {
  std::vector<std::optional<Known>> inputs;
  bool is_complete = true;
  for (const std::string& name : node.input()) {
    std::optional<Known>& input = inputs.emplace_back();
    if (name.empty()) continue;
    const std::optional<Known>* found = scope.find(name);
    if (found == nullptr)
      io::fail(file_.name,
               "the node {} takes {}, which nothing before it computes: it is missing, or nodes form a cycle",
               place_of(node), excerpt(name));
    is_complete = is_complete && *found;
    input = *found;
  }
  if (!is_complete) return {};
  return inputs;
}

void Importer::apply(const wire::NodeProto& node, Scope& scope) {
  const auto inputs = inputs_of(node, scope);
  if (!inputs) {  // it depends on a node that is not supported
    if (!is_supported(file_, node)) return note_missing(node, "", scope);
    return set_missing(node, scope);
  }
  std::optional<Results> found;
  try {
    found = results_of(node, *inputs, scope);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {
    const std::string_view what = error.what();
    if (what.starts_with(file_.name)) throw;
    io::fail(file_.name, "the node {}: {}", place_of(node), what);
  }
  if (!found) return set_missing(node, scope);
  Results& results = *found;
  if (results.empty()) return note_missing(node, "", scope);
  for (int i = static_cast<int>(results.size()); i < node.output_size(); ++i)
    if (!node.output(i).empty() && is_taken(node.output(i)))
      return note_missing(node, fmt::format("its result {} is not possible", i), scope);
  for (int i = 0; i < node.output_size() && i < static_cast<int>(results.size()); ++i)
    set(scope, node.output(i), std::move(results[static_cast<size_t>(i)]));
}

std::optional<Results> Importer::results_of(const wire::NodeProto& node,
                                            const std::vector<std::optional<Known>>& inputs, Scope& scope) {
  if (const wire::FunctionProto* own = file_.function_of(node)) return function(*own, node, inputs, scope);
  if (!is_supported(file_, node)) return Results();
  if (node.op_type() == "If") {
    require_inputs(inputs, 1);
    return branch(node, inputs, scope);
  }
  require_no_quantised(node, inputs);
  const Handlers& handlers = operator_table().find(node.op_type())->second;
  require_inputs(inputs, handlers.most_inputs);
  const bool are_constant =
      std::ranges::all_of(inputs, [](const auto& input) { return !input || input->constant; });
  if (are_constant) return of_constants(node, inputs, handlers, scope.opset);
  if (handlers.of_values == nullptr)
    refuse(
        "its inputs depend on the model's; it is only possible if they are constant for inputs of given "
        "shapes");
  Call call(context_, node, inputs, scope.opset, file_.folder);
  return handlers.of_values(call);
}

/// Values that represent quantised numbers hold other numbers. Only after DequantizeLinear, in floating
/// point, are they the same.
void Importer::require_no_quantised(const wire::NodeProto& node,
                                    const std::vector<std::optional<Known>>& inputs) const {
  constexpr std::string_view kTakers[] = {"DequantizeLinear", "Identity", "Shape", "Size"};
  for (const auto& input : inputs)
    if (input && input->value && is_integer(input->type) && context_.quantised.contains(input->value->id) &&
        std::ranges::find(kTakers, node.op_type()) == std::end(kTakers))
      refuse("it takes a quantised value: only DequantizeLinear may");
}

/// Computes an operator on constants by a separate graph in float64, unless it has a handler for constants.
Results Importer::of_constants(const wire::NodeProto& node, const std::vector<std::optional<Known>>& inputs,
                               const Handlers& handlers, int64_t opset) {
  if (handlers.of_constants != nullptr) {
    Call call(context_, node, inputs, opset, file_.folder);
    Results results = handlers.of_constants(call);
    if (!results.empty()) return results;
  }
  if (handlers.of_values == nullptr) return {};
  graph::Graph graph;
  Context context(graph);
  context.left = context_.left;
  context.work = context_.work;
  context.memory = context_.memory;
  Call call(context, node, inputs, opset, file_.folder);
  Results results = handlers.of_values(call);
  context_.notes.merge(context.notes);
  context_.left = context.left;
  context_.work = context.work;
  bool is_computed = false;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].constant) continue;
    graph.output(fmt::format("{}", i), *results[i].value);
    is_computed = true;
  }
  if (!is_computed) return results;
  graph::remove_unused(graph);
  for (const graph::Node& each : graph.nodes())
    for (const graph::ValueId id : each.outputs) context_.spend(graph.type(id).elements());
  for (graph::ValueId id = 0; id < graph.values().size(); ++id)
    context_.count_work(static_cast<double>(graph.type(id).elements()));
  graph::WideArrays state;
  for (auto& [name, numbers] : evaluate(graph, {}, state)) {
    Known& result = results[std::stoul(name)];
    result = known(of_numbers(numbers, result.dims, result.type));
  }
  return results;
}

Importer::Scope Importer::within(const wire::NodeProto& node, const Scope& scope) const {
  std::string path = scope.path + name_of(node) + "/";
  if (path.size() > kLongestPlace) path = scope.path;  // too long: as listed for each missing node
  return {.opset = scope.opset, .depth = scope.depth + 1, .path = std::move(path)};
}

/// The branch that a constant condition selects.
std::optional<Results> Importer::branch(const wire::NodeProto& node,
                                        const std::vector<std::optional<Known>>& inputs, const Scope& scope) {
  Call call(context_, node, inputs, scope.opset, file_.folder);
  call.require_truth(0);
  const char* name = call.integer_of(0) != 0 ? "then_branch" : "else_branch";
  const wire::AttributeProto* attribute = call.attribute(name);
  if (attribute == nullptr || !attribute->has_g()) refuse("its attribute '{}' is missing", name);
  Scope inside = within(node, scope);
  inside.around = &scope;
  const wire::GraphProto& graph = attribute->g();
  for (const wire::TensorProto& tensor : graph.initializer())
    set(inside, tensor.name(), known(read_tensor(tensor, file_.folder)));
  for (const wire::SparseTensorProto& tensor : graph.sparse_initializer())
    set(inside, tensor.values().name(), known(read_sparse_tensor(tensor, file_.folder)));
  run(graph.node(), inside);
  Results results;
  for (const wire::ValueInfoProto& output : graph.output()) {
    const std::optional<Known>* found = inside.find(output.name());
    if (found == nullptr) io::fail(file_.name, "nothing computes {} of a branch", excerpt(output.name()));
    if (!*found) return std::nullopt;
    results.push_back(**found);
  }
  return results;
}

std::optional<Results> Importer::function(const wire::FunctionProto& function, const wire::NodeProto& node,
                                          const std::vector<std::optional<Known>>& inputs,
                                          const Scope& scope) {
  if (scope.depth >= kMostDepth)
    io::fail(file_.name, "functions call each other more than {} deep, or themselves", kMostDepth);
  Scope inside = within(node, scope);
  for (const wire::OperatorSetIdProto& each : function.opset_import())
    if (is_standard(each.domain())) inside.opset = each.version();
  if (inside.opset < kLeastOpset)
    refuse("its function is of operator set {}; {} and later can be read", inside.opset, kLeastOpset);
  require_inputs(inputs, static_cast<size_t>(function.input_size()));
  for (int i = 0; i < function.input_size(); ++i) {
    const auto at = static_cast<size_t>(i);
    if (at < inputs.size() && inputs[at]) set(inside, function.input(i), inputs[at]);
  }
  Nodes nodes;
  const bool is_first = called_.insert(&function).second;
  const OfCaller of_caller(function, node, [this](uint64_t bytes) { count_copied(bytes); });
  for (const wire::NodeProto& each : function.node()) {
    if (!is_first) count_copied(each.ByteSizeLong());
    wire::NodeProto& filled = *nodes.Add();
    filled = each;
    of_caller.fill(filled);
  }
  run(nodes, inside);
  Results results;
  for (const std::string& output : function.output()) {
    const std::optional<Known>* found = inside.find(output);
    if (found == nullptr) io::fail(file_.name, "nothing computes {} of a function", excerpt(output));
    if (!*found) return std::nullopt;
    results.push_back(**found);
  }
  return results;
}

ImportedModel Model::import(const ImportOptions& options) const { return Importer(*impl_, options).run(); }

ImportedModel read_onnx(const std::string& path, const ImportOptions& options) {
  return Model::read(path).import(options);
}

}  // namespace tessera::onnx
