#include "ops/sparse/static/static_estimate.h"

#include <bit>
#include <cmath>
#include <numeric>

namespace tessera::ops {
namespace {

constexpr size_t kMostSamples = 4096;  // maximum number of rows, columns or tiles that an estimate samples

std::vector<uint32_t> part_counts(uint32_t most) {
  std::vector<uint32_t> counts;
  for (uint32_t parts = 1; parts <= most; parts += std::max(1U, std::bit_floor(parts) / 4))
    counts.push_back(parts);
  if (counts.empty() || counts.back() != most) counts.push_back(most);
  return counts;
}

/// Equally spaced entries of a list, at most kMostSamples.
std::vector<uint32_t> sampled(const std::vector<uint32_t>& list) {
  const size_t step = std::max<size_t>(1, (list.size() + kMostSamples - 1) / kMostSamples);
  std::vector<uint32_t> some;
  for (size_t i = 0; i < list.size(); i += step) some.push_back(list[i]);
  return some;
}

}  // namespace

PatternCounts::PatternCounts(const Pattern& p)
    : of_column(p.block_cols()), blocks(static_cast<double>(p.blocks())), rows(p.block_rows()) {
  std::vector<uint32_t> of_row;
  for (uint32_t r = 0; r < p.block_rows(); ++r)
    of_row.push_back(static_cast<uint32_t>(p.crow_indices[r + 1] - p.crow_indices[r]));
  for (uint32_t column : p.col_indices) ++of_column[column];
  of_some_columns = sampled(of_column);
  of_some_rows = sampled(of_row);
}

BandCounts::BandCounts(const PatternCounts& counts, uint32_t bands) {
  const std::vector<uint32_t> first = split_bands(counts.of_column, bands);
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

double largest_fraction(const std::vector<double>& of_row, uint32_t rows, uint32_t tiles) {
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
  for (uint64_t t = 0; t < tiles; t += std::max<uint64_t>(1, tiles / kMostSamples))
    most =
        std::max(most, before_row(uint64_t{rows} * (t + 1) / tiles) - before_row(uint64_t{rows} * t / tiles));
  return most;
}

PartitionEstimate::PartitionEstimate(const Pattern& pattern, uint32_t n, TiledNumbers numbers,
                                     const PatternCounts& counts, const BandCounts& bands,
                                     const StaticPartition& partition, const machine::Machine& m)
    : pattern_(pattern),
      n_(n),
      numbers_(numbers),
      counts_(counts),
      bands_(bands),
      partition_(partition),
      m_(m),
      b_(pattern.block_size) {
  size_ = static_cast<double>(size_of(numbers.operands));
  partial_size_ = static_cast<double>(size_of(numbers.partials));
  cols_ = std::ceil(double{1} * n / partition.col_parts);
  blocks_ = std::ceil(bands.blocks / partition.band_tiles);
  const double in_row = bands.rows > 0 ? counts.blocks / partition.bands / bands.rows : 1;
  rows_ = std::min(blocks_, std::ceil((blocks_ - 1) / in_row) + 1);
  used_ = partition.whole_bands ? bands.cols : used_columns();
}

double PartitionEstimate::used_columns() const {
  if (bands_.cols == 0 || bands_.blocks == 0) return 0;
  const double in_column = bands_.blocks / bands_.cols;
  return std::min(bands_.cols * (1 - std::pow(1 - 1.0 / partition_.band_tiles, in_column)), blocks_);
}

double PartitionEstimate::owned_cols(uint32_t rows) const {
  if (rows >= m_.tiles || rows == 0) return n_;
  return std::ceil(double{1} * n_ / std::min(n_, std::max(1U, m_.tiles / rows)));
}

std::vector<double> PartitionEstimate::parts_of_rows() const {
  std::vector<double> parts;
  for (size_t r = 0; r < counts_.of_some_rows.size(); ++r)
    parts.push_back(bands_.parts_of_row[r] +
                    (counts_.of_some_rows[r] - bands_.parts_of_row[r]) / std::max(1.0, blocks_));
  return parts;
}

double PartitionEstimate::element_cycles(const kernels::ElementRates& rates) const {
  const double workers = m_.workers_per_tile;
  const double rows = std::ceil(rows_ / workers);
  const double further = rows_ > 0 ? blocks_ / rows_ - 1 : 0;
  return workers * (rates.start + rows * (rates.per_row + rates.per_further * further));
}

void PartitionEstimate::receive_x(program::TileTraffic& t) const {
  if (partition_.whole_bands) {
    (partition_.band_tiles % 2 == 0 ? t.paired_in : t.in) += x_bytes();
    return;
  }
  t.gathered_in += x_bytes();
}

double PartitionEstimate::gathered_from_owner() const {
  if (partition_.whole_bands) return 0;
  return largest_fraction(pairs_of_column(), pattern_.cols, m_.tiles) * owned_cols(pattern_.cols) * size_;
}

/// Pairs of tiles that need a column's rows of X, by block column.
std::vector<double> PartitionEstimate::pairs_of_column() const {
  const double pairs = std::max(1.0, partition_.band_tiles / 2.0);
  const std::vector<uint32_t>& counts = counts_.of_some_columns;
  std::vector<double> by_count(1 + (counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end())));
  for (size_t i = 0; i < by_count.size(); ++i)
    by_count[i] = pairs * (1 - std::pow(1 - 1 / pairs, static_cast<double>(i)));
  std::vector<double> of_column;
  for (uint32_t count : counts) of_column.push_back(by_count[count]);
  return of_column;
}

double PartitionEstimate::x_transfers() const {
  return used_ * (pattern_.cols > m_.tiles ? std::ceil(double{1} * b_ * m_.tiles / pattern_.cols) : b_);
}

double PartitionEstimate::resident_bytes(uint32_t rows) const {
  return std::ceil(double{1} * rows / m_.tiles) * owned_cols(rows) * size_;
}

std::vector<uint32_t> counts_or(uint32_t forced, uint32_t most) {
  return forced != 0 ? std::vector<uint32_t>{forced} : part_counts(std::max(1U, most));
}

}  // namespace tessera::ops
