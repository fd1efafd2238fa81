#include "ops/structured/tiles/chain_weights.h"

namespace tessera::ops {
namespace {

constexpr uint32_t kMatrix = 4;  // elements of a pair's matrix

/// Row and column of the matrix of one pair of a pass.
WeightRun matrix_of(const TileButterfly& butterfly, const PlannedPass& planned, uint32_t group,
                    uint32_t level, uint32_t pair) {
  const TilePass& pass = planned.pass;
  const uint32_t size = 1U << butterfly.levels;
  const uint32_t local_stride = 1U << (pass.decreasing ? pass.levels - 1 - level : level);
  const uint32_t local_low = pair % local_stride, first = 2 * (pair - local_low) + local_low;
  const uint32_t feature = (group / pass.d * pass.c + first) * pass.d + group % pass.d;
  const uint32_t stride = local_stride * pass.d, within = feature % size, low = within % stride;
  const uint32_t row =
      (feature / size * butterfly.blocks + planned.block) * butterfly.levels + planned.first_level + level;
  return {0, row, ((within - low) / 2 + low) * kMatrix, kMatrix};
}

void append(std::vector<WeightRun>& runs, WeightRun run) {
  if (!runs.empty()) {
    WeightRun& last = runs.back();
    run.weight = last.weight + last.count;
    if (last.row == run.row && last.col + last.count == run.col) {
      last.count += run.count;
      return;
    }
  }
  runs.push_back(run);
}

}  // namespace

std::vector<WeightRun> weight_runs(const TileChainProblem& problem, const PlannedPass& planned) {
  const TilePass& pass = planned.pass;
  std::vector<WeightRun> runs;
  for (uint32_t g = 0; g < pass.groups(); ++g) {
    if (!problem.butterfly) {
      runs.push_back({g * pass.weights(), g, 0, pass.weights()});
      continue;
    }
    for (uint32_t level = 0; level < pass.levels; ++level)
      for (uint32_t pair = 0; pair < pass.c / 2; ++pair)
        append(runs, matrix_of(*problem.butterfly, planned, g, level, pair));
  }
  return runs;
}

uint32_t TileChainProblem::parameter_rows() const {
  return butterfly ? butterfly->stacks * butterfly->blocks * butterfly->levels : factor.groups();
}

uint32_t TileChainProblem::parameter_cols() const {
  return butterfly ? kMatrix << (butterfly->levels - 1) : factor.weights();
}

}  // namespace tessera::ops
