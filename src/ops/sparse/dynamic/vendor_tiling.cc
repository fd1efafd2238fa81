#include "ops/sparse/dynamic/vendor_tiling.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ceil_divide.h"
#include "kernels/tile/bucket/cost.h"
#include "kernels/tile/bucket/metadata.h"
#include "ops/tiles/expected.h"
#include "ops/tiles/vendor_limits.h"

namespace tessera::ops {
namespace {

using base::ceil_divide;
using machine::Machine;

/// A tile's part of W·X, or of Wᵀ·dY: sides of W in blocks, columns in groups that a worker takes whole.
struct VendorTile {
  uint64_t rows = 0;   ///< of the result
  uint64_t inner = 0;  ///< of the factor
  uint64_t groups = 0;
  uint64_t group_cols = 1;
  bool transposed = false;
};

/// The numbers of tiles in each direction.
struct VendorParts {
  uint64_t rows = 1;
  uint64_t inner = 1;
  uint64_t cols = 1;

  uint64_t tiles() const { return rows * inner * cols; }
};

/// A tile's bucket.
struct VendorBucket {
  uint64_t blocks = 0;
  uint64_t words = 0;
};

struct VendorEstimate {
  uint64_t cycles = 0;
  uint64_t bytes = 0;
};

/// The largest of the equal shares of whole `units`: the last worker takes what remains.
uint64_t vendor_last_share(uint64_t units, uint64_t each) { return units - (units / each - 1) * each; }

/// All grids, with cycles and bytes as PopLibs estimates them.
class VendorTilings {
 public:
  VendorTilings(const DynamicShape& s, const Machine& m, const DynamicTiling& forced)
      : s_(s),
        m_(m),
        forced_(forced),
        size_(size_of(s.numbers.operands)),
        partial_size_(size_of(s.numbers.partials)),
        workers_(m.workers_per_tile),
        b_(s.block_size == 1 ? 1U : kernels::bucket_kernel_size(s.numbers.operands, s.block_size)),
        per_block_(ceil_divide(s.block_size, b_)),
        rows_(std::max<uint64_t>(1, ceil_divide(s.m, s.block_size))),
        cols_(std::max<uint64_t>(1, ceil_divide(s.k, s.block_size))),
        n_(std::max(1U, s.n)),
        blocks_(std::max<uint64_t>(1, s.capacity) * per_block_ * per_block_),
        density_(std::min(1.0, static_cast<double>(blocks_) /
                                   static_cast<double>(rows_ * cols_ * per_block_ * per_block_))) {}

  std::optional<DynamicTiling> best() {
    for (const uint32_t group : column_groups())
      for (const uint32_t n : col_parts(group))
        for (const uint32_t m : side_parts(forced_.m_parts, rows_, m_.tiles / n))
          for (const uint32_t k : side_parts(forced_.k_parts, cols_, m_.tiles / n / m))
            consider(m, k, n, group);
    return best_;
  }

 private:
  /// Columns that workers take together: a vector for single elements, one for blocks, or as many as the
  /// weight gradient of PopLibs needs.
  std::vector<uint32_t> column_groups() const {
    const auto vector = static_cast<uint32_t>(8 / size_);
    if (b_ == 1) return {vector};
    if (n_ % (4 * vector) == 0) return {1, 4 * vector};
    return {1};
  }

  /// The numbers of parts that divide the groups of columns evenly.
  std::vector<uint32_t> col_parts(uint32_t group) const {
    if (forced_.n_parts != 0) return {forced_.n_parts};
    const uint32_t groups = ceil_divide(n_, group);
    std::vector<uint32_t> parts;
    for (uint32_t p = 1; p <= std::min(groups, m_.tiles); ++p)
      if (groups % p == 0) parts.push_back(p);
    return parts;
  }

  static std::vector<uint32_t> side_parts(uint32_t forced, uint64_t units, uint32_t most) {
    if (forced != 0) return {forced};
    return part_counts(static_cast<uint32_t>(units), most);
  }

