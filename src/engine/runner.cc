#include "engine/runner.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/machine.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cmath>
#include <future>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <variant>

#include "base/integer_types.h"
#include "compiler/tile_cycles.h"
#include "engine/collective.h"
#include "engine/pool.h"
#include "engine/profile.h"
#include "engine/touches.h"
#include "program/missing_row.h"
#include "program/overflow.h"
#include "program/uses.h"

namespace tessera::engine {
namespace {

using compiler::BoxAddress;
using compiler::CompiledSet;
using compiler::Exchange;
using program::FieldView;
using program::Phase;
using program::PhaseTimes;
using program::StepId;

/// What a dry run knows: more if integer inputs are bound, less if the rank lacks state.
std::vector<bool> known_in_run(const compiler::Executable& executable, std::span<const Binding> bindings,
                               const std::vector<program::VariableId>& lacked = {}) {
  std::vector<program::VariableId> given;
  for (const Binding& binding : bindings)
    if (executable.program->variable(binding.variable).role == program::Role::input)
      given.push_back(binding.variable);
  return given.empty() && lacked.empty() ? executable.known_ahead
                                         : compiler::variables_known(*executable.program, given, lacked);
}

/// Threads that a run has work for, of those that it may use.
uint32_t threads_of(const compiler::Executable& executable, const DispatchTable& table,
                    const RunOptions& options) {
  if (table.most_threads() == 1) return 1;
  uint32_t most = options.threads;
  if (most == 0 && executable.machine.kind == machine::Kind::host) most = executable.machine.tiles;
  if (most == 0) most = default_threads();
  return std::min(most, table.most_threads());
}

/// Whether a step itself writes, apart from steps within it. A call does: it passes what its function writes.
bool writes_by_itself(const program::Step& step) {
  return std::holds_alternative<program::Execute>(step) || std::holds_alternative<program::Copy>(step) ||
         std::holds_alternative<program::Collect>(step) || std::holds_alternative<program::Call>(step);
}

/// A collective that another thread runs on data of the run; the run waits for its end.
struct UnderWay {
  std::future<void> done;

  UnderWay() = default;
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
  ~UnderWay() {
    if (done.valid()) done.wait();
  }
};

/// One run: walks the control flow, executes or skips each step, and keeps the accounts.
class Run {
 public:
  /// `team` is null where one thread does it all.
  Run(const compiler::Executable& executable, const DispatchTable& table, RunState& state,
      std::span<const Binding> bindings, const RunOptions& options, Pool::Team* team)
      : executable_(executable),
        program_(*executable.program),
        table_(table),
        state_(state),
        memories_(state.memories),
        memory_(&state.memories.front()),
        options_(options),
        has_memory_(memory_->is_allocated()),
        parts_(has_memory_ && !options.dry ? state.parts.get() : nullptr),
        is_timed_(options.profile || options.dry || options.trace != nullptr),
        known_(options.dry && has_memory_ ? known_in_run(executable, bindings, state.lacked)
                                          : std::vector<bool>{}),
        team_(team),
        threads_(state.threads) {
    threads_.reserve(team == nullptr ? 1 : team->threads());
    state_.begun.assign(program_.steps().size(), false);
    if (!is_timed_) return;
    clocks_.assign(memories_.size(), compiler::ChipClocks(executable.machine));
    profile_ = empty_profile(program_);
    if (options.watch == nullptr || has_one_chip()) return;
    watch_ = options.watch;
    watch_->begin(clocks_.front());
    clocks_.front().tell(*watch_);
  }

  Profile run() {
    if (!is_timed_) {
      walk_all();
      return {};
    }
    start_ = Clock::now();
    walk_all();
    if (watch_ != nullptr) watch_->end(clocks_.front());
    profile_.seconds = seconds_between(start_, Clock::now());
    profile_.phases[Phase::control] += profile_.seconds - profile_.phases.total();
    const program::PhaseTimes walked =
        std::ranges::max_element(clocks_, {}, &compiler::ChipClocks::last)->slowest();
    if (!executable_.cycles_vary) {
      enter_cycles(executable_, profile_);
      assert(std::abs(walked.total() - profile_.cycles.total()) <= 1e-9 * walked.total());
      return std::move(profile_);
    }
    profile_.cycles = walked;
    profile_.links = links_.loads();
    if (has_chips())
      for (const compiler::ChipClocks& clocks : clocks_)
        profile_.chips.insert(profile_.chips.end(), clocks.of_chips().begin(), clocks.of_chips().end());
    return std::move(profile_);
  }

