// The tiles of a pass, and the boxes of the operands on which each works.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/split.h"
#include "ops/structured/tiles/pass.h"

namespace tessera::ops {

/// Neighbouring tiles have the same groups and, where groups are divided, the same columns: they receive the
/// same data.
class TilePassGrid {
 public:
  TilePassGrid(const TilePassProblem& problem, const TilePassPartition& partition)
      : pass_(problem.pass),
        partition_(partition),
        groups_(split_evenly(problem.pass.groups(), partition.group_parts)),
        columns_(split_evenly(problem.n, partition.n_parts)),
        outputs_(split_evenly(divided(problem), partition.output_parts)) {}

  /// Number of features of a group that may be divided among tiles.
  static uint32_t divided(const TilePassProblem& problem) {
    return problem.product == TilePassProduct::input_gradient ? problem.pass.c : problem.pass.b;
  }

  struct Position {
    uint32_t group, column, output;
  };
  Position place_of(program::TileId tile) const {
    return {tile / partition_.output_parts / partition_.n_parts,
            tile / partition_.output_parts % partition_.n_parts, tile % partition_.output_parts};
  }
  uint32_t tiles() const { return partition_.tiles(); }
  uint32_t groups_at(const Position& p) const { return groups_[p.group + 1] - groups_[p.group]; }
  uint32_t outputs_begin(const Position& p) const { return outputs_[p.output]; }
  uint32_t outputs_at(const Position& p) const { return outputs_[p.output + 1] - outputs_[p.output]; }

  /// The box with the rows of a tile's groups, of `rows` rows each, or of its part of a group, and with its
  /// columns.
  program::Box whole_groups(const Position& p, uint32_t rows) const {
    return {groups_[p.group] * rows, groups_at(p) * rows, columns_[p.column],
            columns_[p.column + 1] - columns_[p.column]};
  }
  program::Box part_of_groups(const Position& p, uint32_t rows) const {
    program::Box box = whole_groups(p, rows);
    if (partition_.output_parts > 1) {
      box.row += outputs_begin(p);
      box.rows = outputs_at(p);
    }
    return box;
  }
  /// The box of a tile's weights: of whole groups, or only of the outputs that it computes.
  program::Box weights(const Position& p, bool only_its_outputs) const {
    const uint32_t weights = pass_.weights();
    program::Box box{0, 1, groups_[p.group] * weights, groups_at(p) * weights};
    if (only_its_outputs && partition_.output_parts > 1) {
      box.col += outputs_begin(p) * pass_.c;
      box.cols = outputs_at(p) * pass_.c;
    }
    return box;
  }

 private:
  TilePass pass_;
  TilePassPartition partition_;
  std::vector<uint32_t> groups_, columns_, outputs_;
};

}  // namespace tessera::ops
