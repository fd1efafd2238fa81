// Updates of parameters, norms and sums of norms on tiles: similar ones are calls of one function.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lower/lowering.h"
#include "ops/collective/collective.h"

namespace tessera::graph {

using ops::Operand;

void Lowering::find_shared_updates() {
  if (on_host() || is_function_ || is_body_) return;
  std::vector<SharedUpdate> all;
  for (ParameterUpdate& update : updates_of_parameters(graph_))
    all.push_back(shared_update(std::move(update)));
  std::vector<size_t> first(all.size()), count(all.size());
  for (size_t u = 0; u < all.size(); ++u) {
    first[u] = 0;
    while (first[u] < u && (first[first[u]] != first[u] || !are_alike(all[first[u]], all[u]))) ++first[u];
    ++count[first[u]];
  }
  for (size_t u = 0; u < all.size(); ++u) {
    if (count[first[u]] == 1) continue;
    for (uint32_t node : all[u].of.nodes) skipped_[node] = true;
    for (uint32_t node : all[u].of.rounding) skipped_[node] = true;
    const uint32_t last = all[u].of.nodes.back();
    skipped_[last] = false;
    all[u].kind = first[u];
    shared_updates_.emplace(last, std::move(all[u]));
  }
}

Lowering::SharedUpdate Lowering::shared_update(ParameterUpdate of) {
  SharedUpdate update{.of = std::move(of)};
  const uint32_t before = node_;
  for (const ParameterUpdate::Given& given : update.of.given) {
    node_ = *graph_.info(given.value).node;
    update.is_read_later.push_back(given.state && is_read_later(*given.state, graph_.nodes()[node_]));
  }
  node_ = before;
  return update;
}

/// Whether two updates have the same code, provided that their inputs lie on the same tiles.
bool Lowering::are_alike(const SharedUpdate& a, const SharedUpdate& b) const {
  if (a.is_read_later != b.is_read_later) return false;
  const auto values = correspondence(graph_, a.of, b.of);
  if (!values) return false;
  const auto lie_alike = [&](ValueId id, const ValueLayout& one, const ValueLayout& other) {
    return one.weight.has_value() == other.weight.has_value() &&
           operand_layout(graph_.type(id), one) == operand_layout(graph_.type(id), other);
  };
  for (const auto& [one, other] : *values)
    if (!lie_alike(one, layout_of(one), layout_of(other))) return false;
  const auto all_lie_alike = [&](const std::vector<ValueId>& ids, const std::vector<ValueLayout>& one,
                                 const std::vector<ValueLayout>& other) {
    for (size_t i = 0; i < ids.size(); ++i)
      if (!lie_alike(ids[i], one[i], other[i])) return false;
    return true;
  };
  for (size_t i = 0; i < a.of.nodes.size(); ++i) {
    const uint32_t n = a.of.nodes[i], m = b.of.nodes[i];
    const LayoutChoice &one = lowered_.layouts.nodes[n], &other = lowered_.layouts.nodes[m];
    if (stages_.nodes[n] != stages_.nodes[m] || stages_.nodes[n] != stages_.nodes[a.of.nodes[0]] ||
        !all_lie_alike(graph_.nodes()[n].inputs, one.inputs, other.inputs) ||
        !all_lie_alike(graph_.nodes()[n].outputs, one.outputs, other.outputs))
      return false;
  }
  return true;
}

void Lowering::lower_shared_update(const SharedUpdate& update) {
  const uint32_t last = node_;
  const UpdateFunction* function = function_of(update);
  if (function == nullptr) {
    for (uint32_t node : update.of.nodes) lower(node_ = node);
  } else {
    add_as(last, [&] { call(*function, update.of); });
    for (size_t i = 0; i < function->nodes.size(); ++i) count_with(function->nodes[i], update.of.nodes[i]);
  }
  for (uint32_t node : update.of.rounding) lower(node_ = node);
  node_ = last;
}

/// The function for updates of this kind whose inputs lie where this one's do, built at its first call; null:
/// an operand is a part of a variable.
const Lowering::UpdateFunction* Lowering::function_of(const SharedUpdate& update) {
  const program::Program& program = builder().program();
  const auto& taken = update.of.taken;
  for (ValueId id : taken)
    if (operand_of(id).box != program.variable(operand_of(id).variable).whole()) return nullptr;
  for (const UpdateFunction& known : update_functions_) {
    if (known.kind != update.kind) continue;
    size_t same = 0;
    while (same < taken.size() &&
           program.variable(operand_of(taken[same]).variable).mapping ==
               program.variable(known.function.operands[same].operand.variable).mapping)
      ++same;
    if (same == taken.size()) return &known;
  }
  return &update_functions_.emplace_back(build_function(update));
}

Lowering::UpdateFunction Lowering::build_function(const SharedUpdate& update) {
  const auto outside = std::exchange(steps_, {});
  const auto converted = std::exchange(converted_, {});
  const auto row_of_step = std::exchange(row_of_step_, {});
  std::vector<Operand> taken;
  std::vector<ops::FunctionOperand> operands;
  for (ValueId id : update.of.taken) {
    taken.push_back(operand_of(id));
    lowered_.operands[id] = builder().variable_like(
        taken.back(), builder().variable_name(taken.back()) + ".argument", program::Role::argument);
    operands.push_back({operand_of(id), program::Access::in});
  }
  for (const ParameterUpdate::Given& given : update.of.given)
    if (given.outlasts_update()) given_by_function_.insert(given.value);
  for (uint32_t node : update.of.nodes) lower(node_ = node);
  UpdateFunction result{.kind = update.kind, .nodes = update.of.nodes};
  for (const ParameterUpdate::Given& given : update.of.given) {
    UpdateFunction::Given& own = result.given.emplace_back();
    own.inside = operand_of(given.value);
    if (given.outlasts_update()) own.position = position_as_given(own.inside, operands);
  }
  const program::StepId body = builder().sequence(std::exchange(steps_, outside));
  result.function =
      builder().function(fmt::format("update{}", update_functions_.size()), std::move(operands), body);
  converted_ = converted;
  row_of_step_ = row_of_step;
  given_by_function_.clear();
  for (size_t i = 0; i < taken.size(); ++i) lowered_.operands[update.of.taken[i]] = taken[i];
  for (uint32_t node : update.of.nodes)
    for (ValueId output : graph_.nodes()[node].outputs) lowered_.operands[output].reset();
  return result;
}

/// The position among a function's operands of one that the function gives.
size_t Lowering::position_as_given(const Operand& given, std::vector<ops::FunctionOperand>& operands) {
  Operand argument = given;
  if (!builder().program().variable(given.variable).is_argument()) {
    argument =
        builder().variable_like(given, builder().variable_name(given) + ".given", program::Role::argument);
    builder().send(given, argument, steps_);
  }
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i].operand.variable == argument.variable) {
      if (operands[i].access == program::Access::in) operands[i].access = program::Access::inout;
      return i;
    }
  operands.push_back({argument, program::Access::out});
  return operands.size() - 1;
}

