// Products with butterfly matrices, forward and gradients: one vertex is one core's slice of the batch.
//
// A butterfly of N = 2^log_n features is a product of log_n factors. The factor of stride s maps features
// (p, p + s), for every p with p mod 2s < s, to T·(x_p, x_(p+s)), each pair with a 2 × 2 matrix T of its own.
// A block has the strides 1 to N / 2 in increasing or decreasing order; blocks alternate. Stacks are
// butterflies of the same input, whose results follow one another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/common/codelet_list.h"

namespace tessera::kernels {

/// Y = X·Bᵀ for the butterfly matrix B: x [samples × features] or transposed. Features from x's last up to N
/// are zeros; results beyond y's features are dropped. FP32.
#define TESSERA_BUTTERFLY_FORWARD_FIELDS(X) \
  X(x)                                      \
  X(twiddle, .optional = true)              \
  X(y, .access = program::Access::out)      \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

/// Computes dx, unless it is empty, and dtwiddle, unless it is empty: the sum over the samples of this
/// vertex. With complex numbers, gradients belong to the real and the imaginary parts as independent numbers.
#define TESSERA_BUTTERFLY_GRADIENTS_FIELDS(X)                   \
  X(x)                                                          \
  X(dy)                                                         \
  X(twiddle, .optional = true)                                  \
  X(dx, .access = program::Access::out, .optional = true)       \
  X(dtwiddle, .access = program::Access::out, .optional = true) \
  X(scratch, .access = program::Access::inout, .alignment = 64, .scratch = true)

#define TESSERA_BUTTERFLY_PARAMS(X) \
  X(transposed) X(stacks) X(blocks) X(log_n) X(tied) X(complex) X(decreasing)

#define TESSERA_BUTTERFLY_CODELETS(X)                                                                      \
  X(butterfly_forward, TESSERA_BUTTERFLY_FORWARD_FIELDS, TESSERA_BUTTERFLY_PARAMS, butterfly_forward_simd, \
    16384)                                                                                                 \
  X(butterfly_gradients, TESSERA_BUTTERFLY_GRADIENTS_FIELDS, TESSERA_BUTTERFLY_PARAMS,                     \
    butterfly_gradients_simd, 16384)

TESSERA_POSITIONS(butterfly_param, TESSERA_BUTTERFLY_PARAMS)
TESSERA_DECLARE_FAMILY(butterfly, TESSERA_BUTTERFLY_CODELETS)
TESSERA_BUTTERFLY_CODELETS(TESSERA_DECLARE_FUNCTIONS)

/// The parameters of both codelets.
struct ButterflyShape {
  bool transposed = false;  ///< batches are [features × samples] instead of [samples × features]
  uint32_t stacks = 1;
  uint32_t blocks = 1;
  uint32_t log_n = 0;
  bool tied = false;        ///< T depends on p mod s only; one block
  bool complex = false;     ///< features and coefficients are two numbers each, real and imaginary
  bool decreasing = false;  ///< strides of the first block

  uint32_t n() const { return uint32_t{1} << log_n; }
  /// Number of floats of a feature, or of a coefficient.
  uint32_t parts() const { return complex ? 2 : 1; }
  /// Number of floats of a 2 × 2 matrix.
  uint32_t matrix() const { return 4 * parts(); }
  uint32_t factors() const { return blocks * log_n; }
  /// The twiddle as a matrix of contiguous rows. Untied: a row for each factor, by stack and block in the
  /// order of application, with the N / 2 matrices of its pairs in order of p. Tied: a row for each stack,
  /// the matrices of stride s from s - 1 on.
  uint32_t twiddle_rows() const { return tied ? stacks : stacks * factors(); }
  uint32_t twiddle_cols() const { return (tied ? n() - 1 : n() / 2) * matrix(); }
};

ButterflyShape butterfly_shape(const program::Vertex& v);

/// Floats of scratch for a slice of `samples` samples.
size_t butterfly_forward_scratch(const ButterflyShape& shape, uint32_t samples);
size_t butterfly_gradients_scratch(const ButterflyShape& shape, uint32_t samples);

}  // namespace tessera::kernels
