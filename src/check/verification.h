// Verifies products against float64 arithmetic.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cmath>
#include <cstdint>

namespace tessera::check {

enum class Extent : uint8_t {
  automatic,  ///< full up to 2 GFLOP, else sample
  full,       ///< every element
  sample,  ///< 32 seeded columns including the first and the last, and Y·r compared with W·(X·r) for a random
           ///< vector r, which covers every element
};

/// A product to verify. `w` has the values that the product used, already rounded to its type.
struct ComputedProduct {
  const SparseMatrix& w;
  MatrixView<const float> x;  ///< k × n
  MatrixView<const float> y;  ///< m × n
  uint32_t n = 0;
  Type result = Type::f32;        ///< type of the elements of Y
  Type accumulation = Type::f32;  ///< type in which sums are kept
  Type partials = Type::f32;      ///< type to which partial sums are rounded between tiles
  uint32_t roundings = 1;         ///< maximum number of roundings of one partial sum: more than 1 if it is
                                  ///< accumulated further
};

struct Verification {
  bool verified = false;
  double max_abs_error = 0;  ///< |y − ref|; NaN, as is max_rel_error, if the reference is
  double max_rel_error = 0;  ///< (|y − ref| − underflow) / (|W|·|X|), elementwise
  double tolerance = 0;      ///< upper limit of max_rel_error
  double underflow = 0;      ///< error of numbers below the normal range of the result's type
  bool sampled = false;
};

/// The larger of two errors; NaN if one is.
inline double worse(double a, double b) { return std::isnan(a) || a > b ? a : b; }

/// Tolerance of an element that is a sum of up to `length` products: rounding errors of a sum grow as √length
/// with overwhelming probability (Higham & Mary, SIAM J. Sci. Comput. 41, 2019), so (4·√length + 8) ε of the
/// accumulation type, and one rounding to the type of the result.
double tolerance_of(uint64_t length, Type accumulation, Type result);

/// Compares a product with float64 arithmetic on `threads` threads. If the reference is infinite or NaN, y
/// must be equal.
Verification verify_product(const ComputedProduct& product, Extent extent, uint64_t seed, uint32_t threads);

/// An SDDMM to verify: dW = dY·Xᵀ at the pattern of dW.
struct ComputedSddmm {
  const SparseMatrix& dw;
  MatrixView<const float> x;   ///< k × n
  MatrixView<const float> dy;  ///< m × n
  uint32_t n = 0;
  Type result = Type::f32;  ///< as in ComputedProduct
  Type accumulation = Type::f32;
  Type partials = Type::f32;
};

/// Compares an SDDMM with float64 arithmetic, elementwise. A sample consists of whole blocks, including the
/// first and the last. (dX = Wᵀ·dY is an ordinary product with the transposed matrix.)
Verification verify_sddmm(const ComputedSddmm& gradient, Extent extent, uint64_t seed, uint32_t threads);

/// The matrix with its values rounded to `type`, as in a weight of that type.
SparseMatrix rounded(SparseMatrix matrix, Type type);

}  // namespace tessera::check
