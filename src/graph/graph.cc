#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/graph.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "graph/initial.h"
#include "graph/loop.h"
#include "graph/operation.h"
#include "graph/shards.h"
#include "graph/stages.h"
#include "graph/substream.h"
#include "kernels/common/numbers.h"
#include "sparse/pattern.h"

namespace tessera::graph {
namespace {

void check_shape(std::string_view name, const Shape& shape) {
  if (shape.size() > kMaxDimensions)
    throw UsageError(
        fmt::format("{}: {} dimensions; at most {} are possible", name, shape.size(), kMaxDimensions));
  uint64_t elements = 1;
  for (uint32_t size : shape) {
    if (size == 0)
      throw UsageError(fmt::format("{}: a dimension is 0 in [{}]", name, fmt::join(shape, ", ")));
    elements *= size;
    if (elements > std::numeric_limits<uint32_t>::max())
      throw UsageError(fmt::format("{}: [{}] has more than 2^32 - 1 elements", name, fmt::join(shape, ", ")));
  }
}

/// Checks the types of inputs, parameters and state, which callers describe.
void check_type(std::string_view name, const TensorType& type) {
  if (type.capacity && !type.pattern)
    throw UsageError(fmt::format("{}: only a sparse value has a capacity", name));
  if (!type.pattern) return;
  const Pattern& p = *type.pattern;
  sparse::validate(p);
  if (type.shape != Shape{p.rows, p.cols})
    throw UsageError(fmt::format("{}: the pattern is {} × {}; the shape [{}]", name, p.rows, p.cols,
                                 fmt::join(type.shape, ", ")));
  if (type.capacity && *type.capacity < p.blocks())
    throw UsageError(
        fmt::format("{}: the pattern has {} blocks; its capacity is {}", name, p.blocks(), *type.capacity));
}

template <class T>
const T* find_attribute(const Node& node, std::string_view name, bool required) {
  const auto found = node.attributes.find(name);
  const T* value = found == node.attributes.end() ? nullptr : std::get_if<T>(&found->second);
  if (value == nullptr && (required || found != node.attributes.end()))
    throw UsageError(fmt::format("{}: attribute '{}' is {}", node.operation ? node.operation->name : "node",
                                 name, found == node.attributes.end() ? "missing" : "of another type"));
  return value;
}

bool is_sum_of_passes(const Graph& graph, ValueId id) {
  const auto& n = graph.info(id).node;
  if (!n || !is_loop(graph.nodes()[*n])) return false;
  const Node& loop = graph.nodes()[*n];
  const auto position = std::ranges::find(loop.outputs, id) - loop.outputs.begin();
  return loop_form(loop).outputs.at(static_cast<size_t>(position)) == LoopOutput::summed;
}

}  // namespace

uint64_t TensorType::elements() const {
  if (pattern) return sparse::stored_values(*pattern);
  uint64_t product = 1;
  for (uint32_t size : shape) product *= size;
  return product;
}

uint64_t TensorType::bytes() const { return elements() * size_of(type); }

uint32_t TensorType::rows() const {
  uint64_t product = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) product *= shape[i];
  return static_cast<uint32_t>(product);
}

bool TensorType::operator==(const TensorType& other) const {
  if (type != other.type || shape != other.shape || capacity != other.capacity || sharded != other.sharded)
    return false;
  if (pattern == other.pattern) return true;
  return pattern && other.pattern && *pattern == *other.pattern;
}

std::string to_string(const TensorType& type) {
  std::string text = fmt::format("{}{}[{}]", type.sharded ? "sharded " : "", name_of(type.type),
                                 fmt::join(type.shape, ", "));
  if (!type.pattern) return text;
  const Pattern& p = *type.pattern;
  const double density = static_cast<double>(type.elements()) / (static_cast<double>(p.rows) * p.cols);
  return text + fmt::format(" {}, block {}, density {:.3g}", type.capacity ? "dynamic" : "static",
                            p.block_size, density);
}

Initial Initial::from(std::vector<float> values) {
  return {Kind::values, 0, std::make_shared<const std::vector<float>>(std::move(values))};
}

Graph& Value::owner() const {
  if (graph == nullptr || id >= graph->values().size())
    throw UsageError("a value of no graph; use what inputs, parameters and operations return");
  return *graph;
}

const TensorType& Value::type() const { return owner().type(id); }

