#include "ops/spiking/counts.h"

#include <algorithm>
#include <cmath>

#include "kernels/map/spike_counts/codelet.h"
#include "ops/split.h"

namespace tessera::ops {
namespace {

using machine::Kind;
using machine::Machine;
using program::Box;
using program::BoxSeries;
using program::FieldView;

std::vector<int64_t> params_of(const SpikeCountsProblem& p) {
  return {p.capacity, std::llround(std::ceil(p.expected))};
}

PlanCandidate weigh(const SpikeCountsProblem& p, const BatchPartition& partition, const Machine& m) {
  const uint32_t samples = partition.most_samples();
  const auto field = [](Type type, uint32_t rows, uint32_t cols) {
    return FieldView{nullptr, type, rows, cols, cols, 1};
  };
  std::vector<FieldView> fields = {field(Type::u16, p.steps, samples * p.capacity),
                                   field(Type::u32, p.steps, 2 * samples),
                                   field(Type::f32, samples, p.neurons)};
  if (p.gradient) fields.push_back(field(Type::f32, p.steps, samples * p.capacity));
  const program::Codelet& codelet =
      p.gradient ? kernels::spike_counts_gradient_codelet : kernels::spike_counts_codelet;
  const std::vector<int64_t> params = params_of(p);
  return batch_candidate(partition, m, codelet.cost({fields, params}, m), 0, 0);
}

program::Field field_of(const Operand& operand, std::vector<Box> boxes) {
  return {operand.variable, BoxSeries::table(operand.inside(std::move(boxes)))};
}

}  // namespace

Plan<BatchPartition> plan(const SpikeCountsProblem& problem, const Machine& machine) {
  Plan<BatchPartition> plan;
  std::vector<BatchPartition> partitions;
  const uint32_t most = std::min(problem.batch, machine.tiles);
  for (const uint32_t parts : {1U, most}) {
    if (!partitions.empty() && parts == 1) break;
    partitions.push_back({split_evenly(problem.batch, parts)});
    plan.candidates.push_back(weigh(problem, partitions.back(), machine));
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
  std::vector<Box> lists, numbers, counts;
  for (uint32_t i = 0; i < plan.partition.parts(); ++i) {
    const uint32_t begin = plan.partition.sample_begin[i], count = plan.partition.sample_begin[i + 1] - begin;
    lists.push_back({0, p.steps, begin * p.capacity, count * p.capacity});
    numbers.push_back({0, p.steps, begin * 2, count * 2});
    counts.push_back({begin, count, 0, p.neurons});
  }
  program::VertexGroup group;
  group.codelet = p.gradient ? &kernels::spike_counts_gradient_codelet : &kernels::spike_counts_codelet;
  group.tiles = plan.partition.parts();
  group.fields = {field_of(o[0], lists), field_of(o[1], numbers), field_of(o[2], counts)};
  if (p.gradient) group.fields.push_back(field_of(o[3], lists));
  for (const int64_t value : params_of(p)) group.params.emplace_back(value);
  program::ComputeSet set{std::string(group.codelet->name), program::Phase::compute, {}};
  set.groups.push_back(std::move(group));
  return builder.execute(std::move(set));
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
