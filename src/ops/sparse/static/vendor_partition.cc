#include "ops/sparse/static/vendor_partition.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/ceil_divide.h"
#include "kernels/tile/tile_product/cost.h"
#include "ops/sparse/static/static_estimate.h"
#include "ops/sparse/static/vendor_layout.h"
#include "ops/tiles/expected.h"
#include "ops/tiles/vendor_limits.h"

namespace tessera::ops {
namespace {

using base::ceil_divide;
using machine::Machine;

/// A part of the columns of X, and the number of tiles that compute it.
struct VendorPart {
  uint32_t cols = 0;
  uint32_t tiles = 0;

  auto operator<=>(const VendorPart&) const = default;
};

struct VendorCost {
  double cycles = 0;
  double bytes = 0;
};

double vendor_at_least_one(double probability, double elements) {
  return 1 - std::pow(1 - probability, elements);
}
double vendor_deviation(double probability, double elements) {
  return std::ceil(std::sqrt(probability * (1 - probability) * elements));
}
/// Expected number of `elements` that occur with this probability, and one standard deviation.
double vendor_likely_most(double probability, double elements) {
  return std::min(elements, std::ceil(probability * elements + vendor_deviation(probability, elements)));
}

class VendorSearch {
 public:
  VendorSearch(const StaticShape& shape, const Machine& m, const StaticPartition& forced)
      : m_(m),
        forced_(forced),
        numbers_(shape.numbers),
        n_(shape.n),
        rows_(shape.pattern.rows),
        b_(shape.pattern.block_size),
        size_(static_cast<double>(size_of(shape.numbers.operands))),
        partial_size_(static_cast<double>(size_of(shape.numbers.partials))),
        grain_(static_cast<uint32_t>(8 / size_of(shape.numbers.operands))),
        pair_(m.tiles < 2 ? 1U : 2U),
        counts_(shape.pattern),
        columns_(counts_.of_column) {
    const double least = kVendorLeastShare * counts_.blocks / std::max(1.0, counts_.rows);
    const auto kept =
        std::ranges::count_if(counts_.of_some_rows, [&](uint32_t blocks) { return blocks > least; });
    const double sampled = std::max(1.0, static_cast<double>(counts_.of_some_rows.size()));
    kept_rows_ = std::max(1.0, std::ceil(counts_.rows * static_cast<double>(kept) / sampled));
    density_ = std::min(1.0, counts_.blocks / (kept_rows_ * columns_.kept()));
  }

  std::optional<StaticPartition> best() const {
    const uint64_t k_grains = b_ == 1 ? columns_.kept() : ceil_divide(columns_.kept(), grain_);
    const auto most_bands = static_cast<uint32_t>(std::min<uint64_t>(kVendorMostBands, k_grains));
    const auto [first_parts, last_parts] = range(forced_.col_parts, std::min(kVendorMostColParts, grains()));
    const auto [first_bands, last_bands] = range(forced_.bands, most_bands);
    std::vector<VendorBands> bands_of(last_bands + 1);
    for (uint32_t bands = first_bands; bands <= last_bands; ++bands) bands_of[bands] = columns_.split(bands);
    std::optional<StaticPartition> best;
    double fastest = 0;
    for (uint32_t parts = first_parts; parts <= last_parts; ++parts) {
      const std::vector<VendorPart> columns = parts_of_columns(parts);
      const auto count = static_cast<uint32_t>(columns.size());
      if (columns.back().tiles == 0 || (forced_.col_parts != 0 && count != parts)) continue;
      for (uint32_t bands = first_bands; bands <= last_bands; ++bands) {
        if (uint64_t{parts} * bands > m_.tiles / pair_) break;
        const std::optional<VendorCost> cost = cost_of(columns, bands_of[bands], parts > 1);
        if (!cost || cost->bytes > kVendorMemoryFraction * static_cast<double>(m_.tile_bytes)) continue;
        if (best && cost->cycles >= fastest) continue;
        const uint32_t tiles = m_.tiles / pair_ / count * pair_;
        const std::vector<uint32_t> tiles_of = vendor_band_tiles(bands_of[bands].blocks, tiles);
        if (tiles_of.empty()) continue;
        best = StaticPartition{.col_parts = count,
                               .bands = bands,
                               .band_tiles = 0,
                               .shared_tiles = has_long_lists(bands_of[bands], tiles_of) ? 0U : tiles,
                               .col_grain = grain_};
        fastest = cost->cycles;
      }
    }
    return best && best->is_vendors() ? best : std::nullopt;
  }

 private:
  uint32_t grains() const { return ceil_divide(n_, grain_); }

  /// The forced number alone, or 1 to `most`; empty if more are forced.
  static std::pair<uint32_t, uint32_t> range(uint32_t forced, uint32_t most) {
    if (forced > most) return {1U, 0U};
    return forced != 0 ? std::pair(forced, forced) : std::pair(1U, most);
  }

  /// Equal parts except the last, with tiles in proportion to their columns.
  std::vector<VendorPart> parts_of_columns(uint32_t parts) const {
    const uint32_t each = ceil_divide(grains(), parts);
    std::vector<VendorPart> all;
    for (uint32_t left = grains(); left > 0; left -= std::min(left, each))
      all.push_back({std::min(left, each) * grain_, 0});
    const uint32_t pairs = ceil_divide(m_.tiles, pair_);
    const auto count = static_cast<uint32_t>(all.size());
    const uint64_t total = uint64_t{1} + uint64_t{grains()} * grain_;
    uint32_t first = 0;
    for (VendorPart& part : all) {
      const auto share = static_cast<uint32_t>(ceil_divide(uint64_t{pairs} * part.cols, total));
      const uint32_t mine = std::max(share - 1, ceil_divide(pairs, count)) * pair_;
      part.tiles = std::min(mine, m_.tiles - first);
      if (&part == &all.back()) part.tiles = m_.tiles - first;
      first += part.tiles;
    }
    return all;
  }

