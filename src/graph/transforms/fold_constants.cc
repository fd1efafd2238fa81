#include <fmt/format.h>
#include <tessera/inference.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/integer_types.h"
#include "graph/operation.h"
#include "graph/substream.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

/// Largest number of elements of constants from which values are computed.
constexpr uint64_t kMostElements = 1 << 16;

bool has_values(const ValueInfo& info) {
  return info.kind == Kind::constant ||
         (info.kind == Kind::parameter && info.initial.kind == Initial::Kind::values);
}

/// Whether it has at most one dimension of more than one element.
bool is_vector(const Shape& shape) {
  return std::ranges::count_if(shape, [](uint32_t size) { return size > 1; }) <= 1;
}

/// What is known of a graph's values, and which of its operations can be left out.
class Folding {
 public:
  explicit Folding(const Graph& graph)
      : graph_(graph), uses_(graph.values().size()), left_out_(graph.nodes().size()) {
    for (const Node& node : graph_.nodes())
      for (ValueId input : node.inputs) uses_[input].push_back(&node);
    for (const auto& [name, id] : graph_.outputs()) uses_[id].resize(uses_[id].size() + 2);
  }

  FoldedGraph run() {
    for (const Node& node : graph_.nodes()) evaluate(node);
    for (const Node& node : graph_.nodes()) fold(node);
    return rebuilt();
  }

 private:
  const Array* known(ValueId id) {
    if (const auto found = known_.find(id); found != known_.end()) return &found->second;
    const ValueInfo& info = graph_.info(id);
    const bool is_known = has_values(info) && !info.type.pattern && info.type.elements() <= kMostElements &&
                          (info.kind == Kind::constant || is_vector(info.type.shape));
    if (!is_known) return nullptr;
    const std::vector<float>& values = *info.initial.values;
    return &(known_[id] = Array(values.begin(), values.end()));
  }

  /// Evaluates an operation on constants alone, unless its results are larger than they are, or it sums over
  /// replicas, whose number may change.
  void evaluate(const Node& node) {
    if (node.body || draws_numbers(node) || node.operation->traits.over_replicas != nullptr) return;
    Evaluation evaluation{.graph = graph_, .node = node};
    uint64_t size = 1;
    for (ValueId input : node.inputs) {
      const Array* values = known(input);
      if (values == nullptr) return;
      evaluation.inputs.push_back(values);
      size = std::max<uint64_t>(size, values->size());
    }
    const auto is_simple = [&](ValueId id) {
      const TensorType& type = graph_.type(id);
      return type.elements() <= size && !is_integer(type.type) && !type.pattern;
    };
    if (node.inputs.empty() || !std::ranges::all_of(node.outputs, is_simple)) return;
    std::vector<Array> results = results_of(evaluation);
    for (size_t i = 0; i < results.size(); ++i) known_[node.outputs[i]] = std::move(results[i]);
    left_out_[index_of(node)] = true;
  }

  size_t index_of(const Node& node) const { return static_cast<size_t>(&node - graph_.nodes().data()); }

  /// A product with a factor and an addend of each feature.
  struct Scaled {
    Array factors, addends;
    bool is_scaled = false;
    ValueId result = 0;
  };

  /// The numbers of all features that an operation combines a value with, or divides it by.
  std::optional<Array> of_features(const Node& node, ValueId value, size_t features) {
    if (node.inputs.size() != 2 || node.inputs[0] == node.inputs[1]) return {};
    if (node.operation->traits.combines == Combines::divides && node.inputs[0] != value) return {};
    const ValueId other = node.inputs[node.inputs[0] == value ? 1 : 0];
    const Array* values = known(other);
    const TensorType& type = graph_.type(other);
    if (values == nullptr || graph_.type(node.outputs[0]) != graph_.type(value)) return {};
    if (values->size() == 1) return Array(features, values->front());
    return values->size() == features && type.cols() == features ? std::optional(*values) : std::nullopt;
  }

