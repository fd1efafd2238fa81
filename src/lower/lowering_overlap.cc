// Sums over replicas that begin as soon as what they sum is complete.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "lower/lowering.h"
#include "lower/overlap.h"

namespace tessera::graph {

/// By node: sums that may begin early, and elementwise operations whose results only they take.
std::vector<bool> Lowering::early_nodes() const {
  const std::vector<Node>& nodes = graph_.nodes();
  std::vector<bool> early(nodes.size());
  if (replicas_ == 1 || is_function_ || is_body_) return early;
  std::vector<bool> by_early(graph_.values().size()), by_others(graph_.values().size());
  for (const auto& [name, id] : graph_.outputs()) by_others[id] = true;
  for (const Assignment& assignment : graph_.assignments()) by_others[assignment.value] = true;
  for (size_t n = nodes.size(); n-- > 0;) {
    const Node& node = nodes[n];
    early[n] = may_overlap(node) ||
               (node.operation->traits.elementwise && std::ranges::all_of(node.outputs, [&](ValueId id) {
                  return by_early[id] && !by_others[id];
                }));
    for (const ValueId input : node.inputs) (early[n] ? by_early : by_others)[input] = true;
  }
  return early;
}

void Lowering::lower_all(const std::function<void(uint32_t)>& before) {
  find_shared_updates();
  const std::vector<bool> early = early_nodes();
  for (node_ = 0; node_ < graph_.nodes().size(); ++node_) {
    if (skipped_[node_]) continue;
    if (before) before(node_);
    first_step_ = steps_.size();
    const auto shared = shared_updates_.find(node_);
    if (shared == shared_updates_.end())
      lower_with_streamed({&node_, 1}, [&] { lower(node_); });
    else
      lower_with_streamed(shared->second.of.all_nodes(), [&] { lower_shared_update(shared->second); });
    if (early[node_]) early_.insert(steps_.begin() + static_cast<std::ptrdiff_t>(first_step_), steps_.end());
  }
}

std::vector<std::vector<size_t>> Lowering::by_completion(
    std::span<const program::VariableId> variables) const {
  std::map<size_t, std::vector<size_t>> at;
  if (is_function_ || is_body_ || !may_overlap(graph_.nodes()[node_])) {
    at[0].resize(variables.size());
    std::iota(at[0].begin(), at[0].end(), size_t{0});
  } else {
    StepOrder order(builders_.front().program());
    for (size_t i = 0; i < steps_.size(); ++i)
      order.add(steps_[i], i >= first_step_ || early_.contains(steps_[i]));
    for (size_t v = 0; v < variables.size(); ++v) at[order.written(variables[v])].push_back(v);
  }
  std::vector<std::vector<size_t>> lists;
  for (auto& [position, list] : at) lists.push_back(std::move(list));
  return lists;
}

/// Moves early steps to where what they take is complete, and runs those that follow beside them.
void Lowering::begin_early() {
  if (early_.empty()) return;
  StepOrder order(builders_.front().program());
  for (const program::StepId step : steps_) order.add(step, early_.contains(step));
  steps_ = order.steps();
}

}  // namespace tessera::graph
