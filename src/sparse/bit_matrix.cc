#include "sparse/bit_matrix.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>

#include "base/simd.h"
#include "sparse/bit_groups.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "sparse/bit_matrix.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tessera::sparse::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

/// Adding a number to itself drops its sign bit.
template <class T>
bool is_non_zero(const std::byte* element, bool has_sign_bit) {
  T value;
  std::memcpy(&value, element, sizeof(T));
  return (has_sign_bit ? static_cast<T>(value + value) : value) != 0;
}

template <class T>
void set_rows(bool has_sign_bit, const std::byte* elements, size_t count, uint64_t* bits) {
  const hn::CappedTag<T, 64> d;
  const size_t lanes = hn::Lanes(d);
  const size_t words = count / 64;
  for (size_t w = 0; w < words; ++w) {
    uint64_t word = 0;
    for (size_t i = 0; i < 64; i += lanes) {
      auto v = hn::LoadU(d, reinterpret_cast<const T*>(elements + (w * 64 + i) * sizeof(T)));
      if (has_sign_bit) v = hn::Add(v, v);
      uint64_t part = 0;
      hn::StoreMaskBits(d, hn::Ne(v, hn::Zero(d)), reinterpret_cast<uint8_t*>(&part));
      word |= part << i;
    }
    bits[w] = word;
  }
  if (count % 64 == 0) return;
  uint64_t word = 0;
  for (size_t i = 0; i < count % 64; ++i)
    word |= uint64_t{is_non_zero<T>(elements + (words * 64 + i) * sizeof(T), has_sign_bit)} << i;
  bits[words] = word;
}

}  // namespace

void set_bits(uint32_t bytes, bool has_sign_bit, const std::byte* elements, size_t count, uint64_t* bits) {
  switch (bytes) {
    case 1: return set_rows<uint8_t>(has_sign_bit, elements, count, bits);
    case 2: return set_rows<uint16_t>(has_sign_bit, elements, count, bits);
    case 4: return set_rows<uint32_t>(has_sign_bit, elements, count, bits);
    default: return set_rows<uint64_t>(has_sign_bit, elements, count, bits);
  }
}

}  // namespace tessera::sparse::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::sparse {

HWY_EXPORT(set_bits);

void set_non_zeros(ElementForm form, const std::byte* elements, size_t count, std::span<uint64_t> bits) {
  assert(bits.size() == (count + 63) / 64);
  HWY_DYNAMIC_DISPATCH(set_bits)(form.bytes, form.has_sign_bit, elements, count, bits.data());
}

Pattern pattern_of(const BitMatrix& bits, uint32_t block_size) {
  Pattern pattern{bits.rows(), bits.cols(), block_size, {0}, {}};
  std::vector<uint64_t> any(bits.row_words());
  for (uint32_t r = 0; r < bits.rows();) {
    const uint32_t end = r + std::min(block_size, bits.rows() - r);
    std::ranges::fill(any, 0);
    for (; r < end; ++r)
      for (size_t w = 0; w < any.size(); ++w) any[w] |= bits.row(r)[w];
    for (size_t w = 0; w < any.size(); ++w)
      for (uint64_t left = groups_with_any(any[w], block_size); left != 0; left &= left - 1)
        pattern.col_indices.push_back(
            static_cast<uint32_t>((w * 64 + static_cast<size_t>(std::countr_zero(left))) / block_size));
    pattern.crow_indices.push_back(pattern.col_indices.size());
  }
  return pattern;
}

}  // namespace tessera::sparse
#endif