  void consider(uint32_t m, uint32_t k, uint32_t n, uint32_t group) {
    const VendorParts parts{m, k, n};
    if (parts.tiles() > m_.tiles) return;
    const VendorTile tile{ceil_divide(rows_, uint64_t{m}) * per_block_,
                          ceil_divide(cols_, uint64_t{k}) * per_block_,
                          ceil_divide(uint64_t{ceil_divide(n_, group)}, uint64_t{n}), group, false};
    if (!has_short_offsets(tile)) return;
    const VendorBucket bucket = bucket_of(tile, parts.tiles());
    const uint64_t blocks = ceil_divide(n * bucket.blocks, uint64_t{per_block_} * per_block_);
    const uint64_t words = n * bucket.words;
    if (std::max(blocks, words) > ~uint32_t{0}) return;
    const DynamicTiling tiling{m, k, n, static_cast<uint32_t>(blocks), static_cast<uint32_t>(words)};
    if (!is_encodable(s_, tiling)) return;
    const VendorEstimate forward = estimate_of(tile, parts, cols_, bucket);
    const VendorEstimate back =
        estimate_of({tile.inner, tile.rows, tile.groups, group, true}, {k, m, n}, rows_, bucket);
    const VendorEstimate both{forward.cycles + back.cycles, std::max(forward.bytes, back.bytes)};
    if (static_cast<double>(both.bytes) > kVendorMemoryFraction * static_cast<double>(m_.tile_bytes)) return;
    if (best_ && std::tie(both.cycles, both.bytes) >= std::tie(least_.cycles, least_.bytes)) return;
    best_ = tiling;
    least_ = both;
  }

  /// Whether the offsets of single elements in X and Y fit in 16 bits.
  bool has_short_offsets(const VendorTile& t) const {
    constexpr uint64_t kMostOffset = 0xFFFF;
    return b_ > 1 ||
           ((t.inner - 1) * t.groups * t.group_cols * size_ <= kMostOffset && t.rows - 1 <= kMostOffset);
  }

  /// An equal share of the blocks, and metadata for all of its partition, with headroom.
  VendorBucket bucket_of(const VendorTile& t, uint64_t tiles) const {
    constexpr uint64_t kExchangeBytes = 4, kWholeWords = 4, kSubgroups = 2;
    const auto equal = static_cast<double>(ceil_divide(blocks_, tiles));
    const auto blocks = static_cast<uint64_t>(std::round((1 + kVendorHeadRoom) * equal));
    const uint64_t grain = kExchangeBytes / std::gcd(kExchangeBytes, b_ * b_ * size_);
    const auto [rows, in_row] = uniform(t);
    const auto entries = static_cast<double>(rows * (kernels::kBucketRowWords + in_row));
    const uint64_t words = kSubgroups * kernels::subgroup_header_words(s_.block_size, m_.workers_per_tile) +
                           static_cast<uint64_t>(std::ceil((1 + kVendorHeadRoom) * entries));
    return {ceil_divide(blocks, grain) * grain, ceil_divide(words, kWholeWords) * kWholeWords};
  }

  /// The rows that have blocks, and the blocks of each, of a part of a pattern whose rows are all equal.
  std::pair<uint64_t, uint64_t> uniform(const VendorTile& t) const {
    const auto rows = static_cast<double>(t.rows), inner = static_cast<double>(t.inner);
    const auto used = static_cast<uint64_t>(std::ceil(rows * (1 - std::pow(1 - density_, inner))));
    const auto blocks = static_cast<uint64_t>(std::ceil(rows * inner * density_));
    return {std::max<uint64_t>(1, used), ceil_divide(blocks, std::max<uint64_t>(1, used))};
  }

