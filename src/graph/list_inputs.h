// Lists of spikes among the inputs of a graph, which kernels trust.
#pragma once

#include <tessera/graph.h>

#include <vector>

#include "ops/spiking/spiking.h"

namespace tessera::graph {

struct ListInputs {
  ValueId ids = 0;
  ValueId num = 0;
  ops::SpikeListRoom room;
};

/// The lists that operations of a graph take, in functions as well, as far as they are inputs of the graph.
std::vector<ListInputs> list_inputs(const Graph& graph);

struct Signature;
/// Throws UsageError for an operation, or a function, that takes lists of which only one half was checked, or
/// made by an operation.
void check_sources_of_lists(const Signature& signature);

/// Throws UsageError for lists that do not fit, or hold what no list can.
void check_lists(const Graph& graph, const ListInputs& lists, const std::vector<double>& ids,
                 const std::vector<double>& num);

}  // namespace tessera::graph
