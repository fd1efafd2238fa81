// Spiking layers added to programs of tiled machines.
//
// Weights stay with their neurons. In each pass of the loop over steps, tiles with neurons receive the lists
// of the layer before, and tiles that make lists receive the flags of a sample's neurons. The backward pass
// exchanges lists again, and the input gradients, which are summed over the tiles of the layer that takes the
// spikes.
#pragma once

#include <optional>
#include <vector>

#include "ops/spiking/stack.h"
#include "ops/spiking/tiles/partition.h"

namespace tessera::ops {

/// The results of a forward pass for a layer: variables with a row per pass, after a first row for the state
/// before.
struct SpikingTileResults {
  std::optional<Operand> ids, num, surrogate, resets, potentials, currents, dropped;
  Operand dynamics;  ///< 4 × neurons
};

struct SpikingTileForward {
  SpikingTilePartition partition = {};
  Operand in_ids = {}, in_num = {};   ///< rows are passes
  Operand times = {};                 ///< passes × SpikingTilePartition::times: the number of the step, from
                                      ///< 1, or 0 if the tile has none in that pass
  std::vector<Operand> weights = {};  ///< weights of each layer; `recurrent` has the recurrent ones
  std::vector<std::optional<Operand>> recurrent = {};
  std::vector<SpikingTileResults> layers = {};
  program::StepId step = 0;

  /// The rows of a layer's results that are its steps.
  Operand steps_of(const Operand& results, size_t layer, uint32_t steps) const;
};

/// Adds the forward pass. Weights are f32 or f16, the other parameters f32. The last layer's potentials, if
/// it has no spikes, go to its operand.
SpikingTileForward build_spiking_on_tiles(const Builder& builder, const std::vector<SpikingProblem>& problems,
                                          const SpikingTilePartition& partition,
                                          const SpikingStackOperands& operands);

/// Adds the gradients after a forward pass. Gradients of parameters are f32; `upstream` and `din` are as on
/// hosts.
program::StepId build_spiking_gradients_on_tiles(const Builder& builder,
                                                 const std::vector<SpikingProblem>& problems,
                                                 const SpikingTileForward& forward,
                                                 const SpikingStackOperands& operands);

}  // namespace tessera::ops
