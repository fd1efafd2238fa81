// The inner loops: the tasks of a row group times a panel of X.
#if defined(TESSERA_ELEMENT_SPARSE_TASKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_ELEMENT_SPARSE_TASKS_INL_H_
#undef TESSERA_ELEMENT_SPARSE_TASKS_INL_H_
#else
#define TESSERA_ELEMENT_SPARSE_TASKS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/common/accumulate-inl.h"
#include "kernels/common/activation-inl.h"
#include "kernels/common/convert-inl.h"
#include "kernels/host/element_sparse/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using sparse::kRowGroupLanes;
using sparse::RowGroup;

// Rows of a packed panel of X `width` wide, by the column in half a word.
template <size_t width>
struct PackedRows {
  const float* HWY_RESTRICT x;

  HWY_INLINE const float* at(size_t half_word) const {
    constexpr size_t kRowBytes = width * sizeof(float);
    const size_t offset = kRowBytes < sparse::kColumnScale ? half_word / (sparse::kColumnScale / kRowBytes)
                                                           : half_word * (kRowBytes / sparse::kColumnScale);
    return reinterpret_cast<const float*>(reinterpret_cast<const char*>(x) + offset);
  }
};

// Rows of X in a piece of planes, by the columns of a k-block.
struct PlaneRows {
  const float* HWY_RESTRICT x;
  const uint32_t* HWY_RESTRICT begins;

  HWY_INLINE const float* at(size_t half_word) const { return x + begins[half_word / sparse::kColumnScale]; }
};

// Rows of X in place; filler reads a row of zeros.
class RowsInPlace {
 public:
  RowsInPlace(const float* x, size_t row_bytes, uint32_t filler_column, const float* zeros)
      : x_(reinterpret_cast<uintptr_t>(x)),
        scale_(row_bytes / sparse::kColumnScale),
        filler_(size_t{filler_column} * sparse::kColumnScale),
        filler_to_zeros_(reinterpret_cast<uintptr_t>(zeros) - (x_ + filler_ * scale_)) {}

  // Without a branch: its misprediction, once per row, would expose the latency of the next reads.
  HWY_INLINE const float* at(size_t half_word) const {
    const uintptr_t correction = -static_cast<uintptr_t>(half_word == filler_) & filler_to_zeros_;
    return reinterpret_cast<const float*>(x_ + half_word * scale_ + correction);
  }

 private:
  uintptr_t x_;
  size_t scale_;
  size_t filler_;
  uintptr_t filler_to_zeros_;
};

template <class RowsOfX>
HWY_INLINE const float* lower_row(const RowsOfX& x, uint32_t word) {
  return x.at(word & 0xFFFF);
}
template <class RowsOfX>
HWY_INLINE const float* upper_row(const RowsOfX& x, uint32_t word) {
  return x.at(word >> 16);
}

// Keeps the compiler from loading a row of X twice, as the operand of two instructions.
template <class V>
HWY_INLINE void keep_in_register(V& v) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  asm("" : "+v"(v.raw));
#else
  (void)v;
#endif
}

// Forces an address into one register. Otherwise the compiler folds the sum of two into each multiply-add
// that loads from it, which x86 cores split in two: a seventh more time.
HWY_INLINE void keep_in_register(const float*& address) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  asm("" : "+r"(address));
#else
  (void)address;
#endif
}

// A part of a row of Y in registers.
template <class D, size_t kVectors>
struct RowSum {
  hn::Vec<D> sum[kVectors];

  // An implicit constructor would be compiled without the instruction set's options.
  HWY_INLINE RowSum() {}
  HWY_INLINE void clear(D d) {
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) sum[v] = hn::Zero(d);
  }
  HWY_INLINE void load(D d, const float* y) {
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) sum[v] = hn::Load(d, y + v * hn::Lanes(d));
  }
  HWY_INLINE void store(D d, float* y) const {
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) hn::Store(sum[v], d, y + v * hn::Lanes(d));
  }
  HWY_INLINE void add(D d, float value, const float* x) {
    const auto w = hn::Set(d, value);
    keep_in_register(x);
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) {
      sum[v] = hn::MulAdd(w, hn::LoadU(d, x + v * hn::Lanes(d)), sum[v]);
    }
  }
};

template <class D, size_t kVectors>
HWY_INLINE void add_shared(D d, float value_a, float value_b, const float* x, RowSum<D, kVectors>& a,
                           RowSum<D, kVectors>& b) {
  const auto w_a = hn::Set(d, value_a);
  const auto w_b = hn::Set(d, value_b);
#pragma GCC unroll 16
  for (size_t v = 0; v < kVectors; ++v) {
    auto row = hn::LoadU(d, x + v * hn::Lanes(d));
    keep_in_register(row);
    accumulate(w_a, row, a.sum[v]);
    accumulate(w_b, row, b.sum[v]);
  }
}

// Prefetches the part of the next row group that corresponds to `steps` steps of a task.
HWY_INLINE void prefetch_part(const float* values, const uint32_t* words, size_t steps) {
  for (size_t i = 0; i < steps; i += 16) {
    hwy::Prefetch(values + 2 * i);
    hwy::Prefetch(values + 2 * i + 16);
    hwy::Prefetch(words + i);
  }
}

// Sums in scratch, which each k-block continues.
template <class D, size_t kVectors>
struct KeptRows {
  float* HWY_RESTRICT sums;

  HWY_INLINE void begin(D d, size_t row, RowSum<D, kVectors>& sum) const {
    sum.load(d, sums + row * kVectors * hn::Lanes(d));
  }
  HWY_INLINE void end(D d, size_t row, const RowSum<D, kVectors>& sum) const {
    sum.store(d, sums + row * kVectors * hn::Lanes(d));
  }
};

