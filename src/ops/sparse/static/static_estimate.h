// Expected cost of a partition of a sparse product, before its blocks are distributed and counted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/tile/tile_product/cost.h"
#include "machine/model/machine.h"
#include "ops/sparse/static/static.h"
#include "program/cycles.h"

namespace tessera::ops {

/// Counts of a pattern, independent of the partition.
struct PatternCounts {
  std::vector<uint32_t> of_column;        ///< blocks of each block column
  std::vector<uint32_t> of_some_columns;  ///< counts of equally spaced columns, which estimates use
  std::vector<uint32_t> of_some_rows;
  double blocks = 0;
  double rows = 0;  ///< block rows

  explicit PatternCounts(const Pattern& pattern);
};

/// Counts for the bands of a pattern, independent of the number of tiles per band.
struct BandCounts {
  double blocks = 0;                 ///< blocks of the fullest band
  double cols = 0;                   ///< block columns of the widest band
  double rows = 0;                   ///< rows with blocks in a band of average size
  std::vector<double> parts_of_row;  ///< by sampled row: expected number of bands in which it has blocks

  BandCounts(const PatternCounts& counts, uint32_t bands);
};

/// The largest amount of a tile, if the rows of a matrix are distributed over the tiles in runs of nearly
/// equal length; `of_row` has the amounts of equally spaced rows.
double largest_fraction(const std::vector<double>& of_row, uint32_t rows, uint32_t tiles);

/// The parts of a partition. Assumes that the blocks of a pattern are uniformly distributed in their row and
/// in their column.
class PartitionEstimate {
 public:
  PartitionEstimate(const Pattern& pattern, uint32_t n, TiledNumbers numbers, const PatternCounts& counts,
                    const BandCounts& bands, const StaticPartition& partition, const machine::Machine& m);

 protected:
  double x_bytes() const { return used_ * b_ * cols_ * size_; }
  double value_bytes() const { return blocks_ * b_ * b_ * size_; }
  double all_value_bytes() const { return counts_.blocks * b_ * b_ * size_; }
  double row_bytes(double element) const { return rows_ * b_ * cols_ * element; }

  /// Block columns of a band that a tile uses.
  double used_columns() const;
  /// Number of columns, per row, of a matrix of n columns that a tile owns.
  double owned_cols(uint32_t rows) const;
  /// Number of parts with blocks of a row, for the sampled rows.
  std::vector<double> parts_of_rows() const;

  /// A tile's compute time for single elements, whose rows are dealt to the workers.
  double element_cycles(const kernels::ElementRates& rates) const;

  /// Adds the traffic of receiving the rows of X, in one broadcast or gathered.
  void receive_x(program::TileTraffic& traffic) const;
  /// Amount that the owner of most of X sends if rows are gathered.
  double gathered_from_owner() const;
  /// Number of transfers that bring the rows of X.
  double x_transfers() const;
  /// Bytes per tile of a matrix with `rows` rows.
  double resident_bytes(uint32_t rows) const;

  const Pattern& pattern_;
  uint32_t n_;
  TiledNumbers numbers_;
  const PatternCounts& counts_;
  const BandCounts& bands_;
  const StaticPartition& partition_;
  const machine::Machine& m_;
  uint32_t b_;
  double size_ = 0;
  double partial_size_ = 0;
  double cols_ = 0;    ///< columns of X of a tile
  double blocks_ = 0;  ///< blocks of the fullest tile
  double rows_ = 0;    ///< block rows of a tile
  double used_ = 0;    ///< block columns that a tile uses

 private:
  std::vector<double> pairs_of_column() const;
};

/// Numbers of parts to try: the forced number, or 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … up to `most`.
std::vector<uint32_t> counts_or(uint32_t forced, uint32_t most);

/// All candidate partitions of a product, by an Estimate that is a PartitionEstimate with all().
template <class Estimate, class Shape>
std::vector<Expected<StaticPartition>> search_partitions(const Shape& shape, const machine::Machine& machine,
                                                         const StaticPartition& forced) {
  const Pattern& pattern = shape.pattern;
  const PatternCounts counts(pattern);
  std::vector<Expected<StaticPartition>> found;
  for (uint32_t bands : counts_or(forced.bands, std::min(machine.tiles, pattern.block_cols()))) {
    const BandCounts of(counts, bands);
    for (uint32_t cols : counts_or(forced.col_parts, std::min(machine.tiles / bands, shape.n))) {
      const auto most = static_cast<uint32_t>(machine.tiles / (uint64_t{bands} * cols));
      const uint32_t band_tiles = forced.band_tiles != 0 ? forced.band_tiles : most;
      if (band_tiles == 0 || band_tiles > most) continue;
      if (pattern.blocks() * cols > ~0U)
        continue;  // copies of W, or its partial gradients, exceed the limit of a variable
      const auto consider = [&](const StaticPartition& partition) {
        found.push_back(Estimate(shape, counts, of, partition, machine).all());
      };
      consider({cols, bands, band_tiles});
      // A broadcast reaches both tiles of a pair at once: no tile should be without a neighbour.
      const bool may_be_even = forced.band_tiles == 0 && band_tiles > 1;
      consider({cols, bands, may_be_even ? band_tiles & ~1U : band_tiles, true});
    }
  }
  keep_best(found, machine);
  return found;
}

}  // namespace tessera::ops
