// The packed form of an unstructured sparse matrix: one value array that serves every n.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "base/parallel.h"
#include "sparse/elements/element_index.h"
#include "sparse/elements/element_splits.h"
#include "sparse/moves.h"

namespace tessera::sparse {

/// The index of Wᵀ over the values of W.
struct TransposedElements {
  ElementIndex index;
  std::vector<uint32_t> source;  ///< by place: the place in W of its value; filler: zero_place()
};

/// An unstructured sparse matrix, packed. The values are the master copy; their order is a
/// permutation of the order of SparseMatrix, with filler between.
///
/// A static matrix is packed slowly, for the fastest products. A dynamic matrix has a capacity of non-zeros
/// and takes one pattern after the other, packed quickly; its arrays neither move nor change in length.
class PackedElements {
 public:
  /// A matrix without elements or size.
  PackedElements();
  ~PackedElements();
  PackedElements(PackedElements&&) noexcept;
  PackedElements& operator=(PackedElements&&) noexcept;

  /// Packs a matrix of block size 1 with values of type f32, f16 or bf16.
  PackedElements(const SparseMatrix& matrix, Type type, const ElementPacking& packing = {});

  /// A dynamic matrix with a capacity of `capacity` non-zeros, without any yet. Throws UsageError if they
  /// need more places than 32 bits can number.
  static PackedElements dynamic(uint32_t rows, uint32_t cols, uint64_t capacity, Type type,
                                const ElementPacking& packing = {});

  /// A matrix whose values the caller keeps: static, or dynamic with a capacity of `capacity` non-zeros. The
  /// order of a dynamic matrix is a function of pattern and capacity; only set_pattern() changes it.
  static PackedElements without_values(const Pattern& pattern, Type type, std::optional<uint64_t> capacity,
                                       const base::ParallelFor& parallel = base::serial_for);

  /// A static matrix for which products can be planned, but not run: about `sampled` of its non-zeros are
  /// packed, which takes less time.
  static PackedElements for_planning(const Pattern& pattern, Type type, uint64_t sampled);

  uint32_t rows() const { return index_.rows; }
  uint32_t cols() const { return index_.cols; }
  Type type() const { return type_; }
  uint64_t nonzeros() const { return row_begin_.back(); }
  /// Maximum number of non-zeros; for a static matrix, its non-zeros.
  uint64_t capacity() const;
  bool is_dynamic() const { return dynamic_ != nullptr; }
  bool has_values() const { return !values_.empty(); }

  const ElementIndex& index() const { return index_; }
  uint32_t k_block() const { return index_.k_block; }
  uint32_t k_blocks() const { return index_.k_blocks(); }
  uint32_t chunks() const { return index_.chunks(); }
  const std::vector<uint32_t>& chunk_begin() const { return index_.chunk_begin; }
  const std::vector<ElementBlock>& blocks() const { return index_.blocks; }
  const base::BufferVector<RowGroup>& row_groups() const { return index_.row_groups; }
  const base::BufferVector<uint32_t>& indices() const { return index_.words; }
  /// Number of places of the present pattern, filler included.
  uint64_t value_count() const { return index_.value_count(); }

  /// places() elements of type(): the pattern's values with filler, unused places of a dynamic matrix, and a
  /// few more at the end. Places without a non-zero are zero.
  const std::byte* values() const { return values_.data(); }
  std::byte* values() { return values_.data(); }
  uint64_t places() const { return places_; }
  /// A place that is 0 for every pattern, as are the places after it.
  uint64_t zero_place() const { return places() - kRowGroupLanes; }

  /// The index of the transposed matrix: built on first use, and again after the pattern has changed. May be
  /// called from several threads at once.
  const TransposedElements& transposed(const base::ParallelFor& parallel = base::serial_for) const;

