#include "ops/sparse/static/grouped_sums.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "base/ceil_divide.h"
#include "kernels/common/cost.h"
#include "ops/split.h"

namespace tessera::ops {
namespace {

using base::ceil_divide;
using machine::Machine;
using program::Box;
using program::MappedBox;
using program::TileId;

constexpr uint32_t kSumGrain = 8;       // elements by which PopLibs splits a sum evenly over tiles
constexpr uint32_t kLeastOfTile = 16;   // elements of such a part
constexpr uint32_t kWorkersOfMany = 2;  // of each reduction, if there are more reductions than workers

/// Rows with equal numbers of partial sums.
struct SumGroup {
  std::vector<uint32_t> rows;
  uint32_t workers = 1;
  bool spread = false;
};

class SumGrouper {
 public:
  SumGrouper(const std::vector<uint32_t>& partials_of_row, uint32_t cols,
             const std::vector<MappedBox>& result, const TiledNumbers& numbers, const Machine& m)
      : partials_of_row_(partials_of_row), cols_(cols), result_(result), m_(m) {
    size_ = static_cast<double>(size_of(numbers.partials));
    result_size_ = static_cast<double>(size_of(numbers.operands));
    lanes_ = kernels::tile_vector_width(numbers.partials);
    for (uint32_t row = 0; row < partials_of_row.size(); ++row)
      groups_[partials_of_row[row]].rows.push_back(row);
    share_workers();
    for (auto& [partials, group] : groups_) group.spread = partials > 1 && is_spread(partials, group);
  }

  GroupedSums sums() {
    out_.position.resize(partials_of_row_.size());
    out_.moved = std::ranges::any_of(groups_, [](const auto& entry) { return entry.second.spread; });
    if (!out_.moved) std::iota(out_.position.begin(), out_.position.end(), 0U);
    for (size_t begin = 0; begin < result_.size();) {
      size_t end = begin + 1;
      while (end < result_.size() && result_[end].box.row == result_[begin].box.row) ++end;
      out_.moved ? move_rows(begin, end) : keep_rows(begin, end);
      begin = end;
    }
    for (const auto& [partials, group] : groups_)
      if (group.spread) spread(group);
    std::ranges::sort(out_.pieces, {}, [](const MappedBox& m) { return std::pair(m.box.row, m.box.col); });
    return std::move(out_);
  }

 private:
  /// Rows without partial sums are no reduction.
  void share_workers() {
    uint64_t rows = 0, reductions = 0;
    for (const auto& [partials, group] : groups_)
      if (partials > 0) rows += group.rows.size(), ++reductions;
    const uint64_t workers = m_.workers_per_tile;
    for (auto& [partials, group] : groups_)
      if (partials > 0)
        group.workers = reductions > workers
                            ? std::min(kWorkersOfMany, m_.workers_per_tile)
                            : static_cast<uint32_t>(ceil_divide(workers * group.rows.size(), rows));
  }

  /// The most elements of these rows in a box of the result.
  double most_in_a_box(uint32_t partials) const {
    uint64_t most = 0;
    for (const MappedBox& mapped : result_) {
      const auto begin = partials_of_row_.begin() + mapped.box.row;
      most = std::max(most, static_cast<uint64_t>(std::count(begin, begin + mapped.box.rows, partials)) *
                                mapped.box.cols);
    }
    return static_cast<double>(most);
  }

  /// PopLibs compares the time at the result, as if each partial sum's elements arrived once, with that in
  /// equal parts on all tiles, from where sums are moved.
  bool is_spread(uint32_t partials, const SumGroup& group) const {
    const double at_result = most_in_a_box(partials);
    const uint64_t elements = uint64_t{group.rows.size()} * cols_;
    const auto even = static_cast<double>(
        ceil_divide(ceil_divide(elements, uint64_t{kSumGrain}), uint64_t{m_.tiles}) * kSumGrain);
    const auto cycles = [&](double sent, double added) {
      return std::ceil(sent * size_ / m_.exchange_bytes_per_cycle) + m_.sync_cycles +
             partials * std::ceil(added / lanes_);
    };
    const double move = std::ceil(at_result * result_size_ / m_.exchange_bytes_per_cycle) + m_.sync_cycles;
    return cycles(at_result, at_result) >= cycles(even * partials, even) + move;
  }