void Lowering::call(const UpdateFunction& function, const ParameterUpdate& update) {
  std::vector<Operand> operands;
  for (ValueId id : update.taken) operands.push_back(operand_of(id));
  for (size_t i = operands.size(); i < function.function.operands.size(); ++i) {
    const auto given = std::ranges::find(function.given, i, &UpdateFunction::Given::position);
    const ValueId result = update.given[static_cast<size_t>(given - function.given.begin())].value;
    operands.push_back(builder().variable_like(function.function.operands[i].operand,
                                               graph_.info(result).name, program::Role::temporary));
  }
  run(builder().call(function.function, operands));
  for (size_t i = 0; i < update.given.size(); ++i) {
    const auto& [inside, position] = function.given[i];
    lowered_.operands[update.given[i].value] = position ? operands[*position] : inside;
  }
}

void Lowering::add_sharing_code(const ops::ReduceAllProblem& problem, const Operand& in, const Operand& out) {
  if (!may_share_code(in, out)) return add(problem, {in, out});
  run(builder().call(function_of(problem, in, out), {in, out}));
}

/// Whether another node may do on its operands what the one being lowered does on these.
bool Lowering::may_share_code(const Operand& in, const Operand& out) const {
  if (on_host() || is_function_ || is_body_ || is_of_shared_update(node_)) return false;
  for (const Operand& operand : {in, out}) {
    const program::Variable& variable = builder().program().variable(operand.variable);
    if (operand.box != variable.whole() || variable.is_argument() || variable.is_external()) return false;
  }
  const Node& own = graph_.nodes()[node_];
  for (uint32_t n = 0; n < graph_.nodes().size(); ++n) {
    const Node& other = graph_.nodes()[n];
    if (n != node_ && other.operation == own.operation && other.attributes == own.attributes &&
        graph_.type(other.inputs[0]) == graph_.type(own.inputs[0]) &&
        stages_.nodes[n] == stages_.nodes[node_] && !is_of_shared_update(n))
      return true;
  }
  return false;
}

const ops::Function& Lowering::function_of(const ops::ReduceAllProblem& problem, const Operand& in,
                                           const Operand& out) {
  const ops::Builder& builder = this->builder();
  const auto lies_as = [&](const Operand& operand, const ops::FunctionOperand& argument) {
    const program::Program& program = builder.program();
    return program.variable(operand.variable).mapping == program.variable(argument.operand.variable).mapping;
  };
  for (const SharedReduction& known : shared_reductions_)
    if (known.problem == problem && lies_as(in, known.function.operands[0]) &&
        lies_as(out, known.function.operands[1])) {
      count_with(known.node, node_);
      return known.function;
    }
  const auto argument = [&](const Operand& operand) {
    return builder.variable_like(operand, builder.variable_name(operand) + ".argument",
                                 program::Role::argument);
  };
  const Operand from = argument(in), to = argument(out);
  const program::StepId body = ops::add(builder, problem, {from, to});
  const std::string name = fmt::format("reduction{}", shared_reductions_.size());
  return shared_reductions_
      .emplace_back(SharedReduction{
          problem, builder.function(name, {{from, program::Access::in}, {to, program::Access::out}}, body),
          node_})
      .function;
}

const Lowering::SharedSum* Lowering::shared_sum(const Operand& number, uint32_t count, uint32_t group) {
  if (is_function_ || is_body_) return nullptr;
  const ops::Builder& builder = this->builder();
  const auto tile_of = [&](const Operand& operand) { return builder.mapping_of(operand).front().tile; };
  for (const SharedSum& known : shared_sums_)
    if (known.group == group && known.row.cols() == count && tile_of(known.row) == tile_of(number) &&
        builder.type_of(known.row) == builder.type_of(number))
      return &known;
  const std::string name = fmt::format("sum{}", shared_sums_.size());
  const Operand row =
      builder.temporary(name, builder.type_of(number), 1, count, {{{0, 1, 0, count}, tile_of(number)}});
  const program::StepId sum = ops::all_reduce(builder.program(), builder.whole_machine(), "sum over replicas",
                                              {&row.variable, 1}, group == replicas_ ? 0 : group);
  return &shared_sums_.emplace_back(SharedSum{group, row, builder.function(name, {}, sum)});
}

}  // namespace tessera::graph
