// Contents of packs while they are being filled.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <vector>

namespace tessera::pack {

/// Equal packs. Their content is a list in Contents, shared by packs with the same beginning.
struct PackGroup {
  uint64_t count = 0;
  uint32_t content = 0;
  uint32_t room = 0;   ///< tokens
  uint32_t depth = 0;  ///< sequences so far
};

/// Lists of parts that grow at the end and share their prefixes.
class Contents {
 public:
  static constexpr uint32_t kEmpty = 0;

  /// The content with this many sequences of a length appended, which is no longer than those in it.
  uint32_t with(uint32_t content, uint32_t length, uint32_t copies) {
    nodes_.push_back({content, {length, copies}});
    return static_cast<uint32_t>(nodes_.size() - 1);
  }

  /// The group with `copies` sequences of that length added to each of `count` of its packs.
  PackGroup add(const PackGroup& group, uint64_t count, uint32_t length, uint32_t copies) {
    return {count, with(group.content, length, copies), group.room - length * copies, group.depth + copies};
  }

  Strategy strategy(const PackGroup& group) const;

 private:
  struct Node {
    uint32_t before;
    Part part;
  };
  std::vector<Node> nodes_ = {{kEmpty, {}}};
};

}  // namespace tessera::pack
