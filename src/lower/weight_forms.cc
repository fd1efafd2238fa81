#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "graph/loop.h"
#include "graph/operation.h"
#include "lower/layout.h"
#include "lower/weight.h"

namespace tessera::graph {
namespace {

/// Finds which values lie in the form of a weight.
class FormSearch {
 public:
  /// The inputs in `same` have the form of the values outside. `has_parts`: whether replicas may have parts
  /// of values.
  FormSearch(const Graph& graph, const std::map<ValueId, ValueId>& same, bool has_parts)
      : graph_(graph),
        has_parts_(has_parts),
        is_leaf_(graph.values().size()),
        forms_(graph.values().size()),
        leaves_(graph.values().size()) {
    for (ValueId id = 0; id < is_leaf_.size(); ++id)
      is_leaf_[id] = graph.info(id).kind != Kind::result && graph.info(id).kind != Kind::input;
    for (const auto& [inside, outside] : same) is_leaf_[inside] = true;
  }

  WeightForms find() {
    for (ValueId id = 0; id < forms_.size(); ++id)
      if (graph_.type(id).pattern && is_leaf_[id] && !graph_.info(id).belongs) forms_[id] = id;
    for (const Node& node : graph_.nodes())
      for (ValueId weight : weights_of(node)) store_leaf(weight);
    for (ValueId id = 0; id < forms_.size(); ++id)
      if (const auto& parameter = graph_.info(id).belongs) forms_[id] = forms_[*parameter];
    for (const Node& node : graph_.nodes()) follow(node);
    for (ValueId id = 0; id < forms_.size(); ++id)
      if (has_parts_ && graph_.type(id).sharded) forms_[id].reset();
    return std::move(forms_);
  }

 private:
  /// The leaf that a weight is, or is computed from element by element. Many paths may lead to a value.
  std::optional<ValueId> leaf_of(ValueId id) {
    if (!leaves_[id]) leaves_[id] = find_leaf(id);
    return *leaves_[id];
  }
  std::optional<ValueId> find_leaf(ValueId id) {
    const ValueInfo& info = graph_.info(id);
    if (info.kind != Kind::result)
      return is_leaf_[id] ? std::optional(info.belongs.value_or(id)) : std::nullopt;
    const Node& node = graph_.nodes()[*info.node];
    if (node.operation->traits.keeps_zeros == nullptr) return {};
    for (ValueId input : node.inputs)
      if (graph_.type(input).shape == info.type.shape)
        if (const auto leaf = leaf_of(input)) return leaf;
    return {};
  }

  void store_leaf(ValueId weight) {
    if (const auto leaf = leaf_of(weight)) forms_[*leaf] = leaf;
  }

  void follow(const Node& node) {
    if (node.body) return follow_call(node);
    if (is_weight_gradient(node)) forms_[node.outputs[0]] = weight_of(forms_, *weight_input(node));
    if (is_update(node)) return follow_update(node);
    const std::optional<ValueId> form = form_of(node);
    if (!form) return;
    for (ValueId output : node.outputs)
      if (graph_.type(output).shape == graph_.type(*form).shape) forms_[output] = form;
  }

  /// The form that an operation keeps: the form of its addend or, element by element, of all its inputs but
  /// scalars.
  std::optional<ValueId> form_of(const Node& node) const {
    const std::optional<size_t>& addend = node.operation->traits.addend;
    if (addend && *addend < node.inputs.size()) return forms_[node.inputs[*addend]];
    if (node.operation->traits.keeps_zeros == nullptr) return {};
    std::optional<ValueId> form;
    std::vector<bool> padded;
    for (ValueId input : node.inputs) {
      padded.push_back(forms_[input].has_value());
      if (!forms_[input] && graph_.type(input).elements() != 1) return {};
      if (forms_[input] && form && *form != *forms_[input]) return {};
      if (forms_[input]) form = forms_[input];
    }
    return form && node.operation->traits.keeps_zeros(padded) ? form : std::nullopt;
  }

  void follow_update(const Node& node) {
    for (ValueId output : node.outputs) forms_[output] = forms_[updated_parameter(graph_, node)];
  }

