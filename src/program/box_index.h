// Which boxes of a list overlap a given one, without looking at all of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "program/box.h"

namespace tessera::program {

/// Boxes sorted into bands of rows, and by column within a band. Bands end where boxes begin, so
/// that the tilings which mappings and vertices make of a variable, by rows, columns or both, are
/// searched in logarithmic time; any other list is searched correctly.
class BoxIndex {
 public:
  BoxIndex() = default;
  explicit BoxIndex(std::span<const Box> boxes);

  /// Calls visit(position in the list, common part) once for each box that shares elements with
  /// `query`, until it returns true; tells whether it did.
  template <class Visit>
  bool find_overlap(const Box& query, const Visit& visit) const {
    if (query.empty() || entries_.empty()) return false;
    const size_t first = band_of(query.row);
    for (size_t band = first; band < cuts_.size() && cuts_[band] < query.row_end(); ++band) {
      const auto begin = entries_.begin() + band_begin_[band];
      auto it = std::partition_point(begin, entries_.begin() + band_begin_[band + 1],
                                     [&](const Entry& e) { return e.box.col < query.col_end(); });
      while (it != begin && (--it)->furthest_col > query.col) {
        // A box that reaches into several bands of the query counts in the first of them.
        if (band != first && it->box.row < cuts_[band]) continue;
        const Box common = intersection(it->box, query);
        if (!common.empty() && visit(it->position, common)) return true;
      }
    }
    return false;
  }

 private:
  struct Entry {
    Box box;
    uint32_t position = 0;
    uint64_t furthest_col =
        0;  ///< end of the columns of this entry and those before it in its band
  };

  void cut_rows(std::span<const Box> boxes);
  void sort_into_bands(std::span<const Box> boxes);
  /// The band that holds a row, the first one for rows above all boxes.
  size_t band_of(uint32_t row) const {
    const auto after = std::upper_bound(cuts_.begin(), cuts_.end(), row);
    return after == cuts_.begin() ? 0 : static_cast<size_t>(after - cuts_.begin() - 1);
  }
  /// The band behind the last one of a box.
  size_t band_end(const Box& box) const {
    return static_cast<size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), box.row_end()) -
                               cuts_.begin());
  }
  uint64_t entries_needed(std::span<const Box> boxes) const;

  std::vector<uint32_t> cuts_;        ///< first row of each band
  std::vector<uint32_t> band_begin_;  ///< first entry of each band, and the end
  std::vector<Entry> entries_;
};

}  // namespace tessera::program