  /// Sums of boxes that have the same rows, at their rows of the result.
  void keep_rows(size_t begin, size_t end) {
    const Box& rows = result_[begin].box;
    for (uint32_t row = rows.row; row < rows.row_end();) {
      uint32_t next = row + 1;
      while (next < rows.row_end() && partials_of_row_[next] == partials_of_row_[row]) ++next;
      const SumGroup& group = groups_.at(partials_of_row_[row]);
      for (size_t i = begin; i < end; ++i)
        add({row, next - row, result_[i].box.col, result_[i].box.cols}, result_[i].tile, group.workers);
      row = next;
    }
  }

  /// The same, one group after the other, except for those that are spread.
  void move_rows(size_t begin, size_t end) {
    const Box& rows = result_[begin].box;
    for (const auto& [partials, group] : groups_) {
      if (group.spread) continue;
      const uint32_t first = next_;
      for (uint32_t row = rows.row; row < rows.row_end(); ++row)
        if (partials_of_row_[row] == partials) out_.position[row] = next_++;
      for (size_t i = begin; i < end && next_ > first; ++i)
        add({first, next_ - first, result_[i].box.col, result_[i].box.cols}, result_[i].tile, group.workers);
    }
  }

  /// A group in equal parts, beginning after the last tile of the group before.
  void spread(const SumGroup& group) {
    const auto rows = static_cast<uint32_t>(group.rows.size());
    const uint64_t parts = std::max<uint64_t>(1, uint64_t{rows} * cols_ / kLeastOfTile);
    const auto tiles = static_cast<uint32_t>(std::min<uint64_t>(m_.tiles, parts));
    for (MappedBox mapped : program::map_linearly(rows, cols_, tiles)) {
      mapped.box.row += next_;
      add(mapped.box, (first_tile_ + mapped.tile) % m_.tiles, group.workers);
    }
    for (uint32_t row : group.rows) out_.position[row] = next_++;
    first_tile_ = (first_tile_ + tiles) % m_.tiles;
  }

  /// In pieces for the workers: of rows, or if there are too few, of columns that fill vectors.
  void add(const Box& box, TileId tile, uint32_t workers) {
    if (box.empty()) return;
    const bool by_rows = box.rows >= workers;
    const auto lanes = static_cast<uint32_t>(lanes_);
    const std::vector<uint32_t> begin =
        by_rows ? split_evenly(box.rows, workers) : split_evenly(box.cols, workers, lanes);
    for (size_t i = 0; i + 1 < begin.size(); ++i) {
      const uint32_t size = begin[i + 1] - begin[i];
      if (size == 0) continue;
      out_.pieces.push_back({by_rows ? Box{box.row + begin[i], size, box.col, box.cols}
                                     : Box{box.row, box.rows, box.col + begin[i], size},
                             tile});
    }
  }

  const std::vector<uint32_t>& partials_of_row_;
  uint32_t cols_;
  const std::vector<MappedBox>& result_;
  const Machine& m_;
  double size_ = 0;
  double result_size_ = 0;
  double lanes_ = 1;
  std::map<uint32_t, SumGroup> groups_;  ///< by number of partial sums
  GroupedSums out_;
  uint32_t next_ = 0;  ///< row of the sums
  TileId first_tile_ = 0;
};

}  // namespace

GroupedSums group_sums(const std::vector<uint32_t>& partials_of_row, uint32_t cols,
                       const std::vector<MappedBox>& result, const TiledNumbers& numbers, const Machine& m) {
  return SumGrouper(partials_of_row, cols, result, numbers, m).sums();
}

}  // namespace tessera::ops