  /// Results of a call that are stored as one of its inputs.
  void follow_call(const Node& node) {
    const WeightForms in_body = forms_of_body(node);
    const std::map<ValueId, ValueId> same = same_inside(node);
    std::vector<LoopOutput> kinds(node.outputs.size());
    if (is_loop(node)) kinds = loop_form(node).outputs;
    size_t position = 0;
    for (const auto& [name, id] : node.body->outputs()) {
      const size_t output = position++;
      if (!in_body[id] || kinds[output] == LoopOutput::stacked) continue;
      if (const auto given = same.find(*in_body[id]); given != same.end())
        forms_[node.outputs[output]] = weight_of(forms_, given->second);
    }
  }

  const Graph& graph_;
  bool has_parts_;
  std::vector<bool> is_leaf_;
  WeightForms forms_;
  std::vector<std::optional<std::optional<ValueId>>> leaves_;  ///< as far as they are known
};

/// Whether 0 stays 0 as it is multiplied with a scalar, and divided by it.
bool keeps_zero(const ValueInfo& scalar) {
  if (scalar.kind != Kind::constant || scalar.type.elements() != 1) return false;
  const float number = scalar.initial.values->front();
  return std::isfinite(number) && number != 0;
}

/// Whether an operation on each element may make NaN of padding that is 0.
bool may_make_nan(const Graph& graph, const WeightForms& forms, const Node& node) {
  if (node.operation->traits.keeps_zeros == nullptr) return false;
  if (!std::isfinite(static_cast<float>(node.number("factor", 1)))) return true;
  return std::ranges::any_of(node.inputs,
                             [&](ValueId id) { return !forms[id] && !keeps_zero(graph.info(id)); });
}

}  // namespace

std::vector<bool> padding_may_be_nan(const Graph& graph, const WeightForms& forms) {
  std::vector<bool> may_be(forms.size());
  for (ValueId id = 0; id < forms.size(); ++id)
    may_be[id] = forms[id].has_value() && graph.info(id).kind == Kind::input;
  for (const Node& node : graph.nodes()) {
    if (is_weight_gradient(node)) continue;
    const bool from_inputs = std::ranges::any_of(node.inputs, [&](ValueId id) -> bool { return may_be[id]; });
    std::vector<bool> of_outputs(node.outputs.size(), from_inputs || may_make_nan(graph, forms, node));
    if (node.body) {
      const std::vector<bool> inside = padding_may_be_nan(*node.body, forms_of_body(node));
      size_t position = 0;
      for (const auto& [name, id] : node.body->outputs()) of_outputs[position++] = inside[id];
    }
    for (size_t i = 0; i < node.outputs.size(); ++i)
      may_be[node.outputs[i]] = of_outputs[i] && forms[node.outputs[i]].has_value();
  }
  return may_be;
}

WeightForms weight_forms(const Graph& graph) { return FormSearch(graph, {}, graph.replicas() > 1).find(); }

WeightForms forms_of_body(const Node& node) { return FormSearch(*node.body, same_inside(node), true).find(); }

std::vector<ValueId> weights_of(const Node& node) {
  if (const auto weight = weight_input(node)) return {*weight};
  if (!node.body) return {};
  const WeightForms in_body = forms_of_body(node);
  std::vector<ValueId> weights;
  for (const auto& [inside, outside] : same_inside(node))
    if (in_body[inside]) weights.push_back(outside);
  return weights;
}

std::map<ValueId, WeightUse> uses_of_weights(const Graph& graph, const WeightForms& forms) {
  std::map<ValueId, WeightUse> uses;
  for (const Node& node : graph.nodes()) {
    const auto& [own, table] = std::tie(node.operation->traits.weight, node.operation->traits.table);
    std::set<ValueId> same;
    if (node.body) {
      const std::map<ValueId, WeightUse> in_body = uses_of_weights(*node.body, forms_of_body(node));
      for (const auto& [inside, outside] : same_inside(node)) {
        if (is_loop(node)) same.insert(outside);
        if (const auto use = in_body.find(inside); use != in_body.end())
          uses[weight_of(forms, outside)].add(use->second);
      }
    }
    if (const auto taken = weight_input(node))
      uses[weight_of(forms, *taken)].add({.rows = graph.type(node.inputs[0]).rows(),
                                          .type = graph.type(*taken).type,
                                          .has_gradients = own->product != ProductKind::forward});
    if (table) uses[weight_of(forms, node.inputs[*table])].rows_taken += graph.type(node.outputs[0]).rows();
    if (own && own->product == ProductKind::forward) continue;
    for (ValueId input : node.inputs)
      if (!same.contains(input)) uses[weight_of(forms, input)].is_forward_only = false;
  }
  return uses;
}

}  // namespace tessera::graph
