// Sparse and dense weights, prepared for products.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace tessera {

/// Describes how packed order changed with a dynamic weight's pattern.
class Relocation {
 public:
  struct Moves;
  explicit Relocation(std::shared_ptr<const Moves> moves) : moves_(std::move(moves)) {}

  /// Rearranges an array in packed order, such as a momentum, to match the weight's new order: entries of
  /// values that stay are kept, the others become 0. Throws UsageError if its size is not packed_size().
  void apply(std::span<float> state) const;

 private:
  std::shared_ptr<const Moves> moves_;
};

/// An order of a weight's packed values, as read by one kind of kernel. A number denotes one order
/// permanently, as a function of the pattern alone, independent of the host and the number of threads. An
/// array saved with the number of its format, such as a momentum, can therefore be converted to the format of
/// any weight with the same pattern.
enum class PackedFormat : uint32_t {
  values = 0,  ///< the order of SparseMatrix::values, including the overhang
  blocks = 1,  ///< block by block; within a block, strips of 8 rows of pairs of columns (block size 4:
               ///< row-major)
  rotated_blocks = 2,     ///< `blocks` of a full pattern, with the blocks of block row r rotated by r places
  row_groups = 3,         ///< single elements: chunks of rows, k-blocks, and groups of sixteen pairs of rows
  dynamic = 4,            ///< the order of a dynamic weight, which depends on all patterns that it has had
  sorted_row_groups = 5,  ///< single elements with spare capacity: rows grouped by their number of elements;
                          ///< a function of the pattern and the capacity
  whole_row_groups = 6,  ///< row_groups with all columns in one k-block: up to 383 columns below a density of
                         ///< 1/8, up to 1,023 below 3/40, up to 4,095 below 1/32
  sorted_whole_row_groups = 7,  ///< whole_row_groups with spare capacity, sorted as in sorted_row_groups
  panels = 8,  ///< for a full pattern: 16 rows at a time, column by column; zeros after the last row
};
std::string_view name_of(PackedFormat format);

/// The number of elements of an array in a packed format for a pattern. Throws UsageError if the format does
/// not apply to such a pattern.
uint64_t packed_size(PackedFormat format, const Pattern& pattern);

/// Converts an array from one format to another; places without a stored value become 0. Computing the order
/// of row groups takes as long as preparing a weight. Throws UsageError if a size is wrong or a format does
/// not apply to such a pattern; `dynamic` never does: save the result of Weight::unpack() in format `values`
/// instead. The sorted formats depend on a capacity too: use pack() and unpack() of a weight with that
/// capacity.
void permute_packed(PackedFormat from, PackedFormat to, const Pattern& pattern, std::span<const float> source,
                    std::span<float> target);

/// A weight matrix prepacked for the kernels, once for every n: its values in one array, the master copy,
/// with indices on top. Copies share the storage.
///
/// Prepacking costs a pass or two over the non-zeros. Products made from a weight keep its storage alive.
/// Values may be replaced whenever no product runs.
///
/// The pattern of a *dynamic* weight may change as well: a block that stays keeps its place among the packed
/// values (single elements are packed again), and products use the new pattern without being planned again.
/// See docs/training.md.
class Weight {
 public:
  /// Prepacks a sparse matrix of block size 1, 4, 8, 16 or 32, with values rounded to `type` (f32, f16 or
  /// bf16). Throws UsageError for another type or block size, and Error for a malformed pattern.
  explicit Weight(const SparseMatrix& matrix, Type type = Type::f32);

  /// Prepacks an m × k dense matrix, in which every element is stored.
  static Weight dense(MatrixView<const float> values, uint32_t m, uint32_t k, Type type = Type::f32);

  /// Prepacks a matrix whose pattern may change, with a capacity of `capacity_blocks` blocks (for block size
  /// 1: non-zeros). Also throws UsageError if the pattern has more blocks.
  static Weight dynamic(const SparseMatrix& matrix, uint64_t capacity_blocks, Type type = Type::f32);

