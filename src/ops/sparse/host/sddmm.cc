#include "ops/sparse/host/sddmm.h"

#include <algorithm>

#include "kernels/host/sddmm/codelet.h"
#include "kernels/host/sddmm/cost.h"
#include "ops/knobs.h"
#include "ops/sparse/host/spmm_family.h"
#include "program/cycles.h"

namespace tessera::ops {
namespace {

using machine::Machine;
using program::Box;
using program::BoxSeries;
using program::Field;
using program::Param;
using program::PhaseTimes;
using program::Role;
using program::VariableId;
using sparse::kRowGroupLanes;

kernels::SddmmOperands operands_of(const SddmmProblem& problem, uint32_t m, uint32_t k) {
  kernels::SddmmOperands o;
  o.n = problem.n;
  o.dy = placed<const float>(problem.dy_layout, m, problem.n);
  o.x = placed<const float>(problem.x_layout, k, problem.n);
  return o;
}

/// What the planner and the builder need to know of the kernel for blocks.
struct BlockGradient {
  using Schedule = kernels::BlockSddmmSchedule;

  const sparse::PackedBlocks& weight;

  static constexpr const program::Codelet& codelet() { return kernels::block_sddmm_codelet; }

  template <class Visit>
  static void visit_knobs(Schedule& schedule, const Visit& visit) {
    kernels::visit_block_sddmm_knobs(schedule, visit);
  }

  std::vector<Schedule> candidates(const SddmmProblem& problem, const Machine& m) const {
    return kernels::block_sddmm_candidates(kernels::view_of(weight), problem.n, m.tiles, m.figures);
  }

  std::vector<uint32_t> row_parts(uint32_t parts) const { return Blocks{weight}.row_parts(parts); }
  uint32_t first_row(uint32_t unit) const { return std::min(unit * weight.block_size(), weight.rows()); }

  PhaseTimes cost(const Schedule& schedule, const SddmmProblem& problem, uint32_t begin, uint32_t end,
                  const Machine& m) const {
    kernels::BlockSddmmSlice slice;
    slice.weight = kernels::view_of(weight);
    if (weight.is_dynamic()) slice.weight.row_begin = nullptr;
    slice.weight.capacity = static_cast<uint32_t>(weight.capacity());
    slice.block_row_begin = begin;
    slice.block_row_end = end;
    slice.operands = operands_of(problem, weight.rows(), weight.cols());
    slice.schedule = schedule;
    return kernels::block_sddmm_cost(slice, m.figures);
  }

  size_t scratch_floats(const Schedule& schedule, const SddmmProblem& problem, uint32_t begin,
                        uint32_t end) const {
    return kernels::block_sddmm_scratch(
        schedule, kernels::view_of(weight), end - begin, problem.n,
        {problem.x_layout == Layout::column_major, problem.dy_layout == Layout::column_major});
  }
};

/// The same of the kernel for single elements.
struct ElementGradient {
  using Schedule = kernels::ElementSddmmSchedule;

  const sparse::PackedElements& weight;

  static constexpr const program::Codelet& codelet() { return kernels::element_sddmm_codelet; }

  template <class Visit>
  static void visit_knobs(Schedule& schedule, const Visit& visit) {
    kernels::visit_element_sddmm_knobs(schedule, visit);
  }

  std::vector<Schedule> candidates(const SddmmProblem& problem, const Machine& m) const {
    return kernels::element_sddmm_candidates(kernels::view_of(weight), problem.n, m.tiles, m.figures);
  }

  std::vector<uint32_t> row_parts(uint32_t parts) const { return Elements{weight}.row_parts(parts); }
  uint32_t first_row(uint32_t unit) const { return Elements{weight}.first_row(unit); }
  uint64_t capacity_of(uint32_t begin, uint32_t end) const {
    return Elements{weight}.capacity_of(begin, end);
  }

  PhaseTimes cost(const Schedule& schedule, const SddmmProblem& problem, uint32_t begin, uint32_t end,
                  const Machine& m) const {
    kernels::ElementSddmmSlice slice;
    slice.weight = kernels::view_of(weight);
    if (weight.is_dynamic()) slice.weight.blocks = nullptr;
    slice.weight.capacity = capacity_of(begin, end);
    slice.chunk_begin = begin;
    slice.chunk_end = end;
    slice.operands = operands_of(problem, weight.rows(), weight.cols());
    slice.schedule = schedule;
    return kernels::element_sddmm_cost(slice, m.figures);
  }

