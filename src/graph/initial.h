// Initial contents of parameters and state.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::graph {

/// Calls take(name, contents) for each parameter and state, with contents as in initial_state().
void each_initial(const Graph& graph, uint64_t seed,
                  const std::function<void(const std::string&, std::vector<float>)>& take);

}  // namespace tessera::graph
