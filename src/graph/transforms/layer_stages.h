// Stages of whole layers that training names.
#pragma once

#include <tessera/gradients.h>
#include <tessera/graph.h>

namespace tessera::graph {

/// Divides a graph into stages as options of its training say. Throws UsageError for stages that are given as
/// a number and by layers, or in calls or loops as well, for more stages than layers, for unknown names, for
/// layers on stages before those of earlier layers, and for stages without layers.
void divide_into_stages(Graph& graph, const LayerStages& stages);

}  // namespace tessera::graph
