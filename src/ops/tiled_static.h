// Static sparse products on tiled machines, cut as PopSparse (Li et al. 2023) cuts them.
#pragma once

#include <tessera/sparse.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "machine/machine.h"
#include "ops/tiled_plan.h"
#include "program/program.h"

namespace tessera::ops {

struct StaticShape {
  const Pattern& pattern;
  uint32_t n = 0;
  TiledNumbers numbers;
};

/// The columns of X in col_parts parts; the columns of W in bands of equal non-zeros; the blocks of
/// a band, row by row, dealt in equal counts to band_tiles tiles, and those again for each part of
/// X. A tile gathers the rows of X that its blocks touch, or is sent all rows of its band in one
/// broadcast (whole_bands, which PopSparse does not do): more bytes, at a better rate. It computes
/// the rows of Y in which it has blocks, and sends these to the tiles that own Y, which add them. X
/// and Y lie spread over all tiles.
struct StaticCut {
  uint32_t col_parts = 1;
  uint32_t bands = 1;
  uint32_t band_tiles = 1;
  bool whole_bands = false;

  uint32_t parts() const { return bands * band_tiles; }
  uint32_t tiles() const { return col_parts * parts(); }
  bool operator==(const StaticCut&) const = default;
};

std::string to_string(const StaticCut& cut);

/// First block column of each band, and the end: bands of nearly equal numbers of blocks.
std::vector<uint32_t> cut_bands(const std::vector<uint32_t>& blocks_of_column, uint32_t bands);

/// All cuts worth weighing, the fastest expected first, those that are expected to fit before
/// others. Numbers that `forced` does not leave at 0 are kept. The published planner's limits may
/// leave none.
std::vector<Expected<StaticCut>> static_cuts(const StaticShape& shape, Planner planner,
                                             const machine::Machine& machine,
                                             const StaticCut& forced);

/// Which part has which blocks, in band after band, tile after tile.
struct StaticParts {
  std::vector<uint64_t> order;        ///< block i of the parts is the pattern's block order[i]
  std::vector<uint32_t> block_begin;  ///< of each part, and the end; so for the others
  std::vector<uint32_t> lists;        ///< work lists, as sparse_product has them
  std::vector<uint32_t> list_begin;
  std::vector<uint32_t> x_rows;  ///< rows of X that each part gathers
  std::vector<uint32_t> x_begin;
  std::vector<uint32_t> y_rows;  ///< rows of Y that each part computes
  std::vector<uint32_t> y_begin;
};
StaticParts deal_out(const Pattern& pattern, const StaticCut& cut);

struct StaticProgram {
  program::Program program;
  program::VariableId values = 0, x = 0, y = 0;
  std::vector<uint64_t> block_order;
};
StaticProgram build_static(const StaticShape& shape, const StaticCut& cut,
                           const machine::Machine& machine);

}  // namespace tessera::ops