  bool take(const Node& next, Scaled& scaled) {
    const size_t features = scaled.factors.size();
    const Combines how = next.operation->traits.combines;
    if (how == Combines::otherwise) return false;
    std::optional<Array> by = next.inputs.size() == 1 ? std::optional(Array(features, next.number("factor")))
                                                      : of_features(next, scaled.result, features);
    if (!by) return false;
    if (how == Combines::divides) {
      if (std::ranges::count(*by, 0) > 0) return false;
      for (double& factor : *by) factor = 1 / factor;
    }
    const bool multiplies = how != Combines::adds;
    for (size_t i = 0; i < features; ++i) {
      if (multiplies) scaled.factors[i] *= (*by)[i];
      scaled.addends[i] = multiplies ? scaled.addends[i] * (*by)[i] : scaled.addends[i] + (*by)[i];
    }
    scaled.is_scaled |= multiplies;
    scaled.result = next.outputs[0];
    return true;
  }

  /// The operand whose rows belong to the result's features; none: it is another operation.
  static std::optional<size_t> weight_of(const Node& node) {
    const Traits& traits = node.operation->traits;
    const bool is_product = traits.weight && traits.weight->product == ProductKind::forward;
    const bool is_plain = node.text("activation", "none") == "none" && node.integer("residual", 0) == 0 &&
                          !node.attributes.contains("low") && !node.attributes.contains("high");
    if (!is_plain || node.outputs.size() != 1) return {};
    return is_product ? std::optional(traits.weight->operand) : traits.row_weight;
  }

  void fold(const Node& node) {
    const std::optional<size_t> operand = weight_of(node);
    if (!operand) return;
    const ValueId weight = node.inputs[*operand];
    const ValueInfo& info = graph_.info(weight);
    const bool has_bias = node.inputs.size() > *operand + 1;
    const Array* bias = has_bias ? known(node.inputs.back()) : nullptr;
    if (!has_values(info) || uses_[weight].size() != 1 || info.type.shape.size() != 2 ||
        info.type.shape[0] != graph_.type(node.outputs[0]).cols() ||
        (has_bias && (bias == nullptr || uses_[node.inputs.back()].size() != 1)))
      return;
    const size_t features = info.type.shape[0];
    Scaled scaled{Array(features, 1.0), bias != nullptr ? *bias : Array(features), false, node.outputs[0]};
    std::vector<size_t> taken;
    while (uses_[scaled.result].size() == 1) {
      const Node& next = *uses_[scaled.result][0];
      if (!take(next, scaled)) break;
      taken.push_back(index_of(next));
    }
    if (!scaled.is_scaled) return;
    for (size_t n : taken) left_out_[n] = true;
    scaled_.emplace(index_of(node), std::move(scaled));
  }

  /// The weight with its rows scaled.
  std::vector<float> rows_scaled(const ValueInfo& weight, const Array& factors) const {
    std::vector<float> values = *weight.initial.values;
    const auto scale = [](float& value, double factor) { value = static_cast<float>(value * factor); };
    if (!weight.type.pattern) {
      const size_t cols = weight.type.cols();
      for (size_t i = 0; i < values.size(); ++i) scale(values[i], factors[i / cols]);
      return values;
    }
    const Pattern& pattern = *weight.type.pattern;
    const size_t b = pattern.block_size;
    for (size_t row = 0; row < pattern.block_rows(); ++row)
      for (size_t i = pattern.crow_indices[row] * b * b; i < pattern.crow_indices[row + 1] * b * b; ++i)
        scale(values[i], factors[std::min(row * b + i % (b * b) / b, factors.size() - 1)]);
    return values;
  }

  /// The value of the new graph for a value of the original graph.
  Value value_of(ValueId id) {
    if (const auto made = made_.find(id); made != made_.end()) return result_.graph.value(made->second);
    const ValueInfo& info = graph_.info(id);
    const auto computed = known_.find(id);
    if (computed != known_.end() && info.kind == Kind::result) {
      return keep(
          id, result_.graph.constant("", info.type.shape, {computed->second.begin(), computed->second.end()},
                                     info.type.type));
    }
    return keep(id, leaf(info, info.initial));
  }

