// Graphs of networks as pictures and tables.
#pragma once

#include <tessera/graph.h>

#include "report/html.h"

namespace tessera::report {

/// The operations of a graph from top to bottom, each below those whose results it takes, with lines between
/// them; a large graph's first `kMostDrawn` operations.
inline constexpr size_t kMostDrawn = 400;
Html picture(const graph::Graph& graph);

/// Seconds or cycles of each operation, conversions, and bytes by purpose.
Html cost_tables(const graph::RunCost& cost);

}  // namespace tessera::report