 private:
  void walk_all() {
    if (parts_ == nullptr) return walk(program_.main());
    const PartExchange::Settling settling(*parts_);
    parts_->begin();
    walk(program_.main());
    parts_->end(*memory_);
  }

  void walk(StepId id) {
    if (id == program::kNoStep) return;
    state_.begun[id] = true;
    present_part_ = part_within(program_, id, called_part_);
    const bool is_watched = watch_ != nullptr && watch_->watches(id);
    if (is_watched) watch_->enter(id, clocks_.front());
    std::visit([this](const auto& step) { walk_inside(step); }, program_.steps()[id]);
    if (is_watched) watch_->leave(clocks_.front());
  }

  void walk_inside(const program::Sequence& sequence) {
    for (StepId step : sequence.steps) walk(step);
  }
  void walk_inside(const program::Repeat& repeat) {
    for (uint32_t i = 0; i < repeat.count; ++i) {
      if (repeat.counter && has_memory_)
        for (const RunMemory& memory : memories_) memory.control(*repeat.counter) = i;
      if (repeat.counter && parts_ != nullptr) parts_->set_all(*repeat.counter);
      walk(repeat.body);
    }
  }
  void walk_inside(const program::While& loop) {
    for (walk(loop.test); control(loop.condition) != 0; walk(loop.test)) walk(loop.body);
  }
  void walk_inside(const program::If& branch) {
    walk(control(branch.condition) != 0 ? branch.then : branch.otherwise);
  }
  void walk_inside(const program::Call& call) {
    const program::Function& function = program_.functions()[call.function];
    if (parts_ != nullptr) parts_->meet(call, present_part_, *memory_);
    for (size_t i = 0; i < call.operands.size(); ++i)
      for (RunMemory& memory : memories_)
        memory.pass(function.arguments[i].variable, call.operands[i].variable, call.operands[i].box);
    const uint32_t around = std::exchange(called_part_, present_part_);
    walk(function.body);
    called_part_ = around;
  }

  void walk_inside(const program::Execute& execute) {
    const CompiledSet& set = executable_.sets[execute.set];
    meet(execute, present_part_);
    if (!is_timed_) return each_replica([&](uint32_t) { execute_set(execute.set, set, nullptr); });
    StepProfile& step = profile_.sets[execute.set];
    TraceEvent event{StepKind::set, execute.set, 0, {}, executable_.set_cycles[execute.set]};
    run_step(step, std::move(event), [&](PhaseTimes& cycles) {
      each_replica([&](uint32_t replica) {
        find_rows(execute.set);
        transfer(set.before, &step);
        const bool is_costed_now = is_here_ && is_costed(execute.set);
        const auto tiles = is_costed_now ? std::optional(slowest_now(execute.set, set)) : std::nullopt;
        compute(execute.set, set, &step);
        transfer(set.after, &step);
        if (is_costed_now) cycles = compiler::superstep_of(executable_.machine, set, *tiles);
        if (has_one_chip())
          clocks_[replica].add(cycles);
        else
          clocks_[replica].run(set, is_costed_now ? tiles->chips() : set.chip_cycles);
        add_links(set.before.cost.links, replica);
        add_links(set.after.cost.links, replica);
      });
    });
    ++profile_.supersteps;
  }

  void execute_set(program::ComputeSetId id, const CompiledSet& set, StepProfile* step) {
    find_rows(id);
    transfer(set.before, step);
    compute(id, set, step);
    transfer(set.after, step);
  }

