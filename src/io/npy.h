// `.npy`: NumPy's array files.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <span>
#include <string>

#include "io/source.h"

namespace tessera::io {

/// Reads the non-zeros of a 2-D array of format version 1 to 3: floating-point numbers of 2, 4 or
/// 8 bytes, integers or booleans, of either byte order, in C or Fortran order. Throws Error for
/// anything else.
SparseMatrix read_npy(const Source& source);

/// Writes a row-major rows × cols array of FP32. Throws Error on failure; an existing file is only replaced
/// by a complete one.
void write_npy(const std::string& path, uint32_t rows, uint32_t cols, std::span<const float> values);

}  // namespace tessera::io
