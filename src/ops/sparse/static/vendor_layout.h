// How PopLibs (SDK 3.4) divides the operands of a static sparse product: the columns of W among bands, bands
// among tiles, and X and Y among all tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "program/program.h"

namespace tessera::ops {

/// Bands of block columns with nearly equal numbers of blocks.
struct VendorBands {
  std::vector<uint64_t> blocks;
  std::vector<uint32_t> cols;
  uint32_t widest = 0;  ///< block columns that have blocks
};

/// The block columns of a weight in the order in which bands take them: those with few blocks follow the
/// others.
class VendorColumnOrder {
 public:
  explicit VendorColumnOrder(const std::vector<uint32_t>& blocks_of_column);

  /// Columns that do not have few blocks, or 1.
  uint32_t kept() const { return kept_; }

  /// Divides into at most `bands` bands.
  VendorBands split(uint32_t bands) const;
  /// The band of each block column.
  std::vector<uint32_t> band_of_columns(uint32_t bands) const;

 private:
  /// Positions in the order at which bands end.
  std::vector<size_t> ends(uint32_t bands) const;

  std::vector<uint32_t> order_;
  uint32_t kept_ = 1;
  std::vector<uint64_t> blocks_before_;  ///< by position in the order: blocks of the columns before it
  std::vector<uint32_t> used_before_;    ///< columns with blocks before it
};

/// The number of tiles of each band, if bands share `tiles` tiles by their blocks, in pairs. Empty if there
/// are too few.
std::vector<uint32_t> vendor_band_tiles(const std::vector<uint64_t>& blocks_of_band, uint32_t tiles);

/// The mapping of a matrix that lies block row by block row, and in each column by column, in equal ranges of
/// at least `grain` elements on the tiles: boxes of columns of one block row, and of whole block rows, in
/// order of rows and columns.
std::vector<program::MappedBox> map_by_blocks(uint32_t rows, uint32_t cols, uint32_t block_size,
                                              uint32_t grain, uint32_t tiles);

}  // namespace tessera::ops
