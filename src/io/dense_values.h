// Dense arrays in binary files, read as the sparse matrix of their non-zeros.
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

/// A rows × cols array in a file, without gaps.
struct DenseArray {
  Element element = Element::f32;
  uint64_t rows = 0;
  uint64_t cols = 0;
  uint64_t offset = 0;        ///< of its first byte in the file
  bool column_major = false;  ///< columns one after another
  bool big_endian = false;
};

/// The non-zeros of the array, each rounded to the nearest FP32, block size 1. Reads the file
/// twice, in pieces, so that it takes no more memory than the result. Throws Error when the array
/// is larger than the file, a finite value is beyond FP32, or the result does not fit in memory.
SparseMatrix read_dense(const Source& source, const DenseArray& array);

}  // namespace tessera::io