int64_t Node::integer(std::string_view name, std::optional<int64_t> otherwise) const {
  const auto* value = find_attribute<int64_t>(*this, name, !otherwise);
  return value != nullptr ? *value : *otherwise;
}

double Node::number(std::string_view name, std::optional<double> otherwise) const {
  const auto found = attributes.find(name);
  if (found != attributes.end())
    if (const auto* whole = std::get_if<int64_t>(&found->second)) return static_cast<double>(*whole);
  const auto* value = find_attribute<double>(*this, name, !otherwise);
  return value != nullptr ? *value : *otherwise;
}

std::string Node::text(std::string_view name, std::optional<std::string> otherwise) const {
  const auto* value = find_attribute<std::string>(*this, name, !otherwise);
  return value != nullptr ? *value : *otherwise;
}

const std::vector<int64_t>& Node::list(std::string_view name) const {
  return *find_attribute<std::vector<int64_t>>(*this, name, true);
}

ValueId Graph::add(ValueInfo info) {
  const auto id = static_cast<ValueId>(values_.size());
  if (info.name.empty()) info.name = fmt::format("%{}", id);
  if (info.kind != Kind::result) check_type(info.name, info.type);
  if (info.type.sharded && info.kind != Kind::result && !info.belongs)
    throw UsageError(fmt::format("{}: only state of a parameter, and results, can be sharded", info.name));
  check_shape(info.name, info.type.shape);
  if (!std::isfinite(info.initial.scale))
    throw UsageError(fmt::format("{}: its initial values are scaled by {}; use a finite number", info.name,
                                 info.initial.scale));
  if (info.initial.kind == Initial::Kind::values && !info.initial.values)
    throw UsageError(fmt::format("{}: its initial values are missing; use Initial::from", info.name));
  if (info.kind == Kind::input && outputs_.contains(info.name))
    throw UsageError(fmt::format("the input '{}' has the name of an output: give it another one", info.name));
  if (!names_.emplace(info.name, id).second)
    throw UsageError(fmt::format("the graph has a value '{}' already", info.name));
  values_.push_back(std::move(info));
  return id;
}

Value Graph::input(std::string name, Shape shape, Type type) {
  return value(add({std::move(name), Kind::input, {type, std::move(shape), {}, {}}}));
}

Value Graph::parameter(std::string name, Shape shape, const Initial& initial, Type type) {
  return value(add({std::move(name), Kind::parameter, {type, std::move(shape), {}, {}}, initial}));
}

Value Graph::sparse_parameter(std::string name, Pattern pattern, const Initial& initial, Type type,
                              std::optional<uint64_t> capacity) {
  const Shape shape = {pattern.rows, pattern.cols};
  return value(add({std::move(name),
                    Kind::parameter,
                    {type, shape, std::make_shared<const Pattern>(std::move(pattern)), capacity},
                    initial}));
}

Value Graph::state(std::string name, TensorType type, const Initial& initial,
                   std::optional<Value> belongs_to) {
  ValueInfo info{std::move(name), Kind::state, std::move(type), initial};
  if (belongs_to) {
    require_own(*belongs_to, info.name);
    TensorType like = belongs_to->type();
    like.type = info.type.type;
    like.sharded = info.type.sharded;
    if (!(like == info.type))
      throw UsageError(fmt::format("{}: {} cannot belong to {}, which is {}", info.name, to_string(info.type),
                                   this->info(belongs_to->id).name, to_string(belongs_to->type())));
    info.belongs = belongs_to->id;
  }
  return value(add(std::move(info)));
}

void Graph::offload(Value value) {
  require_own(value, "offload");
  ValueInfo& info = values_.at(value.id);
  const bool is_of_parameter = info.kind == Kind::parameter || (info.kind == Kind::state && info.belongs);
  if (!is_of_parameter && !is_sum_of_passes(*this, value.id))
    throw UsageError(fmt::format(
        "offload: '{}' is neither a parameter, nor state of one, nor a sum over the passes of a loop",
        info.name));
  info.offloaded = true;
}

void Graph::shard(Value parameter) {
  require_own(parameter, "shard");
  ValueInfo& info = values_.at(parameter.id);
  if (info.kind != Kind::parameter || !may_be_divided(info.type))
    throw UsageError(
        fmt::format("shard: '{}' is not a parameter of several floating-point numbers whose pattern is fixed",
                    info.name));
  info.divided = true;
}

