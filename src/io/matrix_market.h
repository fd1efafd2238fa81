// `.mtx`: the Matrix Market exchange format (Boisvert, Pozo and Remington 1996).
#pragma once

#include <tessera/sparse.h>

#include "io/source.h"

namespace tessera::io {

struct MatrixMarket {
  SparseMatrix matrix;     ///< block size 1; without values if the file has none
  bool has_values = true;  ///< false for the field "pattern"
};

/// Reads a matrix in coordinate or array format, with field real, double, integer or pattern, and symmetry
/// general, symmetric or skew-symmetric (the other half is filled in). Explicit coordinates are kept, zeros
/// included; zeros of an array are dropped. Throws Error for complex numbers, duplicate elements, and
/// malformed files.
MatrixMarket read_matrix_market(const Source& source);

}  // namespace tessera::io
