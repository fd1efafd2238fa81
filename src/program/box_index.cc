#include "program/box_index.h"

namespace tessera::program {

BoxIndex::BoxIndex(std::span<const Box> boxes) {
  split_rows(boxes);
  if (!cuts_.empty()) sort_into_bands(boxes);
}

void BoxIndex::split_rows(std::span<const Box> boxes) {
  for (const Box& box : boxes)
    if (!box.empty() && (cuts_.empty() || cuts_.back() != box.row)) cuts_.push_back(box.row);
  if (!std::is_sorted(cuts_.begin(), cuts_.end())) std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());

  const auto entries = [&] {
    uint64_t count = 0;
    Cursor cursor;
    for (const Box& box : boxes) each_band(box, cursor, [&](size_t) { ++count; });
    return count;
  };
  // Tall boxes beside many flat ones would be in every band: then bands are made coarser.
  while (cuts_.size() > 1 && entries() > 4 * boxes.size()) {
    size_t kept = 0;
    for (size_t i = 0; i < cuts_.size(); i += 2) cuts_[kept++] = cuts_[i];
    cuts_.resize(kept);
  }
}

void BoxIndex::sort_into_bands(std::span<const Box> boxes) {
  band_begin_.assign(cuts_.size() + 1, 0);
  Cursor cursor;
  for (const Box& box : boxes) each_band(box, cursor, [&](size_t band) { ++band_begin_[band + 1]; });
  for (size_t band = 0; band < cuts_.size(); ++band) band_begin_[band + 1] += band_begin_[band];
  std::vector<uint32_t> next(band_begin_.begin(), band_begin_.end() - 1);
  entries_.resize(band_begin_.back());
  for (uint32_t i = 0; i < boxes.size(); ++i)
    each_band(boxes[i], cursor, [&](size_t band) {
      entries_[next[band]++] = {boxes[i], i, boxes[i].col_end()};
    });

  for (size_t band = 0; band < cuts_.size(); ++band) {
    const std::span<Entry> entries(&entries_[band_begin_[band]], band_begin_[band + 1] - band_begin_[band]);
    const auto by_column = [](const Entry& a, const Entry& b) { return a.box.col < b.box.col; };
    if (!std::is_sorted(entries.begin(), entries.end(), by_column))
      std::sort(entries.begin(), entries.end(), by_column);
    for (size_t i = 1; i < entries.size(); ++i)
      entries[i].furthest_col = std::max(entries[i].furthest_col, entries[i - 1].furthest_col);
  }
}

}  // namespace tessera::program
