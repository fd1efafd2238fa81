#include "graph/transforms/split_backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "graph/loop.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

/// Who takes a result of a call.
enum class TakenBy : uint8_t { others, weights, nobody };

/// One of the two functions into which another one is split.
struct HalfFunction {
  std::shared_ptr<const Graph> function;
  std::vector<size_t> inputs;   ///< positions among the inputs of the split function
  std::vector<size_t> results;  ///< its first results, by their positions among those of the split function
};
struct SplitFunction {
  HalfFunction first, second;
  std::vector<size_t> handed_on;  ///< results of the first that the second takes as its last inputs
};

/// The operations that values need, but for those in `without`.
std::vector<bool> nodes_for(const Graph& function, const std::vector<ValueId>& values,
                            const std::vector<bool>& without) {
  std::vector<bool> needed(function.values().size()), found(function.nodes().size());
  for (const ValueId id : values) needed[id] = true;
  for (size_t n = found.size(); n-- > 0;) {
    const Node& node = function.nodes()[n];
    found[n] = !without[n] && std::ranges::any_of(node.outputs, [&](ValueId id) { return needed[id]; });
    if (found[n])
      for (const ValueId input : node.inputs) needed[input] = true;
  }
  return found;
}

/// The function of some nodes, which takes inputs as far as it needs them and then `handed_on`, and gives
/// `results`.
HalfFunction half_of(const Graph& function, const std::vector<bool>& in, const std::set<ValueId>& handed_on,
                     const std::vector<ValueId>& results) {
  std::vector<Node> nodes;
  std::set<ValueId> needed(results.begin(), results.end());
  for (size_t n = 0; n < in.size(); ++n)
    if (in[n]) {
      nodes.push_back(function.nodes()[n]);
      needed.insert(nodes.back().inputs.begin(), nodes.back().inputs.end());
    }
  HalfFunction half;
  const auto graph = std::make_shared<Graph>();
  Clones clones;
  const auto take = [&](ValueId id) {
    const std::string name = fmt::format("taken {:06}", clones.size());
    clones[id] = graph->input(name, function.type(id)).id;
  };
  const std::vector<ValueId> inputs = function.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (needed.contains(inputs[i])) {
      half.inputs.push_back(i);
      take(inputs[i]);
    }
  for (const ValueId id : handed_on) take(id);
  clone(function, nodes, *graph, clones);
  graph->mark_backward(0);
  for (const ValueId id : results) {
    if (!clones.contains(id)) {  // a constant that no operation takes
      const TensorType& type = function.type(id);
      clones[id] = graph->constant("", type.shape, function.contents(id), type.type).id;
    }
    graph->output(fmt::format("result {:06}", graph->outputs().size()), graph->value(clones.at(id)));
  }
  half.function = graph;
  return half;
}

/// None: nothing is left for the second function.
std::optional<SplitFunction> split_function(const Graph& function, const std::vector<TakenBy>& taken) {
  std::vector<ValueId> results, by_others, by_weights;
  for (const auto& [name, id] : function.outputs()) {
    const TakenBy whom = taken.at(results.size());
    if (whom != TakenBy::nobody) (whom == TakenBy::others ? by_others : by_weights).push_back(id);
    results.push_back(id);
  }
  const std::vector<bool> none(function.nodes().size());
  const std::vector<bool> in_first = nodes_for(function, by_others, none),
                          in_second = nodes_for(function, by_weights, in_first);
  if (in_second == none) return {};
  const auto is_of_first = [&](ValueId id) {
    const auto& from = function.info(id).node;
    return from && in_first[*from];
  };
  std::set<ValueId> handed_on;
  for (size_t n = 0; n < in_second.size(); ++n)
    if (in_second[n])
      std::ranges::copy_if(function.nodes()[n].inputs, std::inserter(handed_on, handed_on.end()),
                           is_of_first);
  std::vector<size_t> of_first, of_second;
  std::vector<ValueId> first_ids, second_ids;
  for (size_t i = 0; i < results.size(); ++i) {
    if (taken[i] == TakenBy::nobody) continue;
    const bool is_first = taken[i] == TakenBy::others || is_of_first(results[i]);
    (is_first ? of_first : of_second).push_back(i);
    (is_first ? first_ids : second_ids).push_back(results[i]);
  }
  std::vector<size_t> positions;
  for (const ValueId id : handed_on) {
    const auto known = std::ranges::find(first_ids, id);
    positions.push_back(static_cast<size_t>(known - first_ids.begin()));
    if (known == first_ids.end()) first_ids.push_back(id);
  }
  SplitFunction halves{half_of(function, in_first, {}, first_ids),
                       half_of(function, in_second, handed_on, second_ids), std::move(positions)};
  halves.first.results = std::move(of_first);
  halves.second.results = std::move(of_second);
  return halves;
}

