#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/estimate.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "lower/session_impl.h"
#include "lower/step_times.h"

namespace tessera::graph {
namespace {

std::map<std::string, double> by_phase(const program::PhaseTimes& times) {
  std::map<std::string, double> phases;
  for (size_t p = 0; p < program::kPhases; ++p)
    if (times.at[p] != 0) phases.emplace(name_of(static_cast<program::Phase>(p)), times.at[p]);
  return phases;
}

/// What could free bytes on the tile that overflows.
std::string remedies_of(const compiler::MemoryReport& memory, const Lowered& lowered, bool may_recompute) {
  std::string remedies;
  const auto add = [&](program::Purpose purpose, std::string_view remedy) {
    const auto found = memory.fullest_purposes.find(std::string(name_of(purpose)));
    if (found != memory.fullest_purposes.end())
      remedies += fmt::format("; {} of its {} bytes are {}", found->second, memory.max_tile_bytes, remedy);
  };
  add(program::Purpose::optimizer,
      "the optimizer's state, which replicas can divide (shard) and streaming memory can hold (offload)");
  if (memory.total_purposes.contains(std::string(name_of(program::Purpose::gradient))))
    add(program::Purpose::parameter,
        "parameters, which replicas can divide (shard_weights) and streaming memory can hold "
        "(offload_weights)");
  add(program::Purpose::gradient,
      "gradients, whose sums over micro-batches replicas can divide (shard_gradients) and streaming memory "
      "can hold (offload_gradients)");
  std::string for_stash;
  if (may_recompute) for_stash = ", which can compute them again (recompute)";
  if (!lowered.passes.empty())
    for_stash += "; streaming memory can hold those of several micro-batches in flight (offload_activations)";
  if (!for_stash.empty()) add(program::Purpose::stash, "kept for the backward pass" + for_stash);
  return remedies;
}

/// What could free bytes in the streaming memory of a chip, by what lies there.
std::string streaming_remedies_of(const compiler::Executable& executable, uint32_t chip) {
  std::array<uint64_t, program::kPurposes> bytes{};
  for (const Variable& variable : executable.program->variables())
    if (variable.streaming)
      for (const program::MappedBox& mapped : variable.mapping)
        if (executable.machine.chip_of(mapped.tile) == chip)
          bytes[static_cast<size_t>(purpose_of(variable))] += mapped.box.elements() * size_of(variable.type);
  std::string remedies;
  const auto add = [&](uint64_t count, std::string_view remedy) {
    if (count > 0) remedies += fmt::format("; {} bytes are {}", count, remedy);
  };
  const auto of = [&](program::Purpose purpose) { return bytes[static_cast<size_t>(purpose)]; };
  add(of(program::Purpose::optimizer), "the optimizer's state, which replicas can divide (shard)");
  add(of(program::Purpose::parameter), "parameters, which replicas can divide (shard_weights)");
  add(of(program::Purpose::gradient), "sums of gradients, which replicas can divide (shard_gradients)");
  add(of(program::Purpose::stash) + of(program::Purpose::activation),
      "activations of micro-batches in flight, of which recomputation (recompute) and smaller micro-batches "
      "leave fewer");
  return remedies;
}

/// " (stages 0, 3)", or nothing if no stages have passes.
std::string stages_on(const Lowered& lowered, uint32_t chip) {
  std::set<uint32_t> stages;
  for (const auto& [step, pass] : lowered.passes)
    if (pass.is_on(chip)) stages.insert(pass.stage);
  if (stages.empty()) return {};
  return fmt::format(" (stage{} {})", stages.size() == 1 ? "" : "s", fmt::join(stages, ", "));
}

void add_memory(const compiler::MemoryReport& memory, RunCost& cost) {
  cost.bytes = {memory.total_purposes.begin(), memory.total_purposes.end()};
  cost.total_bytes = memory.total_bytes;
  cost.fullest_tile_bytes = memory.max_tile_bytes;
  cost.tile_bytes = memory.tile_capacity_bytes;
  cost.streaming_bytes =
      std::accumulate(memory.streaming_bytes.begin(), memory.streaming_bytes.end(), uint64_t{0});
  for (const compiler::TileMemory& tile : memory.tiles) {
    const compiler::Categories purposes = tile.by_purpose();
    auto& bytes = cost.tiles.emplace_back(purposes.begin(), purposes.end());
    uint64_t data = 0;
    for (const auto& [purpose, count] : purposes) data += count;
    if (tile.total() > data) bytes["other"] = tile.total() - data;
  }
}

void add_chips(const compiler::Executable& executable, const engine::Profile& profile, RunCost& cost) {
  if (profile.chips.empty()) return;
  const machine::Machine& m = executable.machine;
  const std::vector<compiler::TileMemory> memory = memory_by_chip(executable.memory, m);
  for (uint32_t c = 0; c < profile.chips.size(); ++c)
    cost.chips.push_back({m.first_chip() + c, by_phase(profile.chips[c]), memory[c % memory.size()].total(),
                          executable.memory.streaming_bytes[c % memory.size()]});
  for (const program::LinkLoad& load : profile.links)
    cost.links.push_back(
        {load.from, load.to, static_cast<uint64_t>(load.bytes), m.seconds(m.link_cycles(load.bytes))});
}

/// By value: from its operation to the last operation that takes it; outputs to the end.
std::vector<Lifetime> lifetimes_of(const Graph& graph) {
  const OpenedGraph all = opened(graph);
  std::map<size_t, Lifetime> lifetimes;
  for (size_t n = 0; n < all.nodes.size(); ++n) {
    for (size_t input : all.nodes[n].inputs)
      if (const auto found = lifetimes.find(input); found != lifetimes.end()) found->second.last = n;
    for (size_t output : all.nodes[n].outputs) {
      const ValueInfo& info = all.values[output].info();
      lifetimes[output] = {info.name, info.type.bytes(), n, n};
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

constexpr std::string_view kLayoutConversions = "conversions of layouts";

OperationKind kind_of_operation(const Node& node) {
  if (node.body) return is_loop(node) ? OperationKind::other : OperationKind::call;
  const Traits& traits = node.operation->traits;
  return traits.elementwise ? OperationKind::elementwise : traits.kind;
}

/// What a run took, or would take, by operation.
class OperationCosts {
 public:
  OperationCosts(const Lowered& lowered, const engine::Profile& profile, bool measured, double clock,
                 RunCost& cost)
      : profile_(profile), measured_(measured), clock_(clock), cost_(cost) {
    for (const Lowered::Conversion& conversion : lowered.conversions)
      cost.conversions.push_back(
          {conversion.value, conversion.bytes, seconds(times_of(conversion.sets, profile))});
  }

  /// Adds the costs of a graph's operations. The operations of a loop's body come before the loop, which
  /// itself costs conversions and copies.
  void add(const Graph& graph, const Lowered& lowered) { add(graph, lowered, cost_.operations); }

 private:
  void add(const Graph& graph, const Lowered& lowered, std::vector<OperationCost>& costs) {
    for (const auto& [function, of] : lowered.functions) add(*function.first, of.body, cost_.in_functions);
    for (uint32_t n = 0; n < graph.nodes().size(); ++n) {
      const Node& node = graph.nodes()[n];
      if (is_loop(node)) add(*node.body, *lowered.loops.at(n), costs);
      StepTimes all, conversions;
      for (const Lowered::Sets& sets : lowered.sets[n]) all += times_of(sets, profile_);
      for (const Lowered::Conversion& conversion : lowered.conversions)
        if (std::ranges::any_of(lowered.sets[n],
                                [&](const auto& sets) { return sets.hold(conversion.sets); }))
          conversions += times_of(conversion.sets, profile_);
      costs.push_back({std::string(node.operation->name), graph.info(node.outputs[0]).name, seconds(all),
                       seconds(conversions), by_phase(all.cycles), kind_of_operation(node)});
    }
  }

  double seconds(const StepTimes& times) const {
    return measured_ ? times.seconds.total() : times.cycles.total() / clock_;
  }

  const engine::Profile& profile_;
  bool measured_;
  double clock_;
  RunCost& cost_;
};

ChipSpan span_of(const Lowered& lowered, const compiler::StepWatch::Span& span, uint32_t chip) {
  using Kind = compiler::StepWatch::Kind;
  ChipSpan what{.begin = span.begin, .end = span.end};
  switch (span.kind) {
    case Kind::waiting: what.kind = ChipSpan::Kind::waiting; break;
    case Kind::collective: what.kind = ChipSpan::Kind::collective; break;
    case Kind::other: break;
    case Kind::step: {
      const Lowered::PassStep& pass = lowered.passes.at(span.step);
      what.kind = pass.is_on(chip) ? pass.kind : ChipSpan::Kind::exchange;
      what.stage = pass.stage;
      what.micro_batch = pass.micro_batch + span.execution * pass.next;
    }
  }
  return what;
}

/// Adds a span, or makes the last one longer if it is the same.
void add(ChipLane& lane, const ChipSpan& span) {
  if (!lane.spans.empty()) {
    ChipSpan& last = lane.spans.back();
    const bool is_same =
        last.kind == span.kind && last.stage == span.stage && last.micro_batch == span.micro_batch;
    if (is_same) {
      last.end = span.end;
      return;
    }
  }
  lane.spans.push_back(span);
}

/// The times in which data of any collective is under way, one after the other.
std::vector<ChipSpan> under_way_of(const compiler::StepWatch& watch) {
  std::vector<std::pair<double, double>> times = watch.under_way();
  std::ranges::sort(times);
  std::vector<ChipSpan> spans;
  for (const auto& [begin, end] : times)
    if (!spans.empty() && begin <= spans.back().end)
      spans.back().end = std::max(spans.back().end, end);
    else
      spans.push_back({.kind = ChipSpan::Kind::collective, .begin = begin, .end = end});
  return spans;
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

std::string_view name_of(OperationKind kind) {
  constexpr std::array<std::string_view, 6> kNames = {
      "products", "convolutions", "attention", "elementwise operations", "calls", "other operations"};
  return kNames.at(static_cast<size_t>(kind));
}

std::vector<KindCost> seconds_by_kind(const RunCost& cost) {
  std::map<std::string_view, double> seconds = {{kLayoutConversions, 0.0}};
  double of_calls = 0;  // without what is in the functions
  const auto add = [&](const OperationCost& operation) {
    if (operation.kind == OperationKind::call) {
      of_calls += operation.seconds;
      return;
    }
    seconds[kLayoutConversions] += operation.conversion_seconds;
    seconds[name_of(operation.kind)] += operation.seconds - operation.conversion_seconds;
  };
  for (const OperationCost& operation : cost.operations) add(operation);
  for (const OperationCost& operation : cost.in_functions) {
    add(operation);
    of_calls -= operation.seconds;
  }
  if (of_calls > 0) seconds[name_of(OperationKind::other)] += of_calls;
  std::vector<KindCost> kinds;
  for (const auto& [kind, of_kind] : seconds) kinds.push_back({std::string(kind), of_kind});
  std::ranges::stable_sort(kinds, std::greater<>(), &KindCost::seconds);
  return kinds;
}

std::optional<HostIoCost> Session::Impl::host_io() const {
  if (!options.host_io || is_host()) return {};
  HostIoCost io;
  for (const External& external : externals())
    (external.is_input ? io.bytes_in : io.bytes_out) += type_of(external, graph.replicas()).bytes();
  // The executable's machine is that of one replica.
  const machine::Machine& in_use = graph.replicas() > 1 ? whole_machine : executable().machine;
  for (const uint64_t bytes : {io.bytes_in, io.bytes_out})
    if (bytes > 0) io.seconds += in_use.host_transfer_seconds(bytes);
  return io;
}

std::string Session::Impl::overflow_of(const compiler::MemoryReport& memory) const {
  const machine::Machine& m = executable().machine;
  if (memory.overflow_bytes == 0) {
    const auto fullest = std::ranges::max_element(memory.streaming_bytes) - memory.streaming_bytes.begin();
    const uint32_t chip = m.first_chip() + static_cast<uint32_t>(fullest);
    return overflow_text(memory, stages_on(lowered, chip)) + streaming_remedies_of(executable(), chip) +
           "; tiles may hold some of this, and a smaller network, or more streaming memory (the machine's "
           "'streaming_bytes'), would do";
  }
  std::string text = overflow_text(memory);
  if (m.kind == machine::Kind::tiled) {
    if (m.chips > 1) {
      const uint32_t chip = m.chip_of(memory.fullest_tile);
      text = fmt::format("chip {}{}, {}", chip, stages_on(lowered, chip), text);
    }
    text += remedies_of(memory, lowered, recomputation.chosen.empty());
  }
  return text + "; a smaller batch, sparser or smaller layers, or a machine with more tiles would need less";
}

RunCost Session::Impl::cost_of(const engine::Profile& profile, bool measured) const {
  const double clock = executable().machine.clock_hz;
  RunCost cost;
  cost.seconds = measured ? profile.seconds : profile.cycles.total() / clock;
  cost.cycles = by_phase(profile.cycles);
  cost.host_io = host_io();
  if (cost.host_io) {
    cost.seconds += cost.host_io->seconds;
    cost.cycles.emplace("host", cost.host_io->seconds * clock);
  }
  cost.balance = balance_of(executable(), profile);
  OperationCosts(lowered, profile, measured, clock, cost).add(graph, lowered);
  cost.lifetimes = lifetimes_of(graph);
  add_memory(program().memory(), cost);
  if (!program().fits()) cost.overflow = overflow_of(program().memory());
  add_chips(executable(), profile, cost);
  cost.actions = lowered.actions;
  cost.placements = placed.considered;
  cost.passes = passes;
  cost.sent_bytes = profile.sent_bytes;
  return cost;
}

std::vector<ChipLane> Session::Impl::lanes_of(const compiler::StepWatch& watch) const {
  std::vector<ChipLane> lanes;
  for (const std::vector<compiler::StepWatch::Span>& spans : watch.chips()) {
    ChipLane& lane = lanes.emplace_back(
        ChipLane{executable().machine.first_chip() + static_cast<uint32_t>(lanes.size()), {}});
    for (const compiler::StepWatch::Span& span : spans) add(lane, span_of(lowered, span, lane.chip));
  }
  return lanes;
}

void Session::Impl::add_parts(RunCost& cost, std::optional<double> measured) const {
  double rounds = parts->rounds(threads());
  if (last_parts) {
    double cycles = 0;
    for (const auto& [phase, of_phase] : cost.cycles) cycles += of_phase;
    rounds += parts->last * last_parts->cost({}).seconds * executable().machine.clock_hz / cycles;
  }
  const double times = measured ? *measured / cost.seconds : rounds;
  cost.seconds *= times;
  for (auto& [phase, cycles] : cost.cycles) cycles *= rounds;
  for (std::vector<OperationCost>* operations : {&cost.operations, &cost.in_functions})
    for (OperationCost& operation : *operations) {
      operation.seconds *= times;
      operation.conversion_seconds *= times;
      for (auto& [phase, cycles] : operation.cycles) cycles *= rounds;
    }
  for (ConversionCost& conversion : cost.conversions) conversion.seconds *= times;
  // Each thread has the values of one part; callers' arrays hold all parts.
  const uint64_t side_by_side = std::min(threads(), parts->count);
  uint64_t bound = 0;
  for (const External& external : externals())
    if (parts->whole.contains(external.name)) bound += graph.type(external.id).bytes();
  uint64_t& values = cost.bytes[std::string(name_of(program::Purpose::activation))];
  const auto unbound = [&](uint64_t bytes) { return bytes - std::min(bytes, bound); };
  uint64_t further = (side_by_side - 1) * unbound(values) + (parts->count - 1) * bound;
  if (last_parts) {
    const auto& purposes = last_parts->executable().memory.total_purposes;
    if (const auto own = purposes.find(std::string(name_of(program::Purpose::activation)));
        own != purposes.end())
      further += unbound(own->second);
  }
  values += further;
  cost.total_bytes += further;
  for (Lifetime& value : cost.lifetimes) value.bytes *= side_by_side;
}

RunCost Session::Impl::cost(std::span<const Tensor> inputs) const {
  check_arrays(inputs, externals());
  check_lists(inputs);
  bound::Arrays known(program());
  for (const External& external : externals()) {
    const auto given = std::ranges::find(inputs, external.name, &Tensor::name);
    if (given != inputs.end() && external.is_input) bind(known, external, given->data);
  }
  compiler::StepWatch watch(lowered.steps_of_passes());
  RunCost cost =
      cost_of(program().estimate(known, nullptr, lowered.passes.empty() ? nullptr : &watch), false);
  cost.lanes = lanes_of(watch);
  cost.under_way = under_way_of(watch);
  if (parts) add_parts(cost);
  return cost;
}

RunCost Session::cost(std::span<const Tensor> inputs) const {
  const Impl::Lock lock(*impl_);
  impl_->follow_patterns();
  return impl_->cost(inputs);
}

RunCost estimate(const Graph& graph, const Machine& machine, const EstimateOptions& options) {
  std::optional<Graph> owner;
  if (options.owner != nullptr)
    transform(owner.emplace(*options.owner), session_transforms(), machine.model());
  return Session::Impl::make(graph, machine.model(),
                             {.on_chips = options.on_chips, .host_io = options.host_io},
                             {nullptr, owner ? &*owner : nullptr}, bound::Runs::none)
      ->cost(options.inputs);
}

}  // namespace tessera::graph
