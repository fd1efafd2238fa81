// Graphs of networks as pictures and tables.
#pragma once

#include <tessera/graph.h>

#include "report/html.h"

namespace tessera::report {

/// A picture of a graph's operations from top to bottom, each below the operations whose results it takes,
/// with lines between them; of a large graph, only the first `kMostDrawn` operations.
inline constexpr size_t kMostDrawn = 400;
Html picture(const graph::Graph& graph);

/// Tables of seconds or cycles of each operation, of conversions, and of bytes by purpose.
Html cost_tables(const graph::RunCost& cost);

}  // namespace tessera::report