  void walk_inside(const program::Copy& copy) {
    const Exchange& exchange = executable_.copies[copy.set];
    const std::span<const CopyPart> parts = table_.copy_parts(copy.set);
    const uint32_t part = present_part_;
    if (!is_timed_) {
      walk(copy.beside);
      meet(copy, part);
      return each_replica([&](uint32_t) { transfer(exchange, nullptr, parts); });
    }
    const bool is_apart = compiler::streams_apart(program_, copy, clocks_.front());
    if (is_apart)
      for (compiler::ChipClocks& clocks : clocks_) clocks.start_streaming(exchange.cost);
    walk(copy.beside);
    meet(copy, part);
    StepProfile& step = profile_.copies[copy.set];
    run_step(step, {StepKind::copy, copy.set, 0, {}, exchange.cost.cycles}, [&](PhaseTimes& cycles) {
      each_replica([&](uint32_t replica) {
        transfer(exchange, &step, parts);
        if (is_apart)
          cycles = clocks_[replica].finish_streaming();
        else
          has_one_chip() ? clocks_[replica].add(cycles) : clocks_[replica].run(exchange.cost);
        add_links(exchange.cost.links, replica);
      });
    });
  }

  void walk_inside(const program::Collect& collect) {
    const program::Collective& whole = program_.collectives()[collect.collective];
    const bool has_data = has_memory_ && !options_.dry;
    const std::optional<program::Collective> own =
        parts_ == nullptr ? std::nullopt : std::optional(parts_->meet(whole, *memory_));
    const program::Collective& collective = own ? *own : whole;
    if (has_data) note(collect.collective);
    const bool is_early = has_data && state_.ranks != nullptr && collect.beside != program::kNoStep;
    // The steps beside it use the team.
    const auto exchange_all = [this, &collective, team = is_early ? nullptr : team_,
                               noted = state_.ranks != nullptr ? state_.ranks->noted() : 0] {
      run_collective(program_, collective, state_, options_.reference, noted, team);
    };
    UnderWay under_way;
    if (is_early) under_way.done = state_.collectives.submit(exchange_all);
    const auto exchange = [&] {
      if (!has_data) return;
      if (is_early) return under_way.done.get();
      // Collectives that began before come first.
      if (are_under_way_ > 0) state_.collectives.submit([] {}).get();
      exchange_all();
    };
    const auto walk_beside = [&] {
      are_under_way_ += is_early ? 1 : 0;
      walk(collect.beside);
      are_under_way_ -= is_early ? 1 : 0;
    };
    if (!is_timed_) {
      walk_beside();
      return exchange();
    }
    const compiler::CollectiveCost& cost = executable_.collectives[collect.collective];
    const bool is_alone = collect.beside == program::kNoStep && !clocks_.front().has_under_way();
    if (!is_alone) {
      compiler::ChipClocks::start(clocks_, cost);
      walk_beside();
    }
    StepProfile& step = profile_.collectives[collect.collective];
    run_step(step, {StepKind::collective, collect.collective, 0, {}, cost.cycles}, [&](PhaseTimes& cycles) {
      const Clock::time_point start = Clock::now();
      exchange();
      PhaseTimes seconds;
      seconds[Phase::exchange] = seconds_between(start, Clock::now());
      step.seconds += seconds;
      profile_.phases += seconds;
      if (watch_ != nullptr) watch_->enter_collective(clocks_.front());
      if (is_alone)
        run_together(cycles);
      else
        cycles = compiler::ChipClocks::finish(clocks_, cost);
      if (watch_ != nullptr) watch_->leave_collective(clocks_.front());
      links_.add(cost.links);
    });
  }

  /// All chips of all replicas.
  void run_together(const PhaseTimes& cycles) {
    const double begin = std::ranges::max(clocks_, {}, &compiler::ChipClocks::last).last();
    for (compiler::ChipClocks& clocks : clocks_) {
      clocks.wait_until(begin);
      clocks.run_together(cycles);
    }
  }

  /// If ranks divide the program, brings what a step of a part touches to the ranks that run it, and notes
  /// whether this rank does.
  template <class Step>
  void meet(const Step& step, uint32_t part) {
    if (parts_ != nullptr) is_here_ = parts_->meet(step, part, *memory_);
  }

  // Replicas, which do the same in turn.

  template <class Work>
  void each_replica(const Work& work) {
    for (uint32_t replica = 0; replica < memories_.size(); ++replica) {
      memory_ = &memories_[replica];
      work(replica);
    }
    memory_ = &memories_.front();
  }
  bool has_one_chip() const { return clocks_.front().is_one_chip(); }
  bool has_chips() const {
    return !has_one_chip() || (clocks_.size() > 1 && executable_.machine.kind != machine::Kind::host);
  }

