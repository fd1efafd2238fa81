#include "engine/runner.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "compiler/tile_cycles.h"
#include "engine/pool.h"
#include "engine/work_sharing.h"

namespace tessera::engine {
namespace {

using compiler::CompiledSet;
using compiler::Exchange;
using program::FieldView;
using program::Phase;
using program::PhaseTimes;
using program::StepId;

bool is_integer(Type type) { return epsilon_of(type) == 0.0; }

/// What a dry run knows: more where integer inputs are bound to it.
std::vector<bool> known_in_run(const compiler::Executable& executable, std::span<const Binding> bindings) {
  std::vector<program::VariableId> given;
  for (const Binding& binding : bindings)
    if (executable.program->variable(binding.variable).role == program::Role::input)
      given.push_back(binding.variable);
  return given.empty() ? executable.known_ahead : compiler::variables_known(*executable.program, given);
}

uint32_t threads_of(const machine::Machine& machine, const RunOptions& options) {
  if (options.threads != 0) return options.threads;
  if (machine.kind == machine::Kind::host) return machine.tiles;
  static const uint32_t host_threads = machine::default_threads(machine::detect_host());
  return host_threads;
}

/// One run: walks the control flow, runs or skips each step, and keeps the accounts.
class Run {
 public:
  Run(const compiler::Executable& executable, const RunMemory& memory, std::span<const Binding> bindings,
      const RunOptions& options, Pool::Team& team)
      : executable_(executable),
        program_(*executable.program),
        memory_(memory),
        options_(options),
        has_memory_(needs_memory(executable, options)),
        known_(options.dry ? known_in_run(executable, bindings) : std::vector<bool>{}),
        team_(team),
        helpers_(team.threads()) {
    profile_.sets.resize(program_.compute_sets().size());
    profile_.copies.resize(program_.copy_sets().size());
    for (size_t s = 0; s < profile_.sets.size(); ++s) profile_.sets[s].name = program_.compute_sets()[s].name;
    for (size_t s = 0; s < profile_.copies.size(); ++s)
      profile_.copies[s].name = program_.copy_sets()[s].name;
  }

  Profile run() {
    start_ = Clock::now();
    walk(program_.main());
    profile_.seconds = seconds_between(start_, Clock::now());
    profile_.phases[Phase::control] += profile_.seconds - profile_.phases.total();
    return std::move(profile_);
  }

 private:
  void walk(StepId id) {
    if (id == program::kNoStep) return;
    std::visit([this](const auto& step) { walk_inside(step); }, program_.steps()[id]);
  }

  void walk_inside(const program::Sequence& sequence) {
    for (StepId step : sequence.steps) walk(step);
  }
  void walk_inside(const program::Repeat& repeat) {
    for (uint32_t i = 0; i < repeat.count; ++i) {
      if (repeat.counter) memory_.control(*repeat.counter) = i;
      walk(repeat.body);
    }
  }
  void walk_inside(const program::While& loop) {
    for (walk(loop.test); control(loop.condition) != 0; walk(loop.test)) walk(loop.body);
  }
  void walk_inside(const program::If& branch) {
    walk(control(branch.condition) != 0 ? branch.then : branch.otherwise);
  }
  void walk_inside(const program::Call& call) { walk(program_.functions()[call.function].body); }

  void walk_inside(const program::Execute& execute) {
    const CompiledSet& set = executable_.sets[execute.set];
    StepProfile& step = profile_.sets[execute.set];
    run_step(step, {false, execute.set, 0, {}, executable_.set_cycles[execute.set]}, [&](PhaseTimes& cycles) {
      transfer(set.before, step);
      if (executable_.costed_at_run[execute.set])
        cycles = cycles_of(program_.compute_sets()[execute.set], set);
      compute(program_.compute_sets()[execute.set], set, step);
      transfer(set.after, step);
    });
    ++profile_.supersteps;
  }

  /// A superstep whose costs read metadata, which is there by now.
  PhaseTimes cycles_of(const program::ComputeSet& source, const CompiledSet& set) const {
    compiler::TileCycles tile_cycles(executable_.machine);
    PhaseTimes slowest;
    for (size_t t = 0; t < set.tiles.size(); ++t) {
      const PhaseTimes cycles = tile_cycles.of(
          source, set, t,
          [&](const program::VertexGroup& group, const compiler::CompiledVertex& vertex, size_t f) {
            FieldView view = view_of(set, group, vertex, f);
            if (!is_integer(view.type) || (options_.dry && !known_[group.fields[f].variable]))
              view.data = nullptr;
            return view;
          });
      if (cycles.total() > slowest.total()) slowest = cycles;
    }
    return compiler::superstep_of(executable_.machine, set, slowest);
  }

