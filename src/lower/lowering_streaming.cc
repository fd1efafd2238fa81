// Values in streaming memory, and parameters of which each replica has a part: operations take a copy of the
// whole on the tiles, which is copied back if they changed it.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "lower/lowering.h"
#include "ops/collective/collective.h"

namespace tessera::graph {

using ops::Operand;
using program::Role;

bool Lowering::is_offloaded(ValueId id) const {
  const ValueInfo& info = graph_.info(id);
  if (!info.offloaded || on_host() || bound_.contains(id)) return false;
  // A value that an operation other than a loop computes is computed on the tiles.
  return !info.node || is_loop(graph_.nodes()[*info.node]);
}

bool Lowering::lies_in_streaming(ValueId id, Role role) const {
  if (!is_offloaded(id) || (role != Role::state && role != Role::temporary)) return false;
  require_streaming(graph_.info(id).name);
  return true;
}

bool Lowering::is_in_parts(ValueId id) const {
  return graph_.info(id).divided && replicas_ > 1 && !on_host();
}

const Operand& Lowering::whole_of_parts(ValueId id) const {
  const auto outside = outside_.find(id);
  return outside == outside_.end() ? operand_of(id) : outside->second.operand;
}

Operand Lowering::brought_to_parts(ValueId id, ValueId whole) {
  const Operand operand = brought(id, whole);
  const auto outside = outside_.find(whole);
  if (outside == outside_.end()) return operand;
  const ops::OperandLayout has = operand_layout(graph_.type(id), layout_of(whole));
  return builder().bring(operand, has, outside->second.layout, steps_);
}

void Lowering::set_placed(ValueId id, const Operand& operand) {
  lowered_.operands[id] = operand;
  if (is_in_streaming(operand)) homes_[id] = {operand, operand, false};
}

/// A replica's part of a value, beside where the whole lies.
Operand Lowering::add_part(ValueId id, const Operand& whole, Role role) {
  const ValueInfo& info = graph_.info(id);
  program::Program& program = builders_.front().program();
  program::Variable part{.name = info.name,
                         .type = info.type.type,
                         .rows = 1,
                         .role = role,
                         .mapping = ops::mapping_of_part(program.variable(whole.variable), replicas_),
                         .contents = nullptr,
                         .purpose = purpose_of(id),
                         .streaming = lies_in_streaming(id, role)};
  part.cols = static_cast<uint32_t>(part.mapping.back().box.col_end());
  return builders_.front().whole(program.add(std::move(part)));
}

/// The whole is kept nowhere: it is assembled for the operations that take it.
void Lowering::place_in_parts(ValueId id, const ops::OperandLayout& layout) {
  const ValueInfo& info = graph_.info(id);
  const Operand whole = builder_of(id).temporary(info.name + ".whole", info.type.type, layout.rows,
                                                 layout.cols, layout.mapping, purpose_of(id));
  const Operand part = add_part(id, whole, Role::state);
  homes_[id] = {part, whole, true};
  lowered_.parts[id] = part;
  lowered_.operands[id] = whole;
}

bool Lowering::is_in_streaming(const Operand& operand) const {
  return builders_.front().program().variable(operand.variable).streaming;
}

void Lowering::require_streaming(const std::string& name) const {
  const machine::Machine& machine = builders_.front().machine();
  if (machine.streaming_bytes == 0)
    throw UsageError(fmt::format(
        "{}: it is to lie in streaming memory, which '{}' does not have: set its 'streaming_bytes', use a "
        "machine that has some, such as m2000 without changes, or keep it on the tiles",
        name, machine.name));
  if (machine.streaming_bytes_per_second == 0)
    throw UsageError(
        fmt::format("{}: it is to lie in streaming memory, which cannot be read on '{}': set its "
                    "'streaming_gb_per_second', or keep it on the tiles",
                    name, machine.name));
}

/// Whether the body of a loop fetches an input from its home to the tiles by itself, wherever it takes it:
/// not if passes take it in another layout, or give it back.
bool Lowering::is_fetched_inside(const Node& loop, const LoopForm& form, size_t input) const {
  return form.inputs[input] == LoopInput::same &&
         lowered_.layouts.nodes.at(index_of(loop)).inputs[input] == layout_of(loop.inputs[input]) &&
         std::ranges::count(form.body_outputs, form.body_inputs[input]) == 0;
}

Operand Lowering::given_to(Lowering& body, const Node& loop, const LoopForm& form, size_t input) {
  const ValueId id = loop.inputs[input], inside = form.body_inputs[input];
  if (form.inputs[input] == LoopInput::same && layout_of(id) != choice().inputs[input])
    body.outside_[inside] = {operand_of(id), operand_layout(graph_.type(id), layout_of(id))};
  const auto home = homes_.find(id);
  if (home == homes_.end() || !is_fetched_inside(loop, form, input))
    return in_layout(id, choice().inputs[input], body.builder_of(inside));
  body.homes_[inside] = home->second;
  return home->second.whole;
}

/// The inputs whose contents a node takes on the tiles.
std::vector<ValueId> Lowering::taken_on_tiles(const Node& node) const {
  if (node.operation->traits.shards && kept_part(node.inputs[0])) return {};
  if (!is_loop(node)) {
    const auto end = node.inputs.begin() + static_cast<std::ptrdiff_t>(inputs_read(node));
    return {node.inputs.begin(), end};
  }
  const LoopForm form = loop_form(node);
  std::vector<ValueId> taken;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (!is_fetched_inside(node, form, i)) taken.push_back(node.inputs[i]);
  return taken;
}

/// The values with homes that nodes take or set.
std::vector<Lowering::FetchedValue> Lowering::fetched_by(std::span<const uint32_t> nodes) const {
  std::map<ValueId, FetchedValue> found;
  const auto note = [&](ValueId id, const auto& how) {
    if (const auto home = homes_.find(id); home != homes_.end())
      how(found.try_emplace(id, FetchedValue{.id = id, .home = home->second}).first->second);
  };
  for (uint32_t n : nodes) {
    const Node& node = graph_.nodes()[n];
    for (ValueId id : taken_on_tiles(node)) note(id, [](FetchedValue& value) { value.is_read = true; });
    for (ValueId output : node.outputs)
      for (auto [set, last] = assigned_.equal_range(output); set != last; ++set)
        note(set->second, [&](FetchedValue& value) { value.result = output; });
  }
  std::vector<FetchedValue> values;
  for (const auto& [id, value] : found) values.push_back(value);
  return values;
}

bool Lowering::sets_fetched(const Node& node) const {
  const uint32_t index = index_of(node);
  return std::ranges::any_of(fetched_by({&index, 1}),
                             [](const FetchedValue& value) { return value.result.has_value(); });
}

void Lowering::lower_with_fetched(std::span<const uint32_t> nodes, const std::function<void()>& lower) {
  std::vector<FetchedValue> values;
  if (!homes_.empty()) values = fetched_by(nodes);
  if (values.empty()) return lower();
  add_as(nodes.back(), [&] { fetch(values); });
  lower();
  add_as(nodes.back(), [&] { store(values); });
}

void Lowering::lower_joined(const std::function<void()>& lower) {
  std::vector<FetchedValue> values = fetched_by({&node_, 1});
  fetch(values);
  lower();
  store(values);
}

void Lowering::fetch(std::vector<FetchedValue>& values) {
  const ops::Builder& builder = builders_.front();
  program::CopySet set{"fetch", {}};
  std::vector<ops::Sharded> gathered;
  for (FetchedValue& value : values) {
    const Home& home = value.home;
    value.on_tiles = on_tiles_like(home.whole);
    lowered_.operands[value.id] = value.on_tiles;
    if (!value.is_read) continue;
    const bool is_beside = is_in_streaming(home.kept);
    Operand kept = home.kept;
    if (is_beside) kept = home.in_parts ? on_tiles_like(home.kept) : value.on_tiles;
    if (is_beside) set.groups.push_back(copy_of(home.kept, kept));
    if (home.in_parts) gathered.push_back({value.on_tiles.variable, kept.variable});
  }
  if (!set.groups.empty()) {
    run(builder.copy(std::move(set)));
    if (prefetches_) fetches_.insert(steps_.back());
  }
  if (!gathered.empty()) run(ops::all_gather(builder.program(), builder.whole_machine(), "gather", gathered));
}

void Lowering::store(const std::vector<FetchedValue>& values) {
  program::CopySet set{"store", {}};
  for (const FetchedValue& value : values) {
    // Conversions would keep on the tiles what is to be kept elsewhere.
    converted_.erase(value.id);
    lowered_.operands[value.id] = value.home.whole;
    if (!value.result || stored_.contains(value.id) || operand_of(*value.result) != value.on_tiles) continue;
    set.groups.push_back(copy_of(beside(value.on_tiles, value.home), value.home.kept));
    stored_.insert(value.id);
  }
  if (!set.groups.empty()) run(builders_.front().copy(std::move(set)));
}

std::optional<Operand> Lowering::kept_part(ValueId id) const {
  const auto home = homes_.find(id);
  return home != homes_.end() && home->second.in_parts ? std::optional(home->second.kept) : std::nullopt;
}

bool Lowering::store_part(ValueId state, ValueId becomes, const Operand& part) {
  const std::optional<Operand> kept = kept_part(state);
  const auto is = [&](const auto& output) { return output.second == becomes; };
  if (!kept || assigned_.count(becomes) != 1 || !users_[becomes].empty() ||
      std::ranges::any_of(graph_.outputs(), is))
    return false;
  run(builders_.front().copy({"store", {copy_of(part, *kept)}}));
  stored_.insert(state);
  return true;
}

void Lowering::with_fetched_results(const std::function<void()>& give) {
  std::vector<FetchedValue> taken;
  for (const auto& [id, home] : homes_)
    if (outlasts_[id]) taken.push_back({.id = id, .home = home, .is_read = true});
  fetch(taken);
  give();
  for (const FetchedValue& value : taken) lowered_.operands[value.id] = value.home.whole;
}

Operand Lowering::on_tiles_like(const Operand& operand) const {
  const ops::Builder& builder = builders_.front();
  return builder.variable_like(operand, builder.variable_name(operand) + ".on_tiles", Role::temporary);
}

Operand Lowering::beside(const Operand& operand, const Home& home) {
  program::Program& program = builders_.front().program();
  const auto lies_there = [&] {
    const program::Variable& has = program.variable(operand.variable);
    return has.mapping == program.variable(home.whole.variable).mapping && operand.box == has.whole();
  };
  Operand whole = operand;
  if (!lies_there()) {
    whole = on_tiles_like(home.whole);
    builders_.front().send(operand, whole, steps_);
  }
  if (!home.in_parts) return whole;
  const Operand part = on_tiles_like(home.kept);
  const ops::Sharded shard{whole.variable, part.variable};
  run(ops::scatter(program, builders_.front().whole_machine(), "shard", {&shard, 1}));
  return part;
}

}  // namespace tessera::graph
