// The non-zeros of stored weights.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/stored_weights.h"
#include "sparse/inspect.h"

namespace tessera::io {

/// Shape and type of a weight according to its tensors, before its elements are read.
struct WeightHeader {
  std::vector<uint64_t> shape;  ///< shape of the weight as a dense tensor; empty: a single number
  std::string dtype;            ///< type of its elements, as the file calls it
  std::optional<Type> type;     ///< f32, f16 or bf16; none: its non-zeros are not read

  /// The weight as a matrix: the first dimension, and the product of the others. With fewer than two
  /// dimensions, one row.
  uint64_t rows() const;
  uint64_t cols() const;
  uint64_t elements() const { return rows() * cols(); }
};

/// Throws Error, naming the file, if the shapes and types of its tensors do not agree.
WeightHeader read_header(const StoredWeight& weight);

/// The non-zeros of a weight that has a type, as the matrix of its header. Reads it in pieces, so that it
/// needs memory for the non-zeros only. All elements that a SparseLinear stores count as non-zero. Throws
/// Error, naming the file, for indices, masks and values that do not agree, and if it does not fit in memory.
sparse::NonZeros read_non_zeros(const StoredWeight& weight, const WeightHeader& header);

}  // namespace tessera::io
