#include "base/bf16_units.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tessera {

#if defined(__x86_64__)
namespace {

struct Features {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Features features(unsigned subleaf) {
  Features f;
  if (__get_cpuid_count(7, subleaf, &f.eax, &f.ebx, &f.ecx, &f.edx) == 0) return {};
  return f;
}

bool is_intel() {
  Features f;
  return __get_cpuid(0, &f.eax, &f.ebx, &f.ecx, &f.edx) != 0 && f.ebx == signature_INTEL_ebx;
}

constexpr unsigned kTileState = 18;  // XFEATURE_XTILEDATA

#ifdef __linux__
// The kernel saves the tiles of a thread only for processes that ask for it (Documentation/x86/xstate.rst).
bool ask_for_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, long{kTileState}) == 0;
}
#else
bool ask_for_tiles() { return false; }
#endif

}  // namespace

bool has_bf16_dots() {
  static const bool has = (features(1).eax & (1U << 5)) != 0;
  return has;
}

// FP16 distinguishes Sapphire Rapids and later processors from Cooper Lake.
bool has_slow_bf16_dots() {
  constexpr unsigned kFp16 = 1U << 23;
  static const bool has = has_bf16_dots() && is_intel() && (features(0).edx & kFp16) != 0;
  return has;
}

bool has_bf16_tiles() {
  constexpr unsigned kBf16 = 1U << 22, kTiles = 1U << 24;
  static const bool has = (features(0).edx & (kBf16 | kTiles)) == (kBf16 | kTiles) && ask_for_tiles();
  return has;
}
#else
bool has_bf16_dots() { return false; }
bool has_slow_bf16_dots() { return false; }
bool has_bf16_tiles() { return false; }
#endif

}  // namespace tessera