  /// Replaces the values, given in the order of the SparseMatrix: one pass, same pattern.
  void set_values(const float* values, const base::ParallelFor& parallel = base::serial_for);
  /// Writes the values in the order of the SparseMatrix: one pass.
  void get_values(float* values, const base::ParallelFor& parallel = base::serial_for) const;
  /// Converts arrays from the order of the SparseMatrix to packed order, with zeros in between, and back.
  /// Arrays have nonzeros() and places() elements.
  void pack(std::span<const float> values, std::span<float> packed,
            const base::ParallelFor& parallel = base::serial_for) const;
  void unpack(std::span<const float> packed, std::span<float> values,
              const base::ParallelFor& parallel = base::serial_for) const;
  /// Position in the packed array of each non-zero, in the order of the SparseMatrix.
  std::vector<uint64_t> permutation() const;

  /// The pattern, block size 1.
  Pattern pattern(const base::ParallelFor& parallel = base::serial_for) const;

  /// For a dynamic matrix: replaces pattern and values. Throws UsageError for a pattern that is malformed, of
  /// another shape or beyond the capacity, and then changes nothing.
  void set_matrix(const SparseMatrix& matrix, const base::ParallelFor& parallel = base::serial_for);

  /// For a dynamic matrix: replaces the pattern. Elements in both patterns keep their values, new elements
  /// are 0. Returns how places have moved; its arrays are reused once nobody else holds them. Throws as
  /// set_matrix does.
  std::shared_ptr<const Moves> set_pattern(const Pattern& pattern,
                                           const base::ParallelFor& parallel = base::serial_for);

  /// For a dynamic matrix: changes the pattern by dropped and grown elements. An element in both lists is
  /// reset to 0. Also throws UsageError for an element outside the matrix or listed twice, for a dropped
  /// element that does not exist, and for a grown element that exists. Each k-block of a chunk in which
  /// something changes is packed again in place; if one has no space left, all k-blocks are packed again.
  std::shared_ptr<const Moves> replace(std::span<const BlockPosition> drop,
                                       std::span<const BlockPosition> grow,
                                       const base::ParallelFor& parallel = base::serial_for);

  /// Bytes of the values, filler included; and of everything that kernels read besides.
  size_t value_bytes() const { return values_.size(); }
  size_t index_bytes() const;

 private:
  struct Dynamic;
  struct Transposed;

  PackedElements(ElementIndex split, Type type);
  PackedElements(const Pattern& pattern, Type type, const ElementPacking& packing);
  static PackedElements with_room(uint32_t rows, uint32_t cols, uint64_t capacity, Type type,
                                  const ElementPacking& packing);
  void check_places(uint64_t places) const;
  void check_dynamic() const;
  void check(const Pattern& pattern) const;
  void check_capacity(uint64_t nonzeros) const;
  void take_pattern(const Pattern& pattern, bool keeps_values, const base::ParallelFor& parallel);
  void take_others(std::span<const uint32_t> blocks, const base::ParallelFor& parallel);
  std::shared_ptr<const Moves> repack(std::span<const uint32_t> blocks, const base::ParallelFor& parallel);
  template <class T>
  void repack_in_place(std::span<const uint32_t> blocks, Moves& moves, const base::ParallelFor& parallel);
  template <class T>
  void repack_all(Moves* moves, const base::ParallelFor& parallel);
  void repack_index(Moves& moves, const base::ParallelFor& parallel);
  void allocate_values();

  /// Calls visit(position in the SparseMatrix, place, column) for each non-zero.
  template <class Visit>
  void for_each_nonzero(const base::ParallelFor& parallel, const Visit& visit) const;

  Type type_ = Type::f32;
  std::vector<uint64_t> row_begin_ = {0};
  ElementIndex index_;
  uint64_t places_ = kRowGroupLanes;
  base::BufferVector<std::byte> values_;
  std::unique_ptr<Dynamic> dynamic_;
  std::unique_ptr<Transposed> transposed_;
};

}  // namespace tessera::sparse
