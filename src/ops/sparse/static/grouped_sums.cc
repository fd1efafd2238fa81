#include "ops/sparse/static/grouped_sums.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/ceil_divide.h"
#include "kernels/common/cost.h"
#include "ops/sparse/static/vendor_layout.h"
#include "ops/split.h"

namespace tessera::ops {
namespace {

using base::ceil_divide;
using machine::Machine;
using program::Box;
using program::MappedBox;
using program::TileId;

constexpr uint32_t kSumGrain = 8;       // elements by which PopLibs' estimate splits a sum over tiles
constexpr uint32_t kLeastVectors = 4;   // of a tile's part of such a sum
constexpr uint32_t kWorkersOfMany = 2;  // of each reduction, if there are more reductions than workers

/// Rows with equal numbers of partial sums.
struct SumGroup {
  std::vector<uint32_t> rows;
  std::map<TileId, uint64_t> elements;  ///< of the result on each tile that has any
  uint32_t workers = 1;
  bool spread = false;
};

class SumGrouper {
 public:
  SumGrouper(const PartialRows& partials, const std::vector<MappedBox>& result, const TiledNumbers& numbers,
             const Machine& m)
      : partials_(partials), result_(result), m_(m) {
    size_ = static_cast<double>(size_of(numbers.partials));
    result_size_ = static_cast<double>(size_of(numbers.operands));
    lanes_ = static_cast<uint32_t>(kernels::tile_vector_width(numbers.partials));
    for (uint32_t row = 0; row < partials.counts.size(); ++row)
      groups_[partials.counts[row]].rows.push_back(row);
    count_elements();
    share_workers();
    for (auto& [count, group] : groups_) group.spread = count > 1 && is_spread(count, group);
  }

  GroupedSums sums() {
    out_.position.resize(partials_.counts.size());
    out_.moved = std::ranges::any_of(groups_, [](const auto& entry) { return entry.second.spread; });
    if (!out_.moved) std::iota(out_.position.begin(), out_.position.end(), 0U);
    for (size_t begin = 0; begin < result_.size();) {
      size_t end = begin + 1;
      while (end < result_.size() && result_[end].box.row == result_[begin].box.row) ++end;
      out_.moved ? move_rows(begin, end) : keep_rows(begin, end);
      begin = end;
    }
    for (const auto& [count, group] : groups_)
      if (group.spread) spread(group);
    std::ranges::sort(out_.pieces, {}, [](const MappedBox& m) { return std::pair(m.box.row, m.box.col); });
    return std::move(out_);
  }

 private:
  void count_elements() {
    for (const auto& [box, tile] : result_)
      for (uint32_t row = box.row; row < box.row_end(); ++row)
        groups_.at(partials_.counts[row]).elements[tile] += box.cols;
  }

  /// Rows without partial sums need no reduction.
  void share_workers() {
    uint64_t rows = 0, reductions = 0;
    for (const auto& [count, group] : groups_)
      if (count > 0) rows += group.rows.size(), ++reductions;
    const uint64_t workers = m_.workers_per_tile;
    for (auto& [count, group] : groups_)
      if (count > 0)
        group.workers = reductions > workers
                            ? std::min(kWorkersOfMany, m_.workers_per_tile)
                            : static_cast<uint32_t>(ceil_divide(workers * group.rows.size(), rows));
  }

  /// PopLibs compares the time of adding where the result lies, as if each partial sum's elements arrived
  /// once, with the time of adding in equal parts on all tiles and moving the sums to the result.
  bool is_spread(uint32_t count, const SumGroup& group) const {
    uint64_t most = 0;
    for (const auto& [tile, elements] : group.elements) most = std::max(most, elements);
    const auto at_result = static_cast<double>(most);
    const uint64_t elements = uint64_t{group.rows.size()} * partials_.cols;
    const auto even = static_cast<double>(
        ceil_divide(ceil_divide(elements, uint64_t{kSumGrain}), uint64_t{m_.tiles}) * kSumGrain);
    const auto cycles = [&](double sent, double added) {
      return std::ceil(sent * size_ / m_.exchange_bytes_per_cycle) + m_.sync_cycles +
             count * std::ceil(added / lanes_);
    };
    const double move = std::ceil(at_result * result_size_ / m_.exchange_bytes_per_cycle) + m_.sync_cycles;
    return cycles(at_result, at_result) >= cycles(even * count, even) + move;
  }

