#include "ops/spiking/counts.h"

#include <algorithm>
#include <cmath>

#include "kernels/map/spike_counts/codelet.h"
#include "ops/batch_fields.h"

namespace tessera::ops {
namespace {

using machine::Kind;
using machine::Machine;
using program::FieldView;

std::vector<int64_t> params_of(const SpikeCountsProblem& p) {
  return {p.capacity, std::llround(std::ceil(p.expected))};
}

const program::Codelet& codelet_of(const SpikeCountsProblem& p) {
  return p.gradient ? kernels::spike_counts_gradient_codelet : kernels::spike_counts_codelet;
}

PlanCandidate evaluate(const SpikeCountsProblem& p, const BatchPartition& partition, const Machine& m) {
  const uint32_t samples = partition.most_samples();
  std::vector<FieldView> fields = {field_of(p.steps, samples * p.capacity, Type::u16),
                                   field_of(p.steps, 2 * samples, Type::u32), field_of(samples, p.neurons)};
  if (p.gradient) fields.push_back(field_of(p.steps, samples * p.capacity));
  const std::vector<int64_t> params = params_of(p);
  return batch_candidate(partition, m, codelet_of(p).cost({fields, params}, m), 0, 0);
}

}  // namespace

Plan<BatchPartition> plan(const SpikeCountsProblem& problem, const Machine& machine) {
  Plan<BatchPartition> plan;
  std::vector<BatchPartition> partitions;
  const uint32_t most = std::min(problem.batch, machine.tiles);
  for (const uint32_t parts : {1U, most}) {
    if (!partitions.empty() && parts == 1) break;
    partitions.push_back({split_evenly(problem.batch, parts)});
    plan.candidates.push_back(evaluate(problem, partitions.back(), machine));
  }
  // On tiles lists lie sample by sample.
  const size_t best = machine.kind == Kind::host ? choose_fastest(plan.candidates) : partitions.size() - 1;
  plan.partition = partitions[best];
  plan.chosen = plan.candidates[best];
  return plan;
}

program::StepId build(const Builder& builder, const SpikeCountsProblem& p, const Plan<BatchPartition>& plan,
                      const std::vector<Operand>& o) {
  builder.require(o.at(0), "ids", Type::u16, p.steps, p.batch * p.capacity);
  builder.require(o.at(1), "num", Type::u32, p.steps, p.batch * 2);
  builder.require(o.at(2), p.gradient ? "the gradient of counts" : "counts", Type::f32, p.batch, p.neurons);
  if (p.gradient) builder.require(o.at(3), "the gradient of lists", Type::f32, p.steps, p.batch * p.capacity);
  const BatchFields batch(builder, plan.partition);
  std::vector<program::Field> fields = {batch.columns(o[0]), batch.columns(o[1]), batch.rows(o[2])};
  if (p.gradient) fields.push_back(batch.columns(o[3]));
  return builder.execute(batch.vertices(codelet_of(p), std::move(fields), params_of(p)));
}

std::vector<program::MappedBox> map_samples(const BatchPartition& partition, uint32_t rows, uint32_t cols) {
  std::vector<program::MappedBox> mapping;
  for (uint32_t i = 0; i < partition.parts(); ++i) {
    const uint32_t begin = partition.sample_begin[i], end = partition.sample_begin[i + 1];
    mapping.push_back({{0, rows, begin * cols, (end - begin) * cols}, i});
  }
  return mapping;
}

}  // namespace tessera::ops
