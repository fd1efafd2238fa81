#include "model/order.h"

#include <algorithm>
#include <set>

#include "model/operation.h"

namespace tessera::model {
namespace {

/// A conversion reads and writes a value once, in a superstep of its own. Only comparisons matter.
constexpr double kConversionSeconds = 1e-6;
constexpr double kConversionSecondsPerByte = 2e-10;

/// Finds which values lie in the form of a weight.
class StoredValues {
 public:
  StoredValues(const Graph& graph, bool is_function)
      : graph_(graph),
        is_function_(is_function),
        stored_(graph.values().size()),
        leaves_(graph.values().size()) {}

  StoredAs find() {
    for (ValueId id = 0; id < stored_.size(); ++id)
      if (graph_.type(id).pattern && is_leaf(id) && !graph_.info(id).belongs) stored_[id] = id;
    for (const Node& node : graph_.nodes())
      for (ValueId weight : weights_of(node)) store_leaf(weight);
    for (ValueId id = 0; id < stored_.size(); ++id)
      if (const auto& parameter = graph_.info(id).belongs) stored_[id] = stored_[*parameter];
    for (const Node& node : graph_.nodes()) follow(node);
    return std::move(stored_);
  }

 private:
  bool is_leaf(ValueId id) const {
    const Kind kind = graph_.info(id).kind;
    return kind != Kind::result && (is_function_ || kind != Kind::input);
  }

  /// The leaf that a weight is, or is computed from element by element. Many paths may lead to a value.
  std::optional<ValueId> leaf_of(ValueId id) {
    if (!leaves_[id]) leaves_[id] = find_leaf(id);
    return *leaves_[id];
  }
  std::optional<ValueId> find_leaf(ValueId id) {
    const ValueInfo& info = graph_.info(id);
    if (info.kind != Kind::result)
      return is_leaf(id) ? std::optional(info.belongs.value_or(id)) : std::nullopt;
    const Node& node = graph_.nodes()[*info.node];
    if (node.operation->traits.keeps_zeros == nullptr) return {};
    for (ValueId input : node.inputs)
      if (graph_.type(input).shape == info.type.shape)
        if (const auto leaf = leaf_of(input)) return leaf;
    return {};
  }

  void store_leaf(ValueId weight) {
    if (const auto leaf = leaf_of(weight)) stored_[*leaf] = leaf;
  }

  void follow(const Node& node) {
    if (node.body) return follow_call(node);
    if (is_weight_gradient(node)) stored_[node.outputs[0]] = weight_of(stored_, *weight_input(node));
    if (is_update(node)) return follow_update(node);
    const std::optional<ValueId> form = form_of(node);
    if (!form) return;
    for (ValueId output : node.outputs)
      if (graph_.type(output).shape == graph_.type(*form).shape) stored_[output] = form;
  }

  /// The form that an operation element by element keeps: that of all its inputs but scalars.
  std::optional<ValueId> form_of(const Node& node) const {
    if (node.operation->traits.keeps_zeros == nullptr) return {};
    std::optional<ValueId> form;
    std::vector<bool> padded;
    for (ValueId input : node.inputs) {
      padded.push_back(stored_[input].has_value());
      if (!stored_[input] && graph_.type(input).elements() != 1) return {};
      if (stored_[input] && form && *form != *stored_[input]) return {};
      if (stored_[input]) form = stored_[input];
    }
    return form && node.operation->traits.keeps_zeros(padded) ? form : std::nullopt;
  }

  void follow_update(const Node& node) {
    for (ValueId output : node.outputs) stored_[output] = stored_[updated_parameter(node)];
  }

  /// Results of a call that are stored as one of its inputs.
  void follow_call(const Node& node) {
    const StoredAs in_body = stored_values(*node.body, true);
    const std::vector<ValueId> inputs = node.body->inputs();
    size_t position = 0;
    for (const auto& [name, id] : node.body->outputs()) {
      const ValueId result = node.outputs[position++];
      if (!in_body[id]) continue;
      const auto input = std::ranges::find(inputs, *in_body[id]);
      if (input == inputs.end()) continue;
      stored_[result] = weight_of(stored_, node.inputs[static_cast<size_t>(input - inputs.begin())]);
    }
  }

