// Rows of weights times a few samples, as dot products: the weights are read once, in place.
#if defined(TESSERA_KRONECKER_DOTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KRONECKER_DOTS_INL_H_
#undef TESSERA_KRONECKER_DOTS_INL_H_
#else
#define TESSERA_KRONECKER_DOTS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "kernels/common/lane_totals-inl.h"
#include "kernels/common/sample_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// Products of the rows of a matrix and a vector: sums[i] = Σ matrix[i][t] · x[t].
struct RowDots {
  const float* matrix;
  size_t row_step;
  const float* x;
  size_t terms;
};

// Dot products of one row per lane; `last` terms of the last vector count.
HWY_INLINE hn::Vec<Floats> dots_of_rows(const RowDots& p, size_t whole, size_t last) {
  const Floats d;
  hn::Vec<Floats> sum[kLanes];
#pragma GCC unroll 16
  for (size_t i = 0; i < kLanes; ++i) sum[i] = hn::Zero(d);
  size_t t = 0;
  for (; t < whole; t += kLanes) {
    const auto x = hn::LoadU(d, p.x + t);
#pragma GCC unroll 16
    for (size_t i = 0; i < kLanes; ++i)
      sum[i] = hn::MulAdd(x, hn::LoadU(d, p.matrix + i * p.row_step + t), sum[i]);
  }
  if (last > 0) {
    const auto x = load_lanes(p.x + t, last);
#pragma GCC unroll 16
    for (size_t i = 0; i < kLanes; ++i)
      sum[i] = hn::MulAdd(x, load_lanes(p.matrix + i * p.row_step + t, last), sum[i]);
  }
  return totals_of(sum);
}

HWY_INLINE float dot_of_row(const float* row, const float* x, size_t whole, size_t last) {
  const Floats d;
  auto sum = hn::Zero(d);
  size_t t = 0;
  for (; t < whole; t += kLanes) sum = hn::MulAdd(hn::LoadU(d, x + t), hn::LoadU(d, row + t), sum);
  if (last > 0) sum = hn::MulAdd(load_lanes(x + t, last), load_lanes(row + t, last), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

HWY_NOINLINE inline void run_row_dots(RowDots p, uint32_t rows, float* sums) {
  const size_t last = p.terms % kLanes, whole = p.terms - last;
  uint32_t r = 0;
  for (; r + kLanes <= rows; r += kLanes, p.matrix += kLanes * p.row_step)
    hn::StoreU(dots_of_rows(p, whole, last), Floats(), sums + r);
  for (; r < rows; ++r, p.matrix += p.row_step) sums[r] = dot_of_row(p.matrix, p.x, whole, last);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
