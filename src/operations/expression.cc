#include "graph/expression.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <optional>

#include "base/integer_types.h"
#include "lower/lowering.h"
#include "operations/broadcast_operands.h"
#include "operations/list.h"
#include "ops/map/expression.h"
#include "ops/map/reduce.h"

namespace tessera::graph {
namespace {

using kernels::ExpressionStep;
using kernels::Reduction;

bool is_reduced(const Expression& expression) {
  return reduction_of(expression.steps.at(static_cast<size_t>(expression.results[0])).operation->name)
      .has_value();
}

/// A node of a step without inputs and outputs.
Node node_of(const Expression::Step& step) {
  return {.operation = step.operation, .inputs = {}, .attributes = step.attributes};
}

/// Throws UsageError unless kernels evaluate it.
void check(const Expression& expression, size_t inputs) {
  const auto& [steps, results] = expression;
  const auto is_reduction = [&](size_t step) {
    return reduction_of(steps[step].operation->name).has_value();
  };
  size_t computed = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    computed += is_reduction(i) ? 0 : 1;
    for (const int64_t operand : steps[i].operands) {
      if (operand < 0 || static_cast<size_t>(operand) >= inputs + i)
        refuse_expression(
            fmt::format("step {} takes value {}, and there are {} before it", i, operand, inputs + i));
      if (static_cast<size_t>(operand) >= inputs && is_reduction(static_cast<size_t>(operand) - inputs))
        refuse_expression(fmt::format("step {} takes a reduction", i));
    }
  }
  if (computed > kernels::kMostExpressionSteps || inputs > kernels::kMostExpressionInputs)
    refuse_expression(fmt::format("{} steps of {} inputs are too many", computed, inputs));
  if (results.empty() || results.size() > kernels::kMostExpressionResults)
    refuse_expression(fmt::format("{} results are not possible", results.size()));
  for (const int64_t result : results) {
    if (result < 0 || static_cast<size_t>(result) >= steps.size())
      refuse_expression(fmt::format("there is no step {} for a result", result));
    if (is_reduction(static_cast<size_t>(result)) != is_reduced(expression))
      refuse_expression("some results are reductions, and others are not");
  }
}

/// The types of all values.
Types types_of(const Expression& expression, const Types& inputs) {
  Types types = inputs;
  for (const Expression::Step& step : expression.steps) {
    Types operands;
    for (const int64_t operand : step.operands) operands.push_back(types[static_cast<size_t>(operand)]);
    const Node node = node_of(step);
    types.push_back(step.operation->infer({step.operation->name, operands, node})[0]);
  }
  return types;
}

/// The shape to which all inputs are broadcast.
TensorType whole_type(const Types& inputs) {
  TensorType whole = inputs[0];
  for (const TensorType& input : inputs) {
    const std::optional<Shape> shape = common_shape(whole.shape, input.shape);
    if (!shape)
      refuse_expression(
          fmt::format("{} and {} cannot be broadcast to one shape", to_string(whole), to_string(input)));
    whole.shape = *shape;
  }
  return whole;
}

Types infer_expression(const Signature& s) {
  require_dense(s);
  for (const TensorType& input : s.inputs) require_float(s, input);
  const Expression expression = expression_of(s.attributes);
  check(expression, s.inputs.size());
  const TensorType whole = whole_type(s.inputs);
  for (const TensorType& input : s.inputs)
    if (!broadcast_of(input, whole))
      refuse_expression(
          fmt::format("{} cannot be broadcast to {} as rows or columns", to_string(input), to_string(whole)));
  const Types types = types_of(expression, s.inputs);
  Types results;
  for (const int64_t result : expression.results)
    results.push_back(types[s.inputs.size() + static_cast<size_t>(result)]);
  const Shape shape = is_reduced(expression) ? Shape{whole.cols()} : whole.shape;
  for (const TensorType& result : results)
    if (result.shape != shape)
      refuse_expression(fmt::format("a result is {}; it must have the shape {}", to_string(result),
                                    to_string(TensorType{result.type, shape, {}, {}})));
  return results;
}

std::vector<Value> decompose_expression(const Decomposition& d) {
  const Expression expression = expression_of(d.node);
  std::vector<Value> values = d.inputs, results;
  for (const Expression::Step& step : expression.steps) {
    std::vector<Value> operands;
    for (const int64_t operand : step.operands) operands.push_back(values[static_cast<size_t>(operand)]);
    values.push_back(values[0].owner().apply(step.operation->name, operands, step.attributes)[0]);
  }
  for (const int64_t result : expression.results)
    results.push_back(values[d.inputs.size() + static_cast<size_t>(result)]);
  return results;
}

/// The kernel's form, of values of these types.
kernels::Expression kernel_of(const Expression& expression, size_t inputs, const Types& types) {
  kernels::Expression kernel;
  const bool reduced = is_reduced(expression);
  std::vector<uint8_t> numbers;  // in the kernel, by value: reductions have none
  for (size_t i = 0; i < inputs; ++i) numbers.push_back(static_cast<uint8_t>(i));
  for (size_t i = 0; i < expression.steps.size(); ++i) {
    const Expression::Step& step = expression.steps[i];
    numbers.push_back(static_cast<uint8_t>(inputs + kernel.steps.size()));
    if (reduction_of(step.operation->name)) continue;
    ExpressionStep& own = kernel.steps.emplace_back(*function_of(step.operation->name));
    own.type = types[inputs + i].type;
    for (size_t o = 0; o < step.operands.size(); ++o)
      own.operands[o] = numbers[static_cast<size_t>(step.operands[o])];
    own.factor = static_cast<float>(node_of(step).number("factor", 1.0));
  }
  for (const int64_t result : expression.results) {
    const Expression::Step& step = expression.steps[static_cast<size_t>(result)];
    if (!reduced)
      kernel.results.push_back({.value = numbers[inputs + static_cast<size_t>(result)]});
    else
      kernel.results.push_back({numbers[static_cast<size_t>(step.operands[0])],
                                *reduction_of(step.operation->name),
                                static_cast<float>(node_of(step).number("scale", 1.0))});
  }
  return kernel;
}

/// Reduces parts of the columns or rows, and then the results of the parts.
void lower_reduced(Lowering& l, const Node& node, ops::ExpressionProblem problem,
                   std::vector<ops::Operand> operands) {
  const uint32_t rows = problem.result_rows(), cols = problem.result_cols();
  const bool over_rows = problem.over == kernels::ReduceOver::columns;
  const uint32_t parts = over_rows ? rows : cols;
  std::vector<ops::AxisReduceProblem> joins;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    kernels::ExpressionResult& result = problem.expression.results[i];
    const Type type = parts == 1 ? l.graph().type(node.outputs[i]).type : Type::f32;
    problem.results.push_back(type);
    operands.push_back(parts == 1 ? l.output(i) : l.temporary("parts", type, rows, cols));
    joins.push_back({.op = kernels::joining(result.reduction),
                     .rows = rows,
                     .cols = cols,
                     .over_rows = over_rows,
                     .to = l.graph().type(node.outputs[i]).type,
                     .scale = result.scale});
    if (parts > 1) result.scale = 1;
  }
  l.add(problem, operands);
  for (size_t i = 0; parts > 1 && i < joins.size(); ++i)
    l.add(joins[i], {operands[node.inputs.size() + i], l.output(i)});
}

