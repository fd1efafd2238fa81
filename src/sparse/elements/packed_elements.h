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
  std::vector<uint32_t> source;  ///< the place in W of the value of each place; filler: zero_place()
};

/// An unstructured sparse matrix, packed. The values are the master copy; their order is a
/// permutation of the order of SparseMatrix, with filler between.
///
/// A static matrix is packed slowly, for the fastest products. A dynamic one has room for a number
/// of non-zeros and takes one pattern after the other, packed quickly; its arrays stay where they
/// are, and as long as they are.
class PackedElements {
 public:
  /// A matrix without elements or size.
  PackedElements();
  ~PackedElements();
  PackedElements(PackedElements&&) noexcept;
  PackedElements& operator=(PackedElements&&) noexcept;

  /// Packs a matrix of block size 1 with values of type f32, f16 or bf16.
  PackedElements(const SparseMatrix& matrix, Type type, const ElementPacking& packing = {});

  /// A dynamic matrix with room for `capacity` non-zeros, and without any yet. Throws UsageError
  /// where they need more places than 32 bits can number.
  static PackedElements dynamic(uint32_t rows, uint32_t cols, uint64_t capacity, Type type,
                                const ElementPacking& packing = {});

  /// A matrix whose values the caller keeps: static, or dynamic with room for `capacity` non-zeros. The order
  /// of a dynamic one is a function of pattern and capacity; only set_pattern() changes it.
  static PackedElements without_values(const Pattern& pattern, Type type, std::optional<uint64_t> capacity,
                                       const base::ParallelFor& parallel = base::serial_for);

  /// A static matrix that products can be planned for, but not run: of its non-zeros about `sampled` are
  /// packed, which takes less time.
  static PackedElements for_planning(const Pattern& pattern, Type type, uint64_t sampled);

  uint32_t rows() const { return index_.rows; }
  uint32_t cols() const { return index_.cols; }
  Type type() const { return type_; }
  uint64_t nonzeros() const { return row_begin_.back(); }
  /// Non-zeros that there is room for: of a static matrix, those that it has.
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
  /// Places of the present pattern, filler included.
  uint64_t value_count() const { return index_.value_count(); }

  /// Elements of type(), places() of them: those of the pattern with filler, unused ones of a
  /// dynamic matrix, and a few more behind. Where there is no non-zero there is a zero.
  const std::byte* values() const { return values_.data(); }
  std::byte* values() { return values_.data(); }
  uint64_t places() const { return places_; }
  /// A place that is 0 under every pattern, as are those behind it.
  uint64_t zero_place() const { return places() - kRowGroupLanes; }

  /// The index of the transposed matrix: built on first use, and anew where the pattern has changed
  /// since. May be called from several threads at once.
  const TransposedElements& transposed(const base::ParallelFor& parallel = base::serial_for) const;

  /// Replaces the values, given in the order of the SparseMatrix: one pass, same pattern.
  void set_values(const float* values, const base::ParallelFor& parallel = base::serial_for);
  /// Writes the values in the order of the SparseMatrix: one pass.
  void get_values(float* values, const base::ParallelFor& parallel = base::serial_for) const;
  /// From that order to packed order, zeros between, and back. Arrays of nonzeros() and of
  /// places().
  void pack(std::span<const float> values, std::span<float> packed,
            const base::ParallelFor& parallel = base::serial_for) const;
  void unpack(std::span<const float> packed, std::span<float> values,
              const base::ParallelFor& parallel = base::serial_for) const;
  /// Position in the packed array of each non-zero, in the order of the SparseMatrix.
  std::vector<uint64_t> permutation() const;

  /// The pattern, block size 1.
  Pattern pattern(const base::ParallelFor& parallel = base::serial_for) const;

  /// Of a dynamic matrix: replaces pattern and values. Throws UsageError for a pattern that is
  /// malformed, of another shape or beyond the capacity, and then changes nothing.
  void set_matrix(const SparseMatrix& matrix, const base::ParallelFor& parallel = base::serial_for);

  /// Of a dynamic matrix: replaces the pattern. Elements of both patterns keep their values, new
  /// ones are 0. Returns how places have moved; the arrays are reused once nobody else holds them.
  /// Throws as set_matrix does.
  std::shared_ptr<const Moves> set_pattern(const Pattern& pattern,
                                           const base::ParallelFor& parallel = base::serial_for);

  /// The same, by the elements that go and that come. One in both lists begins anew, at 0. Throws
  /// UsageError too for an element outside the matrix or named twice, for one to go that is not
  /// there, and for one to come that is there. Takes time for each k-block of a chunk of rows in
  /// which something changes: these are packed anew, where they lie. Where one has no room left,
  /// all are.
  std::shared_ptr<const Moves> replace(std::span<const BlockPosition> drop,
                                       std::span<const BlockPosition> grow,
                                       const base::ParallelFor& parallel = base::serial_for);

  /// Bytes of the values, filler included, and of everything that is read beside them.
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
