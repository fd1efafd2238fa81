// The page of one run of a network: its time by phase and operation, its memory by purpose and tile, its
// graph.
#pragma once

#include <tessera/graph.h>

#include <string>

#include "report/html.h"

namespace tessera::report {

/// `title` names the graph, and `machine` the machine for which it was lowered.
std::string network_page(const graph::Graph& graph, const graph::RunCost& cost, const std::string& title,
                         const std::string& machine);

/// Charts for other pages: the operations that take longest, by phase, and the memory of each tile by
/// purpose.
Html time_chart(const graph::RunCost& cost);
Html tiles_chart(const graph::RunCost& cost);

}  // namespace tessera::report