// Sums in scratch, complete after one k-block.
template <class D, size_t kVectors>
struct NewRows {
  float* HWY_RESTRICT sums;

  HWY_INLINE void begin(D d, size_t, RowSum<D, kVectors>& sum) const { sum.clear(d); }
  HWY_INLINE void end(D d, size_t row, const RowSum<D, kVectors>& sum) const {
    sum.store(d, sums + row * kVectors * hn::Lanes(d));
  }
};

// Sums that are rows of Y: added to a bias, or to Y.
template <class D, size_t kVectors>
struct RowsOfY {
  float* HWY_RESTRICT y;
  int64_t row_stride;
  size_t rows;
  float* HWY_RESTRICT spare;  // instead of a row that does not exist
  const float* bias;          // bias of the first row, or null
  bool adds;
  Activation activation;  // none, relu or relu6
  size_t missing;         // columns of the last vector that Y lacks; then it does not add

  HWY_INLINE float* at(size_t row) const {
    return row < rows ? y + static_cast<int64_t>(row) * row_stride : spare;
  }
  HWY_INLINE void begin(D d, size_t row, RowSum<D, kVectors>& sum) const {
    const auto first = hn::Set(d, bias != nullptr && row < rows ? bias[row] : 0.0F);
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) sum.sum[v] = first;
    if (!adds) return;
    const float* line = at(row);
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) sum.sum[v] = hn::Add(first, hn::LoadU(d, line + v * hn::Lanes(d)));
  }
  HWY_INLINE void end(D d, size_t row, const RowSum<D, kVectors>& sum) const {
    if (activation == Activation::none) return put(d, at(row), sum);
    RowSum<D, kVectors> bounded;
    const auto most =
        hn::Set(d, activation == Activation::relu6 ? 6.0F : std::numeric_limits<float>::infinity());
#pragma GCC unroll 16
    for (size_t v = 0; v < kVectors; ++v) {
      const auto value = activate(d, Activation::relu, sum.sum[v]);
      bounded.sum[v] = hn::IfThenElse(hn::Gt(value, most), most, value);
    }
    put(d, at(row), bounded);
  }

 private:
  HWY_INLINE void put(D d, float* line, const RowSum<D, kVectors>& sum) const {
#pragma GCC unroll 16
    for (size_t v = 0; v + 1 < kVectors; ++v) hn::StoreU(sum.sum[v], d, line + v * hn::Lanes(d));
    float* last = line + (kVectors - 1) * hn::Lanes(d);
    if (missing == 0)
      hn::StoreU(sum.sum[kVectors - 1], d, last);
    else
      store_masked(d, sum.sum[kVectors - 1], last, hn::Lanes(d) - missing);
  }
};

// kTasks tasks at a time, kVectors vectors of columns: enough independent sums to hide the latency of the
// multiply-adds. Tasks beyond the last are filler, and so are steps beyond the end of a task's quarter.
template <size_t kVectors, size_t kTasks, class D, class RowsOfX, class Rows>
HWY_INLINE void run_tasks(D d, const RowGroup& row_group, const float* HWY_RESTRICT values,
                          const uint32_t* HWY_RESTRICT words, const RowsOfX& x, const Rows& rows) {
  static_assert(kTasks <= sparse::kQuarterLanes);
  constexpr size_t kStep = kRowGroupLanes;
  const size_t shared = row_group.shared_steps / 2 * kStep;
  const size_t steps = (size_t{row_group.shared_steps} + row_group.unpaired_steps) * kTasks;
  const float* next_values = values + row_group.value_count();
  const uint32_t* next_words = words + row_group.index_count();
  const uint16_t* row = row_group.row_a;
  for (const uint16_t* end_row = row + row_group.tasks; row < end_row;
       row += kTasks, values += kTasks, words += kTasks) {
    prefetch_part(next_values, next_words, steps);
    next_values += 2 * steps;
    next_words += steps;
    RowSum<D, kVectors> a[kTasks], b[kTasks];
#pragma GCC unroll 4
    for (size_t t = 0; t < kTasks; ++t) {
      rows.begin(d, row[t], a[t]);
      rows.begin(d, row[kRowGroupLanes + t], b[t]);
    }
    const float* w = values;
    const uint32_t* word = words;
    for (const uint32_t* end = word + shared; word != end; word += kStep, w += 4 * kStep) {
#pragma GCC unroll 4
      for (size_t t = 0; t < kTasks; ++t) {
        add_shared(d, w[t], w[kStep + t], lower_row(x, word[t]), a[t], b[t]);
        add_shared(d, w[2 * kStep + t], w[3 * kStep + t], upper_row(x, word[t]), a[t], b[t]);
      }
    }
    const size_t quarter = static_cast<size_t>(row - row_group.row_a) / sparse::kQuarterLanes;
    const size_t unpaired = row_group.quarter_steps[quarter] * kStep;
    for (const uint32_t* end = word + unpaired; word != end; word += kStep, w += 2 * kStep) {
#pragma GCC unroll 4
      for (size_t t = 0; t < kTasks; ++t) {
        a[t].add(d, w[t], lower_row(x, word[t]));
        b[t].add(d, w[kStep + t], upper_row(x, word[t]));
      }
    }
#pragma GCC unroll 4
    for (size_t t = 0; t < kTasks; ++t) {
      rows.end(d, row[t], a[t]);
      rows.end(d, row[kRowGroupLanes + t], b[t]);
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
