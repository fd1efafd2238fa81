// Dense arrays in binary files, read as sparse matrices of their non-zeros.
#pragma once

#include <tessera/sparse.h>

#include <cstddef>
#include <cstdint>

#include "io/source.h"

namespace tessera::io {

/// Types of elements in files.
enum class Element : uint8_t { boolean, i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32, f64 };

/// Bytes of one element.
size_t size_of(Element element);

/// A contiguous rows × cols array in a file.
struct DenseArray {
  Element element = Element::f32;
  uint64_t rows = 0;
  uint64_t cols = 0;
  uint64_t offset = 0;        ///< byte offset in the file
  bool column_major = false;  ///< elements of a column are contiguous
  bool big_endian = false;
};

/// The non-zeros of the array, each rounded to the nearest FP32, block size 1. Reads the file twice, in
/// pieces, so that it needs no more memory than the result. Throws Error if the array is larger than the
/// file, a finite value exceeds the range of FP32, or the result does not fit in memory.
SparseMatrix read_dense(const Source& source, const DenseArray& array);

}  // namespace tessera::io
