// Expressions as codelets, one for each number of inputs and of results.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/map/expression/expression.h"

namespace tessera::kernels {

/// The codelet of expressions, for hosts, as evaluate() and evaluate_reduced() say. Fields are the inputs and
/// the results, parameters params_of() and, for reductions, the ReduceOver.
const program::Codelet& expression_codelet(size_t inputs, size_t results, bool is_reduced);

std::span<const ListedCodelet> expression_codelets();

}  // namespace tessera::kernels
