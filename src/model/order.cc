#include "model/order.h"

#include <algorithm>
#include <set>

#include "model/operations/update.h"

namespace tessera::model {
namespace {

/// A conversion reads and writes a value once, in a superstep of its own. Only comparisons matter.
constexpr double kConversionSeconds = 1e-6;
constexpr double kConversionSecondsPerByte = 2e-10;

/// The parameter, or in a function the input, that a weight is computed from element by element.
std::optional<ValueId> root_of(const Graph& graph, ValueId id) {
  const ValueInfo& info = graph.info(id);
  if (!info.node) {
    if (info.kind == Kind::parameter || info.kind == Kind::input) return id;
    return {};
  }
  for (ValueId input : graph.nodes()[*info.node].inputs)
    if (graph.type(input).shape == info.type.shape)
      if (const auto root = root_of(graph, input)) return root;
  return {};
}

/// Calls visit(value) for each value that a node takes as the weight of a product.
template <class Visit>
void each_weight(const Node& node, const Visit& visit) {
  if (node.operation->name == "linear" || node.operation->name == "linear_input_gradient")
    visit(node.inputs[1]);
  if (node.operation->name == "linear_weight_gradient") visit(node.inputs[2]);
  if (!node.body) return;
  const auto stored = stored_values(*node.body);
  const std::vector<ValueId> inputs = node.body->inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (stored[inputs[i]]) visit(node.inputs[i]);
}

/// Results of a call that are stored as one of its inputs.
void take_from_body(const Node& node, std::vector<std::optional<ValueId>>& stored) {
  const auto in_body = stored_values(*node.body);
  const std::vector<ValueId> inputs = node.body->inputs();
  size_t position = 0;
  for (const auto& [name, id] : node.body->outputs()) {
    const ValueId result = node.outputs[position++];
    if (!in_body[id]) continue;
    const auto input = std::ranges::find(inputs, *in_body[id]);
    stored[result] = stored[node.inputs[static_cast<size_t>(input - inputs.begin())]];
  }
}

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
    // An update is in place.
    if (is_update(node(n)) && !query_.is_stored(updated_parameter(node(n))))
      set_leaf(updated_parameter(node(n)), choice(n).outputs[0]);
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
    if (query.is_stored(id)) return Order::stored;
    return query.type(id).elements() == 1 ? Order::plain : order;
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

std::vector<std::optional<ValueId>> stored_values(const Graph& graph) {
  std::vector<std::optional<ValueId>> stored(graph.values().size());
  for (const Node& node : graph.nodes())
    each_weight(node, [&](ValueId weight) {
      if (const auto root = root_of(graph, weight)) stored[*root] = root;
    });
  for (ValueId id = 0; id < stored.size(); ++id)
    if (const auto& parameter = graph.info(id).belongs) stored[id] = stored[*parameter];
  for (const Node& node : graph.nodes()) {
    if (node.operation->name == "linear" || node.operation->name == "linear_input_gradient") continue;
    if (node.body) {
      take_from_body(node, stored);
      continue;
    }
    for (ValueId output : node.outputs)
      for (ValueId input : node.inputs)
        if (stored[input] && graph.type(input).shape == graph.type(output).shape)
          stored[output] = stored[input];
  }
  return stored;
}

ChosenOrders choose_orders(const OrderQuery& query) { return Choice(query).run(); }

}  // namespace tessera::model