  /// Adds the links of the first replica's chips as another replica's.
  void add_links(const std::vector<program::LinkLoad>& loads, uint32_t replica) {
    links_.add(loads, 1,
               (state_.own.first + replica) * static_cast<uint32_t>(clocks_.front().of_chips().size()));
  }

  /// Whether a superstep's costs read metadata that is available by now.
  bool is_costed(program::ComputeSetId id) const {
    if (!executable_.costed_at_run[id]) return false;
    return !options_.dry || compiler::knows_costs(program_, program_.compute_sets()[id], known_);
  }

  /// A superstep whose costs read metadata.
  compiler::SlowestTiles slowest_now(program::ComputeSetId id, const CompiledSet& set) const {
    const program::ComputeSet& source = program_.compute_sets()[id];
    return compiler::TileCycles(executable_.machine)
        .slowest(source, set,
                 [&](const program::VertexGroup& group, const compiler::CompiledVertex& vertex, size_t f) {
                   FieldView view = view_of(set, group, vertex, f);
                   if (!is_integer(view.type) || (options_.dry && !is_known(group.fields[f])))
                     view.data = nullptr;
                   return view;
                 });
  }

  FieldView view_of(const CompiledSet& set, const program::VertexGroup& group,
                    const compiler::CompiledVertex& vertex, size_t field) const {
    const program::Box box = program::field_box(program_, group.fields[field], vertex.index);
    const BoxAddress& place = set.places[vertex.first_place + field];
    return memory_->view(place, program_.variable(group.fields[field].variable).type, box.rows, box.cols,
                         place.moves ? row_of(vertex.group, field) : 0);
  }

  // Run-time rows of fields.

  void find_rows(program::ComputeSetId id) {
    if (!is_here_) return;
    moved_fields_ = table_.moved_fields(id);
    rows_.clear();
    for (const DispatchTable::MovedField& moved : moved_fields_) rows_.push_back(shift_of(moved.row));
  }

  uint64_t row_of(uint32_t group, size_t field) const {
    for (size_t i = 0; i < moved_fields_.size(); ++i)
      if (moved_fields_[i].group == group && moved_fields_[i].field == field) return rows_[i];
    return 0;
  }

  void move_fields(const CompiledSet& set, const compiler::CompiledVertex& vertex, FieldView* fields) const {
    for (size_t i = 0; i < moved_fields_.size(); ++i) {
      const DispatchTable::MovedField& moved = moved_fields_[i];
      FieldView& field = fields[moved.field];
      if (moved.group != vertex.group || field.data == nullptr ||
          !set.places[vertex.first_place + moved.field].moves)
        continue;
      field.data +=
          static_cast<int64_t>(rows_[i]) * field.row_stride * static_cast<int64_t>(size_of(field.type));
    }
  }

  /// Executes a step and accounts it; `event` has its cycles, which the work may correct.
  template <class Work>
  void run_step(StepProfile& step, TraceEvent event, const Work& work) {
    const bool is_traced = options_.trace != nullptr && options_.trace->size() < kMostTraceEvents;
    if (is_traced) event.start = seconds_between(start_, Clock::now());
    const PhaseTimes before = step.seconds;
    threads_of_step_ = 0;
    const std::vector<compiler::ChipClocks> clocks =
        is_traced && has_chips() ? clocks_ : std::vector<compiler::ChipClocks>{};
    work(event.cycles);
    step.cycles += event.cycles;
    ++step.times;
    if (!is_traced) return;
    for (size_t replica = 0; replica < clocks.size(); ++replica)
      for (size_t chip = 0; chip < clocks[replica].of_chips().size(); ++chip)
        event.chips.push_back(
            {clocks[replica].of_chips()[chip].total(), clocks_[replica].of_chips()[chip].total()});
    event.seconds = step.seconds;
    event.seconds += before.scaled(-1);
    for (uint32_t t = 0; t < threads_of_step_; ++t) event.threads.push_back(busy_of(threads_[t].clock));
    options_.trace->push_back(std::move(event));
  }

