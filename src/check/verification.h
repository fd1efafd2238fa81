// Is a product right? Compared with float64 arithmetic.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>

namespace tessera::check {

enum class Extent : uint8_t {
  automatic,  ///< full up to 2 GFLOP, else sample
  full,       ///< every element
  sample,     ///< 32 seeded columns, the first and the last among them, and Y·r against W·(X·r) for
              ///< a random vector r, which every element takes part in
};

/// A product to check. The values of w are those that the product used, already rounded to its type.
struct Product {
  const SparseMatrix& w;
  MatrixView<const float> x;  ///< k × n
  MatrixView<const float> y;  ///< m × n
  uint32_t n = 0;
  Type result = Type::f32;        ///< of the elements of Y
  Type accumulation = Type::f32;  ///< in which sums are kept
  Type partials = Type::f32;      ///< to which parts of a sum are rounded on their way from tile to tile
  uint32_t roundings = 1;         ///< times that one such part is, at most: more where it is added to again
};

struct Verification {
  bool verified = false;
  double max_abs_error = 0;  ///< |y − ref|
  double max_rel_error = 0;  ///< (|y − ref| − underflow) / (|W|·|X|), element by element
  double tolerance = 0;      ///< that max_rel_error must not exceed
  double underflow = 0;      ///< error of numbers below the normal range of the result's type
  bool sampled = false;
};

/// Tolerance of an element that is a sum of up to `length` products: the rounding errors of a sum
/// grow as √length with overwhelming probability (Higham & Mary, SIAM J. Sci. Comput. 41, 2019), so
/// (4·√length + 8) ε of the accumulation, and one rounding to the type of the result.
double tolerance_of(uint64_t length, Type accumulation, Type result);

/// Compares a product with float64 arithmetic on `threads` threads. Where the reference is infinite
/// or NaN, so must y be.
Verification verify_product(const Product& product, Extent extent, uint64_t seed, uint32_t threads);

/// A weight gradient to check: dW = dY·Xᵀ at the pattern of dW.
struct Sddmm {
  const SparseMatrix& dw;
  MatrixView<const float> x;   ///< k × n
  MatrixView<const float> dy;  ///< m × n
  uint32_t n = 0;
  Type result = Type::f32;  ///< these as of a Product
  Type accumulation = Type::f32;
  Type partials = Type::f32;
};

/// The same for a weight gradient, element by element. A sample is of whole blocks, the first and the
/// last among them. (dX = Wᵀ·dY is a product like any other: of the transposed matrix.)
Verification verify_sddmm(const Sddmm& gradient, Extent extent, uint64_t seed, uint32_t threads);

/// The matrix with its values rounded to `type`, as a weight of that type has them.
SparseMatrix rounded(SparseMatrix matrix, Type type);

}  // namespace tessera::check
