// Detection of damaged data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tessera::base {

/// FNV-1a over eight-byte words, folded, with the length. Detects damage, not malice.
class Checksum {
 public:
  /// Adds the next piece of the data; each piece but the last has a multiple of 8 bytes.
  void add(std::span<const std::byte> bytes) {
    uint64_t sum = sum_;
    for (size_t at = 0; at < bytes.size(); at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, &bytes[at], std::min<size_t>(8, bytes.size() - at));
      sum = (sum ^ word) * 0x100000001B3;
      sum ^= sum >> 32;
    }
    sum_ = sum;
    size_ += bytes.size();
  }

  uint64_t value() const { return sum_ ^ size_; }

 private:
  uint64_t sum_ = 0xCBF29CE484222325;
  uint64_t size_ = 0;
};

/// The checksum of bytes in one piece.
inline uint64_t checksum(std::span<const std::byte> bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.value();
}

}  // namespace tessera::base
