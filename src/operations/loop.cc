// Loops: a function that runs several times.
#include "graph/loop.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <limits>
#include <optional>
#include <string>

#include "base/integer_types.h"
#include "graph/list_inputs.h"
#include "graph/shards.h"
#include "graph/stages.h"
#include "graph/substream.h"
#include "graph/transforms/function_gradients.h"
#include "graph/transforms/transforms.h"
#include "lower/lowering.h"
#include "operations/list.h"

namespace tessera::graph {
namespace {

void require_dense(const TensorType& type, std::string_view name) {
  if (type.pattern)
    throw UsageError(fmt::format("loop: '{}' is {}: only what is the same in all passes may be sparse", name,
                                 to_string(type)));
}

void check_input(const LoopForm& form, size_t i, const Graph& body, const TensorType& given) {
  const ValueInfo& info = body.info(form.body_inputs[i]);
  if (form.inputs[i] != LoopInput::same) require_dense(info.type, info.name);
  const TensorType wanted =
      form.inputs[i] == LoopInput::indexed ? of_all_passes(info.type, form.count, info.name) : info.type;
  if (!(wanted == given))
    throw UsageError(fmt::format("loop: its function's input '{}' is {}; {} passes take {}, and given is {}",
                                 info.name, to_string(info.type), form.count, to_string(wanted),
                                 to_string(given)));
}

void check_carried(const LoopForm& form, const Graph& body) {
  for (const auto& [input, output] : form.carried) {
    const ValueInfo& info = body.info(form.body_inputs[input]);
    const TensorType& becomes = body.type(form.body_outputs.at(output));
    if (!(info.type == becomes))
      throw UsageError(fmt::format("loop: '{}', {}, cannot become {}", info.name, to_string(info.type),
                                   to_string(becomes)));
  }
}

/// Kernels trust lists in every pass, so lists must be checked, or made, as wholes.
void check_lists(const Signature& s, const LoopForm& form, const Graph& body) {
  const auto kind_of = [&](ValueId id) {
    return form
        .inputs[static_cast<size_t>(std::ranges::find(form.body_inputs, id) - form.body_inputs.begin())];
  };
  for (const ListInputs& lists : list_inputs(body))
    if (kind_of(lists.ids) != kind_of(lists.num) || kind_of(lists.ids) == LoopInput::carried)
      throw UsageError(
          fmt::format("loop: '{}' and '{}', a list of spikes, must be the same in all passes, or "
                      "both indexed by the pass",
                      body.info(lists.ids).name, body.info(lists.num).name));
  check_sources_of_lists(s);
}

/// Throws UsageError for replicas' parts that leave a loop otherwise than as sums, or lie as a value that a
/// pass has for itself.
void check_parts(const LoopForm& form, size_t output, const Graph& body, const std::string& name) {
  const TensorType& type = body.type(form.body_outputs[output]);
  if (!type.sharded) return;
  const std::optional<size_t> input = input_of_parts(body, output);
  if (form.outputs[output] != LoopOutput::summed || !input || form.inputs[*input] != LoopInput::same)
    throw UsageError(
        fmt::format("loop: '{}' is {}: parts of replicas leave it as sums only, and lie as what is the "
                    "same in all passes",
                    name, to_string(type)));
}

TensorType loop_type_of(const Signature& s, const LoopForm& form, size_t output, const std::string& name) {
  const TensorType& type = s.attributes.body->type(form.body_outputs[output]);
  check_parts(form, output, *s.attributes.body, name);
  if (form.outputs[output] == LoopOutput::last) return type;
  if (form.outputs[output] == LoopOutput::summed) {
    require_float(s, type);
    TensorType sum = type;
    if (form.in_f32[output]) sum.type = Type::f32;
    return sum;
  }
  require_dense(type, name);
  return of_all_passes(type, form.count, name);
}

Types infer_loop(const Signature& s) {
  if (!s.attributes.body) throw UsageError("loop: there is no function to repeat; give one to Graph::loop");
  const Graph& body = *s.attributes.body;
  check_function(body);
  const LoopForm form = loop_form(s.attributes);
  stage_of(s.attributes);
  if (form.inputs.size() != s.inputs.size())
    throw UsageError(
        fmt::format("loop: its function takes {} inputs; given are {}", form.inputs.size(), s.inputs.size()));
  for (size_t i = 0; i < form.inputs.size(); ++i) check_input(form, i, body, s.inputs[i]);
  check_carried(form, body);
  check_lists(s, form, body);
  Types types;
  for (const auto& [name, id] : body.outputs()) types.push_back(loop_type_of(s, form, types.size(), name));
  return types;
}

/// The gradient of a loop: a loop in the opposite direction. The forward loop keeps what this needs of each
/// pass.
class LoopGradient {
 public:
  explicit LoopGradient(const Differentiation& d)
      : d_(d), form_(loop_form(d.node)), function_(d.functions.of(d.node.body, given())) {}