  /// `inner_blocks`: the side of W along which sums are taken, of all tiles.
  VendorEstimate estimate_of(const VendorTile& t, const VendorParts& parts, uint64_t inner_blocks,
                             const VendorBucket& bucket) const {
    const uint64_t cols = t.groups * t.group_cols, side = b_ * size_;
    const uint64_t home =
        ceil_divide(inner_blocks * per_block_ * t.groups * parts.cols, parts.tiles()) * side * t.group_cols;
    const uint64_t x = t.inner * side * cols > home ? t.inner * side * cols : 0;
    const uint64_t bucket_bytes = bucket.blocks * b_ * side + 2 * bucket.words;
    const uint64_t buckets = parts.cols > 1 ? parts.cols * bucket_bytes : 0;
    const uint64_t sums = t.rows * b_ * cols;
    const uint64_t sent = parts.inner > 1 ? sums * partial_size_ : 0;
    // Neighbours differ in the rows of Y that they compute.
    const uint64_t rows_of_w = t.transposed ? parts.inner : parts.rows;
    const bool are_neighbours = !t.transposed || (rows_of_w == 1 && parts.cols == 1);
    VendorEstimate all;
    all.cycles = exchange_cycles(x, are_neighbours ? parts.rows : 1, parts.tiles()) +
                 exchange_cycles(buckets, rows_of_w == 1 ? parts.cols : 1, parts.tiles()) +
                 ceil_divide(sums, workers_) * workers_ + multiply_cycles(t, parts.cols) +
                 exchange_cycles(sent, 1, 0) + sum_cycles(ceil_divide(sums, parts.inner), parts.inner);
    uint64_t transposes = 0;
    if (t.transposed && b_ > 1) {
      all.cycles += transpose_cycles_of(bucket.blocks);
      transposes = bucket.blocks * b_ * side;
    }
    const bool converts = partial_size_ != size_;
    const uint64_t kept = converts || parts.cols > 1 ? sums * partial_size_ : 0;
    const uint64_t result = converts || parts.inner > 1 ? ceil_divide(sums, parts.inner) * size_ : 0;
    all.bytes = std::max({transposes + x + (parts.cols - 1) * bucket_bytes + kept,
                          transposes + x + 2 * bucket_bytes + kept, kept + sent + result});
    return all;
  }

  /// Pairs of tiles receive together what all tiles, or an even number of consecutive ones, receive.
  uint64_t exchange_cycles(uint64_t bytes, uint64_t consecutive, uint64_t tiles) const {
    const bool in_pairs = consecutive == tiles || consecutive % 2 == 0;
    const double rate = m_.exchange_bytes_per_cycle * (in_pairs ? m_.paired_exchange_factor : 1);
    return static_cast<uint64_t>(std::ceil(static_cast<double>(bytes) / rate));
  }

  /// Cycles of multiplying by buckets of this tile's partition with one subgroup each.
  uint64_t multiply_cycles(const VendorTile& t, uint64_t buckets) const {
    const auto [rows, in_row] = uniform(t);
    if (b_ == 1)
      return t.transposed ? 30 + 112 * buckets + workers_ * transposed_cycles_of(t, in_row)
                          : 30 + 93 * buckets + workers_ * element_cycles_of(t, rows, in_row);
    const uint64_t each = ceil_divide(t.groups, workers_);
    const uint64_t cols = vendor_last_share(t.groups, each) * t.group_cols;
    return 40 + 102 * buckets +
           (t.transposed ? block_cycles_of(cols, in_row, rows, 0) : block_cycles_of(cols, rows, in_row, 1));
  }

  /// Cycles of the slowest worker, which takes some rows, and some columns if there are few rows.
  uint64_t element_cycles_of(const VendorTile& t, uint64_t rows, uint64_t in_row) const {
    const uint64_t grains = ceil_divide(rows * t.groups, workers_);
    const uint64_t row_share = std::min(ceil_divide(grains, t.groups), rows);
    const uint64_t group_share = std::min(ceil_divide(grains, row_share), t.groups);
    const uint64_t z = vendor_last_share(t.groups, group_share) * t.group_cols, y = in_row;
    const uint64_t mine = vendor_last_share(rows, row_share);
    if (size_ == 2) {
      if (z == 8) return 28 + mine * (15 + 3 * y);
      if (z == 4) return 30 + mine * (11 + 2 * y);
      return 33 + mine * (12 + (z >= 8 ? 16 + z / 8 * 3 * y : 0) + (z % 8 != 0 ? 13 + 2 * y : 0));
    }
    if (z == 4) return 25 + mine * (13 + 3 * y);
    if (z == 2) return 27 + mine * (11 + 2 * y);
    const uint64_t rest = z % 4 != 0 ? 8 + z / 2 * 2 * y + 3 : 1;
    return 30 + mine * (13 + (z >= 4 ? 12 + z / 4 * 3 * y : 0) + rest);
  }