  const Graph& graph_;
  bool is_function_;
  StoredAs stored_;
  std::vector<std::optional<std::optional<ValueId>>> leaves_;  ///< as far as they are known
};

/// Orders of a graph while they are being chosen.
class Choice {
 public:
  explicit Choice(const OrderQuery& query) : query_(query), users_(query.graph.values().size()) {
    const Graph& graph = query.graph;
    values_.assign(graph.values().size(), Order::plain);
    for (ValueId id = 0; id < values_.size(); ++id)
      if (query.is_stored(id)) values_[id] = Order::stored;
    for (uint32_t n = 0; n < graph.nodes().size(); ++n) {
      options_.push_back(graph.nodes()[n].operation->orders(query, graph.nodes()[n]));
      chosen_.push_back(0);
      for (ValueId input : graph.nodes()[n].inputs) users_[input].push_back(n);
      if (is_update(graph.nodes()[n])) updated_.insert(updated_parameter(graph.nodes()[n]));
    }
  }

  ChosenOrders run() {
    const Choice unimproved = *this;
    for (uint32_t n = 0; n < options_.size(); ++n) improve(n);
    sweep();
    Choice following = unimproved;
    for (uint32_t n = 0; n < options_.size(); ++n) following.follow_inputs(n);
    following.sweep();
    return following.total() < total() ? following.result() : result();
  }

 private:
  void sweep() {
    constexpr int kSweeps = 8;
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      bool changed = false;
      for (uint32_t n = 0; n < options_.size(); ++n) changed |= improve(n);
      for (ValueId id = 0; id < values_.size(); ++id) changed |= improve_leaf(id);
      if (!changed) break;
    }
  }

  /// Of all operations and conversions.
  double total() const {
    double seconds = 0;
    for (uint32_t n = 0; n < options_.size(); ++n) seconds += choice(n).seconds;
    for (ValueId id = 0; id < values_.size(); ++id) seconds += conversions(id);
    return seconds;
  }

  /// Chooses by the orders that a node's inputs have, whatever becomes of its results.
  void follow_inputs(uint32_t n) {
    size_t best = 0;
    double least = 0;
    for (size_t option = 0; option < options_[n].size(); ++option) {
      choose(n, option);
      double seconds = choice(n).seconds;
      for (size_t i = 0; i < node(n).inputs.size(); ++i)
        if (values_[node(n).inputs[i]] != choice(n).inputs[i]) seconds += conversion(node(n).inputs[i]);
      if (option == 0 || seconds < least) least = seconds, best = option;
    }
    choose(n, best);
  }

  double conversion(ValueId id) const {
    const TensorType& type = query_.type(id);
    if (type.elements() == 1) return 0;
    return kConversionSeconds +
           kConversionSecondsPerByte * static_cast<double>(type.elements() * size_of(type.type));
  }

  ChosenOrders result() const {
    ChosenOrders result;
    for (uint32_t n = 0; n < options_.size(); ++n) result.nodes.push_back(choice(n));
    result.values = values_;
    return result;
  }

  const Node& node(uint32_t n) const { return query_.graph.nodes()[n]; }
  const OrderChoice& choice(uint32_t n) const { return options_[n][chosen_[n]]; }

  void choose(uint32_t n, size_t option) {
    chosen_[n] = option;
    for (size_t i = 0; i < node(n).outputs.size(); ++i) values_[node(n).outputs[i]] = choice(n).outputs[i];
    // An update is in place, if it can be.
    if (!is_update(node(n))) return;
    const ValueId updated = updated_parameter(node(n));
    if (query_.graph.info(updated).kind != Kind::result && !query_.is_stored(updated))
      set_leaf(updated, choice(n).outputs[0]);
  }

