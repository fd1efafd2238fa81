#include "ops/structured/tiles/structured.h"

#include <bit>
#include <optional>

#include "ops/structured/tiles/fastfood.h"
#include "ops/structured/tiles/toeplitz.h"

namespace tessera::ops {
namespace {

TileFastfoodProblem fastfood_of(const StructuredProblem& p, const Fastfood& s) {
  return {.levels = static_cast<uint32_t>(std::countr_zero(s.size())),
          .stacks = s.stacks(),
          .permutation = s.permutation,
          .inputs = s.inputs,
          .outputs = s.outputs,
          .n = p.batch,
          .numbers = {p.type, p.type},
          .sample_rows = !p.transposed,
          .gradients = p.gradients,
          .input_gradient = p.input_gradient,
          .parameter_gradients = p.parameter_gradients};
}

/// Of a circulant or Toeplitz matrix; null: it is neither.
std::optional<TileToeplitzProblem> toeplitz_of(const StructuredProblem& p) {
  const auto [inputs, outputs] = features_of(p.structure);
  TileToeplitzProblem problem;
  if (const auto* circulant = std::get_if<Circulant>(&p.structure))
    problem = TileToeplitzProblem::circulant(circulant->size, inputs, outputs, p.batch);
  else if (std::holds_alternative<Toeplitz>(p.structure))
    problem = TileToeplitzProblem::toeplitz(inputs, outputs, p.batch);
  else
    return {};
  problem.numbers = {p.type, p.type};
  problem.sample_rows = !p.transposed;
  problem.gradients = p.gradients;
  problem.input_gradient = p.input_gradient;
  problem.parameter_gradient = p.parameter_gradients;
  return problem;
}

TileChainProblem chain_of(const StructuredProblem& p) {
  const auto [inputs, outputs] = features_of(p.structure);
  TileChainProblem chain{.inputs = inputs,
                         .outputs = outputs,
                         .n = p.batch,
                         .numbers = {p.type, p.type},
                         .sample_rows = !p.transposed,
                         .gradients = p.gradients,
                         .input_gradient = p.input_gradient,
                         .parameter_gradient = p.parameter_gradients};
  if (const auto* factor = std::get_if<Kronecker>(&p.structure)) {
    chain.factor = {factor->a, factor->b, factor->c, factor->d};
    return chain;
  }
  const auto& butterfly = std::get<Butterfly>(p.structure);
  chain.butterfly = {butterfly.levels(),   butterfly.stacks(), butterfly.blocks,
                     butterfly.decreasing, butterfly.tied,     butterfly.complex};
  return chain;
}

template <class Partition>
StructuredPlan plan_of(Plan<Partition> plan) {
  return {std::move(plan.partition), std::move(plan.chosen), std::move(plan.candidates)};
}

}  // namespace

StructuredPlan plan_on_tiles(const StructuredProblem& problem, const machine::Machine& machine) {
  if (const auto toeplitz = toeplitz_of(problem)) return plan_of(plan_tile_toeplitz(*toeplitz, machine));
  if (const auto* fastfood = std::get_if<Fastfood>(&problem.structure))
    return plan_of(plan_tile_fastfood(fastfood_of(problem, *fastfood), machine));
  return plan_of(plan_tile_chain(chain_of(problem), machine));
}

program::StepId build_on_tiles(const Builder& builder, const StructuredProblem& problem,
                               const StructuredPlan& plan, const StructuredOperands& o) {
  const auto gradient =
      o.parameter_gradients.empty() ? std::nullopt : std::optional(o.parameter_gradients[0]);
  if (const auto toeplitz = toeplitz_of(problem))
    return build_tile_toeplitz(builder, *toeplitz, std::get<TileToeplitzPartition>(plan.partition),
                               {o.x, o.y, o.parameters[0], o.dx, gradient});
  const auto& passes = std::get<TileChainPartition>(plan.partition);
  if (const auto* fastfood = std::get_if<Fastfood>(&problem.structure))
    return build_tile_fastfood(builder, fastfood_of(problem, *fastfood), passes,
                               {o.x, o.y, o.parameters, o.dx, o.parameter_gradients});
  return build_tile_chain(builder, chain_of(problem), passes, {o.x, o.y, o.parameters[0], o.dx, gradient});
}

}  // namespace tessera::ops
