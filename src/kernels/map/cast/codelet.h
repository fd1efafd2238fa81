// Conversion between the floating-point types.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

#define TESSERA_CAST_FIELDS(X) X(in) X(out, .access = program::Access::out)

namespace cast_field {
enum : size_t { TESSERA_CAST_FIELDS(TESSERA_POSITION) count };
}

/// Fields of one shape, each f32, f16 or bf16. Rounds once, to nearest even; values beyond the
/// type become infinity; NaN stays NaN.
extern const program::Codelet cast_codelet;

std::span<const ListedCodelet> cast_codelets();

}  // namespace tessera::kernels
