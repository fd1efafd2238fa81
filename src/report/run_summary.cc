#include "report/run_summary.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace tessera::report {
namespace {

using compiler::Balance;
using compiler::Executable;
using program::Phase;
using program::PhaseTimes;

constexpr size_t kNotRun = ~size_t{0};

/// The order of phases within a superstep.
constexpr std::array<Phase, program::kPhases> kOrder = {Phase::control, Phase::rearrange, Phase::compute,
                                                        Phase::reduce,  Phase::sync,      Phase::exchange};

void append(const PhaseTimes& seconds, std::vector<PhaseSpan>& spans) {
  for (Phase phase : kOrder)
    if (seconds[phase] > 0) spans.emplace_back(phase, seconds[phase]);
}

Balance scaled(const Balance& balance, double factor) {
  return {balance.least * factor, balance.mean * factor, balance.most * factor};
}

class Summary {
 public:
  Summary(const Executable& executable, const engine::Profile& profile, Times times)
      : executable_(executable), profile_(profile), seconds_a_cycle_(executable.machine.seconds(1)) {
    out_.machine = executable.machine.name;
    out_.kind = executable.machine.kind;
    out_.tiles = executable.machine.tiles;
    out_.measured = times == Times::measured;
    out_.supersteps = profile.supersteps;
    out_.memory = executable.memory;
    out_.passes = executable.passes;
    out_.figures = executable.machine.sources;
    out_.seconds = out_.measured ? profile.seconds : profile.cycles.total() * seconds_a_cycle_;
  }

  RunSummary summarize(const std::vector<engine::TraceEvent>& trace) {
    if (!out_.measured) sample_tiles();
    for (size_t s = 0; s < profile_.sets.size(); ++s) add_set(s);
    for (size_t c = 0; c < profile_.copies.size(); ++c) add_copy(c);
    for (size_t c = 0; c < profile_.collectives.size(); ++c) add_collective(c);
    add_chips();
    for (const engine::TraceEvent& event : trace) add_run(event);
    if (out_.measured) balance_threads();
    return std::move(out_);
  }

 private:
  StepSummary& add_step(const engine::StepProfile& profile, engine::StepKind kind) {
    StepSummary step;
    step.name = profile.name;
    step.is_copy = kind != engine::StepKind::set;
    step.times = profile.times;
    step.seconds = out_.measured ? profile.seconds : profile.cycles.scaled(seconds_a_cycle_);
    steps_of_[static_cast<size_t>(kind)].push_back(profile.times == 0 ? kNotRun : out_.steps.size());
    if (profile.times == 0) return unused_;
    return out_.steps.emplace_back(std::move(step));
  }

  void add_set(size_t s) {
    StepSummary& step = add_step(profile_.sets[s], engine::StepKind::set);
    const compiler::CompiledSet& set = executable_.sets[s];
    step.exchanged_bytes = set.before.cost.bytes + set.after.cost.bytes;
    if (out_.measured) return;
    step.tiles = scaled(set.balance, seconds_a_cycle_);
    for (const TileSample& sample : out_.samples)
      step.sampled.push_back(cycles_of(set, sample.tile) * seconds_a_cycle_);
    const PhaseTimes& before = set.before.cost.cycles;
    const PhaseTimes& after = set.after.cost.cycles;
    PhaseTimes inside = executable_.set_cycles[s];
    inside += before.scaled(-1);
    inside += after.scaled(-1);
    for (const PhaseTimes* part : {&before, static_cast<const PhaseTimes*>(&inside), &after})
      append(part->scaled(seconds_a_cycle_), step.phases);
  }

  void add_copy(size_t c) {
    StepSummary& step = add_step(profile_.copies[c], engine::StepKind::copy);
    const compiler::ExchangeCost& cost = executable_.copies[c].cost;
    step.exchanged_bytes = cost.bytes;
    if (out_.measured) return;
    step.tiles = scaled(cost.tiles, seconds_a_cycle_);
    step.sampled.resize(out_.samples.size());
    append(cost.cycles.scaled(seconds_a_cycle_), step.phases);
  }

  void add_collective(size_t c) {
    StepSummary& step = add_step(profile_.collectives[c], engine::StepKind::collective);
    const compiler::CollectiveCost& cost = executable_.collectives[c];
    step.exchanged_bytes = cost.bytes;
    if (out_.measured) return;
    step.sampled.resize(out_.samples.size());
    append(cost.cycles.scaled(seconds_a_cycle_), step.phases);
  }

  void add_chips() {
    if (out_.measured) return;
    out_.chips = chips_of(executable_, profile_);
    out_.links = links_of(executable_, profile_);
  }

  static double cycles_of(const compiler::CompiledSet& set, program::TileId tile) {
    const auto found = std::lower_bound(set.tiles.begin(), set.tiles.end(), tile);
    const bool has = found != set.tiles.end() && *found == tile && !set.tile_cycles.empty();
    return has ? set.tile_cycles[static_cast<size_t>(found - set.tiles.begin())] : 0.0;
  }