  Gradients add() {
    extend_forward();
    for (size_t t = 0; t < function_.taken.size(); ++t) take(t);
    for (size_t o = 0; o < form_.outputs.size(); ++o)
      if (given()[o]) passed_.push_back(gradient_of(o).id);
    const Clones clones = clone(*function_.backward, backward_, passed_);
    std::vector<ValueId> found;
    for (const auto& [name, id] : function_.backward->outputs()) found.push_back(clones.at(id));
    for (size_t i = 0; i < form_.inputs.size(); ++i) give(i, found);
    return results();
  }

 private:
  /// Carried values have a gradient if anything has one.
  std::vector<bool> given() const {
    std::vector<bool> given;
    for (const auto& dy : d_.dy) given.push_back(dy.has_value());
    for (const auto& [input, output] : form_.carried)
      given[output] = given[output] || !is_integer(body_type(output).type);
    return given;
  }

  const TensorType& body_type(size_t output) const { return d_.node.body->type(form_.body_outputs[output]); }

  /// Makes the forward loop return, as stacks, what the passes of the gradient need.
  void extend_forward() {
    auto body = std::make_shared<Graph>(*function_.forward);
    Loop loop = loop_of(d_.node);
    const std::vector<ValueId> inputs = body->inputs();
    std::vector<std::pair<std::string, ValueId>> outputs(body->outputs().begin(), body->outputs().end());
    for (size_t t = 0; t < function_.taken.size(); ++t) {
      const auto& [is_output, position] = function_.taken[t];
      stacked_.emplace_back();
      if (!is_output && form_.inputs[position] != LoopInput::carried) continue;
      stacked_.back() = is_output ? outputs[position].first : std::string();
      const bool is_stash = is_output && !d_.node.body->outputs().contains(outputs[position].first);
      if (!is_stash && !(is_output && loop.stacked.contains(outputs[position].first))) {
        stacked_.back() = fmt::format("taken {:06}", t);
        body->output(stacked_.back(), body->value(is_output ? outputs[position].second : inputs[position]));
      }
      loop.stacked.insert(stacked_.back());
    }
    const uint32_t index = *d_.graph.info(d_.node.outputs[0]).node;
    Attributes attributes = attributes_of(loop, *body);
    if (const auto number = number_of_call(d_.node)) attributes["call"] = int64_t{*number};
    const auto& all = body->outputs();
    d_.graph.extend(index, body, std::move(attributes));
    size_t position = 0;
    for (const auto& [name, id] : all) results_[name] = d_.graph.nodes()[index].outputs[position++];
  }

  Value add_input(const std::string& name, const TensorType& type, Value given, LoopInput kind) {
    if (kind == LoopInput::indexed) loop_.indexed.insert(name);
    given_.push_back(given);
    return backward_.input(name, type);
  }

  void take(size_t t) {
    const auto& [is_output, position] = function_.taken[t];
    const TensorType& type = function_.backward->type(function_.backward->inputs()[t]);
    const bool is_stacked = !stacked_[t].empty();
    const Value given = d_.graph.value(is_stacked ? results_.at(stacked_[t]) : d_.node.inputs[position]);
    const LoopInput kind = is_stacked ? LoopInput::indexed : form_.inputs[position];
    passed_.push_back(add_input(fmt::format("taken {:06}", t), type, given, kind).id);
  }

  static Value zeros(Graph& graph, const TensorType& type) {
    return graph.constant("", type.shape, std::vector<float>(type.elements()), type.type);
  }

  /// The gradient of an output in one pass: as it is stacked or summed, and as it is carried into the next
  /// pass. A gradient of the last pass only is carried into that pass, and is 0 in others.
  Value gradient_of(size_t output) {
    const TensorType& type = body_type(output);
    const auto& dy = d_.dy[output];
    std::optional<Value> sum, of_last;
    if (dy && form_.outputs[output] == LoopOutput::last)
      of_last = dy;
    else if (dy && form_.outputs[output] == LoopOutput::stacked)
      sum = add_input(fmt::format("gradient {:06}", output), type, *dy, LoopInput::indexed);
    else if (dy)
      sum = add_input(fmt::format("gradient {:06}", output), type,
                      cast(form_.scale == 1 ? *dy : *dy * form_.scale, type.type), LoopInput::same);
    const auto add = [&](Value term) { sum = sum ? *sum + term : term; };
    for (const auto& [input, becomes] : form_.carried) {
      if (becomes != output) continue;
      const Value first = of_last ? *std::exchange(of_last, {}) : zeros(d_.graph, type);
      add(add_input(carried_name(input), type, first, LoopInput::carried));
    }
    if (of_last) {
      const std::string name = fmt::format("gradient {:06}", output), none = "no " + name;
      add(add_input(name, type, *of_last, LoopInput::carried));
      backward_.output(none, zeros(backward_, type));
      loop_.carried[name] = none;
    }
    return *sum;
  }

