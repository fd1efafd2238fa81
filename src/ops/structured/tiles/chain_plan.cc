#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "ops/structured/tiles/structured.h"

namespace tessera::ops {
namespace {

using machine::Machine;

constexpr uint32_t kMostLevels = 20;

/// The factors of each block in `count` passes of nearly equal numbers of levels.
std::vector<PlannedPass> passes_of(const StructuredProblem& p, uint32_t count) {
  if (const auto* f = std::get_if<Kronecker>(&p.structure)) return {{{f->a, f->b, f->c, f->d}}};
  const auto& s = std::get<Butterfly>(p.structure);
  const uint32_t levels = s.levels();
  std::vector<PlannedPass> passes;
  for (uint32_t block = 0; block < s.nblocks; ++block) {
    const bool decreasing = s.decreasing != (block % 2 == 1);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t begin = levels * i / count, end = levels * (i + 1) / count;
      const uint32_t smallest = decreasing ? levels - end : begin;
      passes.push_back({TilePass::butterfly(s.stacks() * s.size(), 1U << smallest, end - begin, decreasing,
                                            s.complex ? 2 : 1),
                        block, begin});
    }
  }
  return passes;
}

void plan_passes(const StructuredProblem& p, const Machine& m, std::vector<PlannedPass>& passes) {
  const auto partition_of = [&](const TilePass& pass, TilePassProduct product) {
    return plan_tile_pass(pass_problem(p, pass, product), m).partition;
  };
  for (PlannedPass& planned : passes) {
    planned.forward = partition_of(planned.pass, TilePassProduct::forward);
    if (!p.gradients) continue;
    if (std::holds_alternative<Butterfly>(p.structure)) {
      planned.input_gradient = partition_of(planned.pass, TilePassProduct::gradients);
    } else {
      if (p.input_gradient)
        planned.input_gradient = partition_of(planned.pass, TilePassProduct::input_gradient);
      if (p.parameter_gradients)
        planned.weight_gradient = partition_of(planned.pass, TilePassProduct::weight_gradient);
    }
  }
}

}  // namespace

std::string to_string(const TileChainPartition& partition) {
  std::string text = fmt::format("{} passes:", partition.passes.size());
  for (const PlannedPass& planned : partition.passes)
    text += fmt::format(" ({}, {}, {}, {}) on {} tiles", planned.pass.a, planned.pass.b, planned.pass.c,
                        planned.pass.d, planned.forward.tiles());
  return text;
}

StructuredPlan plan_tile_chain(const StructuredProblem& problem, const Machine& machine) {
  const auto* butterfly = std::get_if<Butterfly>(&problem.structure);
  if (butterfly != nullptr && butterfly->levels() > kMostLevels)
    throw UsageError(fmt::format("butterflies of {} levels are not possible on tiles: use at most {}",
                                 butterfly->levels(), kMostLevels));
  std::vector<StructuredPartition> partitions;
  const uint32_t most = butterfly != nullptr ? std::min(4U, butterfly->levels()) : 1;
  for (uint32_t passes = 1; passes <= most; ++passes) {
    TileChainPartition partition{passes_of(problem, passes)};
    // Larger groups than tiles hold, or too many tiles with one group, are never fast.
    if (passes < most && partition.passes.front().pass.levels > 8) continue;
    plan_passes(problem, machine, partition.passes);
    partitions.emplace_back(std::move(partition));
  }
  return fastest_on_tiles(problem, std::move(partitions), machine);
}

}  // namespace tessera::ops