Value Graph::constant(std::string name, Shape shape, std::vector<float> values, Type type) {
  check_shape(name.empty() ? "a constant" : name, shape);
  const TensorType of{type, std::move(shape), {}, {}};
  if (values.size() != of.elements())
    throw UsageError(fmt::format("{}: {} values for {}", name, values.size(), to_string(of)));
  kernels::require_held(name.empty() ? "a constant" : name, values, type);
  return value(add({std::move(name), Kind::constant, of, Initial::from(std::move(values))}));
}

Value Graph::input(std::string name, TensorType type) {
  return value(add({std::move(name), Kind::input, std::move(type)}));
}

std::vector<Value> Graph::apply(std::string_view operation, const std::vector<Value>& inputs,
                                Attributes attributes) {
  return add({.operation = &find_operation(operation), .attributes = std::move(attributes)}, inputs);
}

std::vector<Value> Graph::call(const std::shared_ptr<const Graph>& function, const std::vector<Value>& inputs,
                               const Call& how) {
  if (!function || function.get() == this)
    throw UsageError(function ? "a graph cannot call itself" : "call: there is no function");
  if (how.number == 0U || how.number == std::numeric_limits<uint32_t>::max())
    throw UsageError(
        fmt::format("call: its number is {}; it must be at least 1 and below 2^32 - 1", *how.number));
  // A copy: what is added to the function later is not among the results of this call.
  std::shared_ptr<const Graph>& own = functions_[function];
  if (!own || own->values_.size() != function->values_.size() || own->outputs_ != function->outputs_ ||
      own->nodes_.size() != function->nodes_.size())
    own = std::make_shared<const Graph>(*function);
  Node node{.operation = &find_operation("call"), .body = own};
  if (how.number) node.attributes["call"] = int64_t{*how.number};
  if (how.stage) node.attributes["stage"] = int64_t{*how.stage};
  if (how.recompute) node.attributes["recompute"] = int64_t{1};
  return add(std::move(node), inputs);
}

std::vector<Value> Graph::loop(const std::shared_ptr<const Graph>& body, const std::vector<Value>& inputs,
                               const Loop& how) {
  if (!body || body.get() == this)
    throw UsageError(body ? "a graph cannot be a loop in itself" : "loop: there is no function");
  return add({.operation = &find_operation("loop"),
              .attributes = attributes_of(how, *body),
              .body = std::make_shared<const Graph>(*body)},
             inputs);
}

std::vector<Value> Graph::apply(const Node& like, const std::vector<Value>& inputs) {
  return add({.operation = like.operation, .attributes = like.attributes, .body = like.body}, inputs);
}

std::vector<Value> Graph::add(Node node, const std::vector<Value>& inputs) {
  const Operation& operation = *node.operation;
  Types types;
  for (const Value& input : inputs) {
    require_own(input, operation.name);
    require_computed(input);
    node.inputs.push_back(input.id);
    types.push_back(type(input.id));
  }
  if (inputs.size() < operation.least_inputs || inputs.size() > operation.most_inputs)
    throw UsageError(
        fmt::format("{}: {} inputs; it takes {}", operation.name, inputs.size(),
                    operation.least_inputs == operation.most_inputs
                        ? fmt::format("{}", operation.least_inputs)
                        : fmt::format("{} to {}", operation.least_inputs, operation.most_inputs)));
  if (node.body) number_draws(node);
  const auto index = static_cast<uint32_t>(nodes_.size());
  if (!node.body && has_substreams(node)) node.attributes.try_emplace("stream", int64_t{index});
  std::vector<Value> outputs;
  for (TensorType& type : types_of_results(operation, {operation.name, types, node, this})) {
    ValueInfo result{.kind = Kind::result, .type = std::move(type), .node = index};
    if (result.type.sharded) result.belongs = whole_of_result(*this, node, outputs.size());
    node.outputs.push_back(add(std::move(result)));
    outputs.push_back(value(node.outputs.back()));
  }
  nodes_.push_back(std::move(node));
  return outputs;
}

void Graph::number_draws(Node& node) {
  if (!has_substreams(node)) {
    node.attributes.erase("call");
    return;
  }
  const auto number =
      static_cast<uint32_t>(node.attributes.contains("call") ? node.integer("call") : next_call_);
  next_call_ = std::max(next_call_, number + 1);
  node.attributes["call"] = int64_t{number};
}