class BackwardSplit {
 public:
  BackwardSplit(Graph& graph, const Stages& stages, const std::vector<Value>& results)
      : graph_(graph), stages_(stages), uses_(graph), is_result_(graph.values().size()) {
    for (const auto& [name, id] : graph.outputs()) is_result_[id] = true;
    for (const Assignment& assignment : graph.assignments()) is_result_[assignment.value] = true;
    for (const Value& value : results) is_result_[value.id] = true;
    for (const Node& node : graph.nodes())
      if (node.body && !node.backward) of_forward_.insert(node.body);
  }

  size_t run() {
    size_t changed = 0;
    for (auto n = static_cast<uint32_t>(graph_.nodes().size()); n-- > 0;) {
      const Node node = graph_.nodes()[n];
      const uint32_t stage = stages_.nodes[n];
      const std::vector<TakenBy> taken = taken_of(node, stage);
      if (node.backward && std::ranges::count(taken, TakenBy::nobody) == std::ssize(taken)) {
        erase(n);  // it would take values that neither half gives
        continue;
      }
      const bool is_for_others = !node.backward || std::ranges::count(taken, TakenBy::others) > 0;
      const bool is_for_both = is_for_others && std::ranges::count(taken, TakenBy::weights) > 0;
      const SplitFunction* halves = is_for_both && may_split(node) ? halves_of(node, taken) : nullptr;
      if (halves == nullptr) {
        for (const ValueId input : node.inputs) uses_.take(input, stage, !is_for_others);
        continue;
      }
      for (const size_t i : halves->first.inputs) uses_.take(node.inputs[i], stage, false);
      for (const size_t i : halves->second.inputs) uses_.take(node.inputs[i], stage, true);
      replace(n, *halves);
      ++changed;
    }
    return changed;
  }

 private:
  /// Recomputed calls have the function of the forward pass.
  bool may_split(const Node& node) const {
    return node.backward && node.body && !is_loop(node) && !of_forward_.contains(node.body);
  }

  std::vector<TakenBy> taken_of(const Node& node, uint32_t stage) const {
    std::vector<TakenBy> taken;
    for (const ValueId id : node.outputs)
      taken.push_back(!uses_.serves(id, stage)                  ? TakenBy::others
                      : uses_.is_taken(id) || is_result_.at(id) ? TakenBy::weights
                                                                : TakenBy::nobody);
    return taken;
  }

  const SplitFunction* halves_of(const Node& call, const std::vector<TakenBy>& taken) {
    const auto [known, is_new] = known_.try_emplace({call.body, taken});
    if (is_new) known->second = split_function(*call.body, taken);
    return known->second ? &*known->second : nullptr;
  }

  /// Calls the two functions instead.
  void replace(uint32_t n, const SplitFunction& halves) {
    const Node call = graph_.nodes()[n];
    std::vector<Value> of_first, of_second;
    const uint32_t added = graph_.insert_before(n, [&] {
      const auto given = [&](const HalfFunction& half) {
        std::vector<Value> inputs;
        for (const size_t i : half.inputs) inputs.push_back(graph_.value(call.inputs[i]));
        return inputs;
      };
      Node like = call;
      like.body = halves.first.function;
      of_first = graph_.apply(like, given(halves.first));
      like.body = halves.second.function;
      std::vector<Value> inputs = given(halves.second);
      for (const size_t i : halves.handed_on) inputs.push_back(of_first[i]);
      of_second = graph_.apply(like, inputs);
    });
    const auto become = [&](const HalfFunction& half, const std::vector<Value>& by) {
      for (size_t i = 0; i < half.results.size(); ++i)
        graph_.replace(graph_.value(call.outputs[half.results[i]]), by[i]);
    };
    become(halves.first, of_first);
    become(halves.second, of_second);
    erase(n + added);
  }

  void erase(uint32_t n) {
    std::vector<bool> erased(graph_.nodes().size());
    erased[n] = true;
    graph_.erase(erased);
  }

  Graph& graph_;
  const Stages& stages_;
  WeightUses uses_;
  std::vector<bool> is_result_;  ///< by value: whether anything other than an operation takes it
  std::set<std::shared_ptr<const Graph>> of_forward_;  ///< functions of forward calls
  std::map<std::pair<std::shared_ptr<const Graph>, std::vector<TakenBy>>, std::optional<SplitFunction>>
      known_;
};

}  // namespace

size_t split_backward(Graph& graph, const Stages& stages, const std::vector<Value>& results) {
  return BackwardSplit(graph, stages, results).run();
}

}  // namespace tessera::graph
