#include "graph/transforms/recompute.h"

#include <tessera/pipeline.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "graph/loop.h"
#include "graph/operation.h"
#include "graph/stages.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

/// How often each value is taken by an operation, or as a result of the graph.
std::vector<uint32_t> times_taken(const Graph& graph) {
  std::vector<uint32_t> times(graph.values().size());
  for (const Node& node : graph.nodes())
    for (const ValueId input : node.inputs) ++times[input];
  for (const auto& [name, id] : graph.outputs()) ++times[id];
  for (const Assignment& assignment : graph.assignments()) ++times[assignment.value];
  return times;
}

/// Whether a node is part of the gradient of the operation with these results.
bool is_gradient_of(const Node& node, const std::vector<ValueId>& results) {
  return node.backward && node.gradient_of && std::ranges::find(results, *node.gradient_of) != results.end();
}

/// Whether the backward pass takes each value.
std::vector<bool> taken_backward(const Graph& graph) {
  std::vector<bool> taken(graph.values().size());
  for (const Node& node : graph.nodes())
    if (node.backward)
      for (const ValueId input : node.inputs) taken[input] = true;
  return taken;
}

/// The candidates in a graph, or in the body of a loop of it.
class CandidateSearch {
 public:
  CandidateSearch(const Graph& graph, std::optional<uint32_t> loop,
                  std::vector<RecomputationCandidate>& found)
      : graph_(graph),
        loop_(loop),
        found_(found),
        times_taken_(times_taken(graph)),
        is_kept_(taken_backward(graph)) {}

  /// `in_flight` has the micro-batches for which each stage keeps values; `stages` the stage of each node.
  void add_calls(const std::vector<uint32_t>& stages, const std::vector<uint32_t>& in_flight) {
    for (uint32_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      if (!node.body || is_loop(node) || node.backward) continue;
      const uint64_t bytes = bytes_saved(node) * in_flight[stages[n]];
      if (bytes > 0) found_.push_back({{.loop = loop_, .call = node.outputs[0]}, bytes, {n}});
    }
  }

  /// A stage that keeps only one micro-batch would hold all of its values again at once.
  void add_stages(const std::vector<uint32_t>& stages, const std::vector<uint32_t>& in_flight) {
    for (uint32_t stage = 0; stage < in_flight.size(); ++stage) {
      if (in_flight[stage] < 2) continue;
      RecomputationCandidate candidate{.what = {.loop = loop_, .stage = stage}};
      for (uint32_t n = 0; n < graph_.nodes().size(); ++n) {
        const Node& node = graph_.nodes()[n];
        if (node.backward || stages[n] != stage) continue;
        candidate.nodes.push_back(n);
        for (const ValueId output : node.outputs)
          if (is_kept_[output]) candidate.bytes += graph_.type(output).bytes();
      }
      candidate.bytes *= in_flight[stage];
      if (candidate.bytes > 0) found_.push_back(std::move(candidate));
    }
  }

 private:
  /// Bytes of the results of a call that its gradient alone takes, minus the bytes of inputs that would be
  /// kept for the second call only.
  uint64_t bytes_saved(const Node& call) const {
    std::map<ValueId, uint32_t> by_gradient;
    for (const Node& node : graph_.nodes())
      if (is_gradient_of(node, call.outputs))
        for (const ValueId input : node.inputs) ++by_gradient[input];
    uint64_t saved = 0, kept = 0;
    for (const ValueId output : call.outputs) {
      const auto found = by_gradient.find(output);
      if (found != by_gradient.end() && found->second == times_taken_[output])
        saved += graph_.type(output).bytes();
    }
    for (const ValueId input : std::set<ValueId>(call.inputs.begin(), call.inputs.end()))
      if (graph_.info(input).node && !is_kept_[input]) kept += graph_.type(input).bytes();
    return saved - std::min(saved, kept);
  }

