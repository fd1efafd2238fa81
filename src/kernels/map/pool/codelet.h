// Pooling over windows of images on hosts: the largest element of each window, its gradient, and weighted
// sums.
#pragma once

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Images are matrices of pixels × channels, row by row and one image after another, or their transposes if
/// "channels_in_rows" is 1: x of height × width, y with a row per row of "down", and a column per row of
/// "across". Row i of "down" (u32) has the first row of x in the windows of row i of y, and the number of
/// their rows, which are a step apart; "across" has the same for columns. All floating-point fields are of
/// one type: f32, f16 or bf16.
///
/// y = the largest element of each window and channel, the first NaN if there is one; minus infinity if the
/// window is empty. "y" has whole rows of images, from row "row" of all images on, and x all rows of y's
/// columns; "taps" is the number of elements of a window.
#define TESSERA_MAX_POOL_FIELDS(X) X(x) X(down) X(across) X(y, .access = program::Access::out)
#define TESSERA_MAX_POOL_PARAMS(X) \
  X(height) X(width) X(step_down) X(step_across) X(taps) X(channels_in_rows) X(row) X(col)

/// dx = for each element of x the sum of dy over the windows of which it is the first largest element, or the
/// last NaN. Fields have whole images.
#define TESSERA_MAX_POOL_GRADIENT_FIELDS(X) X(dy) X(x) X(down) X(across) X(dx, .access = program::Access::out)
#define TESSERA_MAX_POOL_GRADIENT_PARAMS(X) \
  X(height) X(width) X(step_down) X(step_across) X(taps) X(channels_in_rows)

/// y = the sum over each window, whose elements are neighbours, of x times the weight of its row times the
/// weight of its column: f32, with a row of weights for each row or column of y. Elements of weight 0 are not
/// in the window, whatever they are.
#define TESSERA_RESAMPLE_FIELDS(X) \
  X(x) X(down) X(across) X(weights_down) X(weights_across) X(y, .access = program::Access::out)
#define TESSERA_RESAMPLE_PARAMS(X) X(height) X(width) X(channels_in_rows) X(row) X(col)

#define TESSERA_POOL_CODELETS(X)                                                           \
  X(max_pool, TESSERA_MAX_POOL_FIELDS, TESSERA_MAX_POOL_PARAMS, max_pool_simd, 0)          \
  X(max_pool_gradient, TESSERA_MAX_POOL_GRADIENT_FIELDS, TESSERA_MAX_POOL_GRADIENT_PARAMS, \
    max_pool_gradient_simd, 0)                                                             \
  X(resample, TESSERA_RESAMPLE_FIELDS, TESSERA_RESAMPLE_PARAMS, resample_simd, 0)
TESSERA_DECLARE_FAMILY(pool, TESSERA_POOL_CODELETS)
TESSERA_POSITIONS(max_pool_param, TESSERA_MAX_POOL_PARAMS)
TESSERA_POSITIONS(max_pool_gradient_param, TESSERA_MAX_POOL_GRADIENT_PARAMS)
TESSERA_POSITIONS(resample_param, TESSERA_RESAMPLE_PARAMS)

}  // namespace tessera::kernels
