// Tells the processor that this thread spins.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tessera::base {

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace tessera::base