  const Graph& graph_;
  const std::optional<uint32_t> loop_;
  std::vector<RecomputationCandidate>& found_;
  const std::vector<uint32_t> times_taken_;  ///< by value
  const std::vector<bool> is_kept_;          ///< by value: whether the backward pass takes it
};

/// By stage: the number of micro-batches for which it keeps all that the backward pass takes.
std::vector<uint32_t> kept_in_flight(const LoopForm& form, uint32_t stages) {
  if (!has_several_in_flight(form.pipeline.kind)) return std::vector<uint32_t>(stages, 1);
  const std::vector<StageTimes> times(stages);
  std::vector<uint32_t> in_flight =
      analyse(pipeline_schedule(form.pipeline, stages, form.count), times).in_flight;
  for (const uint32_t stage : form.pipeline.recomputed) in_flight[stage] = 1;
  return in_flight;
}

/// Calls a function again before its gradient, which then takes the results of the second call.
void call_again(Graph& graph, ValueId first_result) {
  const Node call = graph.nodes()[graph.info(first_result).node.value()];
  const auto is_result = [&](ValueId id) {
    return std::ranges::find(call.outputs, id) != call.outputs.end();
  };
  const auto takes_results = [&](const Node& node) {
    return is_gradient_of(node, call.outputs) && std::ranges::any_of(node.inputs, is_result);
  };
  const auto gradient = std::ranges::find_if(graph.nodes(), takes_results) - graph.nodes().begin();
  if (gradient == std::ssize(graph.nodes())) return;  // it already takes other results
  std::vector<Value> inputs, again;
  for (const ValueId input : call.inputs) inputs.push_back(graph.value(input));
  graph.insert_before(static_cast<uint32_t>(gradient), [&] { again = graph.apply(call, inputs); });
  std::vector<Node> nodes = graph.nodes();
  for (Node& node : nodes) {
    if (!takes_results(node)) continue;
    for (ValueId& input : node.inputs)
      if (const auto kept = std::ranges::find(call.outputs, input); kept != call.outputs.end())
        input = again[static_cast<size_t>(kept - call.outputs.begin())].id;
  }
  graph.set_nodes(std::move(nodes));
}

/// Recomputes in the body of a loop.
void recompute_within(Node& loop, uint32_t position, std::span<const Recomputable> chosen) {
  const auto body = std::make_shared<Graph>(*loop.body);
  std::set<uint32_t> stages = loop_form(loop).pipeline.recomputed;
  for (const Recomputable& each : chosen) {
    if (each.loop != position) continue;
    if (each.call)
      call_again(*body, *each.call);
    else
      stages.insert(each.stage);
  }
  if (!stages.empty()) loop.attributes["recomputed"] = as_integers(stages);
  loop.body = body;
}

}  // namespace

std::vector<RecomputationCandidate> recomputation_candidates(const Graph& graph) {
  std::vector<RecomputationCandidate> found;
  CandidateSearch(graph, {}, found).add_calls(std::vector<uint32_t>(graph.nodes().size()), {1});
  const Stages stages = stages_of(graph);
  for (const auto& [n, of_body] : stages.loops) {
    const Node& loop = graph.nodes()[n];
    const std::vector<uint32_t> in_flight = kept_in_flight(loop_form(loop), of_body.count());
    CandidateSearch search(*loop.body, n, found);
    search.add_calls(of_body.nodes, in_flight);
    search.add_stages(of_body.nodes, in_flight);
  }
  return found;
}

void recompute(Graph& graph, std::span<const Recomputable> chosen) {
  std::set<uint32_t> loops;
  for (const Recomputable& each : chosen)
    if (each.loop) loops.insert(*each.loop);
  std::vector<Node> nodes = graph.nodes();
  for (const uint32_t n : loops) recompute_within(nodes.at(n), n, chosen);
  graph.set_nodes(std::move(nodes));
  for (const Recomputable& each : chosen)  // last, as this moves the loops
    if (!each.loop) call_again(graph, each.call.value());
  verify_if_asserting(graph);
}

}  // namespace tessera::graph