  /// Runs the vertices of a compute set, with tiles distributed over the threads.
  void compute(program::ComputeSetId id, const CompiledSet& set, StepProfile* step) {
    if (set.vertices.empty() || !is_here_ || (options_.dry && !runs_dry(program_.compute_sets()[id]))) return;
    const auto tiles = static_cast<uint32_t>(set.tiles.size());
    const uint32_t threads = team_ == nullptr ? 1 : std::min(team_->threads(), tiles);
    const Clock::time_point start = is_timed_ ? Clock::now() : Clock::time_point{};
    threads_.start(threads, is_timed_);
    if (threads == 1)
      compute_alone(id, set);
    else
      compute_together(id, set, threads);
    if (is_timed_) record(*step, seconds_between(start, Clock::now()), threads);
    threads_of_step_ = threads;
  }

  void compute_alone(program::ComputeSetId id, const CompiledSet& set) {
    const program::ComputeSet& source = program_.compute_sets()[id];
    SharingThread& self = threads_[0];
    if (is_timed_) self.clock.start(source.phase);
    for (uint32_t v = 0; v < set.vertices.size(); ++v) run_vertex(id, source, set, v, self, false);
    if (is_timed_) self.clock.stop();
  }

  void compute_together(program::ComputeSetId id, const CompiledSet& set, uint32_t threads) {
    const program::ComputeSet& source = program_.compute_sets()[id];
    const auto tiles = static_cast<uint32_t>(set.tiles.size());
    const bool helps = executable_.machine.kind == machine::Kind::host;
    std::atomic<uint32_t> next{threads};
    team_->run([&](uint32_t thread) {
      if (thread >= threads) return;
      if (is_timed_) threads_[thread].clock.start(source.phase);
      threads_.run(thread, helps, [&](SharingThread& self) {
        const auto next_tile = [&] { return next.fetch_add(1, std::memory_order_relaxed); };
        for (uint32_t t = thread; t<tiles; t = tiles> threads ? next_tile() : tiles)
          for (uint32_t v = set.tile_begin[t]; v < set.tile_begin[t + 1]; ++v)
            run_vertex(id, source, set, v, self, helps);
      });
      if (is_timed_) threads_[thread].clock.stop();
    });
  }

  /// Splits a superstep's time: the mean over its threads, and waiting for each other.
  void record(StepProfile& step, double wall, uint32_t threads) {
    PhaseTimes seconds;
    for (uint32_t t = 0; t < threads; ++t) seconds += threads_[t].clock.times().scaled(1.0 / threads);
    seconds[Phase::sync] += wall - seconds.total();
    step.seconds += seconds;
    profile_.phases += seconds;
  }

  void run_vertex(program::ComputeSetId id, const program::ComputeSet& source, const CompiledSet& set,
                  uint32_t position, SharingThread& self, bool helps) const {
    const compiler::CompiledVertex& vertex = set.vertices[position];
    const program::VertexGroup& group = source.groups[vertex.group];
    const program::Codelet& codelet = *group.codelet;
    if (options_.dry && !runs_dry(group)) return;
    std::array<FieldView, program::kMaxFields> fields;
    std::array<int64_t, program::kMaxParams> params;
    const int64_t* first_param = params.data();
    std::span<std::byte> scratch;
    if (const auto known = table_.vertices(id); !known.empty()) {
      const DispatchTable::Vertex& entry = known[position];
      const DispatchTable::Shape* shapes = table_.shapes(entry);
      const BoxAddress* places = &set.places[vertex.first_place];
      for (size_t f = 0; f < group.fields.size(); ++f)
        fields[f] = memory_->view(places[f], shapes[f].type, shapes[f].rows, shapes[f].cols);
      move_fields(set, vertex, fields.data());
      first_param = table_.params(entry);
      if (entry.scratch >= 0) {
        const FieldView& field = fields[static_cast<size_t>(entry.scratch)];
        scratch = {field.data, field.elements() * size_of(field.type)};
      }
    } else {
      for (size_t f = 0; f < group.fields.size(); ++f) fields[f] = view_of(set, group, vertex, f);
      for (size_t p = 0; p < group.params.size(); ++p) params[p] = group.params[p].at(vertex.index);
    }
    if (helps) self.set_vertex(codelet, scratch);
    const program::Vertex v{{fields.data(), group.fields.size()},
                            {first_param, group.params.size()},
                            is_timed_ ? &self.clock : nullptr,
                            helps ? &self : nullptr};
    const bool plain = options_.reference || codelet.simd == nullptr;
    try {
      (plain ? codelet.reference : codelet.simd)(v);
    } catch (const program::MissingRow& error) {
      refuse(error, id, group, vertex.index);
    } catch (const program::Overflow&) {
      throw program::Overflow(id);
    }
  }

