// Updates of parameters: stochastic gradient descent, Adam. In place.
#include "operations/update.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>

#include "lower/lowering.h"
#include "operations/list.h"
#include "ops/map/optimizer.h"

namespace tessera::model {
namespace {

void require_like(const Signature& s, size_t input, const TensorType& weight, Type type) {
  TensorType wanted = weight;
  wanted.type = type;
  if (!(s.inputs[input] == wanted))
    throw UsageError(fmt::format("{}: input {} is {}; it must be {}", s.operation, input,
                                 to_string(s.inputs[input]), to_string(wanted)));
}

void require_scalar(const Signature& s, size_t input, Type type) {
  if (s.inputs[input].type != type || s.inputs[input].elements() != 1)
    throw UsageError(fmt::format("{}: input {} is {}; it must be {}[]", s.operation, input,
                                 to_string(s.inputs[input]), name_of(type)));
}

// Inputs: gradient, lr, weight, and with momentum the velocity. Outputs: weight, velocity.
enum : size_t { kGradient, kLr, kWeight, kVelocity };

ops::SgdProblem sgd_problem(const Node& node) {
  return {.momentum = static_cast<float>(node.number("momentum", 0.0)),
          .decay = static_cast<float>(node.number("decay", 0.0)),
          .nesterov = node.integer("nesterov", 0) != 0};
}

Types infer_sgd(const Signature& s) {
  const TensorType& weight = s.inputs[kWeight];
  require_float(s, weight);
  require_like(s, kGradient, weight, weight.type);
  require_scalar(s, kLr, Type::f32);
  const ops::SgdProblem problem = sgd_problem(s.attributes);
  if ((problem.momentum != 0) != (s.inputs.size() > kVelocity))
    throw UsageError("sgd: it takes a velocity if and only if there is momentum");
  if (problem.momentum == 0) return {weight};
  require_like(s, kVelocity, weight, Type::f32);
  return {weight, s.inputs[kVelocity]};
}

std::vector<Array> sgd_reference(const Evaluation& e) {
  const double momentum = e.node.number("momentum", 0.0), decay = e.node.number("decay", 0.0);
  const bool nesterov = e.node.integer("nesterov", 0) != 0;
  Array weight = *e.inputs[kWeight];
  Array velocity = momentum != 0 ? *e.inputs[kVelocity] : Array(weight.size());
  for (size_t i = 0; i < weight.size(); ++i) {
    const double gradient = (*e.inputs[kGradient])[i] + decay * weight[i];
    velocity[i] = momentum * velocity[i] + gradient;
    const double step = nesterov ? gradient + momentum * velocity[i] : velocity[i];
    weight[i] -= (*e.inputs[kLr])[0] * step;
  }
  if (momentum == 0) return {weight};
  return {weight, velocity};
}

std::vector<Case> sgd_cases() {
  const TensorType w{Type::f32, {7, 19}, {}, {}}, scalar{Type::f32, {}, {}, {}};
  return {{.inputs = {w, scalar, w}, .attributes = {{"decay", 0.1}}, .differentiable = false},
          {.inputs = {w, scalar, w, w}, .attributes = {{"momentum", 0.9}}, .differentiable = false},
          {.inputs = {w, scalar, w, w},
           .attributes = {{"momentum", 0.9}, {"decay", 0.01}, {"nesterov", int64_t{1}}},
           .differentiable = false}};
}

// Inputs: gradient, lr, weight, step, first and second moment. Outputs: weight and the moments.
enum : size_t { kStep = 3, kFirst, kSecond, kAdamInputs };

ops::AdamProblem adam_problem(const Node& node) {
  return {.beta1 = static_cast<float>(node.number("beta1")),
          .beta2 = static_cast<float>(node.number("beta2")),
          .epsilon = static_cast<float>(node.number("epsilon")),
          .decay = static_cast<float>(node.number("decay", 0.0)),
          .decoupled = node.integer("decoupled", 0) != 0};
}

Types infer_adam(const Signature& s) {
  const TensorType& weight = s.inputs[kWeight];
  require_float(s, weight);
  adam_problem(s.attributes);
  require_like(s, kGradient, weight, weight.type);
  require_scalar(s, kLr, Type::f32);
  require_scalar(s, kStep, Type::u32);
  require_like(s, kFirst, weight, Type::f32);
  require_like(s, kSecond, weight, Type::f32);
  return {weight, s.inputs[kFirst], s.inputs[kSecond]};
}

std::vector<Array> adam_reference(const Evaluation& e) {
  const double beta1 = e.node.number("beta1"), beta2 = e.node.number("beta2"),
               decay = e.node.number("decay", 0.0), lr = (*e.inputs[kLr])[0], step = (*e.inputs[kStep])[0];
  const bool decoupled = e.node.integer("decoupled", 0) != 0;
  Array weight = *e.inputs[kWeight], first = *e.inputs[kFirst], second = *e.inputs[kSecond];
  for (size_t i = 0; i < weight.size(); ++i) {
    double gradient = (*e.inputs[kGradient])[i];
    if (decoupled)
      weight[i] *= 1 - lr * decay;
    else
      gradient += decay * weight[i];
    first[i] = beta1 * first[i] + (1 - beta1) * gradient;
    second[i] = beta2 * second[i] + (1 - beta2) * gradient * gradient;
    const double corrected = std::sqrt(second[i] / (1 - std::pow(beta2, step))) + e.node.number("epsilon");
    weight[i] -= lr / (1 - std::pow(beta1, step)) * first[i] / corrected;
  }
  return {weight, first, second};
}

std::vector<Case> adam_cases() {
  const TensorType w{Type::f32, {7, 19}, {}, {}}, scalar{Type::f32, {}, {}, {}}, step{Type::u32, {}, {}, {}};
  Attributes attributes = {{"beta1", 0.9}, {"beta2", 0.99}, {"epsilon", 1e-3}, {"decay", 0.1}};
  std::vector<Case> cases;
  for (int64_t decoupled : {0, 1}) {
    attributes["decoupled"] = decoupled;
    // Second moments are not negative.
    cases.push_back({.inputs = {w, scalar, w, step, w, w},
                     .attributes = attributes,
                     .low = 0.1,
                     .below = 1000,
                     .differentiable = false});
  }
  return cases;
}

template <class Problem>
LinearUpdate update(Problem problem, const Lowering& l, std::vector<ops::Operand> operands, Type gradient) {
  const ops::Operand& weight = operands.back();
  problem.weight = l.builder().type_of(weight);
  problem.gradient = gradient;
  problem.rows = weight.rows();
  problem.cols = weight.cols();
  return {operation_of(problem), std::move(operands)};
}

/// Operands without the gradient, in the order of the operation's; what is updated lies in the outputs.
LinearUpdate on_outputs(Lowering& l, const Node& node, Type gradient) {
  const auto out = [&](size_t i) { return l.operand_of(node.outputs[i]); };
  std::vector<ops::Operand> operands = {l.in_layout(node.inputs[kLr], kRows)};
  if (node.operation->name == "adam") operands.push_back(l.in_layout(node.inputs[kStep], kRows));
  for (size_t i = 1; i < node.outputs.size(); ++i) operands.push_back(out(i));
  operands.push_back(out(0));
  if (node.operation->name == "adam") return update(adam_problem(node), l, std::move(operands), gradient);
  return update(sgd_problem(node), l, std::move(operands), gradient);
}

bool is_assigned(const Graph& graph, ValueId state, ValueId value) {
  return std::ranges::any_of(graph.assignments(), [&](const Assignment& assignment) {
    return assignment.state == state && assignment.value == value;
  });
}

/// What is updated becomes the outputs: itself, or copies if it may not change now.
void place_outputs(Lowering& l, const Node& node, bool in_place) {
  const std::vector<ValueId> updated = updated_values(node);
  for (size_t i = 0; i < updated.size(); ++i) {
    if (in_place)
      l.alias(node.outputs[i], updated[i]);
    else
      l.copy_to_output(i, l.brought(updated[i], node.outputs[i]));
  }
}

void lower_update(Lowering& l, const Node& node) {
  place_outputs(l, node, may_update_in_place(l, node));
  const ops::Operand gradient = l.brought(node.inputs[kGradient], node.outputs[0]);
  LinearUpdate update = on_outputs(l, node, l.builder().type_of(gradient));
  update.operands.insert(update.operands.begin(), gradient);
  const ops::MapPlan plan = plan_map(l.builder(), update.operation, update.operands);
  l.run(build_map(l.builder(), update.operation, plan, update.operands));
}

constexpr size_t kUpdatedBySgd[] = {kWeight, kVelocity};
constexpr size_t kUpdatedByAdam[] = {kWeight, kFirst, kSecond};

constexpr Operation kUpdate[] = {
    {"sgd",
     3,
     4,
     infer_sgd,
     nullptr,
     sgd_reference,
     same_layouts,
     lower_update,
     sgd_cases,
     {.updates = kUpdatedBySgd}},
    {"adam",
     kAdamInputs,
     kAdamInputs,
     infer_adam,
     nullptr,
     adam_reference,
     same_layouts,
     lower_update,
     adam_cases,
     {.updates = kUpdatedByAdam}},
};

}  // namespace

std::span<const Operation> update_operations() { return kUpdate; }

bool may_update_in_place(const Lowering& l, const Node& update) {
  const std::vector<ValueId> updated = updated_values(update);
  for (size_t i = 0; i < updated.size(); ++i)
    if (!is_assigned(l.graph(), updated[i], update.outputs[i]) ||
        !(l.layout_of(updated[i]) == l.layout_of(update.outputs[i])) || l.is_read_later(updated[i], update))
      return false;
  return true;
}

LinearUpdate update_of(Lowering& l, const Node& node) {
  place_outputs(l, node, true);
  return on_outputs(l, node, l.weight(node.inputs[kWeight]).gradient_type());
}

}  // namespace tessera::model