std::vector<ValueId> Graph::inputs() const {
  std::vector<ValueId> ids;
  for (ValueId id = 0; id < values_.size(); ++id)
    if (values_[id].kind == Kind::input) ids.push_back(id);
  return ids;
}

std::vector<Value> Graph::extend(uint32_t index, const std::shared_ptr<const Graph>& function,
                                 Attributes attributes) {
  Node node = nodes_.at(index);
  std::map<std::string, ValueId> results;
  for (const auto& [name, id] : node.body->outputs()) results[name] = node.outputs[results.size()];
  node.body = function;
  node.attributes = std::move(attributes);
  Types inputs;
  for (ValueId input : node.inputs) inputs.push_back(type(input));
  const Types types = types_of_results(*node.operation, {node.operation->name, inputs, node, this});
  std::vector<Value> added;
  node.outputs.clear();
  for (const auto& [name, id] : function->outputs()) {
    const auto known = results.find(name);
    if (known == results.end())
      added.push_back(value(add({.kind = Kind::result, .type = types[node.outputs.size()], .node = index})));
    node.outputs.push_back(known == results.end() ? added.back().id : known->second);
  }
  nodes_[index] = std::move(node);
  return added;
}

void Graph::output(std::string name, Value value) {
  require_own(value, name);
  require_computed(value);
  const auto named = names_.find(name);
  if (named != names_.end() && info(named->second).kind == Kind::input)
    throw UsageError(fmt::format("the output '{}' has the name of an input: give it another one", name));
  if (!outputs_.emplace(name, value.id).second)
    throw UsageError(fmt::format("the graph has an output '{}' already", name));
}

void Graph::replace_output(const std::string& name, Value value) {
  require_own(value, name);
  const auto found = outputs_.find(name);
  if (found == outputs_.end()) throw UsageError(fmt::format("the graph has no output '{}'", name));
  found->second = value.id;
}

void Graph::require_own(Value value, std::string_view what) const {
  if (&value.owner() != this) throw UsageError(fmt::format("{}: a value belongs to another graph", what));
}

void Graph::require_computed(Value value) const {
  const ValueInfo& info = values_[value.id];
  if (info.kind == Kind::result && !info.node)
    throw UsageError(
        fmt::format("'{}' is not a value of the graph any longer: make what needs it before the graph "
                    "is trained with micro-batches",
                    info.name));
}

void Graph::assign(Value state, Value value) {
  require_own(state, "assign");
  require_own(value, "assign");
  require_computed(value);
  const ValueInfo& to = info(state.id);
  for (const Assignment& assignment : assignments_)
    if (assignment.state == state.id) throw UsageError(fmt::format("{}: it is set already", to.name));
  if (!is_kept(to)) throw UsageError(fmt::format("{}: only parameters and state can be set", to.name));
  if (!(to.type == type(value.id)))
    throw UsageError(
        fmt::format("{}: {} cannot be set to {}", to.name, to_string(to.type), to_string(type(value.id))));
  assignments_.push_back({state.id, value.id});
}

void Graph::replicate(uint32_t count) {
  if (count == 0) throw UsageError("the number of replicas is 0; it must be at least 1");
  if (replicas_ != 1) throw UsageError("the graph is replicated already");
  replicas_ = count;
  for (ValueId id : inputs())
    if (!type(id).shape.empty()) replicated_.insert(id);
}

void Graph::place_stages(std::vector<uint32_t> places) {
  check_places(places);
  places_ = std::move(places);
}

void Graph::begin_stages(const std::vector<Value>& parameters) {
  const WholeLayers layers = whole_layers_of(*this);
  std::vector<ValueId> begins;
  uint32_t before = 0;  // layer
  for (const Value& parameter : parameters) {
    require_own(parameter, "begin_stages");
    const auto layer = layers.of_parameters.find(parameter.id);
    if (layer == layers.of_parameters.end())
      throw UsageError(fmt::format(
          "a stage cannot begin with '{}', which no layer takes as a parameter: name a parameter of a layer",
          info(parameter.id).name));
    if (layer->second <= before)
      throw UsageError(fmt::format(
          "a stage cannot begin with '{}', which is of the first layer of a stage before, or of an "
          "earlier one: name parameters in the order of their layers",
          info(parameter.id).name));
    before = layer->second;
    begins.push_back(parameter.id);
  }
  stage_begins_ = std::move(begins);
  balanced_stages_.reset();
}

