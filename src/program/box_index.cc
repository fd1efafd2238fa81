#include "program/box_index.h"

namespace tessera::program {

BoxIndex::BoxIndex(std::span<const Box> boxes) {
  split_rows(boxes);
  if (!boundaries_.empty()) sort_into_bands(boxes);
}

void BoxIndex::split_rows(std::span<const Box> boxes) {
  for (const Box& box : boxes)
    if (!box.empty() && (boundaries_.empty() || boundaries_.back() != box.row))
      boundaries_.push_back(box.row);
  if (!std::is_sorted(boundaries_.begin(), boundaries_.end()))
    std::sort(boundaries_.begin(), boundaries_.end());
  boundaries_.erase(std::unique(boundaries_.begin(), boundaries_.end()), boundaries_.end());

  const auto entries = [&] {
    uint64_t count = 0;
    Cursor cursor;
    for (const Box& box : boxes) each_band(box, cursor, [&](size_t) { ++count; });
    return count;
  };
  // Tall boxes beside many flat ones would be in every band: then bands are made coarser.
  while (boundaries_.size() > 1 && entries() > 4 * boxes.size()) {
    size_t kept = 0;
    for (size_t i = 0; i < boundaries_.size(); i += 2) boundaries_[kept++] = boundaries_[i];
    boundaries_.resize(kept);
  }
}

void BoxIndex::sort_into_bands(std::span<const Box> boxes) {
  band_begin_.assign(boundaries_.size() + 1, 0);
  Cursor cursor;
  for (const Box& box : boxes) each_band(box, cursor, [&](size_t band) { ++band_begin_[band + 1]; });
  for (size_t band = 0; band < boundaries_.size(); ++band) band_begin_[band + 1] += band_begin_[band];
  std::vector<uint32_t> next(band_begin_.begin(), band_begin_.end() - 1);
  entries_.resize(band_begin_.back());
  for (uint32_t i = 0; i < boxes.size(); ++i)
    each_band(boxes[i], cursor, [&](size_t band) {
      entries_[next[band]++] = {boxes[i], i, boxes[i].col_end()};
    });

  for (size_t band = 0; band < boundaries_.size(); ++band) {
    const std::span<Entry> entries(&entries_[band_begin_[band]], band_begin_[band + 1] - band_begin_[band]);
    const auto by_column = [](const Entry& a, const Entry& b) { return a.box.col < b.box.col; };
    if (!std::is_sorted(entries.begin(), entries.end(), by_column))
      std::sort(entries.begin(), entries.end(), by_column);
    for (size_t i = 1; i < entries.size(); ++i)
      entries[i].furthest_col = std::max(entries[i].furthest_col, entries[i - 1].furthest_col);
  }
}

}  // namespace tessera::program
