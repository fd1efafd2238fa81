#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/ceil_divide.h"
#include "kernels/tile/bucket/cost.h"
#include "kernels/tile/bucket/metadata.h"
#include "ops/sparse/dynamic/dynamic.h"
#include "ops/sparse/dynamic/vendor_tiling.h"
#include "ops/tiles/vendor_limits.h"
#include "program/cycles.h"
#include "program/sizes.h"

namespace tessera::ops {
namespace {

using base::ceil_divide;
using machine::Machine;
using program::Phase;

uint32_t blocks_across(uint32_t elements, uint32_t block_size) {
  return static_cast<uint32_t>(ceil_divide(elements, block_size));
}

/// First of each of `parts` equal ranges of whole grains, of which the last are smaller, and the end.
std::vector<uint32_t> split_at_grains(uint32_t total, uint32_t parts, uint32_t grain) {
  const uint64_t size = ceil_divide(ceil_divide(total, grain), parts) * grain;
  std::vector<uint32_t> begin;
  for (uint64_t p = 0; p <= parts; ++p)
    begin.push_back(static_cast<uint32_t>(std::min<uint64_t>(total, p * size)));
  return begin;
}

/// Expected number of `rows` rows that contain any of `blocks` random blocks.
double rows_with_blocks(double rows, double blocks) {
  return rows < 1 ? 0 : rows * (1 - std::pow(1 - 1 / rows, blocks));
}

/// Words of a bucket with a single subgroup, for random rows with headroom or for the worst case; plus a
/// header.
uint32_t words_of_bucket(uint32_t header, uint32_t part_rows, uint32_t blocks) {
  const double expected = header + kernels::kBucketRowWords * rows_with_blocks(part_rows, blocks) + blocks;
  const double worst = header + double{kernels::kBucketRowWords} * std::min(part_rows, blocks) + blocks;
  const double words = std::max((1 + kVendorHeadRoom) * expected, worst);
  return kernels::kBucketHeaderWords + header + static_cast<uint32_t>(std::ceil(words));
}

/// Expected number of blocks in the fullest of `partitions` of a random pattern, with `mean` each.
double fullest(double partitions, double mean) {
  return mean + std::sqrt(2 * std::log(std::max(1.0, partitions)) * mean);
}

/// Mean number of blocks of a random pattern in a partition of full size.
double largest_mean(const DynamicShape& s, uint32_t m_parts, uint32_t k_parts) {
  const double rows = std::max(1U, blocks_across(s.m, s.block_size));
  const double cols = std::max(1U, blocks_across(s.k, s.block_size));
  return static_cast<double>(s.capacity) * std::ceil(rows / m_parts) / rows * std::ceil(cols / k_parts) /
         cols;
}

/// Expected number of steps of a random pattern: each carries on the fraction of overflowing buckets that
/// found no room in the preceding bucket.
double expected_steps(double partitions, double mean, double room) {
  if (room >= fullest(partitions, mean)) return 0;
  const double deviation = std::max(0.5, std::sqrt(mean));
  const double z = (room - mean) / deviation;
  const double overflowing = 0.5 * std::erfc(z / std::sqrt(2));
  return std::min(partitions - 1, std::max(1.0, std::ceil(std::log(1 + partitions * overflowing) /
                                                          -std::log(std::min(0.95, 2 * overflowing)))));
}

/// Expected cost of one partition for a random pattern with the maximum number of blocks.
class DynamicEstimate {
 public:
  DynamicEstimate(const DynamicShape& s, const DynamicTiling& tiling, const Machine& m)
      : s_(s), tiling_(tiling), m_(m), grid_(s, tiling, m) {
    size_ = static_cast<double>(size_of(s.numbers.operands));
    partial_size_ = static_cast<double>(size_of(s.numbers.partials));
    rows_ = std::min<double>(s.m, double{1} * grid_.part_rows * s.block_size);
    inner_ = std::min<double>(s.k, double{1} * grid_.part_cols * s.block_size);
    cols_ = grid_.col_begin[1];
    mean_ = largest_mean(s, tiling.m_parts, tiling.k_parts);
    served_ = std::min<double>(tiling.bucket_blocks, fullest(tiling.partitions(), mean_));
    steps_ = expected_steps(tiling.partitions(), mean_, tiling.bucket_blocks);
  }

  Expected<DynamicTiling> all() const {
    program::PhaseTimes cycles;
    add_distribution(cycles);
    cycles[Phase::compute] += kernels::fill_cycles(m_, partial_bytes()) + product_cycles(served_);
    cycles[Phase::control] += program::superstep_cycles(m_, tiling_.tiles());
    if (tiling_.partitions() > 1) add_propagation(cycles);
    add_reduction(cycles);
    return {tiling_, cycles, bytes()};
  }

