#include "ops/sparse/static/vendor_layout.h"

#include <algorithm>
#include <numeric>

#include "base/ceil_divide.h"
#include "ops/tiles/vendor_limits.h"

namespace tessera::ops {

using base::ceil_divide;
using program::MappedBox;

VendorColumnOrder::VendorColumnOrder(const std::vector<uint32_t>& blocks_of_column)
    : order_(blocks_of_column.size()), blocks_before_{0}, used_before_{0} {
  const double blocks = std::accumulate(blocks_of_column.begin(), blocks_of_column.end(), 0.0);
  const double least =
      kVendorLeastShare * blocks / static_cast<double>(std::max<size_t>(1, blocks_of_column.size()));
  std::iota(order_.begin(), order_.end(), 0U);
  const auto few = std::stable_partition(order_.begin(), order_.end(),
                                         [&](uint32_t column) { return blocks_of_column[column] > least; });
  kept_ = static_cast<uint32_t>(std::max<int64_t>(1, few - order_.begin()));
  for (uint32_t column : order_) {
    blocks_before_.push_back(blocks_before_.back() + blocks_of_column[column]);
    used_before_.push_back(used_before_.back() + (blocks_of_column[column] > 0 ? 1U : 0U));
  }
}

std::vector<size_t> VendorColumnOrder::ends(uint32_t bands) const {
  std::vector<size_t> ends;
  const uint64_t each = ceil_divide(blocks_before_.back(), uint64_t{bands});
  for (size_t begin = 0; ends.size() < bands;) {
    const auto found = std::lower_bound(blocks_before_.begin() + static_cast<int64_t>(begin),
                                        blocks_before_.end(), blocks_before_[begin] + each);
    const size_t end =
        std::min(static_cast<size_t>(found - blocks_before_.begin()), blocks_before_.size() - 1);
    if (blocks_before_[end] == blocks_before_[begin]) break;
    ends.push_back(end);
    begin = end;
  }
  return ends;
}

VendorBands VendorColumnOrder::split(uint32_t bands) const {
  VendorBands all;
  size_t begin = 0;
  for (size_t end : ends(bands)) {
    all.blocks.push_back(blocks_before_[end] - blocks_before_[begin]);
    all.cols.push_back(static_cast<uint32_t>(end - begin));
    all.widest = std::max(all.widest, used_before_[end] - used_before_[begin]);
    begin = end;
  }
  return all;
}

std::vector<uint32_t> VendorColumnOrder::band_of_columns(uint32_t bands) const {
  const std::vector<size_t> ends_of = ends(bands);
  std::vector<uint32_t> band_of(order_.size());
  uint32_t band = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    while (band + 1 < ends_of.size() && i >= ends_of[band]) ++band;
    band_of[order_[i]] = band;
  }
  return band_of;
}

std::vector<uint32_t> vendor_band_tiles(const std::vector<uint64_t>& blocks_of_band, uint32_t tiles) {
  if (tiles == 0) return {};
  const uint32_t pair = tiles < 2 ? 1 : 2;
  const uint64_t all = std::accumulate(blocks_of_band.begin(), blocks_of_band.end(), uint64_t{0});
  const size_t count = blocks_of_band.size();
  std::vector<uint32_t> given;
  uint32_t used = 0;
  for (size_t band = 0; band < count; ++band) {
    const uint64_t blocks = blocks_of_band[band];
    auto mine = static_cast<uint32_t>(blocks * tiles / all);
    if (mine == 0) mine = std::min(tiles, pair);
    const uint64_t needed = ceil_divide(blocks, ceil_divide(blocks, uint64_t{mine}));
    mine = static_cast<uint32_t>(std::min<uint64_t>(ceil_divide(needed, uint64_t{pair}) * pair, mine));
    if (band + 1 == count) mine = tiles - used;
    mine = std::min(std::max(mine / pair * pair, pair), tiles - used);
    const uint64_t later = (count - 1 - band) * pair;
    if (tiles < later + 1) return {};
    mine = static_cast<uint32_t>(std::min<uint64_t>(mine, tiles - later));
    if (mine == 0) return {};
    given.push_back(mine);
    used += mine;
  }
  return given;
}

std::vector<MappedBox> map_by_blocks(uint32_t rows, uint32_t cols, uint32_t block_size, uint32_t grain,
                                     uint32_t tiles) {
  if (rows == 0 || cols == 0) return program::map_linearly(rows, cols, tiles);
  const uint64_t columns = uint64_t{ceil_divide(rows, block_size)} * cols;
  const uint64_t columns_of_grain = std::max(1U, grain / block_size);
  const uint64_t grains = ceil_divide(columns, columns_of_grain);
  const uint64_t parts = ceil_divide(grains, ceil_divide(grains, uint64_t{std::max(1U, tiles)}));
  std::vector<MappedBox> mapping;
  for (uint64_t part = 0; part < parts; ++part) {
    const uint64_t end = std::min(columns, grains * (part + 1) / parts * columns_of_grain);
    for (uint64_t at = grains * part / parts * columns_of_grain; at < end;) {
      const uint64_t block_row = at / cols, col = at % cols;
      const uint64_t whole_rows = col == 0 ? (end - at) / cols : 0;
      const uint64_t width = whole_rows > 0 ? cols : std::min(cols - col, end - at);
      const uint64_t row = block_row * block_size;
      const uint64_t row_end =
          std::min<uint64_t>(rows, (block_row + std::max<uint64_t>(1, whole_rows)) * block_size);
      mapping.push_back({{static_cast<uint32_t>(row), static_cast<uint32_t>(row_end - row),
                          static_cast<uint32_t>(col), static_cast<uint32_t>(width)},
                         static_cast<program::TileId>(part)});
      at += std::max<uint64_t>(1, whole_rows) * width;
    }
  }
  return mapping;
}

}  // namespace tessera::ops
