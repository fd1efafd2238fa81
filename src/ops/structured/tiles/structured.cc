#include "ops/structured/tiles/structured.h"

#include "compiler/compile.h"

namespace tessera::ops {
namespace {

std::string text_of(const StructuredProblem& p, const StructuredPartition& partition) {
  if (const auto* chain = std::get_if<TileChainPartition>(&partition)) return to_string(*chain);
  const auto& toeplitz = std::get<TileToeplitzPartition>(partition);
  return to_string(p.gradients ? toeplitz.input_gradient : toeplitz.forward);
}

PlanCandidate count(const StructuredProblem& p, const StructuredPartition& partition,
                    const machine::Machine& m) {
  program::Program program;
  const Builder b(program, m);
  std::vector<program::MappedBox> mapping;
  if (const auto* chain = std::get_if<TileChainPartition>(&partition))
    mapping = chain_parameter_mapping(p, *chain);
  program.set_main(build_on_tiles(b, p, partition, external_operands(b, p, mapping)));
  const compiler::Estimate exact = compiler::estimate(program, m);
  return {text_of(p, partition), exact.cycles.scaled(1 / m.clock_hz), exact.memory.max_tile_bytes,
          exact.memory.fits() ? "" : compiler::overflow_text(exact.memory)};
}

}  // namespace

StructuredPlan plan_on_tiles(const StructuredProblem& problem, const machine::Machine& machine) {
  const Structure& structure = problem.structure;
  if (std::holds_alternative<Circulant>(structure) || std::holds_alternative<Toeplitz>(structure))
    return plan_tile_toeplitz(problem, machine);
  if (std::holds_alternative<Fastfood>(structure)) return plan_tile_fastfood(problem, machine);
  return plan_tile_chain(problem, machine);
}

program::StepId build_on_tiles(const Builder& builder, const StructuredProblem& problem,
                               const StructuredPartition& partition, const StructuredOperands& operands) {
  if (const auto* toeplitz = std::get_if<TileToeplitzPartition>(&partition))
    return build_tile_toeplitz(builder, problem, *toeplitz, operands);
  const auto& passes = std::get<TileChainPartition>(partition);
  if (std::holds_alternative<Fastfood>(problem.structure))
    return build_tile_fastfood(builder, problem, passes, operands);
  return build_tile_chain(builder, problem, passes, operands);
}

StructuredPlan fastest_on_tiles(const StructuredProblem& problem, std::vector<StructuredPartition> partitions,
                                const machine::Machine& machine) {
  return fastest_of(std::move(partitions),
                    [&](const StructuredPartition& partition) { return count(problem, partition, machine); });
}

}  // namespace tessera::ops
