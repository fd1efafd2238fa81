// Detection of damaged data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tessera::base {

/// FNV-1a over eight-byte words, folded, with the length. Detects damage, not malice.
inline uint64_t checksum(std::span<const std::byte> bytes) {
  uint64_t sum = 0xCBF29CE484222325;
  for (size_t at = 0; at < bytes.size(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, &bytes[at], std::min<size_t>(8, bytes.size() - at));
    sum = (sum ^ word) * 0x100000001B3;
    sum ^= sum >> 32;
  }
  return sum ^ bytes.size();
}

}  // namespace tessera::base
