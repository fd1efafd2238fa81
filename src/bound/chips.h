// Products on machines of several chips.
#pragma once

#include <cstdint>

#include "machine/model/machine.h"
#include "ops/tiles/product.h"

namespace tessera::bound {

/// How a product uses the chips of a machine: its columns are dealt to `replicas` chips that all have W, or
/// the tiles of several chips work as one chip's.
struct ChipPlan {
  uint32_t replicas = 1;
  uint32_t chips = 1;               ///< in use
  ops::PlannedTileProduct planned;  ///< plan of one replica, with the candidates for chips first
  machine::Machine machine;         ///< the chips in use
};

/// Plans with 1, 2, 4, … chips, as replicas and as one, and takes the fastest that fits, with the fewest
/// chips among equals; more than four chips work as one only if nothing else fits. All replicas have equally
/// many columns, and dW is summed over the replicas.
ChipPlan plan_on_chips(const Pattern& pattern, const ops::ProductProblem& problem,
                       const machine::Machine& machine, const ops::ForcedKnobs& force);

}  // namespace tessera::bound
