// Products with a Kronecker-sparse factor, on hosts: one vertex is one core's slice of the batch.
//
// The factor (a, b, c, d) has the support I_a ⊗ 1_{b×c} ⊗ I_d: it maps a·c·d features to a·b·d. For i < a and
// t < d, its group (i, t) is a dense b × c matrix between features that are d apart:
//
//   y[(i·b + r)·d + t] = Σ_q weight[i·d + t][r·c + q] · x[(i·c + q)·d + t]
//
// A block-diagonal layer is (blocks, out / blocks, in / blocks, 1); a Monarch layer of the weights w1 (k, q,
// p) and w2 (l, s, r) is (k, q, p, 1) and then (1, s, r, l); a butterfly factor of stride s is (N / 2s, 2, 2,
// s).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Y = K·X in f32, samples in rows, or in columns if `transposed`. The weight is a contiguous matrix of a·d
/// rows and b·c columns. Features that x lacks up to a·c·d are zeros; results beyond y's features are
/// dropped.
#define TESSERA_KRONECKER_FORWARD_FIELDS(X) \
  X(x)                                      \
  X(weight)                                 \
  X(y, .access = program::Access::out)      \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

/// dX = Kᵀ·dY, and the gradient of the weight summed over the samples. Both are written without being read;
/// either may be empty.
#define TESSERA_KRONECKER_GRADIENTS_FIELDS(X)                  \
  X(x)                                                         \
  X(dy)                                                        \
  X(weight)                                                    \
  X(dx, .access = program::Access::out, .optional = true)      \
  X(dweight, .access = program::Access::out, .optional = true) \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

#define TESSERA_KRONECKER_PARAMS(X) X(transposed) X(a) X(b) X(c) X(d)

#define TESSERA_KRONECKER_CODELETS(X)                                                                      \
  X(kronecker_forward, TESSERA_KRONECKER_FORWARD_FIELDS, TESSERA_KRONECKER_PARAMS, kronecker_forward_simd, \
    4096)                                                                                                  \
  X(kronecker_gradients, TESSERA_KRONECKER_GRADIENTS_FIELDS, TESSERA_KRONECKER_PARAMS,                     \
    kronecker_gradients_simd, 4096)

TESSERA_POSITIONS(kronecker_param, TESSERA_KRONECKER_PARAMS)
TESSERA_DECLARE_FAMILY(kronecker, TESSERA_KRONECKER_CODELETS)
TESSERA_KRONECKER_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// A Kronecker-sparse factor.
struct KroneckerFactor {
  uint32_t a = 1, b = 1, c = 1, d = 1;

  uint32_t groups() const { return a * d; }
  uint32_t inputs() const { return a * c * d; }
  uint32_t outputs() const { return a * b * d; }
  KroneckerFactor transposed() const { return {a, c, b, d}; }
};

/// Floats of scratch.
size_t kronecker_forward_scratch(const KroneckerFactor& factor);
size_t kronecker_gradients_scratch(const KroneckerFactor& factor);

}  // namespace tessera::kernels