  [[noreturn]] void refuse(const program::MissingRow& error, program::ComputeSetId id,
                           const program::VertexGroup& group, uint32_t vertex) const {
    const program::Field &list = group.fields[error.at.list], &matrix = group.fields[error.at.matrix];
    program::RowEntry at = error.at;
    at.entry += program::field_box(program_, list, vertex).row;
    at.compute_set = id;
    const auto name = [&](const program::Field& field) {
      return fmt::format("'{}'", program_.variable(field.variable).name);
    };
    throw program::MissingRow(at, name(list), name(matrix));
  }

  /// Relative to the beginning of the run.
  Busy busy_of(const ThreadClock& clock) const {
    return {seconds_between(start_, clock.began()), seconds_between(start_, clock.since())};
  }

  bool runs_dry(const program::ComputeSet& set) const {
    return std::ranges::any_of(set.groups,
                               [&](const program::VertexGroup& group) { return runs_dry(group); });
  }
  /// A dry run executes the vertices whose metadata it knows.
  bool runs_dry(const program::VertexGroup& group) const {
    if (!has_memory_ || !group.codelet->integer_only) return false;
    for (size_t f = 0; f < group.fields.size(); ++f)
      if (!is_known(group.fields[f])) return false;
    return true;
  }
  bool is_known(const program::Field& field) const {
    return known_[field.variable] && (!field.row || known_[field.row->index]);
  }

  uint32_t control(program::VariableId variable) const {
    if (options_.dry && !known_[variable])
      throw Error(
          fmt::format("a dry run cannot follow the program: its control flow depends on '{}', "
                      "which only a full run computes, or one that the integer inputs are bound to{}",
                      program_.variable(variable).name,
                      state_.lacked.empty() ? "" : ", or which follows from state that another rank has"));
    if (parts_ != nullptr) parts_->meet_all(variable, *memory_);
    const uint32_t value = memory_->control(variable);
    for (const RunMemory& memory : memories_)
      if (memory.control(variable) != value)
        throw Error(fmt::format("control flow differs between replicas: '{}' is {} in one and {} in another",
                                program_.variable(variable).name, value, memory.control(variable)));
    note(value);
    return value;
  }
  void note(uint64_t what) const {
    if (state_.ranks != nullptr) state_.ranks->note(what);
  }

  /// With `parts`, on all threads: a copy set writes nothing that it reads, so their order does not matter.
  void transfer(const Exchange& exchange, StepProfile* step, std::span<const CopyPart> parts = {}) {
    if (exchange.empty() || !has_memory_ || !is_here_) return;
    const Clock::time_point start = is_timed_ ? Clock::now() : Clock::time_point{};
    std::vector<Shift> shifts;
    for (const compiler::RuntimeRows& rows : exchange.runtime_rows)
      shifts.push_back({shift_of(rows.from), shift_of(rows.to)});
    if (team_ != nullptr && !parts.empty() && !options_.dry)
      copy_together(exchange, shifts, parts);
    else if (options_.dry)
      for (uint32_t t : known_transfers(exchange)) copy(exchange.transfers[t], shifts);
    else
      for (const compiler::Transfer& t : exchange.transfers) copy(t, shifts);
    if (!is_timed_) return;
    PhaseTimes seconds;
    seconds[Phase::exchange] = seconds_between(start, Clock::now());
    step->seconds += seconds;
    profile_.phases += seconds;
  }

  /// Rows by which one exchange moves a transfer.
  struct Shift {
    uint64_t from = 0;
    uint64_t to = 0;
  };

  void copy_together(const Exchange& exchange, const std::vector<Shift>& shifts,
                     std::span<const CopyPart> parts) {
    std::atomic<size_t> next{0};
    team_->run([&](uint32_t) {
      for (size_t p; (p = next.fetch_add(1, std::memory_order_relaxed)) < parts.size();)
        copy(exchange.transfers[parts[p].transfer], shifts, parts[p]);
    });
  }

