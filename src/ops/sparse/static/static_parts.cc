#include <algorithm>
#include <numeric>

#include "base/ceil_divide.h"
#include "ops/sparse/static/static_layout.h"
#include "ops/sparse/static/vendor_layout.h"

namespace tessera::ops {
namespace {

std::vector<uint32_t> blocks_of_columns(const Pattern& p) {
  std::vector<uint32_t> count(p.block_cols());
  for (uint32_t column : p.col_indices) ++count[column];
  return count;
}

/// Distributes the blocks of a pattern over the parts of a partition.
class Dealer {
 public:
  Dealer(const Pattern& pattern, const StaticPartition& partition)
      : p_(pattern), partition_(partition), seen_(pattern.block_cols(), ~0U), place_(pattern.block_cols()) {}

  StaticParts deal() {
    sort_by_band();
    const std::vector<uint32_t> tiles = tiles_of_bands();
    uint32_t part = 0;
    for (uint32_t band = 0; band < tiles.size(); ++band)
      for (uint64_t tile = 0; tile < tiles[band]; ++tile, ++part) {
        const uint64_t begin = first_block(band, tile, tiles[band]);
        const uint64_t end = first_block(band, tile + 1, tiles[band]);
        begin_part();
        partition_.whole_bands ? take_columns(band) : find_columns(part, begin, end);
        add_blocks(begin, end);
      }
    begin_part();
    return std::move(out_);
  }

 private:
  std::vector<uint32_t> bands_of_columns() {
    if (partition_.is_vendors())
      return VendorColumnOrder(blocks_of_columns(p_)).band_of_columns(partition_.bands);
    first_ = split_bands(blocks_of_columns(p_), partition_.bands);
    std::vector<uint32_t> band_of(p_.block_cols());
    for (uint32_t band = 0; band < partition_.bands; ++band)
      std::fill(band_of.begin() + first_[band], band_of.begin() + first_[band + 1], band);
    return band_of;
  }

  std::vector<uint32_t> tiles_of_bands() const {
    if (!partition_.is_vendors()) return std::vector<uint32_t>(partition_.bands, partition_.band_tiles);
    std::vector<uint64_t> blocks;
    for (uint32_t band = 0; band < partition_.bands && band_begin_[band] < band_begin_.back(); ++band)
      blocks.push_back(band_begin_[band + 1] - band_begin_[band]);
    return vendor_band_tiles(blocks, partition_.shared_tiles);
  }

  /// PopLibs gives all tiles of a band equally many blocks, but for the last ones.
  uint64_t first_block(uint32_t band, uint64_t tile, uint64_t tiles) const {
    const uint64_t count = band_begin_[band + 1] - band_begin_[band];
    const uint64_t before = partition_.is_vendors() ? std::min(count, tile * base::ceil_divide(count, tiles))
                                                    : count * tile / tiles;
    return band_begin_[band] + before;
  }

  /// Band by band, and row by row within each: a stable counting sort of the pattern's order.
  void sort_by_band() {
    const std::vector<uint32_t> band_of = bands_of_columns();
    band_begin_.assign(partition_.bands + 1, 0);
    for (uint32_t column : p_.col_indices) ++band_begin_[band_of[column] + 1];
    std::partial_sum(band_begin_.begin(), band_begin_.end(), band_begin_.begin());
    std::vector<uint64_t> next(band_begin_.begin(), band_begin_.end() - 1);
    out_.order.resize(p_.blocks());
    row_.resize(p_.blocks());
    for (uint32_t r = 0; r < p_.block_rows(); ++r)
      for (uint64_t i = p_.crow_indices[r]; i < p_.crow_indices[r + 1]; ++i) {
        const uint64_t at = next[band_of[p_.col_indices[i]]]++;
        out_.order[at] = i;
        row_[at] = r;
      }
  }

  void begin_part() {
    const auto size = [](const auto& list) { return static_cast<uint32_t>(list.size()); };
    out_.list_begin.push_back(size(out_.lists));
    out_.x_begin.push_back(size(out_.x_rows));
    out_.y_begin.push_back(size(out_.y_rows));
    out_.block_begin.push_back(dealt_);
  }

  void add_blocks(uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end;) {
      const uint32_t row = row_[i];
      const size_t count_at = out_.lists.size();
      out_.lists.push_back(0);
      for (; i < end && row_[i] == row; ++i) out_.lists.push_back(place_[p_.col_indices[out_.order[i]]]);
      out_.lists[count_at] = static_cast<uint32_t>(out_.lists.size() - count_at - 1);
      add_rows(out_.y_rows, row, p_.rows);
    }
    dealt_ = static_cast<uint32_t>(end);
  }

