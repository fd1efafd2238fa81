#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "graph/broadcast.h"
#include "graph/dims.h"
#include "graph/operation.h"
#include "graph/substream.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

Shape in_order(const Shape& shape, const DimensionOrder& order) {
  Shape result;
  for (int64_t dim : order) result.push_back(shape[static_cast<size_t>(dim)]);
  return result;
}

DimensionOrder inverse(const DimensionOrder& order) {
  DimensionOrder result(order.size());
  for (size_t i = 0; i < order.size(); ++i) result[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return result;
}

/// Whether only dimensions of one element change their places, which moves nothing.
bool moves_nothing(const Shape& shape, const DimensionOrder& order) {
  DimensionOrder moved;
  std::ranges::copy_if(order, std::back_inserter(moved),
                       [&](int64_t dim) { return shape[static_cast<size_t>(dim)] != 1; });
  return std::ranges::is_sorted(moved);
}

std::optional<DimensionOrder> permutation_of(const Node& node) {
  return node.operation->traits.permutes == nullptr ? std::nullopt : node.operation->traits.permutes(node);
}

uint64_t moved_elements(const Graph& graph) {
  uint64_t moved = 0;
  for (const Node& node : graph.nodes())
    if (const std::optional<DimensionOrder> order = permutation_of(node);
        order && !moves_nothing(graph.type(node.inputs[0]).shape, *order))
      moved += graph.type(node.outputs[0]).elements();
  return moved;
}

/// Goes through the operations in their order, and lets each that can take its inputs before their
/// permutation.
class Mover {
 public:
  explicit Mover(Graph& graph) : graph_(graph) {}

  size_t run() {
    size_t changed = 0;
    for (uint32_t n = 0; n < graph_.nodes().size(); ++n) {
      if (graph_.nodes()[n].outputs.size() != 1) continue;
      const Node node = graph_.nodes()[n];
      if (const std::optional<DimensionOrder> order = permutation_of(node))
        n += join(n, node, *order);
      else if (const std::optional<uint32_t> added = take_as_it_lies(n, node))
        n += *added, ++changed;
    }
    skip_what_changes_nothing();
    erased_.resize(graph_.nodes().size());
    graph_.erase(erased_);
    return changed;
  }

 private:
  /// A value as a permutation of another one.
  struct View {
    ValueId of = 0;
    DimensionOrder order;
  };

  const View* view_of(ValueId id) const {
    const auto found = views_.find(id);
    return found == views_.end() ? nullptr : &found->second;
  }

  /// Joins a permutation with the one before it. Returns how many operations are added before it.
  uint32_t join(uint32_t n, const Node& node, DimensionOrder order) {
    ValueId of = node.inputs[0];
    const View* view = view_of(of);
    if (view != nullptr) {
      for (int64_t& dim : order) dim = view->order[static_cast<size_t>(dim)];
      of = view->of;
    }
    const ValueId y = node.outputs[0];
    uint32_t added = 0;
    if (view != nullptr) added = replace(n, [&] { return permuted(of, order); });
    views_[y] = {of, order};
    if (std::ranges::is_sorted(order)) same_[y] = of;
    return added;
  }

  Value permuted(ValueId id, const DimensionOrder& order) {
    const Value x = graph_.value(id);
    if (!moves_nothing(x.shape(), order)) return permute(x, {order.begin(), order.end()});
    // Always an operation of its own, even if it changes nothing: its result replaces another value.
    const Shape shape = in_order(x.shape(), order);
    return graph_.apply("reshape", {x}, {{"shape", as_integers(shape)}})[0];
  }

  /// Replaces a node by the operations that `add` adds; returns their number.
  template <class Add>
  uint32_t replace(uint32_t n, const Add& add) {
    Value by;
    const ValueId result = graph_.nodes()[n].outputs[0];
    const uint32_t added = graph_.insert_before(n, [&] { by = add(); });
    graph_.replace(graph_.value(result), by);
    erased_.resize(n);
    erased_.resize(n + added, false);
    erased_.resize(n + added + 1, true);
    return added;
  }

  std::optional<uint32_t> take_as_it_lies(uint32_t n, const Node& node) {
    for (ValueId input : node.inputs) {
      const View* view = view_of(input);
      if (view == nullptr || std::ranges::is_sorted(view->order)) continue;
      const std::optional<Reordered> how = reordered(node, input, view->order);
      if (!how) continue;
      if (const std::optional<uint32_t> added = apply(n, node, view->order, *how)) return added;
    }
    return {};
  }

  std::optional<Reordered> reordered(const Node& node, ValueId input, const DimensionOrder& order) const {
    const Traits& traits = node.operation->traits;
    if (traits.elementwise && !draws_numbers(node)) {
      const Shape& shape = graph_.type(node.outputs[0]).shape;
      const auto is_broadcast = [&](ValueId id) {
        return common_shape(graph_.type(id).shape, shape) == shape;
      };
      if (graph_.type(input).shape != shape || !std::ranges::all_of(node.inputs, is_broadcast)) return {};
      return Reordered{.attributes = node.attributes, .order = order};
    }
    return traits.reorder == nullptr ? std::nullopt : traits.reorder(graph_, node, order);
  }

  /// Applies the operation to inputs before their permutation, and permutes its result.
  std::optional<uint32_t> apply(uint32_t n, const Node& node, const DimensionOrder& order,
                                const Reordered& how) {
    for (ValueId input : node.inputs)
      if (!can_lie(input, order)) return {};
    const ValueId y = node.outputs[0];
    Value inside;
    const uint32_t added = replace(n, [&] {
      Node own = node;
      own.attributes = how.attributes;
      std::vector<Value> inputs;
      for (ValueId input : node.inputs) {
        Value x = as_it_lies(input, order);
        if (!how.before.empty()) x = permute(x, {how.before.begin(), how.before.end()});
        inputs.push_back(x);
      }
      inside = graph_.apply(own, inputs)[0];
      return permuted(inside.id, how.order);
    });
    name_after(inside, y);
    views_[y] = {inside.id, how.order};
    if (std::ranges::is_sorted(how.order)) same_[y] = inside.id;
    return added;
  }

  /// The operation that computes a value keeps the value's name in reports.
  void name_after(Value inside, ValueId y) {
    const std::string name = graph_.info(y).name;
    std::string other = fmt::format("{} permuted", name);
    for (uint32_t i = 2; graph_.contains(other); ++i) other = fmt::format("{} permuted {}", name, i);
    graph_.rename(graph_.value(y), other);
    graph_.rename(inside, name);
  }

  /// The shape with dimensions of one element before it, as broadcasting has them.
  static Shape extended(const Shape& shape, size_t dimensions) {
    Shape result(dimensions - shape.size(), 1);
    result.insert(result.end(), shape.begin(), shape.end());
    return result;
  }

  /// Whether an input can be had where its dimension i is dimension order[i], without moving elements.
  bool can_lie(ValueId input, const DimensionOrder& order) const {
    const TensorType& type = graph_.type(input);
    if (type.pattern || type.shape.size() > order.size()) return false;
    const View* view = view_of(input);
    if (view != nullptr && view->order == order) return true;
    return graph_.info(input).kind == Kind::constant ||
           moves_nothing(extended(type.shape, order.size()), inverse(order));
  }

  Value as_it_lies(ValueId input, const DimensionOrder& order) {
    const View* view = view_of(input);
    if (view != nullptr && view->order == order) return graph_.value(view->of);
    const DimensionOrder back = inverse(order);
    const Shape shape = extended(graph_.type(input).shape, order.size()), wanted = in_order(shape, back);
    if (moves_nothing(shape, back)) return reshape(graph_.value(input), wanted);
    const std::vector<float>& values = graph_.contents(input);
    ArrayIndex index{wanted, {}};
    const std::vector<uint64_t> steps = steps_of(shape);
    for (int64_t dim : back) index.steps.push_back(steps[static_cast<size_t>(dim)]);
    std::vector<float> moved(values.size());
    for (uint64_t i = 0; i < moved.size(); ++i) moved[i] = values[index(i)];
    return graph_.constant("", wanted, std::move(moved), graph_.type(input).type);
  }

  /// Replaces uses of values that equal others, except in assignments.
  void skip_what_changes_nothing() {
    if (same_.empty()) return;
    std::vector<Node> nodes = graph_.nodes();
    const auto same = [&](ValueId id) {
      for (auto found = same_.find(id); found != same_.end(); found = same_.find(id)) id = found->second;
      return id;
    };
    for (Node& node : nodes)
      for (ValueId& input : node.inputs)
        if (graph_.type(same(input)) == graph_.type(input)) input = same(input);
    graph_.set_nodes(std::move(nodes));
    const std::map<std::string, ValueId> outputs = graph_.outputs();
    for (const auto& [name, id] : outputs)
      if (const ValueId by = same(id); by != id && graph_.info(by).kind == Kind::result)
        graph_.replace_output(name, graph_.value(by));
  }

  Graph& graph_;
  std::map<ValueId, View> views_;
  std::map<ValueId, ValueId> same_;  ///< values that are equal to earlier ones
  std::vector<bool> erased_;         ///< by position: whether another operation computes the result
};

}  // namespace

size_t move_permutations(Graph& graph) {
  if (moved_elements(graph) == 0) return 0;
  Graph moved = graph;
  const size_t changed = Mover(moved).run();
  remove_unused(moved);
  Graph used = graph;
  remove_unused(used);
  if (moved_elements(moved) >= moved_elements(used)) return 0;
  graph = std::move(moved);
  return changed;
}

}  // namespace tessera::graph
