// Products between operands of any layout: conversions before and after, bias and activation.
#pragma once

#include <functional>

#include "ops/builder.h"
#include "ops/product_operands.h"
#include "ops/product_problem.h"

namespace tessera::ops {

/// Builds a product whose operands have its native layouts.
using BuildNative = std::function<BuiltProduct(const Builder&, const ProductOperands&)>;

/// Adds the product of `build_native`, which takes operands in `native` layouts, with operands in `given`
/// layouts: converts inputs before it and the result after it. Bias and activation are applied on the tiles
/// that own the result.
BuiltProduct build_between(const Builder& builder, const ProductProblem& problem, const ProductLayouts& given,
                           const ProductLayouts& native, const ProductOperands& operands,
                           const BuildNative& build_native);

/// Adds operands of the given layouts that the caller binds.
ProductOperands add_external(const Builder& builder, const ProductProblem& problem,
                             const ProductLayouts& layouts);

/// A product as a separate program.
struct ClosedProduct {
  program::Program program;
  ProductOperands operands;
  program::VariableId bucket_metadata = 0;  ///< for a dynamic W
};
ClosedProduct close_product(const machine::Machine& machine, const ProductProblem& problem,
                            const ProductLayouts& given, const ProductLayouts& native,
                            const BuildNative& build_native);

}  // namespace tessera::ops
