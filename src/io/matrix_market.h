// `.mtx`: the Matrix Market exchange format (Boisvert, Pozo and Remington 1996).
#pragma once

#include <tessera/sparse.h>

#include "io/source.h"

namespace tessera::io {

struct MatrixMarket {
  SparseMatrix matrix;     ///< block size 1; without values where the file has none
  bool has_values = true;  ///< false for the field "pattern"
};

/// Reads a matrix in coordinate or array format, with field real, double, integer or pattern, and
/// symmetry general, symmetric or skew-symmetric, whose other half is filled in. Coordinates that
/// are stored stay, zeros included; zeros of an array are left out. Throws Error for complex
/// numbers, an element given twice, and anything malformed.
MatrixMarket read_matrix_market(const Source& source);

}  // namespace tessera::io
