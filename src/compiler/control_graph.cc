#include "compiler/control_graph.h"

#include "compiler/schedule.h"

namespace tessera::compiler {

using program::StepId;

ControlGraph::ControlGraph(const program::Program& program) : program_(program), touchers_(program) {
  positions_of_.resize(touchers_.count());
  walk(program.main(), {add({})});
  for (auto* flags : {&overwrites_, &read_later_, &alive_}) flags->resize(positions());
}

uint32_t ControlGraph::add(const Positions& from) {
  const auto position = static_cast<uint32_t>(next_.size());
  next_.emplace_back();
  previous_.emplace_back();
  link(from, position);
  return position;
}

uint32_t ControlGraph::touching(ToucherId toucher, const Positions& from) {
  const uint32_t position = add(from);
  positions_of_[toucher].push_back(position);
  return position;
}

void ControlGraph::link(const Positions& from, uint32_t to) {
  for (const uint32_t position : from) {
    next_[position].push_back(to);
    previous_[to].push_back(position);
  }
}

ControlGraph::Positions ControlGraph::walk(StepId id, Positions from) {
  if (id == program::kNoStep) return from;
  if (++steps_ > kMostSteps) refuse_schedule();
  const program::Step& step = program_.steps().at(id);
  if (const auto* sequence = std::get_if<program::Sequence>(&step)) {
    for (const StepId inner : sequence->steps) from = walk(inner, std::move(from));
    return from;
  }
  if (const auto* execute = std::get_if<program::Execute>(&step))
    return {touching(touchers_.of_set(execute->set), from)};
  if (const auto* copy = std::get_if<program::Copy>(&step))
    return {touching(touchers_.of_copy(copy->set), walk_beside(id, copy->beside, std::move(from)))};
  if (const auto* collect = std::get_if<program::Collect>(&step))
    return {touching(touchers_.of_collective(collect->collective),
                     walk_beside(id, collect->beside, std::move(from)))};
  if (const auto* branch = std::get_if<program::If>(&step)) return walk_branch(id, *branch, std::move(from));
  if (const auto* loop = std::get_if<program::While>(&step)) return walk_loop(id, *loop, std::move(from));
  if (const auto* repeat = std::get_if<program::Repeat>(&step))
    return walk_repeat(id, *repeat, std::move(from));
  return walk_call(id, std::get<program::Call>(step), std::move(from));
}

ControlGraph::Positions ControlGraph::walk_beside(StepId id, StepId beside, Positions from) {
  if (beside == program::kNoStep) return from;
  const uint32_t begin = touching(touchers_.of_control(id), from);
  return {touching(touchers_.of_end(id), walk(beside, {begin}))};
}

ControlGraph::Positions ControlGraph::walk_branch(StepId id, const program::If& branch, Positions from) {
  const uint32_t condition = touching(touchers_.of_control(id), from);
  Positions after = walk(branch.then, {condition});
  const Positions otherwise = walk(branch.otherwise, {condition});
  after.insert(after.end(), otherwise.begin(), otherwise.end());
  return {add(after)};
}

ControlGraph::Positions ControlGraph::walk_loop(StepId id, const program::While& loop, Positions from) {
  const uint32_t begin = add(from);
  const uint32_t condition = touching(touchers_.of_control(id), walk(loop.test, {begin}));
  link(walk(loop.body, {condition}), begin);
  return {condition};
}

ControlGraph::Positions ControlGraph::walk_repeat(StepId id, const program::Repeat& repeat, Positions from) {
  const uint32_t begin = add(from);
  Positions in{begin};
  if (repeat.counter) in = {touching(touchers_.of_control(id), in)};
  const uint32_t end = add(walk(repeat.body, std::move(in)));
  if (repeat.count > 1) link({end}, begin);
  if (repeat.count == 0) link({begin}, end);
  return {end};
}

ControlGraph::Positions ControlGraph::walk_call(StepId id, const program::Call& call, Positions from) {
  if (call.operands.empty()) return walk(program_.functions().at(call.function).body, std::move(from));
  touchers_.function(call.function)
      .walk([&](uint32_t bound) { from = {touching(touchers_.of_bound(id, bound), from)}; },
            [&](StepId step) { from = walk(step, std::move(from)); });
  return from;
}

/// Positions from which control may come to a read without an overwrite after them; marks them as read later.
ControlGraph::Positions ControlGraph::read_after(const Positions& reads) {
  Positions found, work = reads;
  while (!work.empty()) {
    const uint32_t position = work.back();
    work.pop_back();
    for (const uint32_t before : previous_[position]) {
      if (std::exchange(read_later_[before], uint8_t{1})) continue;
      found.push_back(before);
      if (!overwrites_[before]) work.push_back(before);
    }
  }
  return found;
}

/// Of the positions that are read later, finds those at a write or after one. On a path from a write to such
/// a position, all positions from the last overwrite on are read later too, so no others have to be followed.
ControlGraph::Positions ControlGraph::alive_within(const Positions& writes) {
  Positions found;
  const auto add = [&](uint32_t position) {
    if (read_later_[position] && !std::exchange(alive_[position], uint8_t{1})) found.push_back(position);
  };
  for (const uint32_t position : writes) add(position);
  for (size_t i = 0; i < found.size(); ++i)
    for (const uint32_t next : next_[found[i]]) add(next);
  return found;
}

Lifetime ControlGraph::lifetime_of(const TouchChains& chains, TouchChain chain) {
  Positions touched, reads, writes;
  for (; chain != kUntouched; chain = chains[chain].before) {
    const auto [before, toucher, touch] = chains[chain];
    for (const uint32_t position : positions_of_[toucher]) {
      touched.push_back(position);
      if (touch.reads) reads.push_back(position);
      if (touch.writes) writes.push_back(position);
      overwrites_[position] = touch.whole && !touch.reads;
    }
  }
  std::vector<Interval> intervals;
  for (const uint32_t position : touched) intervals.push_back({position, position});
  if (!reads.empty() && !writes.empty()) {
    const Positions read_later = read_after(reads), alive = alive_within(writes);
    for (const uint32_t position : alive) intervals.push_back({position, position});
    for (const uint32_t position : read_later) read_later_[position] = alive_[position] = 0;
  }
  for (const uint32_t position : touched) overwrites_[position] = 0;
  return joined(std::move(intervals));
}

}  // namespace tessera::compiler