  FieldView view_of(const CompiledSet& set, const program::VertexGroup& group,
                    const compiler::CompiledVertex& vertex, size_t field) const {
    const program::Box box = program::field_box(program_, group.fields[field], vertex.index);
    return memory_.view(set.places[vertex.first_place + field],
                        program_.variable(group.fields[field].variable).type, box.rows, box.cols);
  }

  void walk_inside(const program::Copy& copy) {
    const Exchange& exchange = executable_.copies[copy.set];
    StepProfile& step = profile_.copies[copy.set];
    run_step(step, {true, copy.set, 0, {}, exchange.cost.cycles},
             [&](PhaseTimes&) { transfer(exchange, step); });
  }

  /// Runs a step and keeps its accounts; `event` has its cycles, which the work may correct.
  template <class Work>
  void run_step(StepProfile& step, TraceEvent event, const Work& work) {
    const bool is_traced = options_.trace != nullptr && options_.trace->size() < kMostTraceEvents;
    if (is_traced) event.start = seconds_between(start_, Clock::now());
    const PhaseTimes before = step.seconds;
    threads_of_step_ = 0;
    work(event.cycles);
    step.cycles += event.cycles;
    profile_.cycles += event.cycles;
    ++step.times;
    if (!is_traced) return;
    event.seconds = step.seconds;
    event.seconds += before.scaled(-1);
    for (uint32_t t = 0; t < threads_of_step_; ++t) event.threads.push_back(busy_of(helpers_[t].clock));
    options_.trace->push_back(std::move(event));
  }

  /// Runs the vertices of a compute set, tiles dealt over the threads.
  void compute(const program::ComputeSet& source, const CompiledSet& set, StepProfile& step) {
    if (set.vertices.empty()) return;
    const Clock::time_point start = Clock::now();
    const auto tiles = static_cast<uint32_t>(set.tiles.size());
    const uint32_t threads = std::min(team_.threads(), tiles);
    std::atomic<uint32_t> next{threads};
    const bool helps = threads > 1 && executable_.machine.kind == machine::Kind::host;
    helpers_.start(threads);
    const auto job = [&](uint32_t thread) {
      if (thread >= threads) return;
      ThreadClock& clock = helpers_[thread].clock;
      clock.start(source.phase);
      helpers_.run(thread, helps, [&](Helper& member) {
        for (uint32_t t = thread; t < tiles; t = next.fetch_add(1, std::memory_order_relaxed))
          for (uint32_t v = set.tile_begin[t]; v < set.tile_begin[t + 1]; ++v)
            run_vertex(source, set, set.vertices[v], member, helps);
      });
      busy_[thread] = clock.stop();
    };
    if (threads == 1)
      job(0);
    else
      team_.run(job);
    record(step, seconds_between(start, Clock::now()), threads);
    threads_of_step_ = threads;
  }

  /// Splits a superstep's time: what its threads did on average, and waiting for one another.
  void record(StepProfile& step, double wall, uint32_t threads) {
    PhaseTimes seconds;
    for (uint32_t t = 0; t < threads; ++t) seconds += busy_[t].scaled(1.0 / threads);
    seconds[Phase::sync] += wall - seconds.total();
    step.seconds += seconds;
    profile_.phases += seconds;
  }

  void run_vertex(const program::ComputeSet& source, const CompiledSet& set,
                  const compiler::CompiledVertex& vertex, Helper& member, bool helps) const {
    const program::VertexGroup& group = source.groups[vertex.group];
    const program::Codelet& codelet = *group.codelet;
    if (options_.dry && !runs_dry(group)) return;
    std::array<FieldView, program::kMaxFields> fields;
    std::array<int64_t, program::kMaxParams> params;
    for (size_t f = 0; f < group.fields.size(); ++f) fields[f] = view_of(set, group, vertex, f);
    for (size_t p = 0; p < group.params.size(); ++p) params[p] = group.params[p].at(vertex.index);
    const program::Vertex v{{fields.data(), group.fields.size()},
                            {params.data(), group.params.size()},
                            &member.clock,
                            helps ? &member : nullptr};
    if (helps) member.take(group, scratch_of(codelet, v.fields));
    const bool plain = options_.reference || codelet.simd == nullptr;
    (plain ? codelet.reference : codelet.simd)(v);
  }

  static std::byte* scratch_of(const program::Codelet& codelet, std::span<const FieldView> fields) {
    for (size_t f = 0; f < fields.size(); ++f)
      if (codelet.fields[f].scratch) return fields[f].data;
    return nullptr;
  }