void Graph::balance_stages(std::optional<uint32_t> count) {
  if (count) {
    check_stage_count(*count, whole_layers_of(*this).count());
    stage_begins_.clear();
  }
  balanced_stages_ = count;
}

void Graph::set_partial_sums(const PartialSums& sums) {
  if (sums.type && *sums.type != Type::f32 && *sums.type != Type::f16 && *sums.type != Type::bf16)
    throw UsageError(
        fmt::format("partial sums of products cannot be {}: use f32, f16 or bf16", name_of(*sums.type)));
  partial_sums_ = sums;
}

TensorType Graph::bound_type(ValueId id, uint32_t replicas) const {
  const ValueInfo& info = values_.at(id);
  const bool has_all = info.kind == Kind::result ? !info.type.shape.empty() : replicated_.contains(id);
  return replicas > 1 && has_all ? of_all_passes(info.type, replicas, info.name) : info.type;
}

Value Graph::find(std::string_view name) {
  const auto found = names_.find(name);
  if (found == names_.end()) throw UsageError(fmt::format("the graph has no value '{}'", name));
  return value(found->second);
}

void Graph::rename(Value value, std::string name) {
  require_own(value, "rename");
  ValueInfo& info = values_[value.id];
  if (info.name == name) return;
  if (info.kind == Kind::input && outputs_.contains(name))
    throw UsageError(fmt::format("the input '{}' would have the name of an output, '{}'", info.name, name));
  if (!names_.emplace(name, value.id).second)
    throw UsageError(fmt::format("the graph has a value '{}' already", name));
  names_.erase(info.name);
  info.name = std::move(name);
}

void Graph::drop_initial_values() {
  for (ValueInfo& info : values_)
    if (info.kind != Kind::constant && info.initial.kind == Initial::Kind::values) info.initial = {};
}

void Graph::set_nodes(std::vector<Node> nodes) {
  nodes_ = std::move(nodes);
  number_nodes();
}

void Graph::mark_backward(uint32_t first) {
  for (size_t n = first; n < nodes_.size(); ++n) nodes_[n].backward = true;
}

void Graph::mark_gradients(uint32_t first, ValueId of) {
  for (size_t n = first; n < nodes_.size(); ++n) nodes_[n].gradient_of = of;
}

uint32_t Graph::insert_before(uint32_t node, const std::function<void()>& add) {
  const auto before = static_cast<uint32_t>(nodes_.size());
  add();
  if (nodes_.at(node).backward) mark_backward(before);
  if (const auto of = nodes_[node].gradient_of) mark_gradients(before, *of);
  std::rotate(nodes_.begin() + node, nodes_.begin() + before, nodes_.end());
  number_nodes();
  return static_cast<uint32_t>(nodes_.size() - before);
}

void Graph::replace(Value result, Value by) {
  require_own(result, "replace");
  require_own(by, "replace");
  if (!(result.type() == by.type()) || !info(by.id).node)
    throw UsageError(fmt::format("replace: '{}', {}, cannot become '{}', {}", info(result.id).name,
                                 to_string(result.type()), info(by.id).name, to_string(by.type())));
  Node& producer = nodes_[*info(by.id).node];
  std::ranges::replace(producer.outputs, by.id, result.id);
  for (Node& node : nodes_) std::ranges::replace(node.inputs, by.id, result.id);
  for (auto& [name, id] : outputs_)
    if (id == by.id) id = result.id;
  for (Assignment& assignment : assignments_)
    if (assignment.value == by.id) assignment.value = result.id;
  values_[result.id].node = std::exchange(values_[by.id].node, std::nullopt);
}

void Graph::erase(const std::vector<bool>& nodes) {
  std::vector<Node> kept;
  for (size_t n = 0; n < nodes_.size(); ++n)
    if (!nodes.at(n)) kept.push_back(std::move(nodes_[n]));
  set_nodes(std::move(kept));
}

void Graph::number_nodes() {
  for (ValueInfo& value : values_) value.node.reset();
  for (uint32_t i = 0; i < nodes_.size(); ++i)
    for (ValueId output : nodes_[i].outputs) values_[output].node = i;
}

}  // namespace tessera::graph
