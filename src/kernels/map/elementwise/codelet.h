// The elementwise functions as codelets.
#pragma once

#include "kernels/common/codelet_list.h"
#include "kernels/map/elementwise/elementwise.h"

namespace tessera::kernels {

#define TESSERA_UNARY_FIELDS(X) X(in) X(out, .access = program::Access::out)
#define TESSERA_BINARY_FIELDS(X) X(a) X(b) X(out, .access = program::Access::out)
#define TESSERA_WHERE_FIELDS(X) X(condition) X(a) X(b) X(out, .access = program::Access::out)

TESSERA_POSITIONS(unary_field, TESSERA_UNARY_FIELDS)
TESSERA_POSITIONS(binary_field, TESSERA_BINARY_FIELDS)
TESSERA_POSITIONS(where_field, TESSERA_WHERE_FIELDS)

/// The codelet of an operation. It has one parameter if takes_factor(op): the bits of the factor (param_of).
const program::Codelet& codelet_of(Unary op);

/// The codelet of an operation, with parameters as above. a and b have the shape of out, or are a single row
/// or column that is broadcast.
const program::Codelet& codelet_of(Binary op);

/// out = function(a, b), which is one of Exact; fields as of binary operations, of i32. Throws
/// Overflow.
extern const program::Codelet exact_codelet;

/// out = a where the condition is not 0, else b; fields likewise, also of u32 and i32.
extern const program::Codelet where_codelet;

std::span<const ListedCodelet> elementwise_codelets();

}  // namespace tessera::kernels
