// Means and sums over the replicas of a graph, and over its micro-batches; and values of which each replica
// has a part.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>
#include <vector>

#include "graph/shards.h"
#include "lower/lowering.h"
#include "operations/list.h"
#include "operations/update.h"
#include "ops/collective/collective.h"
#include "ops/map/elementwise.h"

namespace tessera::graph {
namespace {

constexpr int64_t kMostReplicas = 4096;

Types infer_replicas(const Signature& s) {
  require_float(s, s.inputs[0]);
  if (s.inputs[0].sharded)
    throw UsageError(fmt::format("{}: it takes whole values, not {}", s.operation, to_string(s.inputs[0])));
  const int64_t group = s.attributes.integer("group", 0);
  if (group < 0 || group > kMostReplicas)
    throw UsageError(fmt::format("{}: groups of {} replicas; it takes 1 to {}, or 0 for all", s.operation,
                                 group, kMostReplicas));
  return {s.inputs[0]};
}

/// The contribution of a replica's result to the losses of all replicas in its group.
Gradients replicas_gradient(const Differentiation& d) {
  return {d.graph.apply(d.node.operation->name, {*d.dy[0]}, d.node.attributes)[0]};
}

std::vector<Array> replicas_reference(const Evaluation& e) { return {*e.inputs[0]}; }

Array sum(std::span<const Array* const> results) {
  Array sum(results.front()->size());
  for (const Array* result : results)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += (*result)[i];
  return sum;
}

Array mean(std::span<const Array* const> results) {
  Array mean = sum(results);
  for (double& element : mean) element /= static_cast<double>(results.size());
  return mean;
}

void scale(Lowering& l, const ops::Operand& in, const ops::Operand& out, float factor) {
  l.add(ops::UnaryProblem{kernels::Unary::scale, l.builder().type_of(out), out.rows(), out.cols(), factor},
        {in, out});
}

/// The factor by which a replica's value is multiplied before the sum over its group.
float factor_of(const Node& node, uint32_t group) {
  return node.operation->traits.over_replicas == sum ? 1 : 1 / static_cast<float>(group);
}

/// Calls lower_one() for all nodes with the same lowering as `node` and groups of `group` replicas that can
/// be computed now. They become one collective and share its rounds. Other nodes that set variables stored
/// elsewhere than on the tiles are left out, because setting them has to follow their own collective. Sums of
/// gradients are never joined with others, whether they may begin early or not, so that their bits are the
/// same.
template <class LowerOne>
void join(Lowering& l, const Node& node, uint32_t group, const LowerOne& lower_one) {
  // A result counts as computed as soon as it is joined, but holds its contents only after the collective.
  std::set<ValueId> joined;
  l.each_from([&](const Node& other) {
    if (other.operation->lower != node.operation->lower || joined.contains(other.inputs[0]) ||
        other.integer("overlap", -1) != node.integer("overlap", -1) || !l.is_computed(other.inputs[0]) ||
        combined_replicas(other, l.replicas()) != group)
      return false;
    if (&other == &node) {
      lower_one(other);
    } else {
      if (l.sets_fetched(other)) return false;
      l.lower_joined([&] { lower_one(other); });
    }
    joined.insert(other.outputs[0]);
    return true;
  });
}

void run_all(Lowering& l, const std::vector<program::StepId>& steps) {
  for (const program::StepId step : steps) l.run(step);
}

/// The items at the positions in each list.
template <class Item>
std::vector<std::vector<Item>> chosen(const std::vector<Item>& items,
                                      const std::vector<std::vector<size_t>>& lists) {
  std::vector<std::vector<Item>> result;
  for (const std::vector<size_t>& list : lists) {
    std::vector<Item>& of_list = result.emplace_back();
    for (const size_t i : list) of_list.push_back(items[i]);
  }
  return result;
}

/// Whether collectives cannot use a variable: values passed between passes of a pipeline are arguments, and
/// on hosts callers bind external variables.
bool is_out_of_reach(Lowering& l, const ops::Operand& operand) {
  const program::Variable& variable = l.builder().program().variable(operand.variable);
  return variable.is_argument() || (l.on_host() && variable.is_external());
}

/// A value that is multiplied by a factor and then summed over replicas.
struct Term {
  ops::Operand in, out;
  float factor = 1;
};

/// Whether a node sums a single number on tiles, other than a gradient.
bool is_of_number(const Lowering& l, const Node& node) {
  return !l.on_host() && l.graph().type(node.inputs[0]).elements() == 1 && !sums_gradients(node);
}

/// Sums numbers as one row, by code shared by all sums of the same count, if the graph has further sums: a
/// collective has code for each round of each of its variables. Returns false if it cannot.
bool sum_as_row(Lowering& l, const Node& node, const std::vector<Term>& numbers, uint32_t group) {
  const auto count = static_cast<uint32_t>(numbers.size());
  const auto is_like = [&](const Node& other) {
    return other.operation->lower == node.operation->lower && is_of_number(l, other);
  };
  const auto is_of_type = [&](const Term& number) {
    return l.builder().type_of(number.out) == l.builder().type_of(numbers.front().out);
  };
  if (count == 0 || std::ranges::count_if(l.graph().nodes(), is_like) == std::ssize(numbers) ||
      !std::ranges::all_of(numbers, is_of_type))
    return false;
  const Lowering::SharedSum* shared = l.shared_sum(numbers.front().out, count, group);
  if (shared == nullptr) return false;
  program::CopySet results{"sums over replicas", {}};
  for (uint32_t i = 0; i < count; ++i) {
    const ops::Operand own = shared->row.part({0, 1, i, 1});
    scale(l, numbers[i].in, own, numbers[i].factor);
    results.groups.push_back(copy_of(own, numbers[i].out));
  }
  l.run(l.builder().call(shared->function, {}));
  l.run(l.builder().copy(std::move(results)));
  return true;
}

void lower_replicas(Lowering& l, const Node& node) {
  const uint32_t group = combined_replicas(node, l.replicas());
  if (group == 1) return l.alias_output(0, l.input(0));
  const ops::Builder* builder = &l.builder();
  std::vector<Term> numbers;
  std::vector<program::VariableId> sums;
  program::CopySet passed{"pass means over replicas", {}};
  const auto add = [&](const Term& term) {
    const bool is_passed = is_out_of_reach(l, term.out);
    const ops::Operand summed =
        is_passed ? l.temporary_like("summed", l.builder().type_of(term.out), term.out) : term.out;
    scale(l, term.in, summed, term.factor);
    sums.push_back(summed.variable);
    if (is_passed) passed.groups.push_back(copy_of(summed, term.out));
  };
  join(l, node, group, [&](const Node& other) {
    const ops::Operand in = l.input(0);
    const Term term{in, l.output_beside(0, in), factor_of(other, group)};
    if (&l.builder() == builder && is_of_number(l, other))
      numbers.push_back(term);
    else
      add(term);
  });
  if (!sum_as_row(l, node, numbers, group)) std::ranges::for_each(numbers, add);
  run_all(l, ops::all_reduces(l.builder().program(), l.builder().whole_machine(), "mean over replicas",
                              chosen(sums, l.by_completion(sums)), group == l.replicas() ? 0 : group));
  if (!passed.groups.empty()) l.run(l.builder().copy(std::move(passed)));
}

std::vector<Case> replicas_cases() {
  const TensorType x{Type::f32, {5, 33}, {}, {}};
  return {{{x}}, {{x}, {{"group", int64_t{2}}}}};
}
std::vector<Case> over_step_cases() {
  return {{.inputs = {{Type::f32, {5, 33}, {}, {}}}, .differentiable = false}};
}

Attributes in_groups(uint32_t group) {
  return group == 0 ? Attributes() : Attributes{{"group", int64_t{group}}};
}

constexpr Operation over_replicas(std::string_view name, Array (*combine)(std::span<const Array* const>),
                                  bool over_step) {
  return {
      name,
      1,
      1,
      infer_replicas,
      over_step ? nullptr : replicas_gradient,
      replicas_reference,
      same_layouts,
      lower_replicas,
      over_step ? over_step_cases : replicas_cases,
      {.keeps_zeros = always_keeps_zeros, .aliases = true, .over_replicas = combine, .over_step = over_step}};
}

// Sharding. The last operand is the value whose elements the parts hold.

TensorType whole_type(const Signature& s, const TensorType& part) {
  TensorType type = s.inputs.back();
  type.type = part.type;
  return type;
}

void require_like(const Signature& s) {
  const TensorType wanted = whole_type(s, s.inputs[0]);
  require_float(s, wanted);
  TensorType given = s.inputs[0];
  given.sharded = false;
  if (wanted.sharded || wanted.elements() == 1 || wanted.capacity || !(given == wanted))
    throw UsageError(fmt::format("{}: {} cannot lie as {} does", s.operation, to_string(s.inputs[0]),
                                 to_string(s.inputs.back())));
}

Types infer_shard(const Signature& s) {
  require_like(s);
  TensorType type = s.inputs[0];
  type.sharded = true;
  return {type};
}

/// With a single replica, its part is the whole.
Types infer_gather(const Signature& s) {
  require_like(s);
  return {whole_type(s, s.inputs[0])};
}

void lower_shard(Lowering& l, const Node& node) {
  if (l.replicas() == 1) return l.alias_output(0, l.input(0));
  if (const auto part = l.kept_part(node.inputs[0])) return l.copy_to_output(0, *part);
  ops::Operand whole = l.operand_of(node.inputs[0]);
  if (is_out_of_reach(l, whole)) {
    const ops::Operand bound = whole;
    whole = l.temporary_like("whole", l.builder().type_of(bound), bound);
    l.run(l.builder().copy({"whole", {copy_of(bound, whole)}}));
  }
  const ops::Sharded shard{whole.variable, l.output(0).variable};
  l.run(ops::scatter(l.builder().program(), l.builder().whole_machine(), "shard", {&shard, 1}));
}

void lower_mean_shard(Lowering& l, const Node& node) {
  if (l.replicas() == 1) return l.alias_output(0, l.input(0));
  const uint32_t group = combined_replicas(node, l.replicas());
  std::vector<ops::Sharded> shards;
  std::vector<program::VariableId> wholes;
  join(l, node, group, [&](const Node& other) {
    const ops::Operand in = l.brought_to_parts(other.inputs[0], other.inputs[1]);
    const ops::Operand whole =
        l.temporary_like("summed", l.builder().type_of(in), l.whole_of_parts(other.inputs[1]));
    scale(l, in, whole, factor_of(other, group));
    shards.push_back({whole.variable, l.output(0).variable});
    wholes.push_back(whole.variable);
  });
  run_all(l, ops::reduce_scatters(l.builder().program(), l.builder().whole_machine(), "mean over replicas",
                                  chosen(shards, l.by_completion(wholes))));
}

/// Gathers directly into the state to which the whole is assigned, if possible.
void lower_gather(Lowering& l, const Node& node) {
  if (l.replicas() == 1) return l.alias_output(0, l.input(0));
  const uint32_t group = combined_replicas(node, l.replicas());
  std::vector<ops::Sharded> shards;
  join(l, node, group, [&](const Node& other) {
    if (!l.is_shard(other.inputs[0]))
      throw UsageError(
          fmt::format("gather_shards: '{}' is whole in each replica", l.graph().info(other.inputs[0]).name));
    const ops::Operand part = l.input(0);
    const std::optional<ValueId> state = replaced_state(l, other, 0);
    const ops::Operand whole =
        state ? l.operand_of(*state)
              : l.temporary_like("gathered", l.builder().type_of(part), l.operand_of(other.inputs[1]));
    l.set_operand(other.outputs[0], whole, l.layout_of(other.inputs[1]));
    if (state && l.store_part(*state, other.outputs[0], part)) return;
    shards.push_back({whole.variable, part.variable});
  });
  if (!shards.empty())
    l.run(ops::all_gather(l.builder().program(), l.builder().whole_machine(), "gather", shards));
}

std::vector<Case> shard_cases() {
  return {{.inputs = {{Type::f32, {5, 33}, {}, {}}}, .differentiable = false}};
}
std::vector<Case> mean_shard_cases() {
  return {{.inputs = {{Type::f16, {5, 33}, {}, {}}, {Type::f32, {5, 33}, {}, {}}}, .differentiable = false}};
}
std::vector<Case> gather_cases() {
  const TensorType part{Type::f32, {5, 33}, {}, {}};
  return {{.inputs = {part, {Type::f16, {5, 33}, {}, {}}}, .differentiable = false}};
}

constexpr size_t kGathered[] = {1};

constexpr Operation kReplicas[] = {
    over_replicas("mean_over_replicas", mean, false),
    over_replicas("sum_over_replicas", sum, false),
    over_replicas("mean_over_step", mean, true),
    {.name = "shard",
     .infer = infer_shard,
     .reference = replicas_reference,
     .layouts = shard_layouts,
     .lower = lower_shard,
     .cases = shard_cases,
     .traits = {.keeps_zeros = always_keeps_zeros, .aliases = true, .shards = true}},
    {.name = "mean_shard",
     .least_inputs = 2,
     .most_inputs = 2,
     .infer = infer_shard,
     .reference = replicas_reference,
     .layouts = shard_layouts,
     .lower = lower_mean_shard,
     .cases = mean_shard_cases,
     .traits = {.keeps_zeros = always_keeps_zeros, .over_replicas = mean, .shards = true}},
    {.name = "gather_shards",
     .least_inputs = 2,
     .most_inputs = 2,
     .infer = infer_gather,
     .reference = replicas_reference,
     .layouts = shard_layouts,
     .lower = lower_gather,
     .cases = gather_cases,
     .traits = {.updates = kGathered, .over_replicas = assembled, .shards = true}},
};

}  // namespace

Value mean_over_replicas(Value x, uint32_t group) {
  return x.owner().apply("mean_over_replicas", {x}, in_groups(group))[0];
}
Value sum_over_replicas(Value x, uint32_t group) {
  return x.owner().apply("sum_over_replicas", {x}, in_groups(group))[0];
}
Value mean_over_step(Value x) { return x.owner().apply("mean_over_step", {x})[0]; }

std::span<const Operation> replicas_operations() { return kReplicas; }

}  // namespace tessera::graph
