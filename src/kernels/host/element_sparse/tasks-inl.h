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

#include "kernels/common/accumulate-inl.h"
#include "kernels/host/element_sparse/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using sparse::kRowGroupLanes;
using sparse::RowGroup;

// The row of X for the column in half a word, in a panel `width` wide.
HWY_INLINE const float* row_of(const float* x, size_t half_word, size_t width) {
  const size_t row_bytes = width * sizeof(float);
  const size_t offset = row_bytes < sparse::kColumnScale ? half_word / (sparse::kColumnScale / row_bytes)
                                                         : half_word * (row_bytes / sparse::kColumnScale);
  return reinterpret_cast<const float*>(reinterpret_cast<const char*>(x) + offset);
}
HWY_INLINE const float* lower_row(const float* x, uint32_t word, size_t width) {
  return row_of(x, word & 0xFFFF, width);
}
HWY_INLINE const float* upper_row(const float* x, uint32_t word, size_t width) {
  return row_of(x, word >> 16, width);
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

  // An implicit one would be compiled without the instruction set's options.
  HWY_INLINE RowSum() {}
  HWY_INLINE void load(D d, const float* y) {
    for (size_t v = 0; v < kVectors; ++v) sum[v] = hn::Load(d, y + v * hn::Lanes(d));
  }
  HWY_INLINE void store(D d, float* y) const {
    for (size_t v = 0; v < kVectors; ++v) hn::Store(sum[v], d, y + v * hn::Lanes(d));
  }
  HWY_INLINE void add(D d, float value, const float* x) {
    const auto w = hn::Set(d, value);
    keep_in_register(x);
    for (size_t v = 0; v < kVectors; ++v) {
      sum[v] = hn::MulAdd(w, hn::Load(d, x + v * hn::Lanes(d)), sum[v]);
    }
  }
};

template <class D, size_t kVectors>
HWY_INLINE void add_shared(D d, float value_a, float value_b, const float* x, RowSum<D, kVectors>& a,
                           RowSum<D, kVectors>& b) {
  const auto w_a = hn::Set(d, value_a);
  const auto w_b = hn::Set(d, value_b);
  for (size_t v = 0; v < kVectors; ++v) {
    auto row = hn::Load(d, x + v * hn::Lanes(d));
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

// kTasks tasks at a time, kVectors vectors of columns: enough independent sums to hide the latency
// of the multiply-adds. What is left of the last tasks is filler, and so is what they have behind the
// steps of their quarter.
template <size_t kVectors, size_t kTasks, class D>
HWY_INLINE void run_tasks(D d, const RowGroup& row_group, const float* HWY_RESTRICT values,
                          const uint32_t* HWY_RESTRICT words, const ElementOperands& operands) {
  static_assert(kTasks <= sparse::kQuarterLanes);
  constexpr size_t kStep = kRowGroupLanes;
  const size_t width = kVectors * hn::Lanes(d);
  const float* HWY_RESTRICT x = operands.x;
  float* HWY_RESTRICT y = operands.y;
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
    for (size_t t = 0; t < kTasks; ++t) {
      a[t].load(d, y + row[t] * width);
      b[t].load(d, y + row[kRowGroupLanes + t] * width);
    }
    const float* w = values;
    const uint32_t* word = words;
    for (const uint32_t* end = word + shared; word != end; word += kStep, w += 4 * kStep) {
      for (size_t t = 0; t < kTasks; ++t) {
        add_shared(d, w[t], w[kStep + t], lower_row(x, word[t], width), a[t], b[t]);
        add_shared(d, w[2 * kStep + t], w[3 * kStep + t], upper_row(x, word[t], width), a[t], b[t]);
      }
    }
    const size_t quarter = static_cast<size_t>(row - row_group.row_a) / sparse::kQuarterLanes;
    const size_t unpaired = row_group.quarter_steps[quarter] * kStep;
    for (const uint32_t* end = word + unpaired; word != end; word += kStep, w += 2 * kStep) {
      for (size_t t = 0; t < kTasks; ++t) {
        a[t].add(d, w[t], lower_row(x, word[t], width));
        b[t].add(d, w[kStep + t], upper_row(x, word[t], width));
      }
    }
    for (size_t t = 0; t < kTasks; ++t) {
      a[t].store(d, y + row[t] * width);
      b[t].store(d, y + row[kRowGroupLanes + t] * width);
    }
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
