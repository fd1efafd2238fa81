#include "graph/expression.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "base/integer_types.h"
#include "kernels/map/elementwise/cost.h"

namespace tessera::graph {

using kernels::ExpressionStep;
using kernels::Reduction;

namespace {

constexpr const char* kOperations = "operations";
constexpr const char* kOperands = "operands";
constexpr const char* kResults = "results";

std::string name_of_attribute(size_t step, std::string_view attribute) {
  return fmt::format("{}.{}", step, attribute);
}

bool is_dense_number(const TensorType& type) {
  return !type.pattern && !type.sharded && !is_integer(type.type);
}

bool has_dense_numbers(const Graph& graph, const Node& node) {
  const auto is_taken = [&](ValueId id) { return is_dense_number(graph.type(id)); };
  return std::ranges::all_of(node.inputs, is_taken) && std::ranges::all_of(node.outputs, is_taken);
}

}  // namespace

void refuse_expression(std::string_view why) { throw UsageError(fmt::format("expression: {}", why)); }

std::optional<ExpressionStep> function_of(std::string_view name) {
#define TESSERA_FIND(op) \
  if (name == #op)       \
    return ExpressionStep{ExpressionStep::Kind::unary, static_cast<uint8_t>(kernels::Unary::op)};
  TESSERA_UNARY_OPERATIONS(TESSERA_FIND)
#undef TESSERA_FIND
#define TESSERA_FIND(op) \
  if (name == #op)       \
    return ExpressionStep{ExpressionStep::Kind::binary, static_cast<uint8_t>(kernels::Binary::op)};
  TESSERA_BINARY_OPERATIONS(TESSERA_FIND)
#undef TESSERA_FIND
  if (name == "where") return ExpressionStep{ExpressionStep::Kind::where};
  if (name == "cast") return ExpressionStep{ExpressionStep::Kind::cast};
  return {};
}

std::optional<Reduction> reduction_of(std::string_view name) {
  if (name == "sum") return Reduction::sum;
  if (name == "max") return Reduction::maximum;
  if (name == "sum_of_squares") return Reduction::sum_of_squares;
  return {};
}

Attributes attributes_of(const Expression& expression) {
  std::string names;
  std::vector<int64_t> operands;
  Attributes attributes;
  for (size_t i = 0; i < expression.steps.size(); ++i) {
    const Expression::Step& step = expression.steps[i];
    names += (i == 0 ? "" : " ") + std::string(step.operation->name);
    operands.insert(operands.end(), step.operands.begin(), step.operands.end());
    for (const auto& [name, attribute] : step.attributes) attributes[name_of_attribute(i, name)] = attribute;
  }
  attributes[kOperations] = names;
  attributes[kOperands] = std::move(operands);
  attributes[kResults] = expression.results;
  return attributes;
}

Expression expression_of(const Node& node) {
  Expression expression{.results = node.list(kResults)};
  const std::vector<int64_t>& operands = node.list(kOperands);
  std::istringstream names(node.text(kOperations));
  size_t next = 0;
  for (std::string name; names >> name;) {
    if (!function_of(name) && !reduction_of(name))
      refuse_expression(fmt::format("there is no step '{}'", name));
    Expression::Step step{.operation = &find_operation(name)};
    for (size_t i = 0; i < step.operation->least_inputs; ++i) {
      if (next == operands.size()) refuse_expression(fmt::format("{} operands are too few", operands.size()));
      step.operands.push_back(operands[next++]);
    }
    const std::string prefix = name_of_attribute(expression.steps.size(), "");
    for (const auto& [attribute, contents] : node.attributes)
      if (attribute.starts_with(prefix)) step.attributes[attribute.substr(prefix.size())] = contents;
    expression.steps.push_back(std::move(step));
  }
  if (next != operands.size()) refuse_expression(fmt::format("{} operands are too many", operands.size()));
  return expression;
}

bool may_be_step(const Graph& graph, const Node& node) {
  return function_of(node.operation->name) && node.inputs.size() == node.operation->least_inputs &&
         has_dense_numbers(graph, node);
}

bool may_be_reduction(const Graph& graph, const Node& node) {
  return reduction_of(node.operation->name) && node.text("over", "all") == "rows" &&
         has_dense_numbers(graph, node);
}

bool is_cheap(const Node& node) {
  constexpr double kMost = 3;
  const std::optional<ExpressionStep> function = function_of(node.operation->name);
  if (!function) return false;
  if (function->kind == ExpressionStep::Kind::unary)
    return host_operations(static_cast<kernels::Unary>(function->function)) <= kMost;
  if (function->kind == ExpressionStep::Kind::binary)
    return host_operations(static_cast<kernels::Binary>(function->function)) <= kMost;
  return true;
}

}  // namespace tessera::graph
