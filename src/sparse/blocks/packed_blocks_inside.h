// Shared by the sources of PackedBlocks.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "sparse/blocks/block_edits.h"
#include "sparse/blocks/packed_blocks.h"
#include "sparse/parts.h"

namespace tessera::sparse {

/// The transposed index, built by the first caller that needs it.
struct PackedBlocks::Transposed {
  std::mutex mutex;
  std::atomic<bool> is_current = false;
  bool is_allocated = false;
  BlockIndex index;
};

/// Space for preparing changes up to a capacity.
struct PackedBlocks::Changes {
  explicit Changes(uint64_t capacity) : lost(capacity + 1) {}

  /// Space for slots that rows may free; the first row begins with `block`.
  uint32_t* lost_room(uint32_t block) { return lost.data() + block; }
  uint64_t bytes() const { return spare.bytes() + lost.size() * sizeof(uint32_t); }

  SpareIndex spare;
  std::vector<uint32_t> lost;
};

template <class... Args>
[[noreturn]] void malformed(fmt::format_string<Args...> format, Args&&... args) {
  throw UsageError("block-sparse weight: " + fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tessera::sparse
