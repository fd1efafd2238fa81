#include "lower/differences.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "graph/loop.h"
#include "graph/operation.h"
#include "graph/substream.h"

namespace tessera::graph {
namespace {

class DifferenceSearch {
 public:
  explicit DifferenceSearch(uint32_t replicas) : replicas_(replicas) {}

  /// Marks what operations compute of values that are marked, in loops and functions too.
  void mark(const Graph& graph, std::vector<bool>& differ) const {
    for (const Node& node : graph.nodes()) {
      const std::vector<bool> results =
          node.body ? in_body(node, differ)
                    : std::vector<bool>(node.outputs.size(), makes_difference(node, differ));
      for (size_t i = 0; i < node.outputs.size(); ++i)
        differ[node.outputs[i]] = graph.type(node.outputs[i]).sharded || results[i];
    }
  }

 private:
  bool makes_difference(const Node& node, const std::vector<bool>& differ) const {
    if (node.operation->traits.over_replicas != nullptr && combined_replicas(node, replicas_) == replicas_)
      return false;
    return has_substreams(node) ||
           std::ranges::any_of(node.inputs, [&](ValueId input) { return differ[input]; });
  }

  /// The outputs of a function, or of a loop's last pass.
  std::vector<bool> in_body(const Node& node, const std::vector<bool>& differ) const {
    const Graph& body = *node.body;
    const std::vector<ValueId> inputs = body.inputs();
    std::vector<bool> inside(body.values().size()), results;
    for (ValueId id = 0; id < inside.size(); ++id) inside[id] = body.type(id).sharded;
    for (size_t i = 0; i < inputs.size(); ++i)
      if (differ[node.inputs[i]]) inside[inputs[i]] = true;
    mark(body, inside);
    if (is_loop(node)) {
      const LoopForm form = loop_form(node);
      while (carries_more(form, inside)) mark(body, inside);
    }
    for (const auto& [name, id] : body.outputs()) results.push_back(inside[id]);
    return results;
  }

  /// Marks what passes take from the passes before; returns whether that is more than was marked.
  static bool carries_more(const LoopForm& form, std::vector<bool>& inside) {
    bool is_more = false;
    for (const auto& [input, output] : form.carried) {
      const ValueId to = form.body_inputs[input];
      if (inside[to] || !inside[form.body_outputs[output]]) continue;
      inside[to] = true;
      is_more = true;
    }
    return is_more;
  }

  uint32_t replicas_;
};

}  // namespace

std::vector<bool> differ_between_replicas(const Graph& graph) {
  std::vector<bool> differ(graph.values().size());
  for (ValueId id = 0; id < differ.size(); ++id) differ[id] = graph.type(id).sharded;
  for (const ValueId id : graph.inputs()) differ[id] = !(graph.bound_type(id) == graph.type(id));
  DifferenceSearch(graph.replicas()).mark(graph, differ);
  return differ;
}

}  // namespace tessera::graph
