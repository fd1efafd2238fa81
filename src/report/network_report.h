// The page of one run of a network: its time by phase and operation, its memory by purpose and tile, its
// graph.
#pragma once

#include <tessera/model.h>

#include <string>

namespace tessera::report {

/// `title` is what was lowered, `machine` for what.
std::string network_page(const model::Graph& graph, const model::RunCost& cost, const std::string& title,
                         const std::string& machine);

}  // namespace tessera::report
