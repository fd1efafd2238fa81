// The multiply-add of the micro-kernels.
#if defined(TESSERA_KERNELS_ACCUMULATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_KERNELS_ACCUMULATE_INL_H_
#undef TESSERA_KERNELS_ACCUMULATE_INL_H_
#else
#define TESSERA_KERNELS_ACCUMULATE_INL_H_
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// sum += a · b, in sum's register. Otherwise GCC moves sums between registers: in a micro-tile of 4 × 4
// vectors one move per four multiply-adds, on the same ports.
template <class V>
HWY_INLINE void accumulate(V a, V b, V& sum) {
#if HWY_COMPILER_GCC_ACTUAL && (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3)
  asm("vfmadd231ps %[b], %[a], %[sum]" : [sum] "+v"(sum.raw) : [a] "v"(a.raw), [b] "v"(b.raw));
#else
  sum = hn::MulAdd(a, b, sum);
#endif
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