  size_t scratch_floats(const Schedule& schedule, const SddmmProblem& problem, uint32_t, uint32_t) const {
    return kernels::element_sddmm_scratch(schedule, kernels::view_of(weight), problem.n);
  }
};

template <class Visit>
auto with_gradient(const PackedWeight& weight, const Visit& visit) {
  if (const auto* blocks = std::get_if<sparse::PackedBlocks>(&weight.form))
    return visit(BlockGradient{*blocks});
  return visit(ElementGradient{std::get<sparse::PackedElements>(weight.form)});
}

/// A cut with its parts, and what it is predicted to cost: each phase as its slowest tile has it.
template <class Family>
SddmmPlan weigh(const Family& family, const typename Family::Schedule& schedule, const SddmmProblem& problem,
                const Machine& m) {
  SddmmPlan plan;
  plan.schedule = schedule;
  plan.row_begin = family.row_parts(schedule.row_parts);
  PhaseTimes slowest;
  uint64_t scratch = 0;
  for (size_t p = 0; p + 1 < plan.row_begin.size(); ++p) {
    const PhaseTimes cost = family.cost(schedule, problem, plan.row_begin[p], plan.row_begin[p + 1], m);
    if (cost.total() > slowest.total()) slowest = cost;
    scratch +=
        family.scratch_floats(schedule, problem, plan.row_begin[p], plan.row_begin[p + 1]) * sizeof(float);
  }
  slowest[program::Phase::sync] += program::sync_cycles(m, plan.tiles_used()) / m.clock_hz;
  plan.chosen = {describe_knobs<Family>(schedule), slowest, scratch, ""};
  if (plan.tiles_used() > m.tiles)
    plan.chosen.rejected = fmt::format("{} parts for {} tiles", plan.tiles_used(), m.tiles);
  return plan;
}

/// Builds the program of one gradient.
template <class Family>
class Builder {
 public:
  Builder(const Family& family, std::shared_ptr<const PackedWeight> owner, const SddmmProblem& problem,
          const SddmmPlan& plan)
      : family_(family), owner_(std::move(owner)), problem_(problem), plan_(plan) {}

  /// An array of the weight's index: a constant, or bound in each run where the pattern changes.
  VariableId index(std::string name, Type type, const void* data, uint64_t rows, uint32_t cols,
                   bool changes) {
    const auto r = static_cast<uint32_t>(rows);
    if (!changes)
      return out_.program.add({std::move(name),
                               type,
                               r,
                               cols,
                               Role::constant,
                               program::map_shared(r, cols),
                               {owner_, static_cast<const std::byte*>(data)}});
    const VariableId id = external(std::move(name), Role::input, type, r, cols);
    out_.variables.index.push_back({id, data, cols});
    return id;
  }

  Field whole(VariableId id) const { return {id, BoxSeries::same(out_.program.variable(id).whole())}; }

  template <class MakeBox>
  Field parts(VariableId id, const MakeBox& make) const {
    std::vector<Box> boxes;
    for (size_t p = 0; p < plan_.tiles_used(); ++p) boxes.push_back(make(p));
    return {id, BoxSeries::table(std::move(boxes))};
  }

  /// The entries of an index of rows or chunks that a part needs: its own and the end.
  Field part_of_index(VariableId id) const {
    return parts(id, [&](size_t p) {
      return Box{0, 1, plan_.row_begin[p], plan_.row_begin[p + 1] - plan_.row_begin[p] + 1};
    });
  }