  Value leaf(const ValueInfo& info, const Initial& initial) {
    if (info.kind == Kind::input) return result_.graph.input(info.name, info.type);
    if (info.kind == Kind::constant)
      return result_.graph.constant(info.name.starts_with('%') ? "" : info.name, info.type.shape,
                                    *initial.values, info.type.type);
    if (info.type.pattern)
      return result_.graph.sparse_parameter(info.name, *info.type.pattern, initial, info.type.type,
                                            info.type.capacity);
    return result_.graph.parameter(info.name, info.type.shape, initial, info.type.type);
  }

  Value keep(ValueId id, Value made) {
    made_[id] = made.id;
    return made;
  }

  /// The inputs of a product whose weight and bias absorb what follows it.
  std::vector<Value> scaled_inputs(const Node& node, const Scaled& scaled) {
    const size_t operand = *weight_of(node);
    const ValueInfo& weight = graph_.info(node.inputs[operand]);
    std::vector<Value> inputs;
    for (size_t i = 0; i < operand; ++i) inputs.push_back(value_of(node.inputs[i]));
    inputs.push_back(leaf(weight, Initial::from(rows_scaled(weight, scaled.factors))));
    result_.changed.insert(weight.name);
    std::string name = weight.name.ends_with("weight")
                           ? weight.name.substr(0, weight.name.size() - 6) + "bias"
                           : weight.name + " bias";
    // A constant without a name has a number, which another value of the new graph may have.
    if (node.inputs.size() > operand + 1 && graph_.info(node.inputs.back()).kind == Kind::parameter)
      name = graph_.info(node.inputs.back()).name;
    if (result_.graph.contains(name)) name = fmt::format("{} with what follows", name);
    result_.changed.insert(name);
    const Initial addends = Initial::from({scaled.addends.begin(), scaled.addends.end()});
    inputs.push_back(result_.graph.parameter(name, {weight.type.shape[0]}, addends, weight.type.type));
    return inputs;
  }

  void note_known() {
    for (size_t n = 0; n < left_out_.size(); ++n)
      if (left_out_[n])
        for (ValueId input : graph_.nodes()[n].inputs)
          if (graph_.info(input).kind == Kind::parameter) result_.changed.insert(graph_.info(input).name);
  }

  FoldedGraph rebuilt() {
    Graph& to = result_.graph;
    for (ValueId id : graph_.inputs()) value_of(id);
    for (const Node& node : graph_.nodes()) {
      if (left_out_[index_of(node)]) continue;
      const auto scaled = scaled_.find(index_of(node));
      std::vector<Value> inputs;
      if (scaled != scaled_.end())
        inputs = scaled_inputs(node, scaled->second);
      else
        for (ValueId input : node.inputs) inputs.push_back(value_of(input));
      const std::vector<Value> results = to.apply(node, inputs);
      for (size_t i = 0; i < results.size(); ++i) {
        const ValueId id = i == 0 && scaled != scaled_.end() ? scaled->second.result : node.outputs[i];
        keep(id, results[i]);
        if (const std::string& name = graph_.info(node.outputs[i]).name;
            !name.starts_with('%') && !to.contains(name))
          to.rename(results[i], name);
      }
    }
    for (const auto& [name, id] : graph_.outputs()) to.output(name, value_of(id));
    note_known();
    return std::move(result_);
  }

  const Graph& graph_;
  std::vector<std::vector<const Node*>> uses_;  ///< by value; outputs count as more than one
  std::vector<bool> left_out_;                  ///< by node
  std::map<ValueId, Array> known_;
  std::map<size_t, Scaled> scaled_;  ///< by node
  std::map<ValueId, ValueId> made_;
  FoldedGraph result_;
};

}  // namespace

FoldedGraph folded(const Graph& graph) {
  if (!graph.assignments().empty() || graph.replicas() > 1) return {graph, {}};
  Graph moved = graph;
  move_permutations(moved);
  remove_unused(moved);
  FoldedGraph result = Folding(moved).run();
  verify_if_asserting(result.graph);
  return result;
}

}  // namespace tessera::graph
