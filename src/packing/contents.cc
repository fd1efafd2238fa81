#include "packing/contents.h"

#include <algorithm>

namespace tessera::pack {
namespace {

void merge_equal_lengths(std::vector<Part>& parts) {
  size_t kept = 0;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].length == parts[kept].length)
      parts[kept].copies += parts[i].copies;
    else
      parts[++kept] = parts[i];
  }
  if (!parts.empty()) parts.resize(kept + 1);
}

}  // namespace

Strategy Contents::strategy(const PackGroup& group) const {
  Strategy result{.parts = {}, .count = group.count};
  result.parts.reserve(std::min<size_t>(group.depth, 8));
  for (uint32_t at = group.content; at != kEmpty; at = nodes_[at].before)
    result.parts.push_back(nodes_[at].part);
  std::reverse(result.parts.begin(), result.parts.end());
  // Only few packs were begun with sequences shorter than later ones.
  const auto is_longer = [](const Part& a, const Part& b) { return a.length > b.length; };
  if (!std::is_sorted(result.parts.begin(), result.parts.end(), is_longer))
    std::stable_sort(result.parts.begin(), result.parts.end(), is_longer);
  merge_equal_lengths(result.parts);
  return result;
}

}  // namespace tessera::pack
