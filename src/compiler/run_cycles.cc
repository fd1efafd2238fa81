#include <fmt/format.h>
#include <tessera/error.h>

#include <array>
#include <functional>

#include "compiler/compile.h"
#include "compiler/tile_cycles.h"

namespace tessera::compiler {
namespace {

using program::PhaseTimes;
using program::VertexGroup;

/// Follows the control flow of one run and adds up its cycles.
class RunCycles {
 public:
  RunCycles(const Executable& e, const TripCounts& trip_counts, StepWatch* watch)
      : e_(e),
        program_(*e.program),
        trip_counts_(trip_counts),
        tile_cycles_(e.machine),
        clocks_(e.machine),
        watch_(clocks_.is_one_chip() ? nullptr : watch) {
    steps_[kSets].resize(e.sets.size());
    steps_[kCopies].resize(e.copies.size());
    steps_[kCollectives].resize(e.collectives.size());
  }

  RunAccount count() {
    if (watch_ != nullptr) watch_->begin(clocks_), clocks_.tell(*watch_);
    walk(program_.main(), 1);
    if (watch_ != nullptr) watch_->end(clocks_);
    const std::vector<PhaseTimes>& chips = clocks_.of_chips();
    RunAccount account;
    account.cycles = clocks_.slowest();
    for (uint32_t r = 0; r < program_.replicas(); ++r) {
      together_.add(links_.loads(), 1, r * static_cast<uint32_t>(chips.size()));
      account.chips.insert(account.chips.end(), chips.begin(), chips.end());
    }
    if (account.chips.size() == 1 || e_.machine.kind == machine::Kind::host) account.chips.clear();
    account.links = together_.loads();
    account.sets = std::move(steps_[kSets]);
    account.copies = std::move(steps_[kCopies]);
    account.collectives = std::move(steps_[kCollectives]);
    return account;
  }

 private:
  enum Kind : uint8_t { kSets, kCopies, kCollectives, kKinds };
  using Steps = std::array<std::vector<StepAccount>, kKinds>;

  // On one chip, the cycles of a loop's body count `times`; on several, and while anything is under way,
  // loops are walked until their chips keep step.
  bool is_in_order() const {
    return !clocks_.is_one_chip() || clocks_.has_under_way() || clocks_.is_streaming();
  }
  void add(const PhaseTimes& cycles, double times) { clocks_.add(cycles.scaled(times)); }
  void note(Kind kind, uint32_t id, const PhaseTimes& cycles, double times) {
    note_all(kind, id, cycles.scaled(times), times);
  }
  void note_all(Kind kind, uint32_t id, const PhaseTimes& cycles, double times) {
    StepAccount& step = steps_[kind][id];
    step.times += static_cast<uint64_t>(times);
    step.cycles += cycles;
  }
  void repeat_steps_since(const Steps& before, uint32_t count) {
    for (size_t kind = 0; kind < kKinds; ++kind)
      for (size_t i = 0; i < before[kind].size(); ++i) {
        StepAccount& step = steps_[kind][i];
        const StepAccount& was = before[kind][i];
        if (step.times == was.times) continue;
        PhaseTimes passed = step.cycles;
        passed += was.cycles.scaled(-1);
        step.times += (step.times - was.times) * count;
        step.cycles += passed.scaled(count);
      }
  }
  void repeat(double times, uint32_t count, const std::function<void(double)>& pass) {
    if (!is_in_order()) return pass(times * count);
    for (uint32_t i = 0; i < count; ++i) {
      const ChipClocks before = clocks_;
      const LinkTotals links = links_, together = together_;
      const Steps steps = steps_;
      const auto mark = watch_ != nullptr ? watch_->mark(clocks_) : StepWatch::Mark();
      pass(times);
      if (i + 1 == count || !clocks_.advanced_evenly_since(before)) continue;
      const ChipClocks passed = clocks_;
      clocks_.repeat_since(before, count - i - 1);
      if (watch_ != nullptr) watch_->repeat_since(mark, before, passed, clocks_, count - i - 1);
      links_.repeat_since(links, count - i - 1);
      together_.repeat_since(together, count - i - 1);
      repeat_steps_since(steps, count - i - 1);
      return;
    }
  }

  void walk(program::StepId id, double times) {
    if (id == program::kNoStep || times == 0) return;
    const bool is_watched = watch_ != nullptr && watch_->watches(id);
    if (is_watched) watch_->enter(id, clocks_);
    std::visit([&](const auto& step) { walk_inside(step, times); }, program_.steps().at(id));
    if (is_watched) watch_->leave(clocks_);
  }

