// A set of lengths with fast search for neighbours.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::pack {

/// A subset of 0 to `largest`, as bits, with levels of bits above that mark non-empty words: each operation
/// takes one step per level.
class LengthSet {
 public:
  explicit LengthSet(uint32_t largest) {
    uint64_t size = uint64_t{largest} + 1;
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size);
    } while (size > 1);
  }

  void insert(uint32_t value) {
    for (std::vector<uint64_t>& level : levels_) {
      level[value / 64] |= uint64_t{1} << value % 64;
      value /= 64;
    }
  }

  void erase(uint32_t value) {
    for (std::vector<uint64_t>& level : levels_) {
      level[value / 64] &= ~(uint64_t{1} << value % 64);
      if (level[value / 64] != 0) return;
      value /= 64;
    }
  }

  /// The smallest member that is at least `value`.
  std::optional<uint32_t> at_least(uint32_t value) const {
    uint64_t at = value;
    for (size_t level = 0; level < levels_.size(); ++level) {
      if (at / 64 >= levels_[level].size()) return std::nullopt;
      const uint64_t word = levels_[level][at / 64] >> at % 64;
      if (word != 0) return smallest_under(level, at + static_cast<uint64_t>(std::countr_zero(word)));
      at = at / 64 + 1;
    }
    return std::nullopt;
  }

  std::optional<uint32_t> largest() const {
    uint64_t at = 0;
    for (size_t level = levels_.size(); level-- > 0;) {
      const uint64_t word = levels_[level][at];
      if (word == 0) return std::nullopt;
      at = at * 64 + 63 - static_cast<uint64_t>(std::countl_zero(word));
    }
    return static_cast<uint32_t>(at);
  }

 private:
  uint32_t smallest_under(size_t level, uint64_t at) const {
    while (level-- > 0) at = at * 64 + static_cast<uint64_t>(std::countr_zero(levels_[level][at]));
    return static_cast<uint32_t>(at);
  }

  std::vector<std::vector<uint64_t>> levels_;  // lowest level first
};

}  // namespace tessera::pack