void lower_expression(Lowering& l, const Node& node) {
  const Expression expression = expression_of(node);
  Types inputs;
  for (const ValueId input : node.inputs) inputs.push_back(l.graph().type(input));
  const ops::OperandLayout whole = matrix_layout(whole_type(inputs), l.is_transposed());
  ops::ExpressionProblem problem{
      .expression = kernel_of(expression, inputs.size(), types_of(expression, inputs)),
      .rows = whole.rows,
      .cols = whole.cols};
  if (is_reduced(expression))
    problem.over = l.is_transposed() ? kernels::ReduceOver::rows : kernels::ReduceOver::columns;
  std::vector<ops::Operand> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    operands.push_back(l.input(i));
    problem.inputs.push_back(
        {l.builder().type_of(operands.back()), broadcast_of(operands.back(), problem.rows, problem.cols)});
  }
  if (problem.over) return lower_reduced(l, node, std::move(problem), std::move(operands));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    operands.push_back(l.output(i));
    problem.results.push_back(l.builder().type_of(operands.back()));
  }
  l.add(problem, operands);
}

Expression::Step step(const char* operation, std::vector<int64_t> operands, Attributes attributes = {}) {
  return {&find_operation(operation), std::move(attributes), std::move(operands)};
}

std::vector<Case> expression_cases() {
  std::vector<Case> cases;
  const auto add = [&](Types inputs, const Expression& expression) {
    cases.push_back(
        {.inputs = std::move(inputs), .attributes = attributes_of(expression), .low = 0.2, .high = 2});
  };
  const auto of = [](Type type, Shape shape) { return TensorType{type, std::move(shape), {}, {}}; };
  const Attributes rows = {{"over", "rows"}, {"scale", 0.25}};
  for (const Type type : {Type::f32, Type::f16, Type::bf16}) {
    const Types inputs = {of(type, {5, 37}), of(type, {37}), of(type, {5, 37}), of(type, {5, 1})};
    add(inputs, {{step("sub", {0, 1}), step("mul", {4, 2}), step("offset", {5}, {{"factor", 0.5}}),
                  step("silu", {6}), step("maximum", {7, 3})},
                 {4, 1}});
    add(inputs, {{step("mul", {0, 1}), step("mul", {4, 2}), step("sum", {5}, rows),
                  step("sum_of_squares", {4}, rows), step("add", {5, 3}), step("sum", {8}, rows)},
                 {5, 2, 3}});
  }
  add({of(Type::bf16, {3, 4, 33}), of(Type::f32, {}), of(Type::f32, {33})},
      {{step("cast", {0}, {{"type", "f32"}}), step("mul", {3, 1}), step("where", {1, 4, 2}),
        step("cast", {5}, {{"type", "f16"}})},
       {3, 2}});
  add({of(Type::f32, {700, 3}), of(Type::f32, {3})},
      {{step("exp", {1}), step("mul", {0, 2}), step("sum", {3}, rows)}, {2}});
  return cases;
}

constexpr Operation kExpression[] = {{.name = "expression",
                                      .least_inputs = 1,
                                      .most_inputs = kernels::kMostExpressionInputs,
                                      .infer = infer_expression,
                                      .layouts = same_layouts,
                                      .lower = lower_expression,
                                      .cases = expression_cases,
                                      .traits = {.kind = OperationKind::elementwise},
                                      .decompose = decompose_expression,
                                      .lowers_on = lowers_on_hosts}};

}  // namespace

std::span<const Operation> expression_operations() { return kExpression; }

}  // namespace tessera::graph
