// Sums, differences and products of i32 that are exact, or an error of the run.
#pragma once

#include <cstdint>

#include "program/codelet.h"

namespace tessera::kernels {

enum class Exact : uint8_t { add, sub, mul };

/// out = op(a, b), all i32; a and b have the shape of `out`, or are a single row or column that is broadcast.
/// Throws program::Overflow if a result is beyond 32 bits.
void apply_exact(Exact op, const program::FieldView& a, const program::FieldView& b,
                 const program::FieldView& out);

}  // namespace tessera::kernels
