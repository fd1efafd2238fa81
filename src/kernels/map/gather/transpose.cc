#include "kernels/map/gather/transpose.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/simd.h"
#include "kernels/common/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/gather/transpose.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#if TESSERA_HAS_VECTORS
#include "kernels/common/panels-inl.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
/// Lines of contiguous elements: to[c · to_step + l] = from[l · from_step + c].
template <class T>
struct Transposition {
  const T* from;
  int64_t from_step;
  T* to;
  int64_t to_step;
  uint32_t lines, elements;

  Transposition part(uint32_t line, uint32_t count, uint32_t element, uint32_t size) const {
    return {from + line * from_step + element, from_step,
            to + element * to_step + line,     to_step,
            std::min(count, lines - line),     std::min(size, elements - element)};
  }
  void run_plainly() const {
    for (uint32_t c = 0; c < elements; ++c)
      for (uint32_t l = 0; l < lines; ++l) to[c * to_step + l] = from[l * from_step + c];
  }
};

#if TESSERA_HAS_VECTORS

namespace hn = hwy::HWY_NAMESPACE;

inline void run_part(const Transposition<float>& t) {
  transpose(t.from, static_cast<size_t>(t.from_step), t.lines, t.elements, t.to,
            static_cast<size_t>(t.to_step));
}

/// Transposes in words of 32 bits.
inline void run_part(const Transposition<uint16_t>& t) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> words;
  const hn::Rebind<uint16_t, Floats> halves;
  constexpr auto kSide = static_cast<uint32_t>(kLanes);
  for (uint32_t l = 0; l < t.lines; l += kSide)
    for (uint32_t c = 0; c < t.elements; c += kSide) {
      const Transposition<uint16_t> square = t.part(l, kSide, c, kSide);
      if (square.lines < kSide || square.elements < kSide) {
        square.run_plainly();
        continue;
      }
      const auto load = [&](size_t i) HWY_ATTR {
        const auto line = hn::LoadU(halves, square.from + static_cast<int64_t>(i) * square.from_step);
        return hn::BitCast(d, hn::PromoteTo(words, line));
      };
      transpose_square(load, [&](size_t i, hn::Vec<Floats> v) HWY_ATTR {
        hn::StoreU(hn::TruncateTo(halves, hn::BitCast(words, v)), halves,
                   square.to + static_cast<int64_t>(i) * square.to_step);
      });
    }
}

/// Lines are often a power of two apart, which no hardware prefetcher follows: each part fetches the next one
/// into the L2 cache.
template <class T>
void run_all(const Transposition<T>& t) {
  constexpr uint32_t kLine = 64 / sizeof(T), kElements = 16, kLines = 64;
  for (uint32_t l = 0; l < t.lines; l += kLines)
    for (uint32_t c = 0; c < t.elements; c += kElements) {
      const Transposition<T> part = t.part(l, kLines, c, kElements);
      if (c + kElements < t.elements) {
        const Transposition<T> next = t.part(l, kLines, c + kElements, kElements);
        for (uint32_t i = 0; i < next.lines; ++i) __builtin_prefetch(next.from + i * next.from_step, 0, 2);
        for (uint32_t i = 0; i < next.elements; ++i)
          for (uint32_t line = 0; line < next.lines; line += kLine)
            __builtin_prefetch(next.to + i * next.to_step + line, 1, 2);
      }
      run_part(part);
    }
}

#else

template <class T>
void run_all(const Transposition<T>& t) {
  t.run_plainly();
}

#endif

template <class T>
void transpose_as(const program::FieldView& in, const program::FieldView& out) {
  run_all<T>({in.as<const T>(), in.col_stride, out.as<T>(), out.row_stride, out.cols, out.rows});
}

void transpose_any(const program::FieldView& in, const program::FieldView& out) {
  size_of(out.type) == sizeof(float) ? transpose_as<float>(in, out) : transpose_as<uint16_t>(in, out);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(transpose_any);

void transpose_elements(const program::FieldView& in, const program::FieldView& out) {
  HWY_DYNAMIC_DISPATCH(transpose_any)(in, out);
}

}  // namespace tessera::kernels
#endif
