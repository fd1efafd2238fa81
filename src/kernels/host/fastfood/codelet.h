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
#include <span>

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

#define TESSERA_FASTFOOD_FORWARD_FIELDS(X) \
  X(x)                                     \
  X(s)                                     \
  X(g)                                     \
  X(b)                                     \
  X(permutation)                           \
  X(y, .access = program::Access::out)     \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

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

namespace fastfood_forward_field {
enum : size_t { TESSERA_FASTFOOD_FORWARD_FIELDS(TESSERA_POSITION) count };
}
namespace fastfood_gradients_field {
enum : size_t { TESSERA_FASTFOOD_GRADIENTS_FIELDS(TESSERA_POSITION) count };
}
namespace fastfood_param {
enum : size_t { TESSERA_FASTFOOD_PARAMS(TESSERA_POSITION) count };
}

/// y from x. f32, the permutation u32.
extern const program::Codelet fastfood_forward_codelet;

/// dx, and the gradients of the diagonals summed over this vertex's samples. All are written without being
/// read; an empty one is not computed. f32, the permutation u32.
extern const program::Codelet fastfood_gradients_codelet;

/// Floats of scratch for transforms of `size` features.
size_t fastfood_forward_scratch(uint32_t size);
size_t fastfood_gradients_scratch(uint32_t size);

std::span<const ListedCodelet> fastfood_codelets();

}  // namespace tessera::kernels
