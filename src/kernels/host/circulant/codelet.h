// Circulant and Toeplitz layers by Fourier transforms: one vertex is one core's slice of the batch.
//
// x, y, dx and dy are [batch, features], or with `transposed` [features, batch]. With i and j the features of
// y and x, of which there are `out` and `in`:
// - circulant of size n ≥ in, out: y_i = Σ_j c[(i − j) mod n] x_j, c 1 × n, the first column of the matrix.
// - Toeplitz: y_i = Σ_j c[i − j + in − 1] x_j, c 1 × (out + in − 1).
//
// Each sample is transformed by itself: its values, including infinities and NaN, never affect another
// sample.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Computes y from x and c. f32.
#define TESSERA_CIRCULANT_FORWARD_FIELDS(X) \
  X(x)                                      \
  X(c)                                      \
  X(y, .access = program::Access::out)      \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

/// Computes dx from dy and c, and dc, summed over this vertex's samples, from x and dy. Both are written
/// without being read; an empty result is not computed, and x is not read for dx alone. f32.
#define TESSERA_CIRCULANT_GRADIENTS_FIELDS(X)             \
  X(x)                                                    \
  X(dy)                                                   \
  X(c)                                                    \
  X(dx, .access = program::Access::out, .optional = true) \
  X(dc, .access = program::Access::out, .optional = true) \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

#define TESSERA_CIRCULANT_PARAMS(X) X(transposed) X(toeplitz)

#define TESSERA_CIRCULANT_CODELETS(X)                                                                      \
  X(circulant_forward, TESSERA_CIRCULANT_FORWARD_FIELDS, TESSERA_CIRCULANT_PARAMS, circulant_forward_simd, \
    8192)                                                                                                  \
  X(circulant_gradients, TESSERA_CIRCULANT_GRADIENTS_FIELDS, TESSERA_CIRCULANT_PARAMS,                     \
    circulant_gradients_simd, 16384)

TESSERA_POSITIONS(circulant_param, TESSERA_CIRCULANT_PARAMS)
TESSERA_DECLARE_FAMILY(circulant, TESSERA_CIRCULANT_CODELETS)
TESSERA_CIRCULANT_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// A circulant or Toeplitz matrix, out × in.
struct CirculantShape {
  uint32_t in = 0;
  uint32_t out = 0;
  uint32_t taps = 0;  ///< elements of c
  bool toeplitz = false;
};

/// Floats of scratch.
size_t circulant_forward_scratch(const CirculantShape& shape);
size_t circulant_gradients_scratch(const CirculantShape& shape);

}  // namespace tessera::kernels
