// Address ranges in use, and the search for free ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::compiler {

struct AddressRange {
  uint64_t begin = 0;
  uint64_t end = 0;
};

/// The lowest multiple of `alignment` from `at` on.
constexpr uint64_t aligned(uint64_t at, uint64_t alignment) {
  return (at + alignment - 1) / alignment * alignment;
}

/// A union of address ranges, kept in chunks with the widest gap of each, so that neither adding a range nor
/// finding a gap visits all of them.
class AddressRanges {
 public:
  bool empty() const { return chunks_.empty(); }
  void clear() { chunks_.clear(); }
  void add(AddressRange range);

  /// The lowest address from `at` on, at which `room` bytes are free.
  uint64_t next_free(uint64_t at, uint64_t room) const;

 private:
  static constexpr size_t kMostInChunk = 128;

  struct Chunk {
    std::vector<AddressRange> ranges;
    mutable uint64_t widest_gap = 0;  ///< between ranges of the chunk
    mutable bool is_measured = true;  ///< several ranges are added between two searches

    uint64_t begin() const { return ranges.front().begin; }
    uint64_t end() const { return ranges.back().end; }
    void measure() const;
  };

  void split(size_t chunk);

  std::vector<Chunk> chunks_;
};

}  // namespace tessera::compiler
