#include "ops/tiled_static.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "kernels/tile_product/codelet.h"
#include "kernels/tile_product/cost.h"
#include "program/cycles.h"
#include "program/sizes.h"

namespace tessera::ops {
namespace {

using machine::Machine;
using program::Phase;

// Limits of the published planner.
constexpr uint32_t kMostColParts = 32;
constexpr uint32_t kMostBands = 128;
constexpr uint64_t kMostRun =
    0xFFFF;  // bytes of a band's part of X, per 8 values of a block's row; non-zeros a tile

constexpr size_t kMostCuts = 64;
constexpr size_t kSampled = 4096;  // rows, columns or tiles that an estimate looks at, at most

/// 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … up to `most`.
std::vector<uint32_t> part_counts(uint32_t most) {
  std::vector<uint32_t> counts;
  for (uint32_t parts = 1; parts <= most; parts += std::max(1U, std::bit_floor(parts) / 4))
    counts.push_back(parts);
  if (counts.empty() || counts.back() != most) counts.push_back(most);
  return counts;
}

/// Entries of a list at equal distances, no more than kSampled: estimates look at all of them
/// for every cut.
std::vector<uint32_t> sampled(const std::vector<uint32_t>& list) {
  const size_t step = std::max<size_t>(1, (list.size() + kSampled - 1) / kSampled);
  std::vector<uint32_t> some;
  for (size_t i = 0; i < list.size(); i += step) some.push_back(list[i]);
  return some;
}

/// The most that a tile has where the rows of a matrix lie on the tiles in runs of nearly equal
/// length; `of_row` holds what each row has, for rows at equal distances.
double largest_share(const std::vector<double>& of_row, uint32_t rows, uint32_t tiles) {
  if (of_row.empty()) return 0;
  if (rows <= tiles) return *std::max_element(of_row.begin(), of_row.end());
  std::vector<double> before = {0};
  for (double has : of_row) before.push_back(before.back() + has);
  const double per_row = static_cast<double>(of_row.size()) / rows;
  const auto before_row = [&](uint64_t row) {
    const double at = static_cast<double>(row) * per_row;
    const auto whole = std::min(static_cast<size_t>(at), of_row.size() - 1);
    return (before[whole] + (at - static_cast<double>(whole)) * of_row[whole]) / per_row;
  };
  double most = 0;
  for (uint64_t t = 0; t < tiles; t += std::max<uint64_t>(1, tiles / kSampled))
    most = std::max(most, before_row(uint64_t{rows} * (t + 1) / tiles) -
                              before_row(uint64_t{rows} * t / tiles));
  return most;
}

/// What a pattern lets expect, whatever the cut.
struct Counts {
  std::vector<uint32_t> of_column;
  std::vector<uint32_t> of_some_columns;
  std::vector<uint32_t> of_some_rows;
  double blocks = 0;
  double rows = 0;

  explicit Counts(const Pattern& p)
      : of_column(p.block_cols()), blocks(static_cast<double>(p.blocks())), rows(p.block_rows()) {
    std::vector<uint32_t> of_row;
    for (uint32_t r = 0; r < p.block_rows(); ++r)
      of_row.push_back(static_cast<uint32_t>(p.row_begin[r + 1] - p.row_begin[r]));
    for (uint32_t column : p.columns) ++of_column[column];
    of_some_columns = sampled(of_column);
    of_some_rows = sampled(of_row);
  }
};

/// Bands of a pattern: what does not depend on the number of tiles of each.
struct Bands {
  double blocks = 0;                 ///< of the fullest
  double cols = 0;                   ///< block columns of the widest
  double rows = 0;                   ///< rows with blocks, of one of average size
  std::vector<double> parts_of_row;  ///< bands that some rows have blocks in, expected

  Bands(const Counts& counts, uint32_t bands) {
    const std::vector<uint32_t> first = cut_bands(counts.of_column, bands);
    for (uint32_t band = 0; band < bands; ++band) {
      const auto begin = counts.of_column.begin();
      blocks = std::max(blocks, std::accumulate(begin + first[band], begin + first[band + 1], 0.0));
      cols = std::max(cols, double{1} * (first[band + 1] - first[band]));
    }
    for (uint32_t count : counts.of_some_rows)
      parts_of_row.push_back(bands * (1 - std::pow(1 - 1.0 / bands, count)));
    const double mean = std::accumulate(parts_of_row.begin(), parts_of_row.end(), 0.0) /
                        std::max(1.0, static_cast<double>(parts_of_row.size()));
    rows = counts.rows * mean / bands;
  }
};

/// Expects that the blocks of a pattern lie anywhere in their row and in their column alike.
class Estimate {
 public:
  Estimate(const StaticShape& s, const Counts& counts, const Bands& bands, const StaticCut& cut,
           const Machine& m)
      : s_(s), counts_(counts), bands_(bands), cut_(cut), m_(m), b_(s.pattern.block_size) {
    size_ = static_cast<double>(size_of(s.numbers.operands));
    partial_size_ = static_cast<double>(size_of(s.numbers.partials));
    cols_ = std::ceil(double{1} * s.n / cut.col_parts);
    blocks_ = std::ceil(bands.blocks / cut.band_tiles);
    const double in_row = bands.rows > 0 ? counts.blocks / cut.bands / bands.rows : 1;
    rows_ = std::min(blocks_, std::ceil((blocks_ - 1) / in_row) + 1);
    used_ = cut.whole_bands ? bands.cols : used_columns(1);
  }