  void copy(const compiler::Transfer& t, const std::vector<Shift>& shifts) const {
    copy(t, shifts, {0, 0, t.rows > 1 ? t.rows : t.cols});
  }
  void copy(const compiler::Transfer& t, const std::vector<Shift>& shifts, const CopyPart& part) const {
    const Shift shift = t.runtime == compiler::kNoRuntimeRow ? Shift{} : shifts[t.runtime];
    const bool by_rows = t.rows > 1;
    const uint32_t count = part.end - part.begin;
    const uint32_t rows = by_rows ? count : t.rows;
    const uint32_t cols = by_rows ? t.cols : count;
    const auto view = [&](const BoxAddress& place, uint64_t row_shift) {
      FieldView field = memory_->view(place, t.type, t.rows, t.cols, row_shift);
      const int64_t stride = by_rows ? field.row_stride : field.col_stride;
      field.data += part.begin * stride * static_cast<int64_t>(size_of(t.type));
      field.rows = rows;
      field.cols = cols;
      return field;
    };
    copy_elements(view(t.from, shift.from), view(t.to, shift.to));
  }

  const std::vector<uint32_t>& known_transfers(const Exchange& exchange) {
    const auto [found, is_new] = known_transfers_.try_emplace(&exchange);
    for (uint32_t t = 0; is_new && t < exchange.transfers.size(); ++t)
      if (moves_dry(exchange, exchange.transfers[t])) found->second.push_back(t);
    return found->second;
  }

  /// A dry run moves metadata that it knows; of the callers' arrays it knows only integer inputs.
  bool moves_dry(const Exchange& exchange, const compiler::Transfer& t) const {
    const auto is_reached = [&](const BoxAddress& end) {
      return end.store != compiler::Store::external || known_[end.space];
    };
    if (!is_integer(t.type) || !is_reached(t.from) || !is_reached(t.to)) return false;
    if (t.runtime == compiler::kNoRuntimeRow) return true;
    const compiler::RuntimeRows& rows = exchange.runtime_rows[t.runtime];
    return is_known(rows.from) && is_known(rows.to);
  }
  bool is_known(const compiler::RuntimeRows::End& end) const { return !end.row || known_[end.row->index]; }

  uint64_t shift_of(const compiler::RuntimeRows::End& end) const {
    if (!end.row || !has_memory_ || (options_.dry && !is_known(end))) return 0;
    const uint64_t shift = uint64_t{memory_->control(end.row->index)} * end.row->stride;
    if (shift > end.room)
      throw Error(fmt::format("a run-time row leaves '{}': {} rows further down, where {} are left",
                              program_.variable(end.variable).name, shift, end.room));
    return shift;
  }

