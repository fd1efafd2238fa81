// Conversion between the floating-point types.
#pragma once

#include <span>

#include "kernels/sample.h"

namespace tessera::kernels {

/// Fields "in", "out" of one shape, each f32, f16 or bf16. Rounds once, to nearest even; values beyond the
/// type become infinity; NaN stays NaN.
extern const program::Codelet cast_codelet;

std::span<const ListedCodelet> cast_codelets();

}  // namespace tessera::kernels