  Expected<StaticCut> all() const {
    program::PhaseTimes cycles;
    cut_.whole_bands ? add_broadcast(cycles) : add_gather(cycles);
    cycles[Phase::compute] = multiply_cycles();
    add_reduction(cycles);
    cycles[Phase::control] = 2 * program::superstep_cycles(m_, cut_.tiles());
    return {cut_, cycles, bytes()};
  }

  bool is_published() const {
    const double run = bands_.cols * b_ * cols_ * size_;
    return cut_.col_parts <= kMostColParts && cut_.bands <= kMostBands &&
           uint64_t{2} * cut_.col_parts * cut_.bands <= std::max(2U, m_.tiles) &&
           run <= static_cast<double>(kMostRun) * (b_ > 1 ? 8 * b_ : 1) &&
           (b_ > 1 || blocks_ <= kMostRun) &&
           x_bytes() + value_bytes() + partial_bytes() <=
               kPublishedMemoryShare * static_cast<double>(m_.tile_bytes);
  }

 private:
  /// Block columns of a band that `tiles` neighbouring ones use together.
  double used_columns(double tiles) const {
    if (bands_.cols == 0 || bands_.blocks == 0) return 0;
    const double in_column = bands_.blocks / bands_.cols;
    const double share = std::min(1.0, tiles / cut_.band_tiles);
    return std::min(bands_.cols * (1 - std::pow(1 - share, in_column)), tiles * blocks_);
  }

  double x_bytes() const { return used_ * b_ * cols_ * size_; }
  double value_bytes() const { return blocks_ * b_ * b_ * size_; }
  double partial_bytes() const { return rows_ * b_ * cols_ * partial_size_; }

  void add_broadcast(program::PhaseTimes& cycles) const {
    program::TileTraffic t;
    (cut_.band_tiles % 2 == 0 ? t.paired_in : t.in) = x_bytes();
    t.in += cut_.col_parts > 1 ? value_bytes() : 0;
    add_exchange(cycles, program::traffic_cycles(m_, t));
  }

  void add_gather(program::PhaseTimes& cycles) const {
    const bool pairs = cut_.band_tiles > 1;
    const double both = pairs ? std::max(0.0, 2 * used_ - used_columns(2)) : 0;
    program::TileTraffic t;
    t.gathered_paired_in = both * b_ * cols_ * size_;
    t.gathered_in = x_bytes() - t.gathered_paired_in;
    t.in = cut_.col_parts > 1 ? value_bytes() : 0;
    program::TileTraffic owner;
    owner.gathered_out = largest_share(pairs_of_column(), s_.pattern.cols, m_.tiles) *
                         owned_cols(s_.pattern.cols) * size_;
    add_exchange(cycles,
                 std::max(program::traffic_cycles(m_, t), program::traffic_cycles(m_, owner)));
  }

  /// Pairs of tiles that want a column's rows of X, by block column.
  std::vector<double> pairs_of_column() const {
    const double pairs = std::max(1.0, cut_.band_tiles / 2.0);
    std::vector<double> by_count(1 + (counts_.of_some_columns.empty()
                                          ? 0
                                          : *std::max_element(counts_.of_some_columns.begin(),
                                                              counts_.of_some_columns.end())));
    for (size_t i = 0; i < by_count.size(); ++i)
      by_count[i] = pairs * (1 - std::pow(1 - 1 / pairs, static_cast<double>(i)));
    std::vector<double> of_column;
    for (uint32_t count : counts_.of_some_columns) of_column.push_back(by_count[count]);
    return of_column;
  }

  /// Columns of a matrix of n columns that lie on one tile, of each of its rows there.
  double owned_cols(uint32_t rows) const {
    if (rows >= m_.tiles || rows == 0) return s_.n;
    return std::ceil(double{1} * s_.n / std::min(s_.n, std::max(1U, m_.tiles / rows)));
  }

  double multiply_cycles() const {
    const Type type = s_.numbers.operands;
    const auto n = static_cast<uint32_t>(cols_);
    if (b_ > 1) {
      const kernels::BlockRates rates = kernels::block_rates(m_, type, b_, n);
      return rates.start + rows_ * rates.per_row + blocks_ * rates.per_block;
    }
    const kernels::ElementRates rates = kernels::element_rates(type, n);
    const double workers = m_.workers_per_tile;
    const double rows = std::ceil(rows_ / workers);
    const double further = rows_ > 0 ? blocks_ / rows_ - 1 : 0;
    return workers * (rates.start + rows * (rates.per_row + rates.per_further * further));
  }

