// Updates of parameters: stochastic gradient descent, Adam, and the direction that LAMB scales. In place.
#include "operations/update.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>

#include "lower/lowering.h"
#include "operations/list.h"
#include "ops/map/optimizer.h"

namespace tessera::graph {
namespace {

void require_like(const Signature& s, size_t input, const TensorType& weight, Type type) {
  TensorType wanted = weight;
  wanted.type = type;
  require_type(s, s.inputs[input], fmt::format("input {}", input), wanted);
}

void require_scalar(const Signature& s, size_t input, Type type) {
  if (s.inputs[input].type != type || s.inputs[input].elements() != 1)
    throw UsageError(fmt::format("{}: input {} is {}; it must be {}[]", s.operation, input,
                                 to_string(s.inputs[input]), name_of(type)));
}

/// The gradient has the weight's shape, and any type: updates are computed in FP32.
void require_gradient(const Signature& s, size_t gradient, const TensorType& weight) {
  require_float(s, s.inputs[gradient]);
  require_like(s, gradient, weight, s.inputs[gradient].type);
}

/// Whether a step is skipped: its learning rate is NaN.
bool is_left_out(const Evaluation& e, size_t lr) { return std::isnan((*e.inputs[lr])[0]); }

// Inputs: gradient, lr, weight, and with momentum the velocity. Outputs: weight, velocity.
enum : size_t { kGradient, kLr, kWeight, kVelocity };

ops::SgdProblem sgd_problem(const Node& node) {
  return {.momentum = static_cast<float>(node.number("momentum", 0.0)),
          .decay = static_cast<float>(node.number("decay", 0.0)),
          .nesterov = node.integer("nesterov", 0) != 0,
          .lr_in_velocity = node.integer("lr_in_velocity", 0) != 0};
}

Types infer_sgd(const Signature& s) {
  const TensorType& weight = s.inputs[kWeight];
  require_float(s, weight);
  require_gradient(s, kGradient, weight);
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
  const bool in_velocity = momentum != 0 && e.node.integer("lr_in_velocity", 0) != 0;
  const double lr = (*e.inputs[kLr])[0];
  Array weight = *e.inputs[kWeight];
  Array velocity = momentum != 0 ? *e.inputs[kVelocity] : Array(weight.size());
  for (size_t i = 0; i < weight.size() && !is_left_out(e, kLr); ++i) {
    const double gradient = (in_velocity ? lr : 1) * ((*e.inputs[kGradient])[i] + decay * weight[i]);
    velocity[i] = momentum * velocity[i] + gradient;
    const double step = nesterov ? gradient + momentum * velocity[i] : velocity[i];
    weight[i] -= (in_velocity ? 1 : lr) * step;
  }
  if (momentum == 0) return {weight};
  return {weight, velocity};
}

std::vector<Case> sgd_cases() {
  const TensorType w{Type::f32, {7, 19}, {}, {}}, half{Type::f16, {7, 19}, {}, {}},
      scalar{Type::f32, {}, {}, {}};
  return {{.inputs = {w, scalar, half}, .differentiable = false},
          {.inputs = {w, scalar, w}, .attributes = {{"decay", 0.1}}, .differentiable = false},
          {.inputs = {w, scalar, w, w}, .attributes = {{"momentum", 0.9}}, .differentiable = false},
          {.inputs = {w, scalar, w, w},
           .attributes = {{"momentum", 0.9}, {"decay", 0.01}, {"nesterov", int64_t{1}}},
           .differentiable = false},
          {.inputs = {w, scalar, w, w},
           .attributes = {{"momentum", 0.9}, {"decay", 0.01}, {"lr_in_velocity", int64_t{1}}},
           .differentiable = false},
          {.inputs = {w, scalar, half}, .attributes = {{"decay", 0.1}}, .differentiable = false}};
}

// Inputs: gradient, lr, weight, step, first and second moment. Outputs: weight and the moments.
enum : size_t { kStep = 3, kFirst, kSecond, kAdamInputs };

ops::AdamProblem adam_problem(const Node& node) {
  return {.beta1 = static_cast<float>(node.number("beta1")),
          .beta2 = static_cast<float>(node.number("beta2")),
          .epsilon = static_cast<float>(node.number("epsilon")),
          .decay = static_cast<float>(node.number("decay", 0.0)),
          .decoupled = node.integer("decoupled", 0) != 0,
          .bias_correction = node.integer("bias_correction", 1) != 0};
}

Types infer_adam(const Signature& s) {
  const TensorType& weight = s.inputs[kWeight];
  require_float(s, weight);
  adam_problem(s.attributes);
  require_gradient(s, kGradient, weight);
  require_scalar(s, kLr, Type::f32);
  require_scalar(s, kStep, Type::u32);
  require_like(s, kFirst, weight, Type::f32);
  require_like(s, kSecond, weight, Type::f32);
  return {weight, s.inputs[kFirst], s.inputs[kSecond]};
}

/// One element's moments by its gradient; the first over the root of the second.
struct AdamReference {
  explicit AdamReference(const Node& node, double step)
      : beta1(node.number("beta1")), beta2(node.number("beta2")), epsilon(node.number("epsilon")) {
    if (node.integer("bias_correction", 1) == 0) return;
    first_correction = 1 - std::pow(beta1, step);
    second_correction = 1 - std::pow(beta2, step);
  }

