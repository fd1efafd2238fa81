// The fast form of sums over partials.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// out = scale · sum of the matrices in `partials`, one below the other. False where the elements of a
/// row do not follow one another, which has no fast form.
bool apply_reduce_sum(const program::FieldView& partials, float scale, const program::FieldView& out);

/// Row rows[i] of out = the sum of the rows i of `partials` that go to it; 0 where none does. False as above.
bool apply_reduce_rows(const program::FieldView& partials, const program::FieldView& rows,
                       const program::FieldView& out);

}  // namespace tessera::kernels
