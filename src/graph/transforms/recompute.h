// Recomputation: the backward pass computes again what the forward pass would otherwise keep for it.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera::graph {

/// What a graph with gradients can compute again: a call, or a stage of the pipeline of a loop.
struct Recomputable {
  std::optional<uint32_t> loop =
      {};                            ///< position of the loop that has it in its body; none: the graph has it
  std::optional<ValueId> call = {};  ///< first result of the call
  uint32_t stage = 0;                ///< without a call

  bool operator==(const Recomputable&) const = default;
};

/// What was chosen to fit a memory budget (Graph::memory_budget).
struct Recomputation {
  std::optional<uint64_t> budget = {};  ///< none: nothing was chosen
  std::vector<Recomputable> chosen = {};
};

struct RecomputationCandidate {
  Recomputable what = {};
  uint64_t bytes = 0;                ///< that this saves in all micro-batches in flight
  std::vector<uint32_t> nodes = {};  ///< operations of the graph or body that would be computed again
};

/// The calls in a graph and in its loops that keep results for their gradients alone, if these are larger
/// than what a second call would keep, and the stages of pipelines that keep values of several micro-batches
/// in flight.
std::vector<RecomputationCandidate> recomputation_candidates(const Graph& graph);

/// Computes some of the candidates again: a call before its gradient, as with Call::recompute, and a stage as
/// Pipeline::recomputed does. A call that nothing keeps results for stays as it is.
void recompute(Graph& graph, std::span<const Recomputable> chosen);

}  // namespace tessera::graph
