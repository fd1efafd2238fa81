// Products of a tile with groups of a Kronecker-sparse factor, or of several butterfly factors merged into
// one pass, and their gradients.
//
// A group has its features in consecutive rows, group after group, so that a tile may hold any groups of a
// factor, and features that are strides apart in the operand are neighbours on the tile. The weights of all
// groups are one row.
#pragma once

#include <cstdint>

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// y[g, i] = Σ_t w[g, first + i · output_stride + t · term_stride] · x[g, t] for each group g: w: 1 × groups
/// · weights, x: groups · terms rows of n, y: groups · outputs rows of n. The products with the weights of a
/// group or their transpose, and with a part of its outputs, have this form. W and X are of one type, f32 or
/// f16; y of that type or f32. Sums are kept in FP32 and rounded when stored.
#define TESSERA_KRONECKER_PRODUCT_FIELDS(X) \
  X(w, .alignment = 8)                      \
  X(x, .alignment = 8, .over_read = 16)     \
  X(y, .access = program::Access::out, .alignment = 16, .interleaved = true)
#define TESSERA_KRONECKER_PRODUCT_PARAMS(X) X(outputs) X(terms) X(output_stride) X(term_stride) X(first)

/// dw[g, r · inputs + q] = the dot product of rows r of dy and q of x of group g. Types as above.
#define TESSERA_KRONECKER_WEIGHT_GRADIENT_FIELDS(X) \
  X(dy, .alignment = 8)                             \
  X(x, .alignment = 8, .over_read = 16)             \
  X(dw, .access = program::Access::out, .alignment = 16, .interleaved = true)
#define TESSERA_KRONECKER_WEIGHT_GRADIENT_PARAMS(X) X(outputs) X(inputs)

/// `levels` butterfly factors on groups of 2^levels features, of strides 1, 2, 4, …, or in the reverse order
/// if `decreasing`. w: groups × (levels · 2^(levels − 1) · 4): for each level and each pair of features that
/// it combines, in order, a 2 × 2 matrix. Each level rounds its results to the type of y, as if stored.
/// `width` 2: features and weights are complex numbers, real and imaginary part in rows, and in columns, side
/// by side. The fields are as in kronecker_product.
#define TESSERA_BUTTERFLY_PASS_PARAMS(X) X(levels) X(decreasing) X(width)

/// dX and dW of butterfly_pass. The inputs of each level but the first are recomputed into levels_of_x:
/// (levels − 1) · features rows of n, in X's type.
#define TESSERA_BUTTERFLY_PASS_GRADIENTS_FIELDS(X)      \
  X(w, .alignment = 8)                                  \
  X(x, .alignment = 8)                                  \
  X(dy, .alignment = 8)                                 \
  X(dx, .access = program::Access::out, .alignment = 8) \
  X(dw, .access = program::Access::out, .alignment = 8) \
  X(levels_of_x, .access = program::Access::inout, .alignment = 8, .scratch = true)

#define TESSERA_TILE_KRONECKER_CODELETS(X)                                                            \
  X(kronecker_product, TESSERA_KRONECKER_PRODUCT_FIELDS, TESSERA_KRONECKER_PRODUCT_PARAMS,            \
    kronecker_product_simd, 600)                                                                      \
  X(kronecker_weight_gradient, TESSERA_KRONECKER_WEIGHT_GRADIENT_FIELDS,                              \
    TESSERA_KRONECKER_WEIGHT_GRADIENT_PARAMS, kronecker_weight_gradient_simd, 600)                    \
  X(butterfly_pass, TESSERA_KRONECKER_PRODUCT_FIELDS, TESSERA_BUTTERFLY_PASS_PARAMS, nullptr, 400)    \
  X(butterfly_pass_gradients, TESSERA_BUTTERFLY_PASS_GRADIENTS_FIELDS, TESSERA_BUTTERFLY_PASS_PARAMS, \
    nullptr, 600)
TESSERA_DECLARE_FAMILY(tile_kronecker, TESSERA_TILE_KRONECKER_CODELETS)
TESSERA_TILE_KRONECKER_CODELETS(TESSERA_DECLARE_FUNCTIONS)
TESSERA_POSITIONS(kronecker_product_param, TESSERA_KRONECKER_PRODUCT_PARAMS)
TESSERA_POSITIONS(kronecker_weight_gradient_param, TESSERA_KRONECKER_WEIGHT_GRADIENT_PARAMS)
TESSERA_POSITIONS(butterfly_pass_param, TESSERA_BUTTERFLY_PASS_PARAMS)

/// Number of weights of a group of a butterfly pass.
constexpr uint32_t butterfly_weights(uint32_t levels, uint32_t width) {
  return levels * (1U << levels) * 2 * width;
}

}  // namespace tessera::kernels