  /// From the beginning of the run.
  Busy busy_of(const ThreadClock& clock) const {
    return {seconds_between(start_, clock.began()), seconds_between(start_, clock.since())};
  }

  /// A dry run executes the vertices whose metadata it has.
  bool runs_dry(const program::VertexGroup& group) const {
    if (!has_memory_ || !group.codelet->integer_only) return false;
    for (size_t f = 0; f < group.fields.size(); ++f)
      if (!known_[group.fields[f].variable]) return false;
    return true;
  }

  uint32_t control(program::VariableId variable) const {
    if (options_.dry && !known_[variable])
      throw Error(
          fmt::format("a dry run cannot follow the program: its control flow depends on '{}', "
                      "which only a full run computes, or one that the integer inputs are bound to",
                      program_.variable(variable).name));
    return memory_.control(variable);
  }

  void transfer(const Exchange& exchange, StepProfile& step) {
    if (exchange.empty() || !has_memory_) return;
    const Clock::time_point start = Clock::now();
    std::vector<Shift> shifts;
    for (const compiler::RuntimeRows& rows : exchange.runtime_rows)
      shifts.push_back({shift_of(rows.from), shift_of(rows.to)});
    for (const compiler::Transfer& t : exchange.transfers) {
      if (options_.dry && !moves_dry(exchange, t)) continue;
      const Shift shift = t.runtime == compiler::kNoRuntimeRow ? Shift{} : shifts[t.runtime];
      copy_elements(memory_.view(t.from, t.type, t.rows, t.cols, shift.from),
                    memory_.view(t.to, t.type, t.rows, t.cols, shift.to));
    }
    PhaseTimes seconds;
    seconds[Phase::exchange] = seconds_between(start, Clock::now());
    step.seconds += seconds;
    profile_.phases += seconds;
  }

  /// A dry run moves metadata that it has: what is bound to a program it has not.
  bool moves_dry(const Exchange& exchange, const compiler::Transfer& t) const {
    if (!is_integer(t.type) || t.from.store == compiler::Store::external ||
        t.to.store == compiler::Store::external)
      return false;
    if (t.runtime == compiler::kNoRuntimeRow) return true;
    const compiler::RuntimeRows& rows = exchange.runtime_rows[t.runtime];
    return is_known(rows.from) && is_known(rows.to);
  }
  bool is_known(const compiler::RuntimeRows::End& end) const { return !end.row || known_[end.row->index]; }

  /// Rows by which one exchange moves a transfer.
  struct Shift {
    uint64_t from = 0;
    uint64_t to = 0;
  };

  uint64_t shift_of(const compiler::RuntimeRows::End& end) const {
    if (!end.row || (options_.dry && !is_known(end))) return 0;
    const uint64_t shift = uint64_t{memory_.control(end.row->index)} * end.row->stride;
    if (shift > end.room)
      throw Error(
          fmt::format("a copy with a run-time row leaves '{}': {} rows further down, where {} are left",
                      program_.variable(end.variable).name, shift, end.room));
    return shift;
  }

  const compiler::Executable& executable_;
  const program::Program& program_;
  const RunMemory& memory_;
  const RunOptions& options_;
  bool has_memory_;
  std::vector<bool> known_;  ///< by VariableId, in a dry run
  Pool::Team& team_;
  Helpers helpers_;
  std::vector<PhaseTimes> busy_ = std::vector<PhaseTimes>(team_.threads());
  Profile profile_;
  Clock::time_point start_;
  uint32_t threads_of_step_ = 0;
};

}  // namespace

bool needs_memory(const compiler::Executable& executable, const RunOptions& options) {
  const std::vector<bool>& costed = executable.costed_at_run;
  return !options.dry || executable.has_runtime_control ||
         std::find(costed.begin(), costed.end(), true) != costed.end();
}

void require_fit(const compiler::Executable& executable) {
  if (!executable.memory.fits())
    throw Error(fmt::format("the program does not fit {}: {}", executable.machine.name,
                            overflow_text(executable.memory)));
}

Profile run_in(const compiler::Executable& executable, RunMemory& memory, std::span<const Binding> bindings,
               const RunOptions& options) {
  if (!options.dry) {
    memory.bind(bindings);
    memory.load_inputs();
  } else if (memory.is_allocated()) {
    memory.bind_metadata(bindings);
  }
  Profile profile = [&] {
    Pool::Team team(Pool::shared(), threads_of(executable.machine, options));
    return Run(executable, memory, bindings, options, team).run();
  }();
  if (!options.dry) memory.store_outputs();
  return profile;
}

}  // namespace tessera::engine
