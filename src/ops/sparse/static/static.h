// Static sparse products on tiled machines, partitioned as in PopSparse (Li et al. 2023).
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "ops/builder.h"
#include "ops/product_operands.h"
#include "ops/tiles/expected.h"
#include "program/program.h"
#include "sparse/pattern.h"

namespace tessera::ops {

/// The columns of X in col_parts parts; the columns of W in bands with equal numbers of non-zeros; the blocks
/// of a band, row by row, dealt in equal counts to band_tiles tiles, and again for each part of X. A tile
/// gathers the rows of X that its blocks touch, or receives all rows of its band in one broadcast
/// (whole_bands, which PopSparse does not have): more bytes, at a better rate. It computes the rows of Y in
/// which it has blocks, and sends these to the tiles that own Y, which add them. X and Y are distributed over
/// all tiles.
///
/// In the vendor's form, the bands share the tiles of a part of X by their numbers of blocks, X and Y lie as
/// in PopLibs (vendor_layout.h), and rows are added as there (grouped_sums.h), unless it is mirrored.
struct StaticPartition {
  uint32_t col_parts = 1;
  uint32_t bands = 1;
  uint32_t band_tiles = 1;
  bool whole_bands = false;
  bool mirrored = false;
  uint32_t shared_tiles = 0;  ///< in the vendor's form: tiles of each part of X; otherwise 0
  uint32_t col_grain = 1;     ///< parts of X have a multiple of this number of columns, except the last

  bool is_vendors() const { return shared_tiles > 0; }
  uint32_t parts() const { return is_vendors() ? shared_tiles : bands * band_tiles; }
  uint32_t tiles() const { return col_parts * parts(); }
  /// Whether it deals the blocks to the tiles of a part of X as another partition does.
  bool deals_as(const StaticPartition& other) const {
    return bands == other.bands && band_tiles == other.band_tiles && shared_tiles == other.shared_tiles;
  }
  bool operator==(const StaticPartition&) const = default;
};

std::string to_string(const StaticPartition& partition);

/// First block column of each band, and the end: bands of nearly equal numbers of blocks.
std::vector<uint32_t> split_bands(const std::vector<uint32_t>& blocks_of_column, uint32_t bands);

/// The blocks of each part, band by band, tile by tile.
struct StaticParts {
  std::vector<uint64_t> order;        ///< block i of the parts is the pattern's block order[i]
  std::vector<uint32_t> block_begin;  ///< first block per part, and the end; likewise the other `begin`
                                      ///< members
  std::vector<uint32_t> lists;        ///< work lists of sparse_product
  std::vector<uint32_t> list_begin;
  std::vector<uint32_t> x_rows;  ///< rows of X that each part gathers
  std::vector<uint32_t> x_begin;
  std::vector<uint32_t> y_rows;  ///< rows of Y that each part computes
  std::vector<uint32_t> y_begin;

  /// Work lists of the transposed blocks for sparse_transposed_product, and the beginning of each part's
  /// lists.
  std::pair<std::vector<uint32_t>, std::vector<uint32_t>> transposed_lists() const;
};
StaticParts deal_out(const Pattern& pattern, const StaticPartition& partition);

/// Layout of the values of W on the tiles: a row per block.
struct ValueLayout {
  StaticPartition partition;    ///< partition of the product to which the values belong
  std::vector<uint64_t> order;  ///< row i is block order[i] of the pattern
  std::vector<program::MappedBox> mapping;
};
/// The layout of the values by the parts of a partition. If every part of X needs all values, they are stored
/// once, distributed over all tiles.
ValueLayout value_layout(const Pattern& pattern, const StaticPartition& partition, uint32_t tiles);

/// Values of Wᵀ that alias W's: dX = Wᵀ·dY reads them in the forward product's layout.
struct AliasedValues {
  ValueLayout layout;
  std::vector<uint32_t> row_of;  ///< row of the layout with block i of Wᵀ, to be read as its transpose
};
AliasedValues alias_values(ValueLayout layout, const sparse::TransposedPattern& transposed);

class PartLayout;

struct StaticShape {
  const Pattern& pattern;
  uint32_t n = 0;
  TiledNumbers numbers;
  const AliasedValues* aliased = nullptr;  ///< non-null if the values have another layout than the
                                           ///< partition's
  bool mirrored = false;                   ///< whether this is Wᵀ·dY with the pattern of W

  bool is_gradient() const { return mirrored || aliased != nullptr; }
  /// The right factor and the result.
  const Operand& right(const ProductOperands& operands) const {
    return is_gradient() ? operands.y : operands.x;
  }
  const Operand& result(const ProductOperands& operands) const {
    return is_gradient() ? operands.x : operands.y;
  }
  uint32_t result_rows() const { return mirrored ? pattern.cols : pattern.rows; }
};

/// All candidate partitions but for the vendor's, those expected to fit first, and among these the expected
/// fastest first. Non-zero numbers of `forced` are fixed.
std::vector<Expected<StaticPartition>> static_partitions(const StaticShape& shape,
                                                         const machine::Machine& machine,
                                                         const StaticPartition& forced);

/// Adds Y = W·X to a program; with aliased values dX = Wᵀ·dY, with the pattern of Wᵀ. The values have the
/// shape's layout; X and Y may have any mapping.
program::StepId build_static(const Builder& builder, const StaticShape& shape, const PartLayout& parts,
                             const ProductOperands& operands);

}  // namespace tessera::ops
