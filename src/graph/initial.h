// Parameters and state, which are kept between runs, and their initial contents.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::graph {

inline bool is_kept(const ValueInfo& value) {
  return value.kind == Kind::parameter || value.kind == Kind::state;
}

/// Calls take(name, contents) for each parameter and state, with contents as in initial_state().
void each_initial(const Graph& graph, uint64_t seed,
                  const std::function<void(const std::string&, std::vector<float>)>& take);

}  // namespace tessera::graph
