// Sums of partial rows on tiles as PopLibs adds them.
#pragma once

#include <cstdint>
#include <vector>

#include "machine/model/machine.h"
#include "ops/product_problem.h"
#include "program/program.h"

namespace tessera::ops {

/// Where rows of partial sums are added.
struct GroupedSums {
  std::vector<uint32_t> position;          ///< by row of the result: its row among the sums
  std::vector<program::MappedBox> pieces;  ///< boxes of the sums that a worker each adds, in order of rows
  bool moved = false;                      ///< whether some lie elsewhere than their rows of the result
};

/// The rows of a result in blocks, and the number of partial sums of each.
struct PartialRows {
  const std::vector<uint32_t>& counts;
  uint32_t block_size = 1;
  uint32_t cols = 0;
};

/// PopLibs (SDK 3.4, reduceMany) joins rows with equal numbers of partial sums to one reduction, and gives
/// each reduction of a tile its share of the workers, or two if there are more reductions than workers. A
/// reduction is computed where the result lies, or else in equal parts on all tiles, from where it is moved:
/// by an estimate of PopLibs' that takes partial sums to arrive at once where the result lies. `result` has
/// boxes of rows that are equal or have none in common, in order of rows and columns.
GroupedSums group_sums(const PartialRows& partials, const std::vector<program::MappedBox>& result,
                       const TiledNumbers& numbers, const machine::Machine& machine);

}  // namespace tessera::ops