  const compiler::Executable& executable_;
  const program::Program& program_;
  const DispatchTable& table_;
  RunState& state_;
  std::deque<RunMemory>& memories_;  ///< by replica of this process
  RunMemory* memory_;                ///< of the replica that runs
  const RunOptions& options_;
  bool has_memory_;
  PartExchange* parts_;  ///< null unless other ranks run parts of the program
  uint32_t present_part_ = program::kEveryPart, called_part_ = program::kEveryPart;
  bool is_here_ = true;      ///< whether this rank runs the present step
  bool is_timed_;            ///< and keeps a profile
  std::vector<bool> known_;  ///< by VariableId, in a dry run
  std::map<const Exchange*, std::vector<uint32_t>> known_transfers_;
  Pool::Team* team_;
  WorkSharing& threads_;
  std::span<const DispatchTable::MovedField> moved_fields_;  ///< of the compute set that runs
  std::vector<uint64_t> rows_;                               ///< by which each of them moves
  std::vector<compiler::ChipClocks> clocks_;                 ///< by replica
  compiler::LinkTotals links_;
  compiler::StepWatch* watch_ = nullptr;
  Profile profile_;
  Clock::time_point start_;
  uint32_t threads_of_step_ = 0;
  uint32_t are_under_way_ = 0;  ///< collectives of several ranks, beside steps
};

}  // namespace

Profile Runner::run(RunState& state, std::span<const Binding> bindings, const RunOptions& options) const {
  state.begun.clear();  // in case it cannot begin
  for (RunMemory& memory : state.memories) {
    if (options.dry) {
      memory.bind_metadata(bindings);
      continue;
    }
    memory.bind(bindings);
    memory.load_inputs();
  }
  std::optional<Pool::Team> team;
  if (const uint32_t threads = threads_of(*executable_, table_, options); threads > 1)
    team.emplace(state.pool == nullptr ? Pool::shared() : *state.pool, threads);
  const auto sent_so_far = [&] { return state.ranks == nullptr ? uint64_t{0} : state.ranks->sent_bytes(); };
  const uint64_t sent_before = sent_so_far();
  Profile profile = Run(*executable_, table_, state, bindings, options, team ? &*team : nullptr).run();
  profile.sent_bytes = sent_so_far() - sent_before;
  team.reset();
  if (!options.dry)
    for (const RunMemory& memory : state.memories) memory.store_outputs();
  return profile;
}

std::vector<program::VariableId> Runner::state_in_writing(const RunState& state) const {
  const program::Program& program = *executable_->program;
  program::UsesOfSteps uses(program);
  std::set<program::VariableId> written;
  for (StepId id = 0; id < state.begun.size(); ++id) {
    if (!state.begun[id] || !writes_by_itself(program.steps()[id])) continue;
    const program::StepUses found = uses.of(id);
    for (const auto& [v, is_written] : found.own)
      if (is_written && program.variable(v).role == program::Role::state) written.insert(v);
  }
  return {written.begin(), written.end()};
}

void Runner::run_side_by_side(std::span<RunState* const> states,
                              std::span<const std::vector<Binding>> runs) const {
  const RunOptions options{.profile = false};
  std::atomic<size_t> next = 0;
  const auto work = [&](uint32_t thread) {
    RunMemory& memory = states[thread]->memories.front();
    for (size_t i = next++; i < runs.size(); i = next++) {
      memory.bind(runs[i]);
      try {
        Run(*executable_, table_, *states[thread], runs[i], options, nullptr).run();
      } catch (program::MissingRow& error) {
        error.at.part = static_cast<uint32_t>(i);
        throw;
      }
    }
  };
  if (states.size() == 1) return work(0);
  Pool::Team team(Pool::shared(), static_cast<uint32_t>(states.size()));
  team.run(work);
}

Profile Runner::dry_run(std::span<const Binding> bindings, const RunOptions& options,
                        const RunState* present) const {
  const OwnReplicas own =
      present == nullptr ? OwnReplicas{0, executable_->program->replicas(), 1, 0} : present->own;
  Profile profile = dry_run_of(own, bindings, options, present);
  profile.sent_bytes = predicted_bytes(profile, present);
  return profile;
}

uint64_t Runner::predicted_bytes(const Profile& profile, const RunState* present) const {
  const program::Program& program = *executable_->program;
  if (present == nullptr || present->ranks == nullptr) return 0;
  if (present->parts != nullptr) return present->parts->predicted_bytes();
  uint64_t bytes = 0;
  for (size_t c = 0; c < profile.collectives.size(); ++c)
    if (const uint64_t times = profile.collectives[c].times; times > 0)
      bytes += times * sent_bytes(program, program.collectives()[c], present->own);
  return bytes;
}

Profile Runner::dry_run_of(const OwnReplicas& own, std::span<const Binding> bindings,
                           const RunOptions& options, const RunState* present) const {
  if (options.trace == nullptr && !has_to_follow(*executable_, bindings))
    return counted(*executable_, bindings, options.watch);
  RunState scratch(*executable_, executable_->cycles_vary ? Contents::integers : Contents::none, own);
  if (present != nullptr && present->parts != nullptr) scratch.lacked = present->parts->lacked_integers();
  if (present != nullptr)
    for (size_t r = 0; r < scratch.memories.size(); ++r)
      if (scratch.memories[r].is_allocated() && present->memories[r].is_allocated())
        scratch.memories[r].copy_integer_state(present->memories[r]);
  return run(scratch, bindings, options);
}

bool has_to_follow(const compiler::Executable& executable, std::span<const Binding> bindings) {
  check_bindings(*executable.program, bindings);
  return executable.cycles_vary && compiler::has_to_follow(executable, known_in_run(executable, bindings));
}

Profile counted(const compiler::Executable& executable, std::span<const Binding> bindings,
                compiler::StepWatch* watch) {
  check_bindings(*executable.program, bindings);
  return profile_of_cycles(executable, watch);
}

}  // namespace tessera::engine