  double direction(double gradient, double& first, double& second) const {
    first = beta1 * first + (1 - beta1) * gradient;
    second = beta2 * second + (1 - beta2) * gradient * gradient;
    return first / first_correction / (std::sqrt(second / second_correction) + epsilon);
  }

  double beta1, beta2, epsilon;
  double first_correction = 1, second_correction = 1;
};

std::vector<Array> adam_reference(const Evaluation& e) {
  const AdamReference adam(e.node, (*e.inputs[kStep])[0]);
  const double decay = e.node.number("decay", 0.0), lr = (*e.inputs[kLr])[0];
  const bool decoupled = e.node.integer("decoupled", 0) != 0;
  Array weight = *e.inputs[kWeight], first = *e.inputs[kFirst], second = *e.inputs[kSecond];
  for (size_t i = 0; i < weight.size() && !is_left_out(e, kLr); ++i) {
    double gradient = (*e.inputs[kGradient])[i];
    if (decoupled)
      weight[i] *= 1 - lr * decay;
    else
      gradient += decay * weight[i];
    weight[i] -= lr * adam.direction(gradient, first[i], second[i]);
  }
  return {weight, first, second};
}

Case adam_case(Type type, int64_t bias_correction) {
  const TensorType weight = dense_type(type, {7, 19}), moment = dense_type(Type::f32, {7, 19});
  // Second moments are not negative.
  return {.inputs = {weight, dense_type(Type::f32, {}), weight, dense_type(Type::u32, {}), moment, moment},
          .attributes = {{"beta1", 0.9},
                         {"beta2", 0.99},
                         {"epsilon", 1e-3},
                         {"decay", 0.1},
                         {"bias_correction", bias_correction}},
          .low = 0.1,
          .below = 1000,
          .differentiable = false};
}

std::vector<Case> adam_cases() {
  std::vector<Case> cases;
  for (int64_t decoupled : {0, 1})
    for (int64_t bias_correction : {1, 0}) {
      cases.push_back(adam_case(Type::f32, bias_correction));
      cases.back().attributes["decoupled"] = decoupled;
    }
  return cases;
}

// The direction that AdamW subtracts from a weight per unit of learning rate; the learning rate input only
// says whether the step is skipped. Inputs as for adam. Outputs: the moments, and the direction, in f32.
constexpr size_t kDirection = 2;

Types infer_direction(const Signature& s) {
  const Types updated = infer_adam(s);
  return {updated[1], updated[2], updated[1]};
}

std::vector<Array> direction_reference(const Evaluation& e) {
  const AdamReference adam(e.node, (*e.inputs[kStep])[0]);
  const double decay = e.node.number("decay", 0.0);
  const Array& weight = *e.inputs[kWeight];
  Array first = *e.inputs[kFirst], second = *e.inputs[kSecond], direction(weight.size());
  for (size_t i = 0; i < weight.size() && !is_left_out(e, kLr); ++i)
    direction[i] = adam.direction((*e.inputs[kGradient])[i], first[i], second[i]) + decay * weight[i];
  return {first, second, direction};
}

std::vector<Case> direction_cases() {
  std::vector<Case> cases;
  for (Type type : {Type::f32, Type::f16})
    for (int64_t bias_correction : {1, 0}) cases.push_back(adam_case(type, bias_correction));
  return cases;
}

/// The problem of a weight's size, for a gradient of that type.
template <class Problem>
Problem sized(Problem problem, const Lowering& l, const ops::Operand& weight, Type gradient) {
  problem.weight = l.builder().type_of(weight);
  problem.gradient = gradient;
  problem.rows = weight.rows();
  problem.cols = weight.cols();
  return problem;
}

/// Operands except the gradient, in the operation's order; the updated values lie in the outputs.
LinearUpdate sgd_on_outputs(Lowering& l, const Node& node, Type gradient) {
  std::vector<ops::Operand> operands = {l.in_layout(node.inputs[kLr], kRows)};
  for (size_t i = node.outputs.size(); i-- > 0;) operands.push_back(l.operand_of(node.outputs[i]));
  return {operation_of(sized(sgd_problem(node), l, operands.back(), gradient)), std::move(operands)};
}

LinearUpdate adam_on_outputs(Lowering& l, const Node& node, Type gradient) {
  const auto out = [&](size_t i) { return l.operand_of(node.outputs[i]); };
  return {
      operation_of(sized(adam_problem(node), l, out(0), gradient)),
      {l.in_layout(node.inputs[kLr], kRows), l.in_layout(node.inputs[kStep], kRows), out(1), out(2), out(0)}};
}

LinearUpdate direction_on_outputs(Lowering& l, const Node& node, Type gradient) {
  const auto out = [&](size_t i) { return l.operand_of(node.outputs[i]); };
  const ops::Operand weight = l.brought(node.inputs[kWeight], node.outputs[0]);
  return {direction_of(sized(adam_problem(node), l, weight, gradient)),
          {l.in_layout(node.inputs[kLr], kRows), l.in_layout(node.inputs[kStep], kRows), weight, out(0),
           out(1), l.result_beside(node.outputs[kDirection], out(0))}};
}

LinearUpdate on_outputs(Lowering& l, const Node& node, Type gradient) {
  if (node.operation->name == "sgd") return sgd_on_outputs(l, node, gradient);
  if (node.operation->name == "adam") return adam_on_outputs(l, node, gradient);
  return direction_on_outputs(l, node, gradient);
}

/// Whether an updated value may change in place.
bool may_change_in_place(const Lowering& l, const Node& update, size_t i) {
  return replaced_state(l, update, i) == updated_values(update)[i];
}

/// Makes the outputs the updated values themselves, or copies if they may not change yet.
void place_outputs(Lowering& l, const Node& node) {
  for (size_t i = 0; i < updated_values(node).size(); ++i) {
    const size_t updated = node.operation->traits.updates[i];
    if (may_change_in_place(l, node, i))
      l.alias(node.outputs[i], node.inputs[updated]);
    else
      l.begin_output_with(i, updated);
  }
}

void lower_update(Lowering& l, const Node& node) {
  place_outputs(l, node);
  const ops::Operand gradient = l.brought(node.inputs[kGradient], node.outputs[0]);
  LinearUpdate update = on_outputs(l, node, l.builder().type_of(gradient));
  update.operands.insert(update.operands.begin(), gradient);
  const ops::MapPlan plan = plan_map(l.builder(), update.operation, update.operands);
  l.run(build_map(l.builder(), update.operation, plan, update.operands));
}

constexpr size_t kUpdatedBySgd[] = {kWeight, kVelocity};
constexpr size_t kUpdatedByAdam[] = {kWeight, kFirst, kSecond};
constexpr size_t kUpdatedByDirection[] = {kFirst, kSecond};

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
    {"adam_direction",
     kAdamInputs,
     kAdamInputs,
     infer_direction,
     nullptr,
     direction_reference,
     same_layouts,
     lower_update,
     direction_cases,
     {.updates = kUpdatedByDirection}},
};

}  // namespace

std::span<const Operation> update_operations() { return kUpdate; }

std::optional<ValueId> replaced_state(const Lowering& l, const Node& node, size_t output) {
  const ValueId value = node.outputs.at(output);
  for (const Assignment& assignment : l.graph().assignments())
    if (assignment.value == value && l.layout_of(assignment.state) == l.layout_of(value) &&
        !l.is_read_later(assignment.state, node))
      return assignment.state;
  return {};
}

bool may_update_in_place(const Lowering& l, const Node& update) {
  for (size_t i = 0; i < updated_values(update).size(); ++i)
    if (!may_change_in_place(l, update, i)) return false;
  return true;
}

LinearUpdate update_of(Lowering& l, const Node& node) {
  place_outputs(l, node);
  return on_outputs(l, node, l.weight(node.inputs[kWeight]).gradient_type());
}

}  // namespace tessera::graph