  /// The cost of the slowest and the fullest of the parts of n.
  std::optional<VendorCost> cost_of(std::vector<VendorPart> columns, const VendorBands& bands,
                                    bool copies_values) const {
    std::ranges::sort(columns);
    columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
    VendorCost most;
    for (const VendorPart& part : columns) {
      const std::vector<uint32_t> tiles = vendor_band_tiles(bands.blocks, part.tiles);
      const double run = double{1} * bands.widest * b_ * part.cols * size_;
      if (tiles.empty() || run > static_cast<double>(kVendorMostRun) * (b_ == 1 ? 1U : 8 * b_)) return {};
      size_t fullest = 0;
      for (size_t band = 1; band < tiles.size(); ++band)
        if (bands.blocks[band] * tiles[fullest] > bands.blocks[fullest] * tiles[band]) fullest = band;
      const VendorCost cost =
          cost_of_part(static_cast<double>(bands.blocks[fullest]), tiles[fullest], bands.cols[fullest],
                       part.cols, bands.blocks.size(), copies_values);
      most = {std::max(most.cycles, cost.cycles), std::max(most.bytes, cost.bytes)};
    }
    return most;
  }

  /// The cost of a tile of a band with these numbers of blocks, tiles and columns.
  VendorCost cost_of_part(double band_blocks, double tiles, double band_cols, uint32_t cols, size_t bands,
                          bool copies_values) const {
    const double blocks = std::ceil(band_blocks / tiles), tile_rows = std::ceil(kept_rows_ / tiles);
    const double tile_cols =
        tile_rows == 1 ? std::min(std::ceil(band_blocks / density_), double{1} * columns_.kept()) : band_cols;
    const double in_row = vendor_at_least_one(density_, tile_cols);
    const double used_rows = std::max(1.0, vendor_likely_most(in_row, tile_rows));
    const double used_cols =
        std::max(1.0, vendor_likely_most(vendor_at_least_one(density_, tile_rows), tile_cols));
    const double x = cols * used_cols * b_ * size_, values = blocks * b_ * b_ * size_;
    const double partials = used_rows * b_ * cols * partial_size_;
    const double depth = std::max(1.0, std::ceil((in_row * static_cast<double>(bands) +
                                                  vendor_deviation(in_row, static_cast<double>(bands))) *
                                                 band_cols / tile_cols));
    const double sent = std::ceil(partials * (depth - 1) / depth);
    const double bytes_per_cycle = m_.exchange_bytes_per_cycle;
    double cycles = std::floor(std::ceil(x / (2 * bytes_per_cycle)) * tile_cols / used_cols);
    if (copies_values) cycles += std::ceil(values / bytes_per_cycle);
    cycles += multiply_cycles(used_rows, std::ceil(blocks / used_rows), cols);
    cycles += std::ceil(sent / bytes_per_cycle);
    if (depth > 1) cycles += reduce_cycles(m_, numbers_, depth, std::ceil(partials / partial_size_ / depth));
    cycles += std::ceil(double{1} * rows_ * grains() * grain_ * size_ / m_.tiles);  // sends Y to its owners
    return {cycles, std::max(x + values + partials, sent + partials)};
  }

  double multiply_cycles(double rows, double in_row, uint32_t cols) const {
    const double workers = m_.workers_per_tile;
    if (b_ == 1) {
      const kernels::ElementRates rates = kernels::element_rates(numbers_.operands, cols);
      return workers *
             (rates.start + std::ceil(rows / workers) * (rates.per_row + rates.per_further * (in_row - 1)));
    }
    const kernels::BlockRates rates = kernels::block_rates(m_, numbers_.operands, b_, cols);
    const bool zeroes = b_ > 4 && numbers_.partials == Type::f32;
    const double vectors = rows * b_ * cols * partial_size_ / 8;
    return rates.start + rows * (rates.per_row + in_row * rates.per_block) +
           (zeroes ? workers * (12 + std::ceil(vectors / workers)) : 0);
  }

  /// Whether the last worker's first non-zero is beyond the offsets of a list of single elements.
  bool has_long_lists(const VendorBands& bands, const std::vector<uint32_t>& tiles) const {
    const uint64_t workers = m_.workers_per_tile;
    for (size_t band = 0; band < tiles.size() && b_ == 1; ++band)
      if (ceil_divide(bands.blocks[band], uint64_t{tiles[band]}) * (workers - 1) / workers > kVendorMostRun)
        return true;
    return false;
  }

  const Machine& m_;
  const StaticPartition& forced_;
  TiledNumbers numbers_;
  uint32_t n_;
  uint32_t rows_;
  uint32_t b_;
  double size_;
  double partial_size_;
  uint32_t grain_;  ///< columns of X in 8 bytes
  uint32_t pair_;   ///< tiles that receive the same data at once
  PatternCounts counts_;
  VendorColumnOrder columns_;
  double kept_rows_ = 1;
  double density_ = 1;
};

}  // namespace

std::optional<StaticPartition> vendor_partition(const StaticShape& shape, const Machine& machine,
                                                const StaticPartition& forced) {
  const std::optional<StaticPartition> best = VendorSearch(shape, machine, forced).best();
  const bool copies_too_much = best && shape.pattern.blocks() * best->col_parts > ~uint32_t{0};
  return copies_too_much ? std::nullopt : best;
}

}  // namespace tessera::ops
