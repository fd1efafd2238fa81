// Finds the boxes of a list that overlap a given box, without visiting the whole list.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "program/box.h"

namespace tessera::program {

/// Boxes sorted into bands of rows, and by column within a band. Bands end where boxes begin, so that the
/// tilings which mappings and vertices usually form, by rows, columns or both, are searched in logarithmic
/// time; any other list is searched correctly.
class BoxIndex {
 public:
  /// Position of the last query. Queries in the order of rows, and of columns within them, find theirs at
  /// once.
  struct Cursor {
    size_t band = 0;
    size_t entry = 0;
  };

  BoxIndex() = default;
  explicit BoxIndex(std::span<const Box> boxes);

  /// Calls visit(position in the list, common part) once for each box that shares elements with
  /// `query`.
  template <class Visit>
  void each_overlap(const Box& query, Cursor& cursor, const Visit& visit) const {
    if (query.empty() || entries_.empty()) return;
    const size_t first = band_of(query.row, cursor);
    for (size_t band = first; band < boundaries_.size() && boundaries_[band] < query.row_end(); ++band) {
      const auto begin = entries_.begin() + band_begin_[band];
      auto it = entries_.begin() + static_cast<int64_t>(first_from(band, query.col_end(), cursor));
      while (it != begin && (--it)->furthest_col > query.col) {
        // A box that reaches into several bands of the query counts in the first of them.
        if (band != first && it->box.row < boundaries_[band]) continue;
        const Box common = intersection(it->box, query);
        if (!common.empty()) visit(it->position, common);
      }
    }
  }

  /// Calls visit(position, other position, common part) for each pair of overlapping boxes of the list,
  /// possibly more than once.
  template <class Visit>
  void each_internal_overlap(const Visit& visit) const {
    Cursor cursor;
    for (size_t band = 0; band < boundaries_.size(); ++band)
      for (size_t i = band_begin_[band] + 1; i < band_begin_[band + 1]; ++i) {
        const Entry& entry = entries_[i];
        if (entries_[i - 1].furthest_col <= entry.box.col) continue;
        each_overlap(entry.box, cursor, [&](uint32_t position, const Box& common) {
          if (position != entry.position) visit(entry.position, position, common);
        });
      }
  }

 private:
  struct Entry {
    Box box;
    uint32_t position = 0;
    uint64_t furthest_col = 0;  ///< maximum column end of this entry and the entries before it in its band
  };

  void split_rows(std::span<const Box> boxes);
  void sort_into_bands(std::span<const Box> boxes);

  /// Calls visit(band) for every band that a box of the list overlaps.
  template <class Visit>
  void each_band(const Box& box, Cursor& cursor, const Visit& visit) const {
    if (box.empty()) return;
    for (size_t band = band_of(box.row, cursor);
         band < boundaries_.size() && boundaries_[band] < box.row_end(); ++band)
      visit(band);
  }

  bool holds(size_t band, uint32_t row) const {
    return band < boundaries_.size() && boundaries_[band] <= row &&
           (band + 1 == boundaries_.size() || row < boundaries_[band + 1]);
  }
  /// The band that contains a row; the first band for rows above all boxes.
  size_t band_of(uint32_t row, Cursor& cursor) const {
    for (size_t band : {cursor.band, cursor.band + 1})
      if (holds(band, row)) return cursor.band = band;
    const auto after = std::upper_bound(boundaries_.begin(), boundaries_.end(), row);
    return cursor.band =
               after == boundaries_.begin() ? 0 : static_cast<size_t>(after - boundaries_.begin() - 1);
  }

  /// The first entry of a band that begins at a column or after it, or the end of the band.
  size_t first_from(size_t band, uint64_t col, Cursor& cursor) const {
    const size_t begin = band_begin_[band], end = band_begin_[band + 1];
    for (const size_t entry : {cursor.entry, cursor.entry + 1})
      if (begin <= entry && entry <= end && (entry == begin || entries_[entry - 1].box.col < col) &&
          (entry == end || entries_[entry].box.col >= col))
        return cursor.entry = entry;
    const auto first = std::partition_point(entries_.begin() + static_cast<int64_t>(begin),
                                            entries_.begin() + static_cast<int64_t>(end),
                                            [&](const Entry& e) { return e.box.col < col; });
    return cursor.entry = static_cast<size_t>(first - entries_.begin());
  }

  std::vector<uint32_t> boundaries_;  ///< first row of each band
  std::vector<uint32_t> band_begin_;  ///< first entry of each band, and the end
  std::vector<Entry> entries_;
};

}  // namespace tessera::program
