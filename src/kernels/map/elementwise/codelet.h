// The elementwise functions as codelets.
#pragma once

#include <span>

#include "kernels/map/elementwise/elementwise.h"
#include "kernels/sample.h"

namespace tessera::kernels {

/// Fields "in", "out"; for Unary::scale one parameter, the bits of the factor (param_of).
const program::Codelet& codelet_of(Unary op);

/// Fields "a", "b", "out"; for Binary::add_scaled one parameter, the bits of the factor. a and b have the
/// shape of out, or are a single row or column that is broadcast.
const program::Codelet& codelet_of(Binary op);

std::span<const ListedCodelet> elementwise_codelets();

}  // namespace tessera::kernels
