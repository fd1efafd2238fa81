// Operations on each element that hosts compute in one pass.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/operation.h"
#include "kernels/map/expression/expression.h"

namespace tessera::graph {

/// Operations on inputs and on results of earlier operations, by number: first all inputs, then the steps.
/// The expression's results are the results of some steps, by the numbers of the steps: elementwise ones, or
/// reductions over the rows, which no step takes.
struct Expression {
  struct Step {
    const Operation* operation = nullptr;
    Attributes attributes = {};
    std::vector<int64_t> operands = {};
  };

  std::vector<Step> steps = {};
  std::vector<int64_t> results = {};
};

/// The attributes of an "expression", and back. Throws UsageError for attributes that are no expression.
Attributes attributes_of(const Expression& expression);
Expression expression_of(const Node& node);

/// Throws UsageError, saying why there is no such expression.
[[noreturn]] void refuse_expression(std::string_view why);

/// The kernel of an elementwise operation as a step, without type and operands, and the kernel of a
/// reduction of rows; none: the operation is another.
std::optional<kernels::ExpressionStep> function_of(std::string_view operation);
std::optional<kernels::Reduction> reduction_of(std::string_view operation);

/// Whether an operation of dense numbers may be a step; a reduction, only as a result.
bool may_be_step(const Graph& graph, const Node& node);
bool may_be_reduction(const Graph& graph, const Node& node);

/// Whether an elementwise step costs about as much as reading its operands.
bool is_cheap(const Node& node);

}  // namespace tessera::graph
