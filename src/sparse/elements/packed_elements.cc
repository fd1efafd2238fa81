#include <algorithm>
#include <cassert>

#include "base/half.h"
#include "sparse/elements/pack_paired.h"
#include "sparse/elements/packed_elements_inside.h"
#include "sparse/packed_values.h"
#include "sparse/pattern.h"

namespace tessera::sparse {

PackedElements::PackedElements() : PackedElements(ElementIndex{}, Type::f32) { allocate_values(); }
PackedElements::~PackedElements() = default;
PackedElements::PackedElements(PackedElements&&) noexcept = default;
PackedElements& PackedElements::operator=(PackedElements&&) noexcept = default;

PackedElements::PackedElements(ElementIndex split, Type type)
    : type_(type),
      row_begin_(split.rows + size_t{1}),
      index_(std::move(split)),
      transposed_(std::make_unique<Transposed>()) {
  validate_weight_type(type);
}

PackedElements::PackedElements(const Pattern& pattern, Type type, const ElementPacking& packing)
    : PackedElements(split_for(pattern, packing), type) {
  assert(pattern.block_size == 1);
  row_begin_ = pattern.crow_indices;
  pack_paired(pattern, index_);
  places_ = value_count() + kRowGroupLanes;
}

PackedElements::PackedElements(const SparseMatrix& matrix, Type type, const ElementPacking& packing)
    : PackedElements(matrix.pattern, type, packing) {
  allocate_values();
  set_values(matrix.values.data());
}

PackedElements PackedElements::without_values(const Pattern& pattern, Type type,
                                              std::optional<uint64_t> capacity,
                                              const base::ParallelFor& parallel) {
  if (!capacity) return {pattern, type, {}};
  PackedElements w = with_room(pattern.rows, pattern.cols, *capacity, type, {});
  w.set_pattern(pattern, parallel);
  return w;
}

PackedElements PackedElements::for_planning(const Pattern& pattern, Type type, uint64_t sampled) {
  assert(pattern.block_size == 1);
  PackedElements w(split_for(pattern, {}), type);
  w.row_begin_ = pattern.crow_indices;
  sample_paired(pattern, sampled, w.index_);
  w.places_ = w.value_count() + kRowGroupLanes;
  return w;
}

void PackedElements::allocate_values() { values_.resize(places_ * size_of(type_)); }

void PackedElements::set_values(const float* values, const base::ParallelFor& parallel) {
  with_values(type_, values_.data(), [&](auto* packed) {
    for_each_nonzero(parallel, [&](uint64_t position, uint64_t place, uint32_t) {
      convert(values[position], packed[place]);
    });
  });
}

void PackedElements::get_values(float* values, const base::ParallelFor& parallel) const {
  with_values(type_, values_.data(), [&](const auto* packed) {
    for_each_nonzero(parallel, [&](uint64_t position, uint64_t place, uint32_t) {
      values[position] = base::to_float(packed[place]);
    });
  });
}

void PackedElements::pack(std::span<const float> values, std::span<float> packed,
                          const base::ParallelFor& parallel) const {
  assert(values.size() == nonzeros() && packed.size() == places());
  std::fill(packed.begin(), packed.end(), 0.0F);
  for_each_nonzero(parallel,
                   [&](uint64_t position, uint64_t place, uint32_t) { packed[place] = values[position]; });
}

void PackedElements::unpack(std::span<const float> packed, std::span<float> values,
                            const base::ParallelFor& parallel) const {
  assert(values.size() == nonzeros() && packed.size() == places());
  for_each_nonzero(parallel,
                   [&](uint64_t position, uint64_t place, uint32_t) { values[position] = packed[place]; });
}

std::vector<uint64_t> PackedElements::permutation() const {
  std::vector<uint64_t> place_of(nonzeros());
  for_each_nonzero(base::serial_for,
                   [&](uint64_t position, uint64_t place, uint32_t) { place_of[position] = place; });
  return place_of;
}

Pattern PackedElements::pattern(const base::ParallelFor& parallel) const {
  Pattern pattern{rows(), cols(), 1, row_begin_, std::vector<uint32_t>(nonzeros())};
  for_each_nonzero(parallel, [&](uint64_t position, uint64_t, uint32_t column) {
    pattern.col_indices[position] = column;
  });
  return pattern;
}

const TransposedElements& PackedElements::transposed(const base::ParallelFor& parallel) const {
  Transposed& t = *transposed_;
  if (t.is_current.load(std::memory_order_acquire)) return t.elements;
  const std::lock_guard lock(t.mutex);
  if (t.is_current.load(std::memory_order_relaxed)) return t.elements;
  check_places(places());
  const auto none = static_cast<uint32_t>(zero_place());
  ElementIndex& index = t.elements.index;
  if (index.rows != cols() || index.cols != rows()) {
    index = split_for_shape(cols(), rows(), capacity(), {});
    if (is_dynamic()) {
      reserve(index, capacity());
      t.elements.source.assign(most_places(index, capacity()), none);
    }
  }
  pack_transposed(index_, none, index, t.elements.source, parallel);
  t.is_current.store(true, std::memory_order_release);
  return t.elements;
}

uint64_t PackedElements::capacity() const { return is_dynamic() ? dynamic_->capacity : nonzeros(); }

size_t PackedElements::index_bytes() const {
  size_t bytes = index_.bytes();
  if (transposed_->is_current)
    bytes += transposed_->elements.index.bytes() + transposed_->elements.source.size() * sizeof(uint32_t);
  if (dynamic_ != nullptr) bytes += dynamic_->bytes();
  return bytes;
}

}  // namespace tessera::sparse
