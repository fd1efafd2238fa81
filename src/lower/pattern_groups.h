// The groups of convolutions that patterns of weights have to keep when they change.
#pragma once

#include <tessera/graph.h>
#include <tessera/sparse.h>

#include <map>
#include <string>

namespace tessera::graph {

/// By name of a parameter whose pattern may change: the groups of a convolution of which it is the weight.
using PatternGroups = std::multimap<std::string, ConvolutionGroups>;

PatternGroups pattern_groups(const Graph& graph);

/// Throws UsageError if the parameter's new pattern has a block that is not of one group.
void require_in_groups(const PatternGroups& groups, const std::string& name, const Pattern& pattern);

}  // namespace tessera::graph