  static std::string carried_name(size_t input) { return fmt::format("carried {:06}", input); }

  /// Adds the gradient of an input to the outputs of the backward loop.
  void give(size_t i, const std::vector<ValueId>& found) {
    const auto& position = function_.gradients[i];
    const std::string name = fmt::format("result {:06}", i);
    const LoopInput kind = form_.inputs[i];
    const TensorType& type = d_.node.body->type(form_.body_inputs[i]);
    if (kind == LoopInput::carried) {
      if (is_integer(type.type)) return;
      backward_.output(name, position ? backward_.value(found[*position]) : zeros(backward_, type));
      loop_.carried[carried_name(i)] = name;
      return;
    }
    if (!position || !d_.needed[i]) return;
    backward_.output(name, backward_.value(found[*position]));
    if (kind == LoopInput::same)
      add_sum(name, found[*position]);
    else
      loop_.stacked.insert(name);
  }

  void add_sum(const std::string& name, ValueId gradient) {
    loop_.summed.insert(name);
    if (d_.functions.sums_in_f32() && form_.count > 1 && backward_.type(gradient).type != Type::f32)
      loop_.summed_in_f32.insert(name);
  }

  Gradients results() {
    Gradients gradients(form_.inputs.size());
    if (backward_.outputs().empty()) return gradients;
    backward_.mark_backward(0);
    loop_.count = form_.count;
    loop_.reversed = !form_.reversed;
    loop_.stage = stage_of(d_.node);
    const auto body = std::make_shared<const Graph>(std::move(backward_));
    Node node{.operation = d_.node.operation, .attributes = attributes_of(loop_, *body), .body = body};
    if (const auto number = number_of_call(d_.node)) node.attributes["call"] = int64_t{*number};
    const std::vector<Value> results = d_.graph.apply(node, given_);
    size_t position = 0;
    for (const auto& [name, id] : body->outputs()) {
      const Value result = results[position++];
      if (name.starts_with("result "))
        gradients[std::stoul(name.substr(7))] = cast(result, body->type(id).type);
    }
    return gradients;
  }

  const Differentiation& d_;
  LoopForm form_;
  const FunctionGradient& function_;
  Graph backward_;
  Loop loop_;
  std::vector<Value> given_;          ///< inputs of the backward loop
  std::vector<ValueId> passed_;       ///< inputs of the function's gradient
  std::vector<std::string> stacked_;  ///< by value that the backward loop takes: the output of the forward
                                      ///< loop that has it, if any
  std::map<std::string, ValueId> results_;  ///< results of the forward loop
};

Gradients loop_gradient(const Differentiation& d) { return LoopGradient(d).add(); }

std::vector<LayoutChoice> loop_layouts(Lowering& l, const Node& node) { return {l.layout_of_loop(node)}; }

void lower_loop(Lowering& l, const Node& node) { l.lower_loop(node); }

/// A recurrent layer. `first` names the output that comes first.
Case recurrent(const std::string& first, bool reversed) {
  const auto name = [&](const std::string& output) { return output == first ? "0 " + output : output; };
  auto body = std::make_shared<Graph>();
  const Value x = body->input("x", {6, 8}), h = body->input("h", {6, 24}), bias = body->input("bias", {24});
  const Value w = body->input("w", {24, 8}), u = body->input("u", {24, 24});
  const Value next = tanh(linear(x, w, bias) + linear(h, u));
  body->output(name("next"), next);
  body->output(name("states"), next);
  body->output(name("sum"), mean(square(next)));
  body->output(name("last"), h * next);
  const Loop loop{.count = 3,
                  .indexed = {"x", "bias"},
                  .carried = {{"h", name("next")}},
                  .stacked = {name("states")},
                  .summed = {name("sum")},
                  .scale = 0.5,
                  .reversed = reversed};
  const auto type = [](Shape shape) { return TensorType{Type::f32, std::move(shape), {}, {}}; };
  return {.inputs = {type({18, 8}), type({6, 24}), type({72}), type({24, 8}), type({24, 24})},
          .attributes = attributes_of(loop, *body),
          .body = body};
}

std::vector<Case> loop_cases() {
  return {recurrent("next", false), recurrent("states", true), recurrent("sum", false),
          recurrent("last", true)};
}

constexpr Operation kLoop[] = {{.name = "loop",
                                .least_inputs = 0,
                                .most_inputs = std::numeric_limits<size_t>::max(),
                                .infer = infer_loop,
                                .gradient = loop_gradient,
                                .reference = results_of_passes,
                                .layouts = loop_layouts,
                                .lower = lower_loop,
                                .cases = loop_cases,
                                .traits = {.is_loop = true}}};

}  // namespace

std::span<const Operation> loop_operations() { return kLoop; }

}  // namespace tessera::graph
