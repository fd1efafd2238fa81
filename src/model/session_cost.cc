#include <tessera/estimate.h>

#include <algorithm>

#include "base/integer_types.h"
#include "engine/engine.h"
#include "model/session_impl.h"

namespace tessera::model {
namespace {

std::map<std::string, double> by_phase(const program::PhaseTimes& times) {
  std::map<std::string, double> phases;
  for (size_t p = 0; p < program::kPhases; ++p)
    if (times.at[p] != 0) phases.emplace(name_of(static_cast<program::Phase>(p)), times.at[p]);
  return phases;
}

void add_memory(const compiler::MemoryReport& memory, RunCost& cost) {
  cost.bytes = {memory.total_purposes.begin(), memory.total_purposes.end()};
  cost.total_bytes = memory.total_bytes;
  cost.fullest_tile_bytes = memory.max_tile_bytes;
  cost.tile_bytes = memory.tile_capacity_bytes;
  for (const compiler::TileMemory& tile : memory.tiles) {
    const compiler::Categories purposes = tile.by_purpose();
    auto& bytes = cost.tiles.emplace_back(purposes.begin(), purposes.end());
    uint64_t data = 0;
    for (const auto& [purpose, count] : purposes) data += count;
    if (tile.total() > data) bytes["other"] = tile.total() - data;
  }
  if (!memory.fits())
    cost.overflow =
        overflow_text(memory) +
        "; a smaller batch, sparser or smaller layers, or a machine with more tiles would need less";
}

void add_chips(const compiler::Executable& executable, const engine::Profile& profile, RunCost& cost) {
  if (profile.chips.empty()) return;
  const machine::Machine& m = executable.machine;
  const std::vector<compiler::TileMemory> memory = memory_by_chip(executable.memory, m);
  for (uint32_t c = 0; c < profile.chips.size(); ++c)
    cost.chips.push_back({m.first_chip() + c, by_phase(profile.chips[c]), memory[c % memory.size()].total()});
  for (const program::LinkLoad& load : profile.links)
    cost.links.push_back(
        {load.from, load.to, static_cast<uint64_t>(load.bytes), m.seconds(m.link_cycles(load.bytes))});
}

/// By value: from its operation to the last one that takes it; outputs to the end.
std::vector<Lifetime> lifetimes_of(const Graph& graph) {
  const OpenedGraph all = opened(graph);
  std::map<size_t, Lifetime> lifetimes;
  for (size_t n = 0; n < all.nodes.size(); ++n) {
    for (size_t input : all.nodes[n].inputs)
      if (const auto found = lifetimes.find(input); found != lifetimes.end()) found->second.last = n;
    for (size_t output : all.nodes[n].outputs) {
      const ValueInfo& info = all.values[output].info();
      lifetimes[output] = {info.name, info.type.elements() * size_of(info.type.type), n, n};
    }
  }
  for (const auto& [name, id] : graph.outputs())
    if (const auto found = lifetimes.find(id); found != lifetimes.end())
      found->second.last = all.nodes.size() - 1;
  // Updates are in place.
  for (const Assignment& assignment : graph.assignments()) lifetimes.erase(assignment.value);
  std::vector<Lifetime> sorted;
  for (auto& [id, lifetime] : lifetimes) sorted.push_back(std::move(lifetime));
  return sorted;
}

/// Of a graph's operations, those of a loop's body before the loop, which itself takes and gives values.
void add_operations(const Graph& graph, const Lowered& lowered, const engine::Profile& profile, bool measured,
                    double clock, RunCost& cost) {
  for (uint32_t n = 0; n < graph.nodes().size(); ++n) {
    const Node& node = graph.nodes()[n];
    if (is_loop(node)) add_operations(*node.body, *lowered.loops.at(n), profile, measured, clock, cost);
    program::PhaseTimes cycles, seconds;
    const auto add = [&](const engine::StepProfile& step) { cycles += step.cycles, seconds += step.seconds; };
    for (const Lowered::Sets& sets : lowered.sets[n]) {
      for (uint32_t s = sets.first_set; s < sets.last_set; ++s) add(profile.sets[s]);
      for (uint32_t c = sets.first_copy; c < sets.last_copy; ++c) add(profile.copies[c]);
      for (uint32_t c = sets.first_collective; c < sets.last_collective; ++c) add(profile.collectives[c]);
    }
    cost.operations.push_back({std::string(node.operation->name), graph.info(node.outputs[0]).name,
                               measured ? seconds.total() : cycles.total() / clock, by_phase(cycles)});
  }
}

double balance_of(const compiler::Executable& executable, const engine::Profile& profile) {
  double mean = 0, most = 0;
  for (size_t s = 0; s < executable.sets.size(); ++s) {
    const auto times = static_cast<double>(profile.sets[s].times);
    mean += times * executable.sets[s].balance.mean;
    most += times * executable.sets[s].balance.most;
  }
  return most == 0 ? 1 : mean / most;
}

}  // namespace

RunCost Session::Impl::cost_of(const engine::Profile& profile, bool measured) const {
  const double clock = executable().machine.clock_hz;
  RunCost cost;
  cost.seconds = measured ? profile.seconds : profile.cycles.total() / clock;
  cost.cycles = by_phase(profile.cycles);
  cost.balance = balance_of(executable(), profile);
  add_operations(graph, lowered, profile, measured, clock, cost);
  cost.conversions = lowered.conversions;
  cost.lifetimes = lifetimes_of(graph);
  add_memory(executable().memory, cost);
  add_chips(executable(), profile, cost);
  cost.placements = placed.considered;
  cost.passes = passes;
  return cost;
}

void Session::Impl::add_parts(RunCost& cost, double times) const {
  if (!parts) return;
  const auto rounds = static_cast<double>(parts->rounds(threads()));
  cost.seconds *= times;
  for (auto& [phase, cycles] : cost.cycles) cycles *= rounds;
  for (OperationCost& operation : cost.operations) {
    operation.seconds *= times;
    for (auto& [phase, cycles] : operation.cycles) cycles *= rounds;
  }
  // Each thread has the values of a part; callers' arrays are those of all parts.
  const uint64_t side_by_side = std::min(threads(), parts->count);
  uint64_t bound = 0;
  for (const External& external : externals())
    if (parts->whole.contains(external.name))
      bound += graph.type(external.id).elements() * size_of(graph.type(external.id).type);
  uint64_t& values = cost.bytes[std::string(name_of(program::Purpose::activation))];
  const uint64_t further =
      (side_by_side - 1) * (values - std::min(values, bound)) + (parts->count - 1) * bound;
  values += further;
  cost.total_bytes += further;
  for (Lifetime& value : cost.lifetimes) value.bytes *= side_by_side;
}

RunCost Session::Impl::cost(std::span<const Tensor> inputs) const {
  std::vector<engine::Binding> bindings = metadata();
  const std::vector<External> named = externals();
  check_arrays(inputs, named);
  check_lists(inputs);
  for (const External& external : named) {
    const auto given = std::ranges::find(inputs, external.name, &Tensor::name);
    if (given == inputs.end() || given->data == nullptr || !is_integer(graph.type(external.id).type))
      continue;
    if (!external.is_input) continue;
    bindings.push_back(bind(external.operand, external.id, given->data));
  }
  RunCost cost = cost_of(
      session ? session->run(bindings, {.dry = true}) : engine::dry_run(placed.executable, bindings), false);
  if (parts) add_parts(cost, parts->rounds(threads()));
  return cost;
}

RunCost Session::cost(std::span<const Tensor> inputs) const {
  const Impl::Lock lock(*impl_);
  return impl_->cost(inputs);
}

RunCost estimate(const Graph& graph, const Machine& machine, const EstimateOptions& options) {
  std::optional<Graph> owner;
  if (options.owner != nullptr)
    transform(owner.emplace(*options.owner), session_transforms(), machine.model());
  const machine::Machine& model = machine.model();
  const SessionOptions chosen{.chips = options.chips};
  const Graph* of_owner = owner ? &*owner : nullptr;
  std::optional<Parts> parts = choose_parts(graph, model, chosen, of_owner);
  Session::Impl compiled(parts ? parts->graph : graph, parts ? one_thread_of(model) : model, chosen, of_owner,
                         CompileFor::costs);
  compiled.whole_machine = model;
  compiled.parts = std::move(parts);
  return compiled.cost(options.inputs);
}

}  // namespace tessera::model
