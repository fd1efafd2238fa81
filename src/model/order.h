// Orders in which a program stores the values of a graph.
#pragma once

#include <tessera/model.h>

#include <any>
#include <cstdint>
#include <optional>
#include <vector>

#include "machine/model/machine.h"
#include "program/program.h"

namespace tessera::model {

/// A value of shape [..., features] as a matrix of a program.
enum class Order : uint8_t {
  plain,       ///< rows × features
  transposed,  ///< features × rows
  stored,      ///< as the products store the weight to which the value belongs
};

/// One way to run an operation: the orders of its inputs and outputs, and what it costs.
struct OrderChoice {
  std::vector<Order> inputs;
  std::vector<Order> outputs;
  double seconds = 0;
  /// By input: where it shall lie on tiles if it is no result; none, or empty: anywhere.
  std::vector<std::vector<program::MappedBox>> mappings = {};
  std::any plan = {};  ///< of the operation in these orders, if it was made for its cost
};

/// By value: the weight in whose form it lies, if it does.
using StoredAs = std::vector<std::optional<ValueId>>;

/// What the choice of orders depends on.
struct OrderQuery {
  const Graph& graph;
  const machine::Machine& machine;
  const StoredAs& stored_as;

  bool is_stored(ValueId id) const { return stored_as.at(id).has_value(); }
  const TensorType& type(ValueId id) const { return graph.type(id); }
};

/// All inputs and outputs plain, or all transposed; or stored, if the outputs are: for elementwise
/// operations.
std::vector<OrderChoice> same_orders(const OrderQuery& query, const Node& node);
/// All plain.
std::vector<OrderChoice> plain_orders(const OrderQuery& query, const Node& node);

/// The orders chosen for a graph.
struct ChosenOrders {
  std::vector<OrderChoice> nodes;  ///< by node
  std::vector<Order> values;       ///< by value: as it is computed or bound
};

/// Leaves that products take as weights, or of which only the blocks exist, lie in the form of a weight, and
/// with them their gradients, optimizers' state, and what is computed from them element by element so that
/// padding stays 0. The inputs of a function lie as its callers' values do.
StoredAs stored_values(const Graph& graph, bool is_function = false);

/// The weight whose form a product's weight has, or is brought to: that in whose form it lies, or itself.
inline ValueId weight_of(const StoredAs& stored_as, ValueId id) { return stored_as.at(id).value_or(id); }
/// The values that a product or a call takes in the form of weights.
std::vector<ValueId> weights_of(const Node& node);

/// Chooses orders so that operations and conversions between them take the least time.
ChosenOrders choose_orders(const OrderQuery& query);

}  // namespace tessera::model