  /// A weight whose values the caller keeps, in an array of packed_size() elements of `type` that products
  /// are given in each call (SpmmArguments::values), such as a framework's tensor. With a capacity it is
  /// dynamic, and set_pattern() changes its pattern; packed order remains a function of pattern and capacity:
  /// `blocks` with the spare capacity at the end, or a sorted format. Throws as the functions above.
  static Weight without_values(const Pattern& pattern, Type type = Type::f32);
  static Weight without_values(const Pattern& pattern, uint64_t capacity_blocks, Type type = Type::f32);

  uint32_t rows() const;        ///< m
  uint32_t cols() const;        ///< k
  uint32_t block_size() const;  ///< b; for a dense weight, the block size of its pattern()
  Type type() const;
  bool is_dense() const;
  bool is_dynamic() const;
  bool has_values() const;     ///< whether the weight keeps its values itself; otherwise functions that read
                               ///< or write values throw UsageError
  uint64_t capacity() const;   ///< maximum number of blocks; for a static weight, its blocks
  Pattern pattern() const;     ///< the current pattern; for a dense weight, a full pattern in blocks of 8
  uint64_t non_zeros() const;  ///< stored values inside the matrix
  uint64_t bytes() const;      ///< size of the prepacked form: values and indices, including the transposed
                               ///< index, which the first transposed product builds

  /// Replaces all values, given in the order of SparseMatrix::values, or row-major for a dense weight. One
  /// pass. Throws UsageError if their number is wrong.
  void set_values(std::span<const float> values);
  /// Writes the values in the order that set_values() takes. One pass.
  void get_values(std::span<float> values) const;

  /// Size of an array in *packed order*, the order in which kernels read values. Values, gradients and
  /// optimizer state all have packed_size() numbers in it, with corresponding elements at the same place.
  /// Places without a stored value are 0 in all of them, so that elementwise updates may process whole
  /// arrays.
  uint64_t packed_size() const;
  /// The format of packed order; see permute_packed(). For a dense weight, it applies to its pattern().
  PackedFormat packed_format() const;
  /// The values in packed order. Throws UsageError unless they are FP32.
  std::span<float> packed_values();
  std::span<const float> packed_values() const;
  /// Convert between the order of SparseMatrix::values (for a dense weight: row-major) and packed order.
  /// Throw UsageError if a size is wrong.
  void pack(std::span<const float> values, std::span<float> packed) const;
  void unpack(std::span<const float> packed, std::span<float> values) const;

  /// The following are for dynamic weights. They throw UsageError for other weights, and for a pattern that
  /// is malformed, has another shape or block size, or exceeds the capacity; the weight is then unchanged.

  /// Sets a new pattern with its values. Packed order begins anew: optimizer state becomes invalid.
  void set_matrix(const SparseMatrix& matrix);
  /// Sets a new pattern. Blocks in both patterns keep their values, new blocks are 0. The memory behind
  /// packed_values() does not move. If the caller keeps the values, the relocation must be applied to them
  /// too.
  Relocation set_pattern(const Pattern& pattern);
  /// Drops some blocks and grows others, in any order; for block size 1, elements. A block in both lists is
  /// reset to 0. The cost is proportional to the changes, plus copying the index; for single elements,
  /// everything within the same 2,048 rows and 63 to 1,023 columns as a change is packed again. Throws
  /// UsageError if a dropped block is missing, a grown one exists, or a block is listed twice or lies
  /// outside.
  Relocation replace(std::span<const BlockPosition> drop, std::span<const BlockPosition> grow);
  /// Restores the values of blocks to the order of the pattern, like set_matrix(): after many changes the
  /// blocks of a row lie apart, which slows down products with blocks of 4 and 8 by up to a tenth. Takes most
  /// of the time of a product at n = 512. Single elements are always in order.
  Relocation compact();

  struct Storage;
  const std::shared_ptr<Storage>& storage() const { return storage_; }

 private:
  explicit Weight(std::shared_ptr<Storage> storage) : storage_(std::move(storage)) {}

  std::shared_ptr<Storage> storage_;
};

}  // namespace tessera
