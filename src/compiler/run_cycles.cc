#include <fmt/format.h>
#include <tessera/error.h>

#include "compiler/passes.h"
#include "compiler/tile_cycles.h"

namespace tessera::compiler {
namespace {

using program::PhaseTimes;
using program::VertexGroup;

/// Follows the control flow of one run and adds up its cycles.
class RunCycles {
 public:
  RunCycles(const Compilation& c, const TripCounts& trip_counts)
      : c_(c), e_(*c.executable), trip_counts_(trip_counts), tile_cycles_(c.machine) {}

  PhaseTimes count() {
    walk(c_.program.main(), 1);
    return cycles_;
  }

 private:
  void walk(program::StepId id, double times) {
    if (id == program::kNoStep || times == 0) return;
    std::visit([&](const auto& step) { walk_inside(step, times); }, c_.program.steps().at(id));
  }

  void walk_inside(const program::Sequence& sequence, double times) {
    for (const program::StepId step : sequence.steps) walk(step, times);
  }
  void walk_inside(const program::Execute& execute, double times) {
    const bool is_costed_now = trip_counts_.contents && e_.costed_at_run[execute.set];
    cycles_ += (is_costed_now ? cycles_now(execute.set) : e_.set_cycles[execute.set]).scaled(times);
  }
  void walk_inside(const program::Copy& copy, double times) {
    cycles_ += e_.copies[copy.set].cost.cycles.scaled(times);
  }
  void walk_inside(const program::Repeat& repeat, double times) { walk(repeat.body, times * repeat.count); }
  void walk_inside(const program::While& loop, double times) {
    if (!trip_counts_.of_loops)
      throw Error(fmt::format("an estimate needs the trip count of the loop that '{}' ends",
                              c_.program.variable(loop.condition).name));
    walk(loop.test, times * (*trip_counts_.of_loops + 1));
    const uint32_t outside = trip_;
    for (trip_ = 1; trip_ <= *trip_counts_.of_loops; ++trip_) walk(loop.body, times);
    trip_ = outside;
  }
  void walk_inside(const program::If& branch, double) {
    throw Error(fmt::format("an estimate cannot follow the program: what it does depends on '{}'",
                            c_.program.variable(branch.condition).name));
  }
  void walk_inside(const program::Call& call, double times) {
    walk(c_.program.functions().at(call.function).body, times);
  }

  /// For a set whose costs read changing metadata.
  PhaseTimes cycles_now(program::ComputeSetId id) {
    const program::ComputeSet& set = c_.program.compute_sets()[id];
    const CompiledSet& compiled = e_.sets[id];
    const PhaseTimes slowest = tile_cycles_.slowest(
        set, compiled, [&](const VertexGroup& group, const CompiledVertex& vertex, size_t f) {
          return view_of(group.fields[f], vertex);
        });
    return superstep_of(c_.machine, compiled, slowest);
  }

  program::FieldView view_of(const program::Field& field, const CompiledVertex& vertex) const {
    program::FieldView view = known_view(c_.program, field, vertex.index);
    const program::Variable& variable = c_.program.variable(field.variable);
    if (field.row && epsilon_of(variable.type) == 0.0)
      throw Error(fmt::format(
          "an estimate cannot follow the program: costs depend on rows of '{}' that only a run knows",
          variable.name));
    if (variable.role == program::Role::constant || epsilon_of(variable.type) != 0.0) return view;
    const program::Box box = field_box(c_.program, field, vertex.index);
    view.data = const_cast<std::byte*>(trip_counts_.contents(field.variable, box, trip_));
    view.row_stride = box.cols;
    return view;
  }

  const Compilation& c_;
  const Executable& e_;
  const TripCounts& trip_counts_;
  TileCycles tile_cycles_;
  uint32_t trip_ = 0;  ///< number of times that the innermost loop's body has run, including the present one
  PhaseTimes cycles_;
};

}  // namespace

PhaseTimes cycles_of_run(const Compilation& c, const TripCounts& trip_counts) {
  return RunCycles(c, trip_counts).count();
}

}  // namespace tessera::compiler