  /// All block columns of a band.
  void take_columns(uint32_t band) {
    for (uint32_t column = first_[band]; column < first_[band + 1]; ++column) {
      place_[column] = column - first_[band];
      add_rows(out_.x_rows, column, p_.cols);
    }
  }

  /// The block columns that a part uses, ascending, and the position of each among them.
  void find_columns(uint32_t part, uint64_t begin, uint64_t end) {
    used_.clear();
    for (uint64_t i = begin; i < end; ++i) {
      const uint32_t column = p_.col_indices[out_.order[i]];
      if (seen_[column] == part) continue;
      seen_[column] = part;
      used_.push_back(column);
    }
    std::sort(used_.begin(), used_.end());
    for (uint32_t i = 0; i < used_.size(); ++i) {
      place_[used_[i]] = i;
      add_rows(out_.x_rows, used_[i], p_.cols);
    }
  }

  /// The rows of a block, without its overhang.
  void add_rows(std::vector<uint32_t>& rows, uint32_t block, uint32_t end) const {
    const uint32_t first = block * p_.block_size;
    for (uint32_t r = first; r < std::min(end, first + p_.block_size); ++r) rows.push_back(r);
  }

  const Pattern& p_;
  const StaticPartition& partition_;
  StaticParts out_;
  std::vector<uint32_t> first_;  ///< block column of each band, unless in the vendor's form
  std::vector<uint64_t> band_begin_;
  std::vector<uint32_t> row_;   ///< block row of each block, in the order of the parts
  std::vector<uint32_t> seen_;  ///< by block column: the last part that uses it
  std::vector<uint32_t> place_;
  std::vector<uint32_t> used_;
  uint32_t dealt_ = 0;
};

}  // namespace

std::vector<uint32_t> split_bands(const std::vector<uint32_t>& blocks_of_column, uint32_t bands) {
  const uint64_t all = std::accumulate(blocks_of_column.begin(), blocks_of_column.end(), uint64_t{0});
  std::vector<uint32_t> first = {0};
  uint64_t before = 0;
  for (uint32_t column = 0; column < blocks_of_column.size(); ++column) {
    // The border nearer to an equal split: before this column or after it.
    while (first.size() < bands && 2 * all * first.size() < (2 * before + blocks_of_column[column]) * bands)
      first.push_back(column);
    before += blocks_of_column[column];
  }
  first.resize(bands, static_cast<uint32_t>(blocks_of_column.size()));
  first.push_back(static_cast<uint32_t>(blocks_of_column.size()));
  return first;
}

std::pair<std::vector<uint32_t>, std::vector<uint32_t>> StaticParts::transposed_lists() const {
  std::vector<uint32_t> all;
  std::vector<uint32_t> begin = {0};
  std::vector<std::vector<uint32_t>> columns;  // per part: block and block row of each block
  for (size_t part = 0; part + 1 < list_begin.size(); ++part) {
    for (std::vector<uint32_t>& column : columns) column.clear();
    uint32_t block = 0;
    uint32_t row = 0;
    for (uint32_t at = list_begin[part]; at < list_begin[part + 1]; ++row) {
      const uint32_t end = at + 1 + lists[at];
      for (++at; at < end; ++at, ++block) {
        if (lists[at] >= columns.size()) columns.resize(lists[at] + 1);
        columns[lists[at]].insert(columns[lists[at]].end(), {block, row});
      }
    }
    for (const std::vector<uint32_t>& column : columns) {
      if (column.empty()) continue;
      all.push_back(static_cast<uint32_t>(column.size() / 2));
      all.insert(all.end(), column.begin(), column.end());
    }
    begin.push_back(static_cast<uint32_t>(all.size()));
  }
  return {std::move(all), std::move(begin)};
}

StaticParts deal_out(const Pattern& pattern, const StaticPartition& partition) {
  return Dealer(pattern, partition).deal();
}

ValueLayout value_layout(const Pattern& pattern, const StaticPartition& partition, uint32_t tiles) {
  const PartLayout layout(pattern, partition, 0);
  return {partition, layout.parts().order, layout.value_mapping(pattern.block_size, tiles)};
}

AliasedValues alias_values(ValueLayout layout, const sparse::TransposedPattern& transposed) {
  std::vector<uint32_t> row_of_block(layout.order.size());
  for (uint32_t row = 0; row < layout.order.size(); ++row) row_of_block[layout.order[row]] = row;
  std::vector<uint32_t> row_of;
  for (uint64_t block : transposed.source) row_of.push_back(row_of_block[block]);
  return {std::move(layout), std::move(row_of)};
}

}  // namespace tessera::ops
