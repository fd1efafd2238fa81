// The packed form of an unstructured sparse matrix: one value array that serves every n.
//
// The matrix is cut into chunks of consecutive rows, and each chunk into k-blocks of consecutive
// columns. In a k-block, rows are paired so that the two share many columns: a *task* is a pair of
// rows. It takes *shared* steps, on a column that both have (a row of X is loaded once for two
// products), then *apart* steps, on one column of either. Sixteen tasks of like size form a
// *bundle*, filled up to equal numbers of steps, their elements interleaved, lane t belonging to
// task t. So
//  - a kernel for many columns of X walks one task after another, with trip counts that repeat
//    from task to task, broadcasting values that lie sixteen apart, and
//  - a kernel for a single column takes all sixteen tasks at once, a vector of values at a time.
// Filler is a zero whose column index is the width of the k-block: kernels keep a row of zeros
// behind the rows of X there, so that filler adds nothing even where X holds infinity or NaN.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::sparse {

/// Index words hold columns times this: the bytes of eight elements of X, so that kernels find the
/// rows of panels of up to sixty-four columns by an address scaled by 1, 2, 4 or 8. Columns of a
/// k-block fit 15 bits with it.
inline constexpr uint32_t kColumnScale = 32;

/// Tasks in a bundle.
inline constexpr uint32_t kBundleLanes = 16;

/// Sixteen tasks. Values: two times sixteen a step, those of the rows a and then those of the rows
/// b. Index words: sixteen for two shared steps (the first step's column in the lower half), and
/// sixteen for a step apart (the column of row a in the lower half).
struct ElementBundle {
  uint16_t row_a[kBundleLanes];  ///< in the chunk; the chunk's number of rows where there is none
  uint16_t row_b[kBundleLanes];
  uint16_t shared_steps;  ///< even
  uint16_t apart_steps;
  uint16_t tasks;  ///< 1 to 16; the lanes behind them hold only filler

  size_t value_count() const { return size_t{2} * kBundleLanes * (shared_steps + apart_steps); }
  size_t index_count() const { return size_t{kBundleLanes} * (shared_steps / 2 + apart_steps); }
};

/// Where a k-block of a chunk starts in the arrays of bundles, values and indices.
struct ElementBlock {
  uint64_t bundle = 0;
  uint64_t value = 0;
  uint64_t index = 0;
};

/// How to cut a matrix. Zeros stand for a choice by density.
struct ElementPacking {
  uint32_t k_block = 0;     ///< columns of a k-block, at most kMaxKBlock
  uint32_t chunk_rows = 0;  ///< rows of a chunk at most; itself at most kMaxChunkRows
  uint32_t parts = 4;       ///< chunks wanted at least, for threads to share out; 1 or more
};

inline constexpr uint32_t kMaxKBlock = 1023;
inline constexpr uint32_t kMaxChunkRows = 4096;

/// An unstructured sparse matrix, packed. The values are the master copy; their order is a fixed
/// permutation of the order of SparseMatrix, with filler between.
class PackedElements {
 public:
  PackedElements() = default;

  /// Packs a matrix of block size 1 with values of type f32, f16 or bf16.
  PackedElements(const SparseMatrix& matrix, Type type, const ElementPacking& packing = {});

  uint32_t rows() const { return rows_; }
  uint32_t cols() const { return cols_; }
  Type type() const { return type_; }
  uint64_t nonzeros() const { return nonzeros_; }
  uint32_t k_block() const { return k_block_; }
  uint32_t k_blocks() const { return (cols_ + k_block_ - 1) / k_block_; }
  uint32_t chunks() const { return static_cast<uint32_t>(chunk_begin_.size()) - 1; }

  /// First row of each chunk, and the number of rows.
  const std::vector<uint32_t>& chunk_begin() const { return chunk_begin_; }
  /// Non-zeros before each chunk, and their total.
  const std::vector<uint64_t>& chunk_nonzeros() const { return chunk_nonzeros_; }
  /// chunks × k-blocks entries, chunk by chunk, and one that marks the end.
  const std::vector<ElementBlock>& blocks() const { return blocks_; }
  const std::vector<ElementBundle>& bundles() const { return bundles_; }
  /// Index words: kColumnScale × column in its k-block, k_block() for filler.
  const std::vector<uint32_t>& indices() const { return indices_; }
  /// Elements of type(), with filler.
  const std::byte* values() const { return values_.data(); }
  uint64_t value_count() const { return blocks_.back().value; }

  /// Replaces the values, given in the order of the SparseMatrix: one pass, same pattern.
  void set_values(const float* values);
  /// Writes the values in the order of the SparseMatrix: one pass.
  void get_values(float* values) const;
  /// Position in the packed array of each non-zero, in the order of the SparseMatrix.
  std::vector<uint64_t> permutation() const;

  /// Bytes of the values, filler included, and of everything that is read beside them.
  size_t value_bytes() const { return values_.size(); }
  size_t index_bytes() const;

 private:
  /// Calls visit(position in the SparseMatrix, position in the packed values) for each non-zero.
  template <class Visit>
  void for_each_nonzero(const Visit& visit) const;

  uint32_t rows_ = 0;
  uint32_t cols_ = 0;
  Type type_ = Type::f32;
  uint64_t nonzeros_ = 0;
  uint32_t k_block_ = 1;
  std::vector<uint32_t> chunk_begin_ = {0};
  std::vector<uint64_t> chunk_nonzeros_ = {0};
  std::vector<uint64_t> row_begin_ = {0};
  std::vector<ElementBlock> blocks_ = {ElementBlock{}};
  std::vector<ElementBundle> bundles_;
  std::vector<uint32_t> indices_;
  std::vector<std::byte> values_;
};

}  // namespace tessera::sparse
