// Fastfood layers, y = S·H·G·Π·H·B·x, by fast Walsh-Hadamard transforms: one vertex is one core's slice of
// the batch.
//
// H is the Hadamard matrix of N = 2^n rows times N^(−½); S, G and B are diagonal matrices, s, g and b; and
// (Π·v)_i = v[permutation[i]]. x is padded with zeros to N features. Several such products of the same x,
// each with its own row of s, g, b and permutation, [stacks × N], follow one another in y, of which the last
// features may be left out.
//
// x, y, dx and dy are [batch, features], or with `transposed` [features, batch].
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Computes y from x. f32, the permutation u32.
#define TESSERA_FASTFOOD_FORWARD_FIELDS(X) \
  X(x)                                     \
  X(s)                                     \
  X(g)                                     \
  X(b)                                     \
  X(permutation)                           \
  X(y, .access = program::Access::out)     \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

/// Computes dx, and the gradients of the diagonals, summed over this vertex's samples. All are written
/// without being read; an empty result is not computed. f32, the permutation u32.
#define TESSERA_FASTFOOD_GRADIENTS_FIELDS(X)              \
  X(x)                                                    \
  X(dy)                                                   \
  X(s)                                                    \
  X(g)                                                    \
  X(b)                                                    \
  X(permutation)                                          \
  X(dx, .access = program::Access::out, .optional = true) \
  X(ds, .access = program::Access::out, .optional = true) \
  X(dg, .access = program::Access::out, .optional = true) \
  X(db, .access = program::Access::out, .optional = true) \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

#define TESSERA_FASTFOOD_PARAMS(X) X(transposed)

#define TESSERA_FASTFOOD_CODELETS(X)                                                                         \
  X(fastfood_forward, TESSERA_FASTFOOD_FORWARD_FIELDS, TESSERA_FASTFOOD_PARAMS, fastfood_forward_simd, 8192) \
  X(fastfood_gradients, TESSERA_FASTFOOD_GRADIENTS_FIELDS, TESSERA_FASTFOOD_PARAMS, fastfood_gradients_simd, \
    16384)

TESSERA_POSITIONS(fastfood_param, TESSERA_FASTFOOD_PARAMS)
TESSERA_DECLARE_FAMILY(fastfood, TESSERA_FASTFOOD_CODELETS)
TESSERA_FASTFOOD_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// Floats of scratch for transforms of `size` features.
size_t fastfood_forward_scratch(uint32_t size);
size_t fastfood_gradients_scratch(uint32_t size);

}  // namespace tessera::kernels
