#include "ops/structured/tiles/chain_weights.h"

namespace tessera::ops {
namespace {

/// A pair of features of a pass, as its butterfly numbers them.
struct Pair {
  uint32_t stack;
  uint32_t stride;
  uint32_t low;   ///< its place within its stride
  uint32_t copy;  ///< its group of `stride` pairs

  Pair(const Butterfly& butterfly, const TilePass& pass, uint32_t group, uint32_t level, uint32_t pair) {
    const uint32_t local_stride = 1U << (pass.decreasing ? pass.levels - 1 - level : level);
    const uint32_t local_low = pair % local_stride, first = 2 * (pair - local_low) + local_low;
    const uint32_t feature = (group / pass.d * pass.c + first) * pass.d + group % pass.d;
    const uint32_t within = feature % butterfly.size();
    stack = feature / butterfly.size();
    stride = local_stride * pass.d;
    low = within % stride;
    copy = within / (2 * stride);
  }
};

/// Row and column of the matrix of a pair that a level of a pass combines.
WeightRun matrix_of(const Butterfly& butterfly, const PlannedPass& planned, const Pair& pair,
                    uint32_t level) {
  const uint32_t count = pair_matrix(butterfly);
  if (butterfly.tied) return {0, pair.stack, (pair.stride - 1 + pair.low) * count, count};
  const uint32_t row =
      (pair.stack * butterfly.nblocks + planned.block) * butterfly.levels() + planned.first_level + level;
  return {0, row, (pair.copy * pair.stride + pair.low) * count, count};
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

std::vector<WeightRun> weight_runs(const Structure& structure, const PlannedPass& planned) {
  const TilePass& pass = planned.pass;
  const auto* butterfly = std::get_if<Butterfly>(&structure);
  std::vector<WeightRun> runs;
  for (uint32_t g = 0; g < pass.groups(); ++g) {
    if (butterfly == nullptr) {
      runs.push_back({g * pass.weights(), g, 0, pass.weights()});
      continue;
    }
    for (uint32_t level = 0; level < pass.levels; ++level)
      for (uint32_t pair = 0; pair < pass.c / 2; ++pair)
        append(runs, matrix_of(*butterfly, planned, Pair(*butterfly, pass, g, level, pair), level));
  }
  return runs;
}

TiedLevel tied_level(const Butterfly& butterfly, const PlannedPass& planned, uint32_t level) {
  const TilePass& pass = planned.pass;
  const uint32_t count = pair_matrix(butterfly);
  const uint32_t stride = Pair(butterfly, pass, 0, level, 0).stride;
  TiedLevel tied{stride, butterfly.size() / 2 / stride, {}};
  for (uint32_t g = 0; g < pass.groups(); ++g)
    for (uint32_t pair = 0; pair < pass.c / 2; ++pair) {
      const Pair at(butterfly, pass, g, level, pair);
      tied.runs.push_back({((g * pass.levels + level) * (pass.c / 2) + pair) * count,
                           at.stack * tied.copies + at.copy, at.low * count, count});
    }
  return tied;
}

}  // namespace tessera::ops