 private:
  double x_bytes() const { return inner_ * cols_ * size_; }
  double partial_bytes() const { return rows_ * cols_ * partial_size_; }
  double bucket_bytes() const {
    return tiling_.bucket_blocks * double{1} * s_.block_size * s_.block_size * size_ +
           2.0 * grid_.bucket_words;
  }

  double product_cycles(double blocks) const {
    double rows = std::max(1.0, std::ceil(rows_with_blocks(grid_.part_rows, blocks)));
    if (s_.block_size == 1) {
      rows = std::ceil(rows / m_.workers_per_tile);
      blocks = std::ceil(blocks / m_.workers_per_tile);
    }
    return kernels::bucket_cycles(m_, s_.numbers.operands, s_.numbers.partials, s_.block_size,
                                  static_cast<uint32_t>(cols_), {1, 1, rows, blocks});
  }

  void add_distribution(program::PhaseTimes& cycles) const {
    program::TileTraffic t;
    (tiling_.m_parts % 2 == 0 ? t.paired_in : t.in) = x_bytes();
    t.in += bucket_bytes() * (tiling_.n_parts - 1) / tiling_.n_parts;
    t.local = bucket_bytes() / tiling_.n_parts;
    add_exchange(m_, program::traffic_cycles(m_, t), cycles);
  }

  /// The test runs once more than the steps.
  void add_propagation(program::PhaseTimes& cycles) const {
    const double levels = tiling_.partitions() > 64 ? 2 : 1;
    program::PhaseTimes test;
    program::TileTraffic flags;
    flags.in = 4 * std::min(64U, tiling_.partitions());
    for (double level = 0; level < levels; ++level) {
      add_exchange(m_, program::traffic_cycles(m_, flags), test);
      test[Phase::control] += program::superstep_cycles(m_, tiling_.tiles()) + 100;
    }
    cycles += test.scaled(steps_ + 1);
    program::PhaseTimes step;
    program::TileTraffic t;
    t.in = bucket_bytes();
    add_exchange(m_, program::traffic_cycles(m_, t), step);
    step[Phase::exchange] += bucket_bytes() / m_.load_bytes_per_cycle;
    step[Phase::compute] += product_cycles(std::max(1.0, mean_ / 8));
    step[Phase::control] += program::superstep_cycles(m_, tiling_.tiles());
    cycles += step.scaled(steps_);
  }

  double owned() const { return std::ceil(double{1} * s_.m * s_.n / m_.tiles); }

  void add_reduction(program::PhaseTimes& cycles) const {
    program::TileTraffic t;
    t.in = tiling_.k_parts * owned() * partial_size_;
    t.out = partial_bytes();
    add_exchange(m_, program::traffic_cycles(m_, t), cycles);
    if (tiling_.k_parts == 1 && s_.numbers.partials == s_.numbers.operands) return;
    cycles[Phase::reduce] += reduce_cycles(m_, s_.numbers, tiling_.k_parts, owned());
    cycles[Phase::control] += program::superstep_cycles(m_, m_.tiles);
  }

  double bytes() const {
    const double resident = (double{1} * s_.k * s_.n + double{1} * s_.m * s_.n) / m_.tiles * size_ +
                            bucket_bytes() / tiling_.n_parts;
    const double working = x_bytes() + 2 * bucket_bytes();
    const double received = tiling_.k_parts * owned() * partial_size_;
    const double x_rows = std::ceil(double{1} * s_.k / m_.tiles);
    const double transfers = inner_ / std::max(1.0, x_rows) + rows_ / std::max(1.0, x_rows) + tiling_.k_parts;
    return resident + partial_bytes() + std::max(working, received) +
           transfers * program::kTransferCodeBytes + program::kStackBytes;
  }

  const DynamicShape& s_;
  const DynamicTiling& tiling_;
  const Machine& m_;
  DynamicGrid grid_;
  double size_ = 0;
  double partial_size_ = 0;
  double rows_ = 0;   ///< of Y, per tile
  double inner_ = 0;  ///< of X, per tile
  double cols_ = 0;
  double mean_ = 0;    ///< blocks per partition
  double served_ = 0;  ///< of the tile with most work in the distribution phase
  double steps_ = 0;
};

/// Numbers of parts to try.
std::vector<uint32_t> counts_or(uint32_t forced, uint32_t units, uint32_t most) {
  return forced != 0 ? std::vector{forced} : part_counts(std::max(1U, units), std::max(1U, most));
}

class Search {
 public:
  Search(const DynamicShape& shape, const Machine& m, const DynamicTiling& forced)
      : s_(shape), m_(m), forced_(forced) {}

