// Checks of lists of spikes among the inputs of a graph, which kernels do not check.
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

/// The inputs of a graph that its operations, in functions too, take as lists.
std::vector<ListInputs> list_inputs(const Graph& graph);

struct Signature;
/// Throws UsageError unless ids and num of each list that an operation or a function takes are both inputs of
/// the graph, or both results of the same operation.
void check_sources_of_lists(const Signature& signature);

/// Throws UsageError for lists that exceed their capacity, or with ids or numbers out of range.
void check_lists(const Graph& graph, const ListInputs& lists, const std::vector<double>& ids,
                 const std::vector<double>& num);

}  // namespace tessera::graph
