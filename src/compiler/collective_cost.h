// Costs of collectives, and their code.
#pragma once

#include "compiler/executable.h"

namespace tessera::compiler {

/// Cost of a collective of a program whose replicas run on parts of a machine equal to `part`, the first one.
/// In each round all replicas wait for each other; it takes as long as the busiest tile and the busiest link,
/// after which received data is added. Where links take longer than tiles, tiles are free during the rest of
/// the exchange and the latency of links, and other steps can run. On hosts, whose links are unknown, the
/// cost is that of adding.
CollectiveCost cost_of(const program::Program& program, const program::Collective& collective,
                       const machine::Machine& part);

/// Adds the exchange code of a tile for each message that it sends or receives, and the vertices that add;
/// rounds of a ring that do the same count once.
void count_code(const program::Program& program, const program::Collective& collective,
                std::vector<TileMemory>& memory);

}  // namespace tessera::compiler
