#include "pack/contents.h"

#include <algorithm>

namespace tessera::pack {

Strategy Contents::strategy(const PackGroup& group) const {
  Strategy result{.parts = {}, .count = group.count};
  size_t nodes = 0;
  for (uint32_t at = group.content; at != kEmpty; at = nodes_[at].before) ++nodes;
  result.parts.reserve(nodes);
  for (uint32_t at = group.content; at != kEmpty; at = nodes_[at].before) {
    const Part& part = nodes_[at].part;
    if (!result.parts.empty() && result.parts.back().length == part.length)
      result.parts.back().copies += part.copies;
    else
      result.parts.push_back(part);
  }
  std::reverse(result.parts.begin(), result.parts.end());
  return result;
}

}  // namespace tessera::pack
