#include "graph/substream.h"

#include <algorithm>

#include "base/random.h"
#include "graph/loop.h"

namespace tessera::graph {
namespace {

bool is_over_micro_batches(const Node& node) { return is_loop(node) && number_of_call(node) == 0U; }

/// How many numbers of calls and passes are nested.
uint32_t depth_of(const Graph& graph) {
  uint32_t depth = 0;
  for (const Node& node : graph.nodes()) {
    if (!node.body || !has_substreams(*node.body)) continue;
    const uint32_t own = is_over_micro_batches(node) ? 0 : is_loop(node) ? 2 : 1;
    depth = std::max(depth, own + depth_of(*node.body));
  }
  return depth;
}

}  // namespace

bool has_substreams(const Node& node) {
  const auto own = node.operation->traits.has_substreams;
  return (own != nullptr && own(node)) || (node.body && has_substreams(*node.body));
}

bool has_substreams(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Node& node) { return has_substreams(node); });
}

bool draws_numbers(const Node& node) {
  const Traits& traits = node.operation->traits;
  return has_substreams(node) || (traits.draws_by_place != nullptr && traits.draws_by_place(node));
}

uint32_t substream_words(const Graph& graph) {
  if (!has_substreams(graph)) return 0;
  const uint32_t calls = depth_of(graph);
  return calls > 0 || graph.replicas() > 1 || std::ranges::any_of(graph.nodes(), is_over_micro_batches)
             ? kCallWord + calls
             : 0;
}

std::optional<uint32_t> number_of_call(const Node& node) {
  if (!has_substreams(node)) return {};
  return static_cast<uint32_t>(node.integer("call"));
}

uint64_t seed_in(const Substream& substream, uint64_t seed) {
  for (uint32_t i = 0; i < substream.size(); ++i) seed = base::seed_of_substream(seed, i, substream[i]);
  return seed;
}

Substream in_micro_batch(Substream substream, uint32_t number) {
  substream.at(kMicroBatchWord) = number;
  return substream;
}

Substream called(Substream substream, uint32_t call) {
  if (substream.empty()) return substream;
  substream.insert(substream.begin() + kCallWord, call);
  substream.pop_back();
  return substream;
}

}  // namespace tessera::graph
