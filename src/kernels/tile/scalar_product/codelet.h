// Naive products on tiles: one worker, one multiply-accumulate after the other. They are a baseline for
// measuring the library's codelets; planners do not use them.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// sum = row · column: both 1 × k, f32.
#define TESSERA_SCALAR_DOT_FIELDS(X) X(row) X(column) X(sum, .access = program::Access::out)

/// c = a · b, added to c if the parameter `adds` is not 0: m × k, k × n and m × n, f32. One worker computes
/// the whole block, element by element.
#define TESSERA_SCALAR_BLOCK_FIELDS(X) X(a) X(b) X(c, .access = program::Access::inout)
#define TESSERA_SCALAR_BLOCK_PARAMS(X) X(adds)

#define TESSERA_SCALAR_PRODUCT_CODELETS(X)                            \
  X(scalar_dot, TESSERA_SCALAR_DOT_FIELDS, TESSERA_NONE, nullptr, 64) \
  X(scalar_block, TESSERA_SCALAR_BLOCK_FIELDS, TESSERA_SCALAR_BLOCK_PARAMS, nullptr, 128)
TESSERA_DECLARE_FAMILY(scalar_product, TESSERA_SCALAR_PRODUCT_CODELETS)
TESSERA_POSITIONS(scalar_block_param, TESSERA_SCALAR_BLOCK_PARAMS)

}  // namespace tessera::kernels
