// The page of one run of a network: its time by phase and operation, its memory by purpose and tile, its
// graph.
#pragma once

#include <tessera/model.h>

#include <string>

#include "report/html.h"

namespace tessera::report {

/// `title` is what was lowered, `machine` for what.
std::string network_page(const model::Graph& graph, const model::RunCost& cost, const std::string& title,
                         const std::string& machine);

/// Charts for other pages: the operations that take longest, by phase, and the memory of each tile by
/// purpose.
Html time_chart(const model::RunCost& cost);
Html tiles_chart(const model::RunCost& cost);

}  // namespace tessera::report
