// The fast form of sums over partials.
#pragma once

#include "program/codelet.h"

namespace tessera::kernels {

/// out (1 × elements) = scale · sum of the rows of `partials`. False where the elements of a row do
/// not follow one another, which has no fast form.
bool apply_reduce_sum(const program::FieldView& partials, float scale,
                      const program::FieldView& out);

}  // namespace tessera::kernels
