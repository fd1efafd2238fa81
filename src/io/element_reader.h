// Elements of tensors in files, read in pieces.
#pragma once

#include <cstdint>
#include <vector>

#include "io/stored_weights.h"
#include "sparse/bit_matrix.h"

namespace tessera::io {

/// Number of elements of a tensor, whose shape agrees with its bytes; 1 if it has no dimensions.
uint64_t elements_of(const StoredTensor& tensor);

/// The positions of the non-zeros of a tensor of numbers, taken as a matrix of rows × cols. Throws Error,
/// naming the file, for another number of elements, for a type that is not known, and if it does not fit in
/// memory.
sparse::BitMatrix read_bits(const StoredTensor& tensor, uint64_t rows, uint64_t cols);

/// Clears the bits where the tensor, taken as a matrix of the same size, is zero. Throws Error as
/// read_bits().
void clear_zeros(const StoredTensor& tensor, sparse::BitMatrix& bits);

/// Reads a tensor of integers. Throws Error, naming the file, for another type, and for values outside 0 …
/// `most`.
std::vector<uint64_t> read_integers(const StoredTensor& tensor, uint64_t most);

}  // namespace tessera::io
