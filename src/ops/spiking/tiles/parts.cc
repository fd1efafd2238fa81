#include "ops/spiking/tiles/parts.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "kernels/common/element.h"
#include "kernels/host/spiking/codelet.h"
#include "kernels/map/fill/codelet.h"
#include "ops/owners.h"

namespace tessera::ops {

program::CopyGroup SpikingTileParts::reordered(size_t l, const Operand& from, const Operand& to,
                                               bool from_tiles) const {
  std::vector<program::Box> tiles, samples;
  for (uint32_t i = 0; i < layer(l).tiles; ++i)
    for (uint32_t b = 0; b < batch(); ++b) {
      const uint32_t first = layer(l).first_neuron(i), count = layer(l).neurons_of(i);
      tiles.push_back({0, from.rows(), first * batch() + b * count, count});
      samples.push_back({0, from.rows(), b * layer(l).neurons + first, count});
    }
  if (!from_tiles) std::swap(tiles, samples);
  return copy_boxes(from, std::move(tiles), to, std::move(samples));
}

bool SpikingTileParts::lies(const Operand& operand, const std::vector<program::MappedBox>& mapping) const {
  return b_.mapping_of(operand) == mapping;
}

program::StepId SpikingTileParts::clear(const std::vector<Operand>& operands) const {
  program::ComputeSet set{"clear", program::Phase::compute, {}};
  for (const Operand& operand : operands) {
    const std::vector<program::MappedBox> owners = b_.mapping_of(operand);
    std::ranges::move(groups_of_owners(owners, kernels::fill_codelet, {{operand, boxes_of(owners)}},
                                       {kernels::param_of(0)}),
                      std::back_inserter(set.groups));
  }
  return b_.execute(std::move(set));
}

int64_t SpikingTileParts::expected_inputs(size_t l) const {
  // Half of a list's entries are spikes, except in the inputs of the first layer.
  return std::llround(std::ceil(2 * problems_[l].expected_inputs));
}
int64_t SpikingTileParts::expected_listed(size_t l) const {
  return std::llround(std::ceil(problems_[l].expected_listed));
}

std::vector<program::Param> SpikingTileParts::params(size_t l) const {
  const SpikingProblem& problem = problems_[l];
  std::vector<int64_t> first;
  for (uint32_t i = 0; i < layer(l).tiles; ++i) first.push_back(layer(l).first_neuron(i));
  std::vector<program::Param> params = {int64_t{problem.in_capacity}, int64_t{problem.room()},
                                        program::Param(std::move(first))};
  for (const int64_t value : kernels::spiking_params(problem.layer.neuron, problem.layer.recurrent).values)
    params.emplace_back(value);
  params.emplace_back(expected_inputs(l));
  params.emplace_back(expected_listed(l));
  return params;
}

}  // namespace tessera::ops