  /// Of the conversions of a value, each made once.
  double conversions(ValueId id) const {
    std::set<Order> wanted;
    for (uint32_t user : users_[id])
      for (size_t i = 0; i < node(user).inputs.size(); ++i)
        if (node(user).inputs[i] == id) wanted.insert(choice(user).inputs[i]);
    wanted.erase(values_[id]);
    return static_cast<double>(wanted.size()) * conversion(id);
  }

  double cost(uint32_t n) const {
    double seconds = choice(n).seconds;
    std::set<ValueId> around(node(n).inputs.begin(), node(n).inputs.end());
    around.insert(node(n).outputs.begin(), node(n).outputs.end());
    for (ValueId id : around) seconds += conversions(id);
    return seconds;
  }

  bool improve(uint32_t n) {
    const size_t before = chosen_[n];
    size_t best = before;
    choose(n, before);
    double least = cost(n);
    for (size_t option = 0; option < options_[n].size(); ++option) {
      choose(n, option);
      const double seconds = cost(n);
      if (seconds < least) least = seconds, best = option;
    }
    choose(n, best);
    return best != before;
  }

  /// The caller binds inputs in any order, and state and constants lie in any.
  bool improve_leaf(ValueId id) {
    const ValueInfo& info = query_.graph.info(id);
    if (info.kind == Kind::result || info.belongs || query_.is_stored(id) || updated_.contains(id))
      return false;
    if (!(query_.graph.replica_type(id) == info.type)) return false;  // rows of micro-batches
    const Order before = values_[id];
    const double as_it_is = conversions(id);
    set_leaf(id, before == Order::plain ? Order::transposed : Order::plain);
    if (conversions(id) < as_it_is) return true;
    set_leaf(id, before);
    return false;
  }

  /// An optimizer's state lies as its parameter.
  void set_leaf(ValueId id, Order order) {
    values_[id] = order;
    for (ValueId other = 0; other < values_.size(); ++other)
      if (query_.graph.info(other).belongs == id) values_[other] = order;
  }

  const OrderQuery& query_;
  std::vector<Order> values_;
  std::vector<std::vector<uint32_t>> users_;
  std::set<ValueId> updated_;  ///< parameters
  std::vector<std::vector<OrderChoice>> options_;
  std::vector<size_t> chosen_;
};

OrderChoice all_in(const OrderQuery& query, const Node& node, Order order) {
  OrderChoice choice;
  const auto of = [&](ValueId id) {
    return query.type(id).elements() == 1 && !query.is_stored(id) ? Order::plain : order;
  };
  for (ValueId input : node.inputs) choice.inputs.push_back(of(input));
  for (ValueId output : node.outputs) choice.outputs.push_back(of(output));
  return choice;
}

}  // namespace

std::vector<OrderChoice> same_orders(const OrderQuery& query, const Node& node) {
  for (ValueId output : node.outputs)
    if (query.is_stored(output)) return {all_in(query, node, Order::stored)};
  return {all_in(query, node, Order::plain), all_in(query, node, Order::transposed)};
}

std::vector<OrderChoice> plain_orders(const OrderQuery& query, const Node& node) {
  return {all_in(query, node, Order::plain)};
}

StoredAs stored_values(const Graph& graph, bool is_function) {
  return StoredValues(graph, is_function).find();
}

std::vector<ValueId> weights_of(const Node& node) {
  if (const auto weight = weight_input(node)) return {*weight};
  if (!node.body) return {};
  const StoredAs in_body = stored_values(*node.body, true);
  const std::vector<ValueId> inputs = node.body->inputs();
  std::vector<ValueId> weights;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (in_body[inputs[i]]) weights.push_back(node.inputs[i]);
  return weights;
}

ChosenOrders choose_orders(const OrderQuery& query) { return Choice(query).run(); }

}  // namespace tessera::model