  std::vector<Expected<DynamicTiling>> search() {
    const uint32_t block_rows = blocks_across(s_.m, s_.block_size);
    const uint32_t block_cols = blocks_across(s_.k, s_.block_size);
    for (uint32_t m : counts_or(forced_.m_parts, block_rows, m_.tiles))
      for (uint32_t k : counts_or(forced_.k_parts, block_cols, m_.tiles / m))
        for (uint32_t n : n_counts(m_.tiles / m / k)) consider(m, k, n);
    keep_best(found_, m_);
    return std::move(found_);
  }

 private:
  /// The maximum number of parts of n that the tiles allow, or the smallest number with parts of the same
  /// size.
  std::vector<uint32_t> n_counts(uint32_t most) const {
    if (forced_.n_parts != 0) return {forced_.n_parts};
    if (most == 0) return {};
    const uint64_t all = std::min(std::max(1U, s_.n), most);
    return {static_cast<uint32_t>(ceil_divide(std::max(1U, s_.n), ceil_divide(std::max(1U, s_.n), all)))};
  }

  void consider(uint32_t m, uint32_t k, uint32_t n) {
    if (uint64_t{m} * k * n > m_.tiles) return;
    const double mean = static_cast<double>(s_.capacity) / m / k;
    const auto with_room = [&](double blocks) {
      const double room = std::max({1.0, std::ceil(mean), std::ceil(blocks)});
      const double most = double{1} * ceil_divide(s_.m, m) * static_cast<double>(ceil_divide(s_.k, k));
      add({m, k, n, static_cast<uint32_t>(std::min(room, std::max(most, std::ceil(mean)) + 1))});
    };
    with_room((1 + kVendorHeadRoom) * mean);
    if (m * k > 1) with_room(fullest(m * k, largest_mean(s_, m, k)));
  }

  void add(const DynamicTiling& tiling) {
    if (is_encodable(s_, tiling)) found_.push_back(DynamicEstimate(s_, tiling, m_).all());
  }

  const DynamicShape& s_;
  const Machine& m_;
  const DynamicTiling& forced_;
  std::vector<Expected<DynamicTiling>> found_;
};

}  // namespace

std::string to_string(const DynamicTiling& tiling) {
  return fmt::format("m_parts={} k_parts={} n_parts={} bucket_blocks={}{}", tiling.m_parts, tiling.k_parts,
                     tiling.n_parts, tiling.bucket_blocks,
                     tiling.bucket_words == 0 ? "" : fmt::format(" bucket_words={}", tiling.bucket_words));
}

DynamicGrid::DynamicGrid(const DynamicShape& s, const DynamicTiling& c, const Machine& machine)
    : tiling(c),
      block_size(s.block_size),
      workers(machine.workers_per_tile),
      part_rows(
          std::max(1U, static_cast<uint32_t>(ceil_divide(blocks_across(s.m, s.block_size), c.m_parts)))),
      part_cols(
          std::max(1U, static_cast<uint32_t>(ceil_divide(blocks_across(s.k, s.block_size), c.k_parts)))),
      row_begin(split_at_grains(s.m, c.m_parts, s.block_size)),
      x_begin(split_at_grains(s.k, c.k_parts, s.block_size)),
      col_begin(split_at_grains(s.n, c.n_parts, 1)),
      bucket_words(
          std::max(c.bucket_words, words_of_bucket(kernels::subgroup_header_words(s.block_size, workers),
                                                   part_rows, c.bucket_blocks))) {}

bool is_encodable(const DynamicShape& s, const DynamicTiling& tiling) {
  constexpr uint64_t kMostRows = ~0U;
  const uint64_t partitions = uint64_t{tiling.m_parts} * tiling.k_parts;
  return partitions <= kernels::kMostPartitions &&
         ceil_divide(blocks_across(s.m, s.block_size), tiling.m_parts) <= kernels::kMostPartitionSide &&
         ceil_divide(blocks_across(s.k, s.block_size), tiling.k_parts) <= kernels::kMostPartitionSide &&
         partitions * tiling.bucket_blocks * tiling.n_parts <= kMostRows &&
         uint64_t{tiling.m_parts} * s.k <= kMostRows && uint64_t{tiling.k_parts} * s.m <= kMostRows;
}

std::vector<Expected<DynamicTiling>> dynamic_tilings(const DynamicShape& shape, Planner planner,
                                                     const Machine& machine, const DynamicTiling& forced) {
  if (planner == Planner::best) return Search(shape, machine, forced).search();
  const std::optional<DynamicTiling> tiling = vendor_tiling(shape, machine, forced);
  if (!tiling) return {};
  return {DynamicEstimate(shape, *tiling, machine).all()};
}

}  // namespace tessera::ops
