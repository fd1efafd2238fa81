// SIMD form of reductions.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// out = scale · sum of the stacked matrices in `partials`. Returns false, as there is no SIMD form, if the
/// elements of a row are not contiguous.
bool apply_reduce_sum(const program::FieldView& partials, float scale, const program::FieldView& out);

/// Row r of out = the sum of the rows i of `partials` with rows[i] = r; 0 if there are none. Returns false as
/// above.
bool apply_reduce_rows(const program::FieldView& partials, const program::FieldView& rows,
                       const program::FieldView& out);

/// Row r of out = the sum of the rows r · g … r · g + g − 1 of `in`. Returns false as above.
bool apply_reduce_neighbours(const program::FieldView& in, const program::FieldView& out);

}  // namespace tessera::kernels
