// Error messages of a rank about another rank that is lost.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tessera::ranks {

inline std::string text_of_end(uint32_t rank) { return fmt::format("rank {} has ended", rank); }

inline std::string text_of_silence(uint32_t rank, uint32_t own, std::chrono::milliseconds longest_wait) {
  return fmt::format(
      "rank {} has not answered rank {} for {} ms: if it does not hang, let ranks wait longer for each other",
      rank, own, longest_wait.count());
}

inline std::string text_of_size(uint32_t rank, size_t sent, uint32_t own, size_t expected) {
  return fmt::format(
      "rank {} sent {} bytes to rank {}, which waits for {}: all ranks have to make the same calls", rank,
      sent, own, expected);
}

}  // namespace tessera::ranks