  void walk_inside(const program::Sequence& sequence, double times) {
    for (const program::StepId step : sequence.steps) walk(step, times);
  }
  void walk_inside(const program::Execute& execute, double times) {
    const bool is_costed_now = trip_counts_.contents && e_.costed_at_run[execute.set];
    const CompiledSet& set = e_.sets[execute.set];
    links_.add(set, times);
    if (!is_costed_now) {
      note(kSets, execute.set, e_.set_cycles[execute.set], times);
      return clocks_.is_one_chip() ? add(e_.set_cycles[execute.set], times)
                                   : clocks_.run(set, set.chip_cycles);
    }
    const SlowestTiles tiles = tiles_now(execute.set);
    const PhaseTimes cycles = superstep_of(e_.machine, set, tiles);
    note(kSets, execute.set, cycles, times);
    clocks_.is_one_chip() ? add(cycles, times) : clocks_.run(set, tiles.chips());
  }
  void walk_inside(const program::Copy& copy, double times) {
    const ExchangeCost& cost = e_.copies[copy.set].cost;
    links_.add(cost.links, times);
    if (streams_apart(program_, copy, clocks_)) {
      clocks_.start_streaming(cost, times);
      walk(copy.beside, times);
      return note_all(kCopies, copy.set, clocks_.finish_streaming(times), times);
    }
    note(kCopies, copy.set, cost.cycles, times);
    clocks_.is_one_chip() ? add(cost.cycles, times) : clocks_.run(cost);
  }
  void walk_inside(const program::Collect& collect, double times) {
    const CollectiveCost& cost = e_.collectives[collect.collective];
    together_.add(cost.links, times);
    const bool is_alone = collect.beside == program::kNoStep && !clocks_.has_under_way();
    if (is_alone) note(kCollectives, collect.collective, cost.cycles, times);
    if (is_alone && clocks_.is_one_chip()) return add(cost.cycles, times);
    if (!is_alone) {
      ChipClocks::start({&clocks_, 1}, cost, times);
      walk(collect.beside, times);
    }
    if (watch_ != nullptr) watch_->enter_collective(clocks_);
    if (is_alone)
      clocks_.run_together(cost.cycles);
    else
      note_all(kCollectives, collect.collective, ChipClocks::finish({&clocks_, 1}, cost, times), times);
    if (watch_ != nullptr) watch_->leave_collective(clocks_);
  }
  void walk_inside(const program::Repeat& loop, double times) {
    repeat(times, loop.count, [&](double all) { walk(loop.body, all); });
  }
  void walk_inside(const program::While& loop, double times) {
    if (!trip_counts_.of_loops)
      throw Error(fmt::format("an estimate needs the trip count of the loop that '{}' ends",
                              program_.variable(loop.condition).name));
    const bool in_order = is_in_order();
    walk(loop.test, in_order ? times : times * (*trip_counts_.of_loops + 1));
    const uint32_t outside = trip_;
    for (trip_ = 1; trip_ <= *trip_counts_.of_loops; ++trip_) {
      walk(loop.body, times);
      if (in_order) walk(loop.test, times);
    }
    trip_ = outside;
  }
  void walk_inside(const program::If& branch, double) {
    throw Error(fmt::format("an estimate cannot follow the program: what it does depends on '{}'",
                            program_.variable(branch.condition).name));
  }
  void walk_inside(const program::Call& call, double times) {
    walk(program_.functions().at(call.function).body, times);
  }

  /// For a set whose costs read changing metadata.
  SlowestTiles tiles_now(program::ComputeSetId id) {
    const program::ComputeSet& set = program_.compute_sets()[id];
    const CompiledSet& compiled = e_.sets[id];
    return tile_cycles_.slowest(set, compiled,
                                [&](const VertexGroup& group, const CompiledVertex& vertex, size_t f) {
                                  return view_of(group, vertex, f);
                                });
  }

  program::FieldView view_of(const VertexGroup& group, const CompiledVertex& vertex, size_t f) const {
    const program::Field& field = group.fields[f];
    program::FieldView view = known_view(program_, field, vertex.index);
    if (!reads_changing_metadata(program_, group, f)) return view;
    if (field.row)
      throw Error(fmt::format(
          "an estimate cannot follow the program: costs depend on rows of '{}' that only a run knows",
          program_.variable(field.variable).name));
    const program::Box box = field_box(program_, field, vertex.index);
    view.data = const_cast<std::byte*>(trip_counts_.contents(field.variable, box, trip_));
    view.row_stride = box.cols;
    return view;
  }

  const Executable& e_;
  const program::Program& program_;
  const TripCounts& trip_counts_;
  TileCycles tile_cycles_;
  uint32_t trip_ = 0;  ///< number of times that the innermost loop's body has run, including the present one
  ChipClocks clocks_;
  LinkTotals links_;     ///< of the first replica
  LinkTotals together_;  ///< of collectives
  Steps steps_;
  StepWatch* watch_;
};

}  // namespace

RunAccount cycles_of_run(const Executable& executable, const TripCounts& trip_counts, StepWatch* watch) {
  return RunCycles(executable, trip_counts, watch).count();
}

}  // namespace tessera::compiler