  /// A program of one set of vertices with the index fields, dY, X, dW, scalars and scratch.
  /// dw_begin has the first row of dW of each part, and its end; where it is empty each part takes
  /// the whole.
  SddmmProgram finish(std::vector<Field> fields, std::vector<Param> params, uint32_t dw_rows,
                      uint32_t dw_cols, const std::vector<uint32_t>& dw_begin) {
    SddmmVariables& v = out_.variables;
    v.dy = external("dY", Role::input, Type::f32, family_.weight.rows(), problem_.n);
    v.x = external("X", Role::input, Type::f32, family_.weight.cols(), problem_.n);
    v.dw = external("dW", Role::inout, Type::f32, dw_rows, dw_cols);
    v.scalars = external("scalars", Role::input, Type::f32, 1, 2);
    fields.push_back(parts(v.dy, [&](size_t p) {
      const uint32_t first = family_.first_row(plan_.row_begin[p]);
      return Box{first, family_.first_row(plan_.row_begin[p + 1]) - first, 0, problem_.n};
    }));
    fields.push_back(whole(v.x));
    fields.push_back(dw_begin.empty() ? whole(v.dw) : parts(v.dw, [&](size_t p) {
      return Box{dw_begin[p], dw_begin[p + 1] - dw_begin[p], 0, dw_cols};
    }));
    fields.push_back(whole(v.scalars));
    fields.push_back(scratch());
    program::VertexGroup group;
    group.codelet = &Family::codelet();
    group.tiles = plan_.tiles_used();
    group.fields = std::move(fields);
    group.params = std::move(params);
    typename Family::Schedule schedule = std::get<typename Family::Schedule>(plan_.schedule);
    Family::visit_knobs(schedule, [&](std::string_view, auto& knob) {
      group.params.emplace_back(static_cast<int64_t>(knob));
    });
    program::ComputeSet set{"sample", program::Phase::compute, {}};
    set.groups.push_back(std::move(group));
    out_.program.set_main(out_.program.execute(std::move(set)));
    return std::move(out_);
  }

 private:
  VariableId external(std::string name, Role role, Type type, uint32_t rows, uint32_t cols) {
    return out_.program.add(
        {std::move(name), type, rows, cols, role, program::map_shared(rows, cols), nullptr});
  }

  Field scratch() {
    size_t floats = 0;
    for (size_t p = 0; p < plan_.tiles_used(); ++p)
      floats = std::max(floats, family_.scratch_floats(std::get<typename Family::Schedule>(plan_.schedule),
                                                       problem_, plan_.row_begin[p], plan_.row_begin[p + 1]));
    const auto cols = static_cast<uint32_t>((floats + 15) / 16 * 16);
    const VariableId id = out_.program.add({"scratch", Type::f32, plan_.tiles_used(), cols, Role::temporary,
                                            program::map_shared(plan_.tiles_used(), cols), nullptr});
    return {id, BoxSeries::stepped({0, 1, 0, cols}, {.row = 1})};
  }

