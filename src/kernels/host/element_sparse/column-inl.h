// The inner loop for a single column: all tasks of a row group at once.
#if defined(TESSERA_ELEMENT_SPARSE_COLUMN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ELEMENT_SPARSE_COLUMN_INL_H_
#undef TESSERA_ELEMENT_SPARSE_COLUMN_INL_H_
#else
#define TESSERA_ELEMENT_SPARSE_COLUMN_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/host/element_sparse/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using sparse::kRowGroupLanes;
using sparse::RowGroup;

using Lanes = hn::CappedTag<float, kRowGroupLanes>;
using Words = hn::RebindToSigned<Lanes>;

// Shift from a scaled column to the column.
inline constexpr int kScaleBits = 4;
static_assert(sparse::kColumnScale == 1 << kScaleBits);

// Gathers elements of x by columns, given in the lower halves of words.
class Gathered {
 public:
  explicit Gathered(const float* x) : x_(x) {}

  HWY_INLINE hn::Vec<Lanes> lower(hn::Vec<Words> word) const {
    return hn::GatherIndex(Lanes(), x_, hn::ShiftRight<kScaleBits>(hn::And(word, hn::Set(Words(), 0xFFFF))));
  }
  HWY_INLINE hn::Vec<Lanes> upper(hn::Vec<Words> word) const {
    const hn::RebindToUnsigned<Words> bits;
    const auto column = hn::ShiftRight<16 + kScaleBits>(hn::BitCast(bits, word));
    return hn::GatherIndex(Lanes(), x_, hn::BitCast(Words(), column));
  }

 private:
  const float* x_;
};

#if HWY_TARGET == HWY_AVX3
// Looks up elements of x with a k-block of x in kTables registers: a gather takes one load per element, a
// lookup among 32 elements a single instruction.
template <size_t kTables>
class LookedUp {
 public:
  explicit LookedUp(const float* x) {
    for (size_t i = 0; i < kTables; ++i) table_[i] = hn::LoadU(Lanes(), x + i * hn::Lanes(Lanes()));
  }

  HWY_INLINE hn::Vec<Lanes> lower(hn::Vec<Words> word) const {
    return find<kTables>(hn::ShiftRight<kScaleBits>(word), 0);
  }
  HWY_INLINE hn::Vec<Lanes> upper(hn::Vec<Words> word) const {
    return find<kTables>(hn::ShiftRight<16 + kScaleBits>(word), 0);
  }

 private:
  template <size_t kCount>
  HWY_INLINE hn::Vec<Lanes> find(hn::Vec<Words> column, size_t first) const {
    if constexpr (kCount == 2) {
      return hn::Vec<Lanes>{_mm512_permutex2var_ps(table_[first].raw, column.raw, table_[first + 1].raw)};
    } else {
      constexpr size_t kHalf = kCount / 2;
      const auto bit = hn::Set(Words(), static_cast<int32_t>(kHalf * hn::Lanes(Lanes())));
      return hn::IfThenElse(hn::RebindMask(Lanes(), hn::TestBit(column, bit)),
                            find<kHalf>(column, first + kHalf), find<kHalf>(column, first));
    }
  }

  hn::Vec<Lanes> table_[kTables];
};

// Looks up half of the elements in sixteen registers, and gathers the other half: both take about as long, on
// the shuffle ports and on the load ports.
class Mixed {
 public:
  explicit Mixed(const float* x) : table_(x), memory_(x) {}

  HWY_INLINE hn::Vec<Lanes> lower(hn::Vec<Words> word) const { return table_.lower(word); }
  HWY_INLINE hn::Vec<Lanes> upper(hn::Vec<Words> word) const { return memory_.upper(word); }

 private:
  LookedUp<16> table_;
  Gathered memory_;
};
#endif

// Prefetch distance of row groups, in values; there is about one word per two values.
inline constexpr size_t kValuesAhead = 1024;

template <class X>
HWY_INLINE void run_column(const RowGroup& row_group, const float* HWY_RESTRICT values,
                           const uint32_t* HWY_RESTRICT words, const X& x, float* HWY_RESTRICT y) {
  constexpr size_t kStep = kRowGroupLanes;
  const Lanes d;
  const size_t shared = row_group.shared_steps / 2;
  const size_t unpaired = row_group.unpaired_steps;
  HWY_ALIGN float sums[2 * kRowGroupLanes];
  for (size_t lane = 0; lane < kRowGroupLanes; lane += hn::Lanes(d)) {
    auto a = hn::Zero(d);
    auto b = hn::Zero(d);
    const float* w = values + lane;
    const auto* word = reinterpret_cast<const int32_t*>(words) + lane;
    for (size_t s = 0; s < shared; ++s, w += 4 * kStep, word += kStep) {
      for (size_t i = 0; i < 4; ++i) hwy::Prefetch(w + kValuesAhead + i * kStep);
      hwy::Prefetch(word + kValuesAhead / 2);
      const auto columns = hn::LoadU(Words(), word);
      const auto x0 = x.lower(columns);
      const auto x1 = x.upper(columns);
      a = hn::MulAdd(hn::LoadU(d, w), x0, a);
      b = hn::MulAdd(hn::LoadU(d, w + kStep), x0, b);
      a = hn::MulAdd(hn::LoadU(d, w + 2 * kStep), x1, a);
      b = hn::MulAdd(hn::LoadU(d, w + 3 * kStep), x1, b);
    }
    for (size_t s = 0; s < unpaired; ++s, w += 2 * kStep, word += kStep) {
      for (size_t i = 0; i < 2; ++i) hwy::Prefetch(w + kValuesAhead + i * kStep);
      hwy::Prefetch(word + kValuesAhead / 2);
      const auto columns = hn::LoadU(Words(), word);
      a = hn::MulAdd(hn::LoadU(d, w), x.lower(columns), a);
      b = hn::MulAdd(hn::LoadU(d, w + kStep), x.upper(columns), b);
    }
    hn::Store(a, d, sums + lane);
    hn::Store(b, d, sums + kRowGroupLanes + lane);
  }
  for (size_t t = 0; t < kRowGroupLanes; ++t) {
    y[row_group.row_a[t]] += sums[t];
    y[row_group.row_b[t]] += sums[kRowGroupLanes + t];
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
