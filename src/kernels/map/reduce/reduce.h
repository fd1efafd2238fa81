// SIMD form of reductions.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// out = scale · sum of the stacked matrices in `partials`. False if the elements of a row are not
/// contiguous, for which there is no SIMD form.
bool apply_reduce_sum(const program::FieldView& partials, float scale, const program::FieldView& out);

/// Row rows[i] of out = the sum of the rows i of `partials` assigned to it; 0 if there are none. False as
/// above.
bool apply_reduce_rows(const program::FieldView& partials, const program::FieldView& rows,
                       const program::FieldView& out);

/// Row r of out = the sum of the rows r · g … r · g + g − 1 of `in`. False as above.
bool apply_reduce_neighbours(const program::FieldView& in, const program::FieldView& out);

}  // namespace tessera::kernels
