// Means over the replicas of a graph, and over its micro-batches.
#include <algorithm>
#include <set>

#include "lower/lowering.h"
#include "operations/list.h"
#include "ops/collective/collective.h"
#include "ops/map/elementwise.h"

namespace tessera::graph {
namespace {

Types infer_replicas(const Signature& s) {
  require_float(s, s.inputs[0]);
  return {s.inputs[0]};
}

std::vector<Array> replicas_reference(const Evaluation& e) { return {*e.inputs[0]}; }

Array mean(std::span<const Array* const> results) {
  Array mean(results.front()->size());
  for (const Array* result : results)
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += (*result)[i] / static_cast<double>(results.size());
  return mean;
}

/// Scales a replica's value before it is summed, instead of the sum.
program::VariableId scale(Lowering& l) {
  const ops::Operand in = l.input(0), out = l.output_beside(0, in);
  const Type type = l.builder().type_of(out);
  l.add(ops::UnaryProblem{kernels::Unary::scale, type, out.rows(), out.cols(),
                          1 / static_cast<float>(l.replicas())},
        {in, out});
  return out.variable;
}

/// All means that can be computed now are one collective: they share its rounds.
void lower_replicas(Lowering& l, const Node&) {
  if (l.replicas() == 1) return l.alias_output(0, l.input(0));
  std::vector<program::VariableId> sums;
  // A result counts as computed as soon as it is joined, but holds its mean only after the collective.
  std::set<ValueId> joined;
  l.each_from([&](const Node& other) {
    if (other.operation->traits.over_replicas == nullptr || joined.contains(other.inputs[0]) ||
        !l.is_computed(other.inputs[0]))
      return false;
    sums.push_back(scale(l));
    joined.insert(other.outputs[0]);
    return true;
  });
  l.run(ops::all_reduce(l.builder().program(), l.builder().whole_machine(), "mean over replicas", sums));
}

std::vector<Case> replicas_cases() {
  return {{.inputs = {{Type::f32, {5, 33}, {}, {}}}, .differentiable = false}};
}

constexpr Operation mean_named(std::string_view name, bool over_step) {
  return {
      name,
      1,
      1,
      infer_replicas,
      nullptr,
      replicas_reference,
      same_layouts,
      lower_replicas,
      replicas_cases,
      {.keeps_zeros = always_keeps_zeros, .aliases = true, .over_replicas = mean, .over_step = over_step}};
}

constexpr Operation kReplicas[] = {mean_named("mean_over_replicas", false),
                                   mean_named("mean_over_step", true)};

}  // namespace

Value mean_over_step(Value x) { return x.owner().apply("mean_over_step", {x})[0]; }

std::span<const Operation> replicas_operations() { return kReplicas; }

}  // namespace tessera::graph
