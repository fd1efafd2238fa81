// The row groups of a slice's k-blocks, with values in FP32.
#if defined(TESSERA_ELEMENT_SPARSE_ROW_GROUPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ELEMENT_SPARSE_ROW_GROUPS_INL_H_
#undef TESSERA_ELEMENT_SPARSE_ROW_GROUPS_INL_H_
#else
#define TESSERA_ELEMENT_SPARSE_ROW_GROUPS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/common/convert-inl.h"
#include "kernels/host/element_sparse/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

class RowGroups {
 public:
  // `widened` has space for the values of a row group that are stored in fewer bits.
  RowGroups(const ElementWeight& weight, float* widened) : w_(weight), widened_(widened) {}

  // Calls visit(row group, its values, its index words) for each row group of a k-block.
  template <class Visit>
  HWY_INLINE void each(uint32_t chunk, uint32_t block, const Visit& visit) const {
    const sparse::ElementBlock* at = w_.blocks + uint64_t{chunk} * w_.k_blocks() + block;
    uint64_t value = at->value;
    const uint32_t* words = w_.indices + at->index;
    for (uint64_t i = at[0].row_group; i < at[1].row_group; ++i) {
      const sparse::RowGroup& row_group = w_.row_groups[i];
      visit(row_group, values_of(row_group, value), words);
      value += row_group.value_count();
      words += row_group.index_count();
    }
  }

 private:
  const float* values_of(const sparse::RowGroup& row_group, uint64_t value) const {
    switch (w_.type) {
      case Type::f16: return widen(static_cast<const base::Half*>(w_.values) + value, row_group);
      case Type::bf16: return widen(static_cast<const base::Bfloat16*>(w_.values) + value, row_group);
      default: return static_cast<const float*>(w_.values) + value;
    }
  }

  template <class T>
  const float* widen(const T* values, const sparse::RowGroup& row_group) const {
    const hn::CappedTag<float, sparse::kRowGroupLanes> d;
    for (size_t i = 0; i < row_group.value_count(); i += hn::Lanes(d)) {
      hn::Store(load_f32(d, values + i), d, widened_ + i);
    }
    return widened_;
  }

  const ElementWeight& w_;
  float* widened_;
};

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