  /// Cycles of a product with the transpose: workers divide the elements of a row of Wᵀ.
  uint64_t transposed_cycles_of(const VendorTile& t, uint64_t rows) const {
    const uint64_t z = t.groups * t.group_cols, y = ceil_divide(t.rows, workers_);
    if (size_ != 2) return 23 + rows * (32 + (2 + z / 2 * 3) * y);
    if (z == 8) return 20 + rows * (18 + 10 * y);
    if (z == 4) return 20 + rows * (21 + 7 * y);
    return 26 + rows * (30 + (2 + z / 4 * 5) * y);
  }

  /// Cycles of `rows` rows of `in_row` blocks each, with `z` columns of the slowest worker.
  uint64_t block_cycles_of(uint64_t z, uint64_t rows, uint64_t in_row, uint64_t retained) const {
    const bool half = size_ == 2, wide = partial_size_ == 4;
    uint64_t passes = 1, start = 26, fill = 0, column = half ? 2 : 4;
    if (b_ == 4) {
      fill = !half ? 14 : (wide ? 17 : 15) + std::min<uint64_t>(z, 3) - 1;
    } else if (b_ == 8) {
      start = half && wide ? 20 : 23;
      fill = !half ? (z <= 2 ? 22 : 23) : (wide ? 22 : 19) + (z == 1 ? 0 : 1);
      column = half ? 4 : 8;
    } else {
      passes = wide ? 2 : 1;
      start = wide ? 23 : 22;
      fill = (wide ? 24 : 22) + (z == 2 ? 1 : 0);
      column = 4;
    }
    const uint64_t load = b_ * b_ * size_ / 8 + 3 + 12 * passes;
    const uint64_t worker = start + rows * in_row * passes * (fill + column * z - 3 * retained);
    return worker * workers_ + (in_row * load + retained) * rows + 2;
  }

  /// Cycles of transposing `count` blocks, each by one worker.
  uint64_t transpose_cycles_of(uint64_t count) const {
    const uint64_t grain = size_ == 2 ? 4 : 2, grain_cycles = size_ == 2 ? 4 : 3;
    const uint64_t mine = ceil_divide(count, workers_), grains = b_ / grain;
    if (grains == 1) return 7 + workers_ * (mine <= 1 ? 29 : 37 + (mine - 2) * grain_cycles);
    return 7 + workers_ * (29 + mine * (18 + grains * (12 + grain_cycles * (grains - 2))));
  }

  /// Cycles of adding `elements` results of `depth` partial sums each.
  uint64_t sum_cycles(uint64_t elements, uint64_t depth) const {
    const bool wide = partial_size_ == 4;
    if (depth == 1)
      return partial_size_ == size_
                 ? 0
                 : (ceil_divide(ceil_divide(elements, workers_), uint64_t{2}) + 26) * workers_;
    const uint64_t vector = wide ? 4 : 8, rest = elements % vector;
    uint64_t loops = elements / vector + rest % 2 + rest / 2 % 2 + rest / 4, cycles = 32;
    const uint64_t odd = loops % workers_;
    loops /= workers_;
    if (odd != 0 && rest != 0) cycles += 2 * depth + (wide ? 13 : 11);
    if (odd != 0 && rest == 0) ++loops;
    return (cycles + loops * (3 * depth + (wide ? 6 : 8) + (size_ == 4 ? 1 : 0))) * workers_;
  }

  const DynamicShape& s_;
  const Machine& m_;
  const DynamicTiling& forced_;
  uint64_t size_;
  uint64_t partial_size_;
  uint64_t workers_;
  uint32_t b_;          ///< side of PopLibs' blocks
  uint32_t per_block_;  ///< of these in a side of W's blocks, the last of which may be smaller
  uint64_t rows_;       ///< of W, in its blocks
  uint64_t cols_;
  uint32_t n_;
  uint64_t blocks_;  ///< PopLibs' blocks of W
  double density_;
  std::optional<DynamicTiling> best_;
  VendorEstimate least_;
};

}  // namespace

std::optional<DynamicTiling> vendor_tiling(const DynamicShape& shape, const Machine& machine,
                                           const DynamicTiling& forced) {
  return VendorTilings(shape, machine, forced).best();
}

}  // namespace tessera::ops
