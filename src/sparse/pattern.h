// Patterns of sparse matrices: checks, counts, conversions.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::sparse {

/// Largest m or k, and largest block size.
inline constexpr uint32_t kMaxDimension = 0x7FFFFFFF;
inline constexpr uint32_t kMaxBlockSize = 1 << 15;

/// Throws UsageError if a dimension or the block size is out of range.
void validate_sizes(uint32_t rows, uint32_t cols, uint32_t block_size);

/// Throws UsageError unless sizes are in range, crow_indices go from 0 to blocks() without decreasing, and
/// the columns of each block row are strictly ascending and below block_cols().
void validate(const Pattern& pattern);

/// Also checks that there are block_size² values per block.
void validate(const SparseMatrix& matrix);

/// Throws UsageError unless weights can be stored as this type: f32, f16 or bf16.
void validate_weight_type(Type type);

/// The number of values of a matrix with this pattern, those beyond the matrix included.
inline uint64_t stored_values(const Pattern& pattern) {
  return pattern.blocks() * pattern.block_size * pattern.block_size;
}

/// Elements of the matrix inside blocks; the overhang of edge blocks does not count.
uint64_t stored_elements(const Pattern& pattern);

/// stored_elements() as a fraction of all m × k elements, 0 to 1; 0 for an empty matrix.
double density(const Pattern& pattern);

/// The aligned blocks of size `block_size` that contain a stored element.
Pattern cover(const Pattern& pattern, uint32_t block_size);

/// Covers a matrix, with values; elements of a block that were not stored are 0.
SparseMatrix cover(const SparseMatrix& matrix, uint32_t block_size);

/// The non-zeros of a rows × cols array, block size 1. NaN is a non-zero; -0 is a zero.
SparseMatrix from_dense(MatrixView<const float> dense, uint32_t rows, uint32_t cols);

/// The matrix as a row-major rows × cols array with zeros outside the pattern.
std::vector<float> to_dense(const SparseMatrix& matrix);

/// The values of a full matrix (row-major) at a pattern, in its order; the overhang is 0.
std::vector<float> values_at(const Pattern& pattern, std::span<const float> dense);

struct TransposedPattern {
  Pattern pattern;
  std::vector<uint64_t> source;  ///< block i of `pattern` is block source[i] of the original
};

/// The pattern of Wᵀ. With the same values, accessed through `source`, it serves Wᵀ·Y.
TransposedPattern transpose(const Pattern& pattern);

/// Wᵀ, including its blocks.
SparseMatrix transpose(const SparseMatrix& matrix);

/// Stored elements as three arrays of equal length; element (rows[i], cols[i]) is values[i].
struct Coordinates {
  std::vector<uint32_t> rows;
  std::vector<uint32_t> cols;
  std::vector<float> values;
};

/// The matrix with these elements, in any order, block size 1. Throws UsageError if an element is outside the
/// matrix or duplicate, or if the arrays' lengths differ.
SparseMatrix from_coordinates(uint32_t rows, uint32_t cols, const Coordinates& elements);

}  // namespace tessera::sparse
