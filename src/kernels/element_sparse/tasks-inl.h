// The inner loops: the tasks of a bundle times a panel of X.
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

#include "kernels/element_sparse/layout.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using sparse::ElementBundle;
using sparse::kBundleLanes;

HWY_INLINE size_t lower_column(uint32_t word) { return word & 0xFFFF; }
HWY_INLINE size_t upper_column(uint32_t word) { return word >> 16; }

// Stops the compiler from loading a row of X twice, as the operand of two instructions.
template <class V>
HWY_INLINE void keep_in_register(V& v) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  asm("" : "+v"(v.raw));
#else
  (void)v;
#endif
}

// A part of a row of Y, kept in registers.
template <class D, size_t kVectors>
struct RowSum {
  hn::Vec<D> sum[kVectors];

  HWY_INLINE void load(D d, const float* y) {
    for (size_t v = 0; v < kVectors; ++v) sum[v] = hn::Load(d, y + v * hn::Lanes(d));
  }
  HWY_INLINE void store(D d, float* y) const {
    for (size_t v = 0; v < kVectors; ++v) hn::Store(sum[v], d, y + v * hn::Lanes(d));
  }
  HWY_INLINE void add(D d, float value, const float* x) {
    const auto w = hn::Set(d, value);
    for (size_t v = 0; v < kVectors; ++v) {
      sum[v] = hn::MulAdd(w, hn::Load(d, x + v * hn::Lanes(d)), sum[v]);
    }
  }
};

template <class D, size_t kVectors>
HWY_INLINE void add_shared(D d, float value_a, float value_b, const float* x,
                           RowSum<D, kVectors>& a, RowSum<D, kVectors>& b) {
  const auto w_a = hn::Set(d, value_a);
  const auto w_b = hn::Set(d, value_b);
  for (size_t v = 0; v < kVectors; ++v) {
    auto row = hn::Load(d, x + v * hn::Lanes(d));
    keep_in_register(row);
    a.sum[v] = hn::MulAdd(w_a, row, a.sum[v]);
    b.sum[v] = hn::MulAdd(w_b, row, b.sum[v]);
  }
}

// One task after another, kVectors vectors of columns at a time.
template <size_t kVectors, class D>
HWY_INLINE void run_tasks(D d, const ElementBundle& bundle, const float* HWY_RESTRICT values,
                          const uint32_t* HWY_RESTRICT words, const ElementOperands& operands) {
  constexpr size_t kStep = kBundleLanes;
  const size_t width = kVectors * hn::Lanes(d);
  const float* HWY_RESTRICT x = operands.x;
  const size_t shared = bundle.shared_steps / 2 * kStep;
  const size_t apart = bundle.apart_steps * kStep;
  for (size_t t = 0; t < bundle.tasks; ++t) {
    float* y_a = operands.y + bundle.row_a[t] * width;
    float* y_b = operands.y + bundle.row_b[t] * width;
    RowSum<D, kVectors> a, b;
    a.load(d, y_a);
    b.load(d, y_b);
    const float* w = values + t;
    const uint32_t* word = words + t;
    for (const uint32_t* end = word + shared; word != end; word += kStep, w += 4 * kStep) {
      add_shared(d, w[0], w[kStep], x + lower_column(*word) * width, a, b);
      add_shared(d, w[2 * kStep], w[3 * kStep], x + upper_column(*word) * width, a, b);
    }
    for (const uint32_t* end = word + apart; word != end; word += kStep, w += 2 * kStep) {
      a.add(d, w[0], x + lower_column(*word) * width);
      b.add(d, w[kStep], x + upper_column(*word) * width);
    }
    a.store(d, y_a);
    b.store(d, y_b);
  }
}

// All tasks of a bundle at once, for a single column: a lane is a task.
HWY_INLINE void run_column(const ElementBundle& bundle, const float* HWY_RESTRICT values,
                           const uint32_t* HWY_RESTRICT words, const ElementOperands& operands) {
  constexpr size_t kStep = kBundleLanes;
  const hn::CappedTag<float, kBundleLanes> d;
  const hn::RebindToSigned<decltype(d)> di;
  const size_t shared = bundle.shared_steps / 2;
  const size_t apart = bundle.apart_steps;
  const float* x = operands.x;
  HWY_ALIGN float sums[2 * kBundleLanes];
  for (size_t lane = 0; lane < kBundleLanes; lane += hn::Lanes(d)) {
    auto a = hn::Zero(d);
    auto b = hn::Zero(d);
    const float* w = values + lane;
    const auto* word = reinterpret_cast<const int32_t*>(words) + lane;
    const auto next_columns = [&](auto& lower, auto& upper) HWY_ATTR {
      const auto both = hn::LoadU(di, word);
      lower = hn::And(both, hn::Set(di, 0xFFFF));
      upper = hn::ShiftRight<16>(both);  // columns stay below 2^15
      word += kStep;
    };
    auto lower = hn::Zero(di);
    auto upper = hn::Zero(di);
    for (size_t s = 0; s < shared; ++s, w += 4 * kStep) {
      next_columns(lower, upper);
      const auto x0 = hn::GatherIndex(d, x, lower);
      const auto x1 = hn::GatherIndex(d, x, upper);
      a = hn::MulAdd(hn::LoadU(d, w), x0, a);
      b = hn::MulAdd(hn::LoadU(d, w + kStep), x0, b);
      a = hn::MulAdd(hn::LoadU(d, w + 2 * kStep), x1, a);
      b = hn::MulAdd(hn::LoadU(d, w + 3 * kStep), x1, b);
    }
    for (size_t s = 0; s < apart; ++s, w += 2 * kStep) {
      next_columns(lower, upper);
      a = hn::MulAdd(hn::LoadU(d, w), hn::GatherIndex(d, x, lower), a);
      b = hn::MulAdd(hn::LoadU(d, w + kStep), hn::GatherIndex(d, x, upper), b);
    }
    hn::Store(a, d, sums + lane);
    hn::Store(b, d, sums + kBundleLanes + lane);
  }
  for (size_t t = 0; t < kBundleLanes; ++t) {
    operands.y[bundle.row_a[t]] += sums[t];
    operands.y[bundle.row_b[t]] += sums[kBundleLanes + t];
  }
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
