#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "compiler/compile.h"
#include "ops/structured/tiles/chain.h"

namespace tessera::ops {
namespace {

using machine::Machine;
using program::Role;

void check(const TileChainProblem& p, const Machine& m) {
  if (m.kind != machine::Kind::tiled)
    throw UsageError(fmt::format("chains of passes run on tiled machines; '{}' is none", m.name));
  uint64_t inputs = p.factor.inputs(), outputs = p.factor.outputs();
  if (p.butterfly) {
    if (p.butterfly->levels == 0 || p.butterfly->levels > 20 || p.butterfly->stacks == 0 ||
        p.butterfly->blocks == 0 || (p.butterfly->tied && p.butterfly->blocks != 1))
      throw UsageError(fmt::format("butterflies of {} levels, {} stacks and {} blocks are not possible",
                                   p.butterfly->levels, p.butterfly->stacks, p.butterfly->blocks));
    inputs = uint64_t{p.butterfly->width()} << p.butterfly->levels;
    outputs = inputs * p.butterfly->stacks;
  }
  if (p.inputs == 0 || p.inputs > inputs || p.outputs == 0 || p.outputs > outputs || p.n == 0)
    throw UsageError(fmt::format("a map of {} to {} features of {} samples is not possible: it has {} to {}",
                                 p.inputs, p.outputs, p.n, inputs, outputs));
}

/// The factors of each block in `count` passes of nearly equal numbers of levels.
std::vector<PlannedPass> passes_of(const TileChainProblem& p, uint32_t count) {
  if (!p.butterfly) return {{p.factor}};
  const TileButterfly& s = *p.butterfly;
  std::vector<PlannedPass> passes;
  for (uint32_t block = 0; block < s.blocks; ++block) {
    const bool decreasing = s.decreasing != (block % 2 == 1);
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t begin = s.levels * i / count, end = s.levels * (i + 1) / count;
      const uint32_t smallest = decreasing ? s.levels - end : begin;
      const uint32_t features = s.stacks << s.levels;
      passes.push_back(
          {TilePass::butterfly(features, 1U << smallest, end - begin, decreasing, s.width()), block, begin});
    }
  }
  return passes;
}

void plan_passes(const TileChainProblem& p, const Machine& m, std::vector<PlannedPass>& passes) {
  const auto partition_of = [&](const TilePass& pass, PassProduct product) {
    return plan_tile_pass({pass, p.n, p.numbers, product}, m).partition;
  };
  for (PlannedPass& planned : passes) {
    planned.forward = partition_of(planned.pass, PassProduct::forward);
    if (!p.gradients) continue;
    if (p.butterfly) {
      planned.input_gradient = partition_of(planned.pass, PassProduct::gradients);
    } else {
      if (p.input_gradient) planned.input_gradient = partition_of(planned.pass, PassProduct::input_gradient);
      if (p.parameter_gradient)
        planned.weight_gradient = partition_of(planned.pass, PassProduct::weight_gradient);
    }
  }
}

/// The chain between matrices that are spread over all tiles, with the parameter where it is multiplied.
compiler::Estimate count(const TileChainProblem& p, const TileChainPartition& partition, const Machine& m) {
  program::Program program;
  const Builder b(program, m);
  const auto matrix = [&](const char* name, Role role, uint32_t features) {
    return b.external(name, role, p.numbers.operands, p.rows(features), p.cols(features));
  };
  const auto parameter = [&](const char* name, Role role, program::Purpose purpose) {
    return b.external(name, role, p.numbers.operands, p.parameter_rows(), p.parameter_cols(),
                      chain_parameter_mapping(p, partition), purpose);
  };
  TileChainOperands o{
      .x = matrix("x", Role::input, p.inputs),
      .y = matrix("y", p.gradients ? Role::input : Role::output, p.outputs),
      .parameter = parameter("parameter", Role::input, program::Purpose::parameter),
  };
  if (p.gradients && p.input_gradient) o.dx = matrix("dx", Role::output, p.inputs);
  if (p.gradients && p.parameter_gradient)
    o.parameter_gradient = parameter("dparameter", Role::output, program::Purpose::gradient);
  program.set_main(build_tile_chain(b, p, partition, o));
  return compiler::estimate(program, m);
}

}  // namespace

std::string to_string(const TileChainPartition& partition) {
  std::string text = fmt::format("{} passes:", partition.passes.size());
  for (const PlannedPass& planned : partition.passes)
    text += fmt::format(" ({}, {}, {}, {}) on {} tiles", planned.pass.a, planned.pass.b, planned.pass.c,
                        planned.pass.d, planned.forward.tiles());
  return text;
}

TileChainPlan plan_tile_chain(const TileChainProblem& problem, const Machine& machine) {
  check(problem, machine);
  TileChainPlan plan;
  std::vector<TileChainPartition> counted;
  const uint32_t most = problem.butterfly ? std::min(4U, problem.butterfly->levels) : 1;
  for (uint32_t passes = 1; passes <= most; ++passes) {
    TileChainPartition partition{passes_of(problem, passes)};
    // Larger groups than tiles hold, or too many tiles with one group, are never fast.
    if (passes < most && partition.passes.front().pass.levels > 8) continue;
    plan_passes(problem, machine, partition.passes);
    const compiler::Estimate exact = count(problem, partition, machine);
    plan.candidates.push_back({to_string(partition), exact.cycles.scaled(1 / machine.clock_hz),
                               exact.memory.max_tile_bytes,
                               exact.memory.fits() ? "" : compiler::overflow_text(exact.memory)});
    counted.push_back(std::move(partition));
  }
  const size_t best = choose_fastest(plan.candidates);
  plan.partition = counted[best];
  plan.chosen = plan.candidates[best];
  return plan;
}

}  // namespace tessera::ops