  /// Adds up the compute time of each tile, and selects the busiest and the median of those that compute.
  void sample_tiles() {
    out_.busy.assign(out_.tiles, 0.0);
    for (size_t s = 0; s < profile_.sets.size(); ++s) {
      const compiler::CompiledSet& set = executable_.sets[s];
      const double factor = static_cast<double>(profile_.sets[s].times) * seconds_a_cycle_;
      for (size_t t = 0; t < set.tile_cycles.size(); ++t)
        if (set.tiles[t] < out_.tiles) out_.busy[set.tiles[t]] += set.tile_cycles[t] * factor;
    }
    std::vector<program::TileId> order(out_.tiles);
    std::iota(order.begin(), order.end(), 0);
    std::erase_if(order, [&](program::TileId t) { return out_.busy[t] == 0; });
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return out_.busy[a] > out_.busy[b]; });
    if (order.empty()) return;
    out_.samples.push_back({order[0], "slowest"});
    if (order.size() > 2) out_.samples.push_back({order[order.size() / 2], "median"});
  }

  void add_run(const engine::TraceEvent& event) {
    const size_t step = steps_of_[static_cast<size_t>(event.kind)].at(event.id);
    if (step == kNotRun) return;
    if (out_.runs.size() >= kMostRuns) {
      ++out_.runs_left_out;
      return;
    }
    StepRun run{
        static_cast<uint32_t>(step), out_.measured ? event.start : clock_, out_.steps[step].phases, {}};
    if (out_.measured) {
      append(event.seconds, run.phases);
      run.threads = event.threads;
    } else if (event.is_copy()) {
      run.phases.clear();  // replaced: steps beside it hide some or all of its time
      append(event.cycles.scaled(seconds_a_cycle_), run.phases);
    }
    for (uint32_t chip = 0; chip < event.chips.size() && !out_.measured; ++chip)
      if (event.chips[chip].end > event.chips[chip].begin)
        run.chips.push_back(
            {chip, {event.chips[chip].begin * seconds_a_cycle_, event.chips[chip].end * seconds_a_cycle_}});
    if (!run.chips.empty())
      run.begin = std::ranges::min(run.chips, {}, [](const ChipRun& r) { return r.busy.begin; }).busy.begin;
    for (const auto& [phase, seconds] : run.phases) clock_ += seconds;
    out_.runs.push_back(std::move(run));
  }

  /// Mean times of a host's threads in each step.
  void balance_threads() {
    std::vector<uint64_t> counted(out_.steps.size());
    for (const StepRun& run : out_.runs) {
      if (run.threads.empty()) continue;
      Balance& balance = out_.steps[run.step].tiles;
      double least = run.threads[0].end - run.threads[0].begin;
      double most = least;
      for (const engine::Busy& thread : run.threads) {
        const double seconds = thread.end - thread.begin;
        least = std::min(least, seconds);
        most = std::max(most, seconds);
        balance.mean += seconds / static_cast<double>(run.threads.size());
      }
      balance.least += least;
      balance.most += most;
      ++counted[run.step];
    }
    for (size_t s = 0; s < counted.size(); ++s)
      if (counted[s] != 0)
        out_.steps[s].tiles = scaled(out_.steps[s].tiles, 1 / static_cast<double>(counted[s]));
  }

  const Executable& executable_;
  const engine::Profile& profile_;
  double seconds_a_cycle_;
  double clock_ = 0;                             ///< of the modelled machine
  std::array<std::vector<size_t>, 3> steps_of_;  ///< by kind and number
  StepSummary unused_;
  RunSummary out_;
};

}  // namespace

std::vector<ChipSummary> chips_of(const Executable& executable, const engine::Profile& profile) {
  std::vector<ChipSummary> chips;
  if (profile.chips.empty()) return chips;
  const machine::Machine& m = executable.machine;
  const std::vector<compiler::TileMemory> memory = compiler::memory_by_chip(executable.memory, m);
  for (uint32_t c = 0; c < profile.chips.size(); ++c) {
    const compiler::TileMemory& of_chip = memory[c % memory.size()];
    chips.push_back(
        {m.first_chip() + c, profile.chips[c].scaled(m.seconds(1)), of_chip.total(), of_chip.end});
  }
  return chips;
}

std::vector<LinkSummary> links_of(const Executable& executable, const engine::Profile& profile) {
  std::vector<LinkSummary> links;
  const machine::Machine& m = executable.machine;
  for (const program::LinkLoad& load : profile.links)
    links.push_back(
        {load.from, load.to, static_cast<uint64_t>(load.bytes), m.seconds(m.link_cycles(load.bytes))});
  return links;
}

RunSummary summarize(const Executable& executable, const engine::Profile& profile,
                     const std::vector<engine::TraceEvent>& trace, Times times) {
  return Summary(executable, profile, times).summarize(trace);
}

}  // namespace tessera::report
