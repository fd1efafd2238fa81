// Sparse and dense weights, prepared for products.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace tessera {

/// How packed order changed with a dynamic weight's pattern.
class Relocation {
 public:
  struct Moves;
  explicit Relocation(std::shared_ptr<const Moves> moves) : moves_(std::move(moves)) {}

  /// Lets an array in packed order follow, such as a momentum: what belongs to values that stay is
  /// kept, the rest becomes 0. Throws UsageError where its size is not that of the weight's.
  void apply(std::span<float> state) const;

 private:
  std::shared_ptr<const Moves> moves_;
};

/// A weight matrix prepared for the kernels, once for every n: its values in one packed array, the
/// master copy, with indices on top. Copies share the storage.
///
/// Preparing costs a pass or two over the non-zeros; products made from a weight keep its storage
/// alive. Values may be replaced at any time at which no product runs.
///
/// The pattern of a *dynamic* weight may change as well: a block that stays keeps its place among the
/// packed values (single elements are packed anew), and the products follow without being planned
/// again. See docs/training.md.
class Weight {
 public:
  /// Prepares a sparse matrix of block size 1, 4, 8, 16 or 32, its values rounded to `type` (f32,
  /// f16 or bf16). Throws UsageError for another type or block size, and Error for a malformed
  /// pattern.
  explicit Weight(const SparseMatrix& matrix, Type type = Type::f32);

  /// Prepares an m × k dense matrix: a pattern in which every block is stored.
  static Weight dense(MatrixView<const float> values, uint32_t m, uint32_t k, Type type = Type::f32);

  /// Prepares a matrix whose pattern may change, with room for `capacity_blocks` blocks (of block
  /// size 1: non-zeros). Throws UsageError too where the pattern has more.
  static Weight dynamic(const SparseMatrix& matrix, uint64_t capacity_blocks, Type type = Type::f32);

  uint32_t rows() const;        ///< m
  uint32_t cols() const;        ///< k
  uint32_t block_size() const;  ///< b; of a dense weight, that of its kernel
  Type type() const;
  bool is_dense() const;
  bool is_dynamic() const;
  uint64_t capacity() const;   ///< blocks that there is room for; of a static weight, its blocks
  Pattern pattern() const;     ///< as it is now
  uint64_t non_zeros() const;  ///< stored values inside the matrix
  uint64_t bytes() const;      ///< of the packed form, values and indices; the transposed index, which
                               ///< the first transposed product builds, too

  /// Replaces all values, in the order of SparseMatrix::values; of a dense weight, row-major. One
  /// pass. Throws UsageError where their number differs.
  void set_values(std::span<const float> values);
  /// Writes the values in that order. One pass.
  void get_values(std::span<float> values) const;

  /// The values in *packed order*, that of the kernels, which gradients and the state of optimizers
  /// follow as well: packed_size() numbers, those of the same place belonging to one another. Places
  /// that hold no stored value are 0 in all of them, so that elementwise steps may take whole arrays.
  uint64_t packed_size() const;
  /// The values themselves. Throws UsageError unless they are FP32.
  std::span<float> packed_values();
  std::span<const float> packed_values() const;
  /// From the order of SparseMatrix::values (of a dense weight: row-major) to packed order, and back.
  /// Throws UsageError where a size is another.
  void pack(std::span<const float> values, std::span<float> packed) const;
  void unpack(std::span<const float> packed, std::span<float> values) const;

  /// The following are for dynamic weights; they throw UsageError for others, for a pattern of another
  /// shape or block size, a malformed one, and one beyond the capacity. Then nothing has changed.

  /// Takes a new pattern with its values. Packed order begins anew: what an optimizer keeps is void.
  void set_matrix(const SparseMatrix& matrix);
  /// Takes a new pattern. Blocks of both patterns keep their values, those of new ones are 0. The
  /// memory behind packed_values() stays the same.
  Relocation set_pattern(const Pattern& pattern);
  /// Drops some blocks and grows others, in any order; of block size 1, elements. A block in both
  /// lists begins anew. The cost is in proportion to what changes, but for copying the index; of single
  /// elements, whatever shares 2,048 rows and 63 to 1,023 columns with one that changes is packed anew.
  /// Throws UsageError where a block is not there to drop, is there already, is named twice or lies
  /// outside.
  Relocation replace(std::span<const BlockPosition> drop, std::span<const BlockPosition> grow);
  /// Brings the values of blocks into the order of the pattern, as set_matrix() does: after many changes
  /// those of a row lie apart, which costs products with blocks of 4 and 8 up to a tenth. Takes most of
  /// the time of a product at n = 512. Single elements are in order always.
  Relocation compact();

  struct Storage;
  const std::shared_ptr<Storage>& storage() const { return storage_; }

 private:
  explicit Weight(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {}

  std::shared_ptr<Storage> storage_;
};

}  // namespace tessera