  void add_reduction(program::PhaseTimes& cycles) const {
    std::vector<double> partials;
    for (size_t r = 0; r < counts_.of_some_rows.size(); ++r)
      partials.push_back(bands_.parts_of_row[r] +
                         (counts_.of_some_rows[r] - bands_.parts_of_row[r]) /
                             std::max(1.0, blocks_));
    const double cols = owned_cols(s_.pattern.rows);
    const double rows = largest_share(partials, s_.pattern.rows, m_.tiles);
    const double own_rows = std::ceil(double{1} * s_.pattern.rows / m_.tiles);
    program::TileTraffic t;
    t.gathered_in = rows * cols * partial_size_;
    t.gathered_out = partial_bytes();
    add_exchange(cycles, program::traffic_cycles(m_, t));
    cycles[Phase::reduce] =
        reduce_cycles(m_, s_.numbers, rows / std::max(1.0, own_rows), own_rows * cols);
  }

  void add_exchange(program::PhaseTimes& cycles, double transfer) const {
    cycles[Phase::exchange] += transfer + program::exchange_overhead_cycles(m_);
    cycles[Phase::sync] += program::exchange_sync_cycles(m_);
  }

  double bytes() const {
    const double tiles = m_.tiles;
    const double lists = 2.0 * (rows_ + blocks_);
    const double resident =
        std::ceil(s_.pattern.cols / tiles) * owned_cols(s_.pattern.cols) * size_ +
        std::ceil(s_.pattern.rows / tiles) * owned_cols(s_.pattern.rows) * size_ + lists +
        (cut_.col_parts > 1 ? counts_.blocks * b_ * b_ * size_ / tiles : value_bytes());
    const double copies = cut_.col_parts > 1 ? value_bytes() : 0;
    const double transfers =
        used_ * (s_.pattern.cols > m_.tiles ? std::ceil(b_ * tiles / s_.pattern.cols) : b_);
    return resident + copies + x_bytes() + partial_bytes() +
           transfers * program::kExchangeCodeBytes + program::kStackBytes;
  }

  const StaticShape& s_;
  const Counts& counts_;
  const Bands& bands_;
  const StaticCut& cut_;
  const Machine& m_;
  uint32_t b_;
  double size_ = 0;
  double partial_size_ = 0;
  double cols_ = 0;    ///< of X, of a tile
  double blocks_ = 0;  ///< of the fullest tile
  double rows_ = 0;    ///< block rows of a tile
  double used_ = 0;    ///< block columns that a tile uses
};

std::vector<uint32_t> counts_or(uint32_t forced, uint32_t most) {
  return forced != 0 ? std::vector<uint32_t>{forced} : part_counts(std::max(1U, most));
}

}  // namespace

std::string to_string(const StaticCut& cut) {
  return fmt::format("col_parts={} bands={} band_tiles={}{}", cut.col_parts, cut.bands,
                     cut.band_tiles, cut.whole_bands ? " whole_bands" : "");
}

std::vector<Expected<StaticCut>> static_cuts(const StaticShape& shape, Planner planner,
                                             const Machine& machine, const StaticCut& forced) {
  const Counts counts(shape.pattern);
  std::vector<Expected<StaticCut>> found;
  for (uint32_t bands :
       counts_or(forced.bands, std::min(machine.tiles, shape.pattern.block_cols()))) {
    const Bands of(counts, bands);
    for (uint32_t cols : counts_or(forced.col_parts, std::min(machine.tiles / bands, shape.n))) {
      const auto most = static_cast<uint32_t>(machine.tiles / (uint64_t{bands} * cols));
      const uint32_t band_tiles = forced.band_tiles != 0 ? forced.band_tiles : most;
      if (band_tiles == 0 || band_tiles > most) continue;
      if (shape.pattern.blocks() * cols > ~0U)
        continue;  // copies of W beyond what a variable may have
      const auto consider = [&](const StaticCut& cut) {
        const Estimate estimate(shape, counts, of, cut, machine);
        if (planner == Planner::best || estimate.is_published()) found.push_back(estimate.all());
      };
      consider({cols, bands, band_tiles});
      if (planner == Planner::published) continue;
      // A broadcast reaches both tiles of a pair at once: no tile should be without its neighbour.
      const bool may_be_even = forced.band_tiles == 0 && band_tiles > 1;
      consider({cols, bands, may_be_even ? band_tiles & ~1U : band_tiles, true});
    }
  }
  const auto capacity = static_cast<double>(machine.tile_bytes);
  std::sort(found.begin(), found.end(), [&](const auto& a, const auto& b) {
    if ((a.bytes > capacity) != (b.bytes > capacity)) return a.bytes <= capacity;
    return a.bytes > capacity ? a.bytes < b.bytes : a.cycles.total() < b.cycles.total();
  });
  if (found.size() > kMostCuts) found.resize(kMostCuts);
  return found;
}

}  // namespace tessera::ops
