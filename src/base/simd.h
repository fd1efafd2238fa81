// Highway, restricted to the instruction sets that Tessera is built and tested for: AVX-512
// (HWY_AVX3), AVX2, NEON and the portable fallback.
//
// A kernel file defines HWY_TARGET_INCLUDE, includes <hwy/foreach_target.h> after this header, and
// then <hwy/highway.h>.
#pragma once

// cmake/instruction_sets.cmake leaves AVX-512, which takes longest to compile, out for hosts without it, and
// may leave AVX2 out for hosts with it. Under the thread sanitizer, threads race on any instruction set.
#if defined(TESSERA_NO_AVX512) || defined(__SANITIZE_THREAD__)
#define TESSERA_DISABLED_TARGET HWY_AVX3
#elif defined(TESSERA_NO_AVX2)
#define TESSERA_DISABLED_TARGET HWY_AVX2
#else
#define TESSERA_DISABLED_TARGET 0
#endif
#define HWY_DISABLED_TARGETS                                                              \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   TESSERA_DISABLED_TARGET)

/// Whether the target that is being compiled has vectors. With one lane there is nothing to vectorise, and
/// references are the kernels.
#define TESSERA_HAS_VECTORS (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)
