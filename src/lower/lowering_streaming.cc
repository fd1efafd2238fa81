// State in streaming memory: operations take a copy of it on the tiles, which goes back when they have
// changed it.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <utility>

#include "lower/lowering.h"

namespace tessera::graph {

bool Lowering::is_streamed(ValueId id) const {
  if (!graph_.info(id).offloaded || on_host() || bound_.contains(id)) return false;
  require_streaming(graph_.info(id).name);
  return true;
}

void Lowering::require_streaming(const std::string& name) const {
  const machine::Machine& machine = builders_.front().machine();
  if (machine.streaming_bytes == 0)
    throw UsageError(
        fmt::format("{}: it is to lie in streaming memory, which '{}' does not have; use a machine that has, "
                    "such as m2000, or keep it on the tiles",
                    name, machine.name));
}

/// The state in streaming memory that nodes read or set.
std::vector<Lowering::StreamedState> Lowering::streamed_state_of(std::span<const uint32_t> nodes) const {
  std::vector<StreamedState> states;
  const auto is_among = [&](ValueId result) {
    const auto& node = graph_.info(result).node;
    return node && std::ranges::find(nodes, *node) != nodes.end();
  };
  for (ValueId id : streamed_) {
    StreamedState state{.id = id, .home = operand_of(id)};
    state.is_read = std::ranges::any_of(
        nodes, [&](uint32_t node) { return std::ranges::count(graph_.nodes()[node].inputs, id) != 0; });
    for (const Assignment& assignment : graph_.assignments())
      if (assignment.state == id && is_among(assignment.value)) state.result = assignment.value;
    if (state.is_read || state.result) states.push_back(state);
  }
  return states;
}

void Lowering::lower_with_streamed(std::span<const uint32_t> nodes, const std::function<void()>& lower) {
  std::vector<StreamedState> states;
  if (!streamed_.empty()) states = streamed_state_of(nodes);
  if (states.empty()) return lower();
  add_as(nodes.back(), [&] { fetch(states); });
  lower();
  add_as(nodes.back(), [&] { store(states); });
}

void Lowering::fetch(std::vector<StreamedState>& states) {
  program::CopySet set{"fetch", {}};
  for (StreamedState& state : states) {
    state.on_tiles = builder().variable_like(state.home, builder().variable_name(state.home) + ".on_tiles",
                                             program::Role::temporary);
    if (state.is_read) set.groups.push_back(copy_of(state.home, state.on_tiles));
    lowered_.operands[state.id] = state.on_tiles;
  }
  if (!set.groups.empty()) run(builders_.front().copy(std::move(set)));
}

void Lowering::store(const std::vector<StreamedState>& states) {
  program::CopySet set{"store", {}};
  for (const StreamedState& state : states) {
    lowered_.operands[state.id] = state.home;
    if (!state.result || operand_of(*state.result) != state.on_tiles) continue;
    set.groups.push_back(copy_of(state.on_tiles, state.home));
    stored_.insert(state.id);
  }
  if (!set.groups.empty()) run(builders_.front().copy(std::move(set)));
}

}  // namespace tessera::graph
