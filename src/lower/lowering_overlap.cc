// Sums over replicas that begin as soon as what they sum is complete.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "lower/lowering.h"
#include "lower/overlap.h"
#include "ops/collective/collective.h"
#include "program/collective.h"

namespace tessera::graph {
namespace {

/// Calls visit(step) for steps, and if it returns true, for the steps in and beside them, in their order, but
/// not for steps of functions.
void each_step(const program::Program& program, std::span<const program::StepId> steps,
               const std::function<bool(program::StepId)>& visit) {
  for (const program::StepId id : steps) {
    if (id == program::kNoStep || !visit(id)) continue;
    const program::Step& step = program.steps()[id];
    if (const auto* sequence = std::get_if<program::Sequence>(&step))
      each_step(program, sequence->steps, visit);
    else if (const auto* repeat = std::get_if<program::Repeat>(&step))
      each_step(program, {&repeat->body, 1}, visit);
    else if (const auto* copy = std::get_if<program::Copy>(&step))
      each_step(program, {&copy->beside, 1}, visit);
    else if (const auto* collect = std::get_if<program::Collect>(&step))
      each_step(program, {&collect->beside, 1}, visit);
  }
}

/// The gradients that a collective sums, by the stages of variables.
GradientBucket bucket_of(const program::Program& program, const program::Collective& collective,
                         const std::map<program::VariableId, uint32_t>& stages) {
  GradientBucket bucket;
  if (!program::sums(collective.kind)) return bucket;
  std::set<uint32_t> own;
  for (const program::Exchanged& exchanged : collective.variables)
    if (const auto stage = stages.find(exchanged.part.value_or(exchanged.whole)); stage != stages.end()) {
      own.insert(stage->second);
      bucket.bytes += program.variable(exchanged.whole).bytes();
    }
  bucket.stages.assign(own.begin(), own.end());
  return bucket;
}

}  // namespace

/// By node: sums that may begin early, and elementwise operations whose results only such sums take.
std::vector<bool> Lowering::early_nodes() const {
  const std::vector<Node>& nodes = graph_.nodes();
  std::vector<bool> early(nodes.size());
  if (replicas_ == 1 || is_function_) return early;
  std::vector<bool> by_early(graph_.values().size()), by_others = outlasts_;
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
  early_nodes_ = early_nodes();
  for (node_ = 0; node_ < graph_.nodes().size(); ++node_) {
    if (skipped_[node_]) continue;
    if (before) before(node_);
    first_step_ = steps_.size();
    const auto shared = shared_updates_.find(node_);
    if (shared == shared_updates_.end())
      lower_with_fetched({&node_, 1}, [&] { lower(node_); });
    else
      lower_with_fetched(shared->second.of.all_nodes(), [&] { lower_shared_update(shared->second); });
    note_early();
  }
}

/// The steps of an elementwise operation stay together: the copies in other layouts that it takes are large,
/// and needed only once all of its inputs are complete.
void Lowering::note_early() {
  if (!early_nodes_[node_]) return;
  const auto first = [&] { return steps_.begin() + static_cast<std::ptrdiff_t>(first_step_); };
  const bool fetches = std::any_of(first(), steps_.end(), [&](auto step) { return fetches_.contains(step); });
  if (!may_overlap(graph_.nodes()[node_]) && !fetches && steps_.size() > first_step_ + 1) {
    const program::StepId together = builder().sequence({first(), steps_.end()});
    steps_.erase(first(), steps_.end());
    steps_.push_back(together);
  }
  early_.insert(first(), steps_.end());
}

std::vector<std::vector<size_t>> Lowering::by_completion(
    std::span<const program::VariableId> variables) const {
  std::map<size_t, std::vector<size_t>> at;
  if (is_function_ || !may_overlap(graph_.nodes()[node_])) {
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

/// Whether sums over replicas that are large enough to begin early take sums over all passes of the loop
/// being lowered. Within another loop nothing runs beside them, and a pass of a pipeline has arguments, which
/// functions that are parts of it could not take.
bool Lowering::ends_apart(const LoopForm& form) const {
  if (form.count == 1 || form.reversed || is_body_) return false;
  const auto may_begin_early = [&](uint32_t n) { return n < early_nodes_.size() && early_nodes_[n]; };
  std::vector<program::VariableId> sums;
  for (size_t i = 0; i < form.outputs.size(); ++i) {
    const ValueId id = graph_.nodes()[node_].outputs[i];
    if (form.outputs[i] == LoopOutput::summed && std::ranges::any_of(users_[id], may_begin_early))
      sums.push_back(operand_of(id).variable);
  }
  const ops::Builder& builder = builders_.front();
  return !sums.empty() && ops::hides_well(builder.program(), builder.whole_machine(), sums);
}

/// For a loop's body: moves the steps in [first_giving, end_of_giving), which give its results, and early
/// ones to where their inputs are complete, so that these need memory no longer. Nothing runs beside early
/// sums: what they exchange is needed no longer when others begin. Returns the steps that give results.
std::set<program::StepId> Lowering::give_early(size_t first_giving, size_t end_of_giving) {
  if (early_.empty() && first_giving == end_of_giving) return {};
  StepOrder order(builders_.front().program());
  std::set<program::StepId> giving;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const bool gives = first_giving <= i && i < end_of_giving;
    order.add(steps_[i], gives || early_.contains(steps_[i]));
    if (gives) giving.insert(steps_[i]);
  }
  steps_ = order.in_order();
  early_.clear();
  return giving;
}

/// For a loop's body: calls of functions that are a pass together, of which each ends with an eighth of the
/// steps in [first_giving, end_of_giving), which give its results.
std::vector<program::StepId> Lowering::parts_of_pass(size_t first_giving, size_t end_of_giving) {
  constexpr size_t kParts = 8;
  const ops::Builder& builder = builders_.front();
  const std::set<program::StepId> giving = give_early(first_giving, end_of_giving);
  std::vector<program::StepId> calls, part;
  size_t given = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    part.push_back(steps_[i]);
    given += giving.contains(steps_[i]) ? 1 : 0;
    const bool is_last = i + 1 == steps_.size();
    if (!is_last && (given * kParts < giving.size() || giving.contains(steps_[i + 1]))) continue;
    const ops::Function function = builder.function(fmt::format("pass.part{}", calls.size()), {},
                                                    builder.sequence(fetched_ahead(std::exchange(part, {}))));
    calls.push_back(builder.call(function, {}));
    given = 0;
  }
  steps_.clear();
  return calls;
}

/// Moves early steps to where their inputs are complete, and runs the steps that follow beside them.
void Lowering::begin_early() {
  if (early_.empty()) {
    steps_ = fetched_ahead(std::move(steps_));
    return;
  }
  StepOrder order(builders_.front().program());
  for (const program::StepId step : steps_) order.add(step, early_.contains(step));
  steps_ = order.steps(fetches_);
}

void Lowering::list_sums() {
  if (!lowered_.actions) return;
  const program::Program& program = builders_.front().program();
  const std::map<program::VariableId, uint32_t> stages = stages_of_summed();
  ActionList& list = *lowered_.actions;
  std::vector<PipelineAction> actions;
  size_t listed = 0;  // of the passes and what they send
  const auto list_until = [&](size_t end) {
    for (; listed < end; ++listed) actions.push_back(list.actions[listed]);
  };
  each_step(program, steps_, [&](program::StepId id) {
    if (const auto until = actions_until_.find(id); until != actions_until_.end()) {
      list_until(until->second);
      return false;
    }
    const auto* collect = std::get_if<program::Collect>(&program.steps()[id]);
    if (collect == nullptr) return true;
    const GradientBucket bucket = bucket_of(program, program.collectives()[collect->collective], stages);
    const auto number = static_cast<uint32_t>(list.links.buckets.size());
    if (!bucket.stages.empty()) list.links.buckets.push_back(bucket);
    for (const uint32_t stage : bucket.stages)
      actions.push_back({ActionKind::reduce_gradients, stage, 0, 0, number});
    return true;
  });
  list_until(list.actions.size());
  list.actions = std::move(actions);
}

/// By variable, or variable of a replica's part: the stage of a gradient that is summed over replicas.
/// Outputs, such as the loss, may be summed with gradients.
std::map<program::VariableId, uint32_t> Lowering::stages_of_summed() const {
  std::map<program::VariableId, uint32_t> stages;
  for (uint32_t n = 0; n < graph_.nodes().size(); ++n) {
    const Node& node = graph_.nodes()[n];
    if (sums_gradients(node) && is_computed(node.outputs[0]) && !is_output(node.outputs[0]))
      stages[operand_of(node.outputs[0]).variable] = stages_.nodes[n];
  }
  return stages;
}

std::vector<program::StepId> Lowering::fetched_ahead(std::vector<program::StepId> steps) const {
  return graph::fetched_ahead(builders_.front().program(), std::move(steps), fetches_);
}

}  // namespace tessera::graph
