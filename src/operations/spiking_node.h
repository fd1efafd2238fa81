// The nodes of spiking layers: their problems, results and references.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "graph/operation.h"
#include "ops/spiking/definition.h"
#include "ops/spiking/stack.h"

namespace tessera::graph {

// Positions of the inputs of the forward operation and of the gradients: first the lists and ϑ_grad, in the
// forward operation then the number of neurons to list and the step of the random numbers. Parameters follow.
inline constexpr size_t kThreshold = 2, kMostListed = 3, kStep = 4, kForwardParameters = 5,
                        kGradientsParameters = 3;

/// The layers, encoded as an attribute.
std::vector<int64_t> words_of(const std::vector<SpikingLayer>& layers);

/// A size among the attributes of a node.
uint32_t spiking_size(const Node& node, std::string_view name);

/// The problems of a node's layers, for input lists with ids of this type.
std::vector<ops::SpikingProblem> spiking_problems_of(const Node& node, const TensorType& ids);

/// The parameters of all layers, and the positions of those that have gradients.
std::vector<SpikingParameter> all_parameters(const std::vector<ops::SpikingProblem>& problems);
std::vector<size_t> learned_positions(const std::vector<ops::SpikingProblem>& problems);

/// Positions among ops::kSpikingResults.
enum : size_t { kIds, kNum, kPotentials, kSurrogate, kResets, kCurrents, kDropped };

/// Calls visit(layer, member, matrix) for each result, in the order of the outputs.
template <class Visit>
void each_result(const std::vector<ops::SpikingProblem>& problems, const Visit& visit) {
  for (size_t layer = 0; layer < problems.size(); ++layer) {
    const ops::SpikingResults results = ops::results_of(problems[layer]);
    for (size_t member = 0; member < ops::kSpikingResults.size(); ++member)
      if (const ops::SpikingMatrix& matrix = results.*ops::kSpikingResults[member].matrix; !matrix.empty())
        visit(layer, member, matrix);
  }
}

/// The position of a layer's result among the outputs.
std::optional<size_t> position_of(const std::vector<ops::SpikingProblem>& problems, size_t layer,
                                  size_t member);

/// The result that a layer passes on: lists, or the potentials of a layer without spikes.
inline size_t read_member(const ops::SpikingProblem& problem) {
  return problem.layer.neuron.spikes ? kIds : kPotentials;
}

// References.

/// An element of a reference that an operation leaves unspecified.
inline constexpr double kUnspecified = std::numeric_limits<double>::quiet_NaN();

/// Lists of spikes as arrays.
struct ListArrays {
  const Array& ids;
  const Array& num;
  uint32_t steps, batch, capacity;

  size_t row(uint32_t t, uint32_t b) const { return uint64_t{t} * batch + b; }
  uint32_t fired(uint32_t t, uint32_t b) const { return static_cast<uint32_t>(num[2 * row(t, b)]); }
  uint32_t listed(uint32_t t, uint32_t b) const { return static_cast<uint32_t>(num[2 * row(t, b) + 1]); }
  uint32_t id(uint32_t t, uint32_t b, uint32_t i) const {
    return static_cast<uint32_t>(ids[row(t, b) * capacity + i]);
  }
  /// Calls visit(t, b, i) for every entry.
  template <class Visit>
  void each(const Visit& visit) const {
    for (uint32_t t = 0; t < steps; ++t)
      for (uint32_t b = 0; b < batch; ++b)
        for (uint32_t i = 0; i < listed(t, b); ++i) visit(t, b, i);
  }
  ops::Sequence dense(uint32_t neurons, bool with_candidates) const {
    ops::Sequence dense(steps, batch, neurons);
    each([&](uint32_t t, uint32_t b, uint32_t i) {
      if (with_candidates || i < fired(t, b)) dense(t, b, id(t, b, i)) = 1;
    });
    return dense;
  }
};

std::vector<Array> spiking_reference(const Evaluation& e);
std::vector<Array> spiking_gradients_reference(const Evaluation& e);

}  // namespace tessera::graph
