#include "kernels/map/gather/elements.h"

#include <cstdint>

#include "base/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/map/gather/elements.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::ScalableTag<uint32_t>;
using Places = hn::RebindToSigned<Words>;

// Elements of 32 bits.
struct WholeWords {
  using Element = uint32_t;
  static HWY_INLINE void run(const uint32_t* source, const uint32_t* places, uint32_t* out) {
    const auto at = hn::LoadU(Places(), reinterpret_cast<const int32_t*>(places));
    hn::StoreU(hn::GatherIndex(Words(), source, at), Words(), out);
  }
};

// Elements of 16 bits, by the words that hold two of them.
struct HalfWords {
  using Element = uint16_t;
  static HWY_INLINE void run(const uint16_t* source, const uint32_t* places, uint16_t* out) {
    const Words d;
    const hn::Rebind<uint16_t, Words> narrow;
    const auto place = hn::LoadU(d, places);
    const auto word = hn::GatherIndex(d, reinterpret_cast<const uint32_t*>(source),
                                      hn::BitCast(Places(), hn::ShiftRight<1>(place)));
    const auto upper = hn::TestBit(place, hn::Set(d, 1));
    const auto element = hn::And(hn::IfThenElse(upper, hn::ShiftRight<16>(word), word), hn::Set(d, 0xFFFF));
    hn::StoreU(hn::TruncateTo(narrow, element), narrow, out);
  }
};

template <class Gather>
void gather_all(const program::FieldView& source, const program::FieldView& places,
                const program::FieldView& out) {
  using Element = typename Gather::Element;
  const auto* from = source.as<const Element>();
  const auto* at = places.as<const uint32_t>();
  auto* to = out.as<Element>();
  const size_t count = out.elements();
  // Vector gathers take signed indices, and pairs must be words that do not reach past the source.
  const bool are_words = reinterpret_cast<uintptr_t>(from) % alignof(uint32_t) == 0 &&
                         source.elements() * sizeof(Element) % sizeof(uint32_t) == 0;
  const bool vectors = source.elements() < uint64_t{1} << 31 && are_words;
  size_t i = 0;
  if (vectors)
    for (; i + hn::Lanes(Words()) <= count; i += hn::Lanes(Words())) Gather::run(from, at + i, to + i);
  for (; i < count; ++i) to[i] = from[at[i]];
}

void gather_any(const program::FieldView& source, const program::FieldView& places,
                const program::FieldView& out) {
  if (size_of(out.type) == 4)
    gather_all<WholeWords>(source, places, out);
  else
    gather_all<HalfWords>(source, places, out);
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels {

HWY_EXPORT(gather_any);

void gather_elements(const program::FieldView& source, const program::FieldView& places,
                     const program::FieldView& out) {
  HWY_DYNAMIC_DISPATCH(gather_any)(source, places, out);
}

}  // namespace tessera::kernels
#endif
