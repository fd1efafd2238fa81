#include <algorithm>
#include <utility>

#include "model/layout.h"
#include "model/operation.h"

namespace tessera::model {
namespace {

/// Finds which values lie in the form of a weight.
class FormSearch {
 public:
  FormSearch(const Graph& graph, bool is_function)
      : graph_(graph),
        is_function_(is_function),
        forms_(graph.values().size()),
        leaves_(graph.values().size()) {}

  WeightForms find() {
    for (ValueId id = 0; id < forms_.size(); ++id)
      if (graph_.type(id).pattern && is_leaf(id) && !graph_.info(id).belongs) forms_[id] = id;
    for (const Node& node : graph_.nodes())
      for (ValueId weight : weights_of(node)) store_leaf(weight);
    for (ValueId id = 0; id < forms_.size(); ++id)
      if (const auto& parameter = graph_.info(id).belongs) forms_[id] = forms_[*parameter];
    for (const Node& node : graph_.nodes()) follow(node);
    return std::move(forms_);
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

  /// The form that an operation element by element keeps: that of all its inputs but scalars.
  std::optional<ValueId> form_of(const Node& node) const {
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
    for (ValueId output : node.outputs) forms_[output] = forms_[updated_parameter(node)];
  }

  /// Results of a call that are stored as one of its inputs.
  void follow_call(const Node& node) {
    const WeightForms in_body = weight_forms(*node.body, true);
    const std::vector<ValueId> inputs = node.body->inputs();
    size_t position = 0;
    for (const auto& [name, id] : node.body->outputs()) {
      const ValueId result = node.outputs[position++];
      if (!in_body[id]) continue;
      const auto input = std::ranges::find(inputs, *in_body[id]);
      if (input == inputs.end()) continue;
      forms_[result] = weight_of(forms_, node.inputs[static_cast<size_t>(input - inputs.begin())]);
    }
  }

  const Graph& graph_;
  bool is_function_;
  WeightForms forms_;
  std::vector<std::optional<std::optional<ValueId>>> leaves_;  ///< as far as they are known
};

}  // namespace

WeightForms weight_forms(const Graph& graph, bool is_function) {
  return FormSearch(graph, is_function).find();
}

std::vector<ValueId> weights_of(const Node& node) {
  if (const auto weight = weight_input(node)) return {*weight};
  if (!node.body) return {};
  const WeightForms in_body = weight_forms(*node.body, true);
  const std::vector<ValueId> inputs = node.body->inputs();
  std::vector<ValueId> weights;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (in_body[inputs[i]]) weights.push_back(node.inputs[i]);
  return weights;
}

}  // namespace tessera::model