  /// Adds boxes with the same rows where their rows of the result lie.
  void keep_rows(size_t begin, size_t end) {
    const Box& rows = result_[begin].box;
    for (uint32_t row = rows.row; row < rows.row_end();) {
      uint32_t next = row + 1;
      while (next < rows.row_end() && partials_.counts[next] == partials_.counts[row]) ++next;
      add_boxes(begin, end, row, next - row, groups_.at(partials_.counts[row]));
      row = next;
    }
  }

  /// The same, one group after the other, without the groups that are spread.
  void move_rows(size_t begin, size_t end) {
    const Box& rows = result_[begin].box;
    for (const auto& [count, group] : groups_) {
      if (group.spread) continue;
      const uint32_t first = next_;
      for (uint32_t row = rows.row; row < rows.row_end(); ++row)
        if (partials_.counts[row] == count) out_.position[row] = next_++;
      add_boxes(begin, end, first, next_ - first, group);
    }
  }

  /// Rows of a group, in the columns of each of these boxes of the result.
  void add_boxes(size_t begin, size_t end, uint32_t row, uint32_t rows, const SumGroup& group) {
    for (size_t i = begin; i < end && rows > 0; ++i) {
      const auto& [box, tile] = result_[i];
      add({{row, rows, box.col, box.cols}, tile}, group.workers, group.elements.at(tile), end - begin == 1);
    }
  }

  /// Spreads a group in equal parts over tiles, beginning after the last tile of the previous group.
  void spread(const SumGroup& group) {
    const auto rows = static_cast<uint32_t>(group.rows.size());
    const uint64_t parts =
        std::max<uint64_t>(1, uint64_t{rows} * partials_.cols / (uint64_t{kLeastVectors} * lanes_));
    const auto most_tiles = static_cast<uint32_t>(std::min<uint64_t>(m_.tiles, parts));
    const std::vector<MappedBox> boxes =
        map_by_blocks(rows, partials_.cols, partials_.block_size, lanes_, most_tiles);
    std::map<TileId, uint64_t> elements;
    for (const auto& [box, tile] : boxes) elements[tile] += box.elements();
    for (const auto& [box, tile] : boxes) {
      const bool has_rows = box.cols == partials_.cols;
      add({{next_ + box.row, box.rows, box.col, box.cols}, (first_tile_ + tile) % m_.tiles}, group.workers,
          elements.at(tile), has_rows);
    }
    for (uint32_t row : group.rows) out_.position[row] = next_++;
    first_tile_ = (first_tile_ + static_cast<TileId>(elements.size())) % m_.tiles;
  }

  /// Divides sums into pieces for the workers that add `elements` elements of the tile: columns that fill
  /// vectors, or rows, if there are too few columns and no other tile has these rows.
  void add(const MappedBox& sums, uint32_t workers, uint64_t elements, bool has_rows) {
    const auto& [box, tile] = sums;
    if (box.empty()) return;
    const auto parts = static_cast<uint32_t>(ceil_divide(workers * box.elements(), elements));
    const uint32_t grain = ceil_divide(2 * lanes_, box.rows);
    const bool by_rows = has_rows && parts > ceil_divide(box.cols, grain);
    const std::vector<uint32_t> begin =
        by_rows ? split_evenly(box.rows, parts) : split_evenly(box.cols, parts, grain);
    for (size_t i = 0; i + 1 < begin.size(); ++i) {
      const uint32_t size = begin[i + 1] - begin[i];
      if (size == 0) continue;
      out_.pieces.push_back({by_rows ? Box{box.row + begin[i], size, box.col, box.cols}
                                     : Box{box.row, box.rows, box.col + begin[i], size},
                             tile});
    }
  }

  const PartialRows& partials_;
  const std::vector<MappedBox>& result_;
  const Machine& m_;
  double size_ = 0;
  double result_size_ = 0;
  uint32_t lanes_ = 1;
  std::map<uint32_t, SumGroup> groups_;  ///< by number of partial sums
  GroupedSums out_;
  uint32_t next_ = 0;  ///< row of the sums
  TileId first_tile_ = 0;
};

}  // namespace

GroupedSums group_sums(const PartialRows& partials, const std::vector<MappedBox>& result,
                       const TiledNumbers& numbers, const Machine& m) {
  return SumGrouper(partials, result, numbers, m).sums();
}

}  // namespace tessera::ops