  const Family& family_;
  std::shared_ptr<const PackedWeight> owner_;
  const SddmmProblem& problem_;
  const SddmmPlan& plan_;
  SddmmProgram out_;
};

SddmmProgram build(const BlockGradient& family, const std::shared_ptr<const PackedWeight>& owner,
                   const SddmmProblem& problem, const SddmmPlan& plan) {
  Builder<BlockGradient> b(family, owner, problem, plan);
  const sparse::PackedBlocks& w = family.weight;
  const sparse::BlockIndex& index = w.index();
  const auto blocks = static_cast<uint32_t>(w.capacity());
  const bool changes = w.is_dynamic();
  const VariableId row_begin =
      b.index("W.row_begin", Type::u32, index.row_begin.data(), 1, index.rows() + 1, changes);
  const VariableId columns =
      b.index("W.columns", index.column_type, index.columns.data(), 1, blocks, changes);
  const VariableId slots = b.index("W.slots", Type::u32, index.slots.data(), 1,
                                   static_cast<uint32_t>(index.slots.size()), changes);
  std::vector<uint32_t> dw_begin;
  if (!changes)
    for (uint32_t row : plan.row_begin) dw_begin.push_back(index.row_begin[row]);
  std::vector<int64_t> first_block(dw_begin.begin(), dw_begin.end());
  first_block.resize(plan.tiles_used());
  return b.finish({b.part_of_index(row_begin), b.whole(columns), b.whole(slots)},
                  {Param(w.block_size()), Param(std::move(first_block))}, blocks, w.order().block_values(),
                  dw_begin);
}

SddmmProgram build(const ElementGradient& family, const std::shared_ptr<const PackedWeight>& owner,
                   const SddmmProblem& problem, const SddmmPlan& plan) {
  Builder<ElementGradient> b(family, owner, problem, plan);
  const sparse::PackedElements& w = family.weight;
  const sparse::ElementIndex& index = w.index();
  const bool changes = w.is_dynamic();
  const auto steps = static_cast<uint32_t>(w.places() / kRowGroupLanes);
  const VariableId chunks =
      b.index("W.chunk_begin", Type::u32, index.chunk_begin.data(), 1, w.chunks() + 1, false);
  const VariableId blocks = b.index("W.blocks", Type::u8, index.blocks.data(), index.blocks.size(),
                                    sizeof(sparse::ElementBlock), changes);
  const VariableId row_groups = b.index("W.bundles", Type::u8, index.row_groups.data(),
                                        index.row_groups.size(), sizeof(sparse::RowGroup), changes);
  const VariableId words = b.index("W.words", Type::u32, index.words.data(),
                                   index.words.size() / kRowGroupLanes, kRowGroupLanes, changes);
  // Where parts take the whole of dW, the last one clears what no bundle has.
  std::vector<uint32_t> dw_begin;
  std::vector<int64_t> first_chunk(plan.row_begin.begin(), plan.row_begin.end() - 1);
  std::vector<int64_t> first_step(plan.tiles_used(), 0), end_step(plan.tiles_used(), 0);
  if (!changes) {
    for (uint32_t chunk : plan.row_begin)
      dw_begin.push_back(
          static_cast<uint32_t>(index.blocks[uint64_t{chunk} * w.k_blocks()].value / kRowGroupLanes));
    first_step.assign(dw_begin.begin(), dw_begin.end() - 1);
    dw_begin.back() = steps;
  }
  end_step.back() = steps;
  std::vector<int64_t> capacity;
  for (size_t p = 0; p < plan.tiles_used(); ++p)
    capacity.push_back(static_cast<int64_t>(family.capacity_of(plan.row_begin[p], plan.row_begin[p + 1])));
  return b.finish({b.part_of_index(chunks), b.whole(blocks), b.whole(row_groups), b.whole(words)},
                  {Param(w.k_block()), Param(std::move(first_chunk)), Param(std::move(first_step)),
                   Param(std::move(end_step)), Param(std::move(capacity))},
                  steps, kRowGroupLanes, dw_begin);
}

}  // namespace

uint64_t packed_elements(const PackedWeight& weight) {
  if (const auto* blocks = std::get_if<sparse::PackedBlocks>(&weight.form))
    return blocks->capacity() * blocks->order().block_values();
  return std::get<sparse::PackedElements>(weight.form).places();
}

void clear_free_places(const PackedWeight& weight, float* packed) {
  const auto* blocks = std::get_if<sparse::PackedBlocks>(&weight.form);
  if (blocks == nullptr) return;
  const size_t values = blocks->order().block_values();
  for (uint32_t slot : blocks->free_slots()) std::fill_n(packed + slot * values, values, 0.0F);
}

void check_sddmm(uint32_t block_size, const ForcedKnobs& force) {
  check_spmm(block_size, {});
  block_size == 1 ? check_knobs<ElementGradient>(force) : check_knobs<BlockGradient>(force);
}

SddmmPlan plan_sddmm(const PackedWeight& weight, const SddmmProblem& problem, const Machine& machine,
                     const ForcedKnobs& force) {
  return with_gradient(weight, [&](const auto& family) {
    using Family = std::decay_t<decltype(family)>;
    return plan_fastest<Family>(family.candidates(problem, machine), force, [&](const auto& schedule) {
      return weigh(family, schedule, problem, machine);
    });
  });
}

SddmmProgram build_sddmm(const std::shared_ptr<const PackedWeight>& weight, const SddmmProblem& problem,
                         const SddmmPlan& plan) {
  return with_gradient(*weight, [&](const auto& family) { return build(family, weight, problem, plan); });
}

std::string to_string(const SddmmPlan& plan) {
  return fmt::format("{}; {} parts; predicted {:.3g} us", plan.chosen.partition, plan.tiles_used(),
                     plan.chosen.total() * 1e6);
}

}  // namespace tessera::ops
