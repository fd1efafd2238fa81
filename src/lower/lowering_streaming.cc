// Values in streaming memory: operations take a copy of them on the tiles, which goes back when they have
// changed it.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <map>
#include <utility>

#include "lower/lowering.h"

namespace tessera::graph {

using ops::Operand;
using program::Role;

bool Lowering::is_offloaded(ValueId id) const {
  const ValueInfo& info = graph_.info(id);
  if (!info.offloaded || on_host() || bound_.contains(id)) return false;
  // What another operation computes instead of a loop is computed on the tiles.
  return !info.node || (is_loop(graph_.nodes()[*info.node]) && !is_body_ && !is_function_);
}

bool Lowering::lies_in_streaming(ValueId id, Role role) const {
  if (!is_offloaded(id) || (role != Role::state && role != Role::temporary)) return false;
  require_streaming(graph_.info(id).name);
  return true;
}

void Lowering::set_placed(ValueId id, const Operand& operand) {
  lowered_.operands[id] = operand;
  if (is_in_streaming(operand)) streamed_[id] = operand;
}

bool Lowering::is_in_streaming(const Operand& operand) const {
  return builders_.front().program().variable(operand.variable).streaming;
}

void Lowering::require_streaming(const std::string& name) const {
  const machine::Machine& machine = builders_.front().machine();
  if (machine.streaming_bytes == 0)
    throw UsageError(
        fmt::format("{}: it is to lie in streaming memory, which '{}' does not have; use a machine that has, "
                    "such as m2000, or keep it on the tiles",
                    name, machine.name));
}

/// Whether the body of a loop brings an input from streaming memory to the tiles by itself, wherever it takes
/// it: not if passes take it in another layout, or give it back.
bool Lowering::is_fetched_inside(const Node& loop, const LoopForm& form, size_t input) const {
  return form.inputs[input] == LoopInput::same &&
         lowered_.layouts.nodes.at(index_of(loop)).inputs[input] == layout_of(loop.inputs[input]) &&
         std::ranges::count(form.body_outputs, form.body_inputs[input]) == 0;
}

Operand Lowering::given_to(Lowering& body, const Node& loop, const LoopForm& form, size_t input) {
  const ValueId id = loop.inputs[input], inside = form.body_inputs[input];
  const auto streamed = streamed_.find(id);
  if (streamed == streamed_.end() || !is_fetched_inside(loop, form, input))
    return in_layout(id, choice().inputs[input], body.builder_of(inside));
  body.streamed_[inside] = streamed->second;
  return streamed->second;
}

/// The inputs whose contents a node takes on the tiles.
std::vector<ValueId> Lowering::taken_on_tiles(const Node& node) const {
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

/// The values in streaming memory that nodes take or set.
std::vector<Lowering::StreamedValue> Lowering::streamed_by(std::span<const uint32_t> nodes) const {
  std::map<ValueId, StreamedValue> found;
  const auto note = [&](ValueId id, const auto& how) {
    if (const auto home = streamed_.find(id); home != streamed_.end())
      how(found.try_emplace(id, StreamedValue{.id = id, .home = home->second}).first->second);
  };
  for (uint32_t n : nodes) {
    const Node& node = graph_.nodes()[n];
    for (ValueId id : taken_on_tiles(node)) note(id, [](StreamedValue& value) { value.is_read = true; });
    for (ValueId output : node.outputs)
      for (auto [set, last] = assigned_.equal_range(output); set != last; ++set)
        note(set->second, [&](StreamedValue& value) { value.result = output; });
  }
  std::vector<StreamedValue> values;
  for (const auto& [id, value] : found) values.push_back(value);
  return values;
}

bool Lowering::sets_streamed(const Node& node) const {
  const uint32_t index = index_of(node);
  return std::ranges::any_of(streamed_by({&index, 1}),
                             [](const StreamedValue& value) { return value.result.has_value(); });
}

void Lowering::lower_with_streamed(std::span<const uint32_t> nodes, const std::function<void()>& lower) {
  std::vector<StreamedValue> values;
  if (!streamed_.empty()) values = streamed_by(nodes);
  if (values.empty()) return lower();
  add_as(nodes.back(), [&] { fetch(values); });
  lower();
  add_as(nodes.back(), [&] { store(values); });
}

void Lowering::lower_joined(const std::function<void()>& lower) {
  std::vector<StreamedValue> values = streamed_by({&node_, 1});
  fetch(values);
  lower();
  store(values);
}

void Lowering::fetch(std::vector<StreamedValue>& values) {
  program::CopySet set{"fetch", {}};
  for (StreamedValue& value : values) {
    value.on_tiles = on_tiles_like(value.home);
    if (value.is_read) set.groups.push_back(copy_of(value.home, value.on_tiles));
    lowered_.operands[value.id] = value.on_tiles;
  }
  if (!set.groups.empty()) run(builders_.front().copy(std::move(set)));
}

void Lowering::store(const std::vector<StreamedValue>& values) {
  program::CopySet set{"store", {}};
  for (const StreamedValue& value : values) {
    // Conversions would keep on the tiles what is to lie beside them.
    converted_.erase(value.id);
    lowered_.operands[value.id] = value.home;
    if (!value.result || operand_of(*value.result) != value.on_tiles) continue;
    set.groups.push_back(copy_of(value.on_tiles, value.home));
    stored_.insert(value.id);
  }
  if (!set.groups.empty()) run(builders_.front().copy(std::move(set)));
}

void Lowering::with_streamed_results(const std::function<void()>& give) {
  std::vector<StreamedValue> taken;
  for (const auto& streamed : streamed_) {
    const ValueId id = streamed.first;
    const auto is = [&](const auto& output) { return output.second == id; };
    if (std::ranges::any_of(graph_.outputs(), is) || assigned_.contains(id))
      taken.push_back({.id = id, .home = streamed.second, .is_read = true});
  }
  fetch(taken);
  give();
  for (const StreamedValue& value : taken) lowered_.operands[value.id] = value.home;
}

Operand Lowering::on_tiles_like(const Operand& home) const {
  const ops::Builder& builder = builders_.front();
  return builder.variable_like(home, builder.variable_name(home) + ".on_tiles", Role::temporary);
}

Operand Lowering::beside(const Operand& operand, const Operand& home) {
  const program::Program& program = builders_.front().program();
  const program::Variable &has = program.variable(operand.variable), &wants = program.variable(home.variable);
  if (!wants.streaming || (has.mapping == wants.mapping && operand.box == has.whole())) return operand;
  const Operand moved = on_tiles_like(home);
  builders_.front().send(operand, moved, steps_);
  return moved;
}

}  // namespace tessera::graph
