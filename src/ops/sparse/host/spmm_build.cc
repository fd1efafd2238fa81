#include "ops/sparse/host/spmm_family.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::Field;
using program::Param;
using program::Role;
using program::VariableId;
using sparse::PackedBlocks;
using sparse::PackedElements;

/// Builds the program of one product.
template <class Family>
class Builder {
 public:
  Builder(const Family& family, std::shared_ptr<const PackedWeight> owner, const SpmmProblem& problem,
          const SpmmPlan& plan)
      : family_(family), owner_(std::move(owner)), problem_(problem), plan_(plan) {}

  VariableId external(std::string name, Role role, Type type, uint32_t rows, uint32_t cols) {
    return out_.program.add(
        {std::move(name), type, rows, cols, role, program::map_shared(rows, cols), nullptr});
  }

  /// An array of the weight's index. It stays where it is, and keeps the weight alive. That of a
  /// weight whose pattern changes is bound anew in each run.
  VariableId index(std::string name, Type type, const void* data, uint64_t rows, uint32_t cols,
                   bool changes = false) {
    const auto r = static_cast<uint32_t>(rows);
    if (changes) {
      const VariableId id = external(std::move(name), Role::input, type, r, cols);
      out_.variables.index.push_back({id, data, cols});
      return id;
    }
    return out_.program.add({std::move(name),
                             type,
                             r,
                             cols,
                             Role::constant,
                             program::map_shared(r, cols),
                             {owner_, static_cast<const std::byte*>(data)}});
  }

  Field whole(VariableId id) const { return {id, BoxSeries::same(out_.program.variable(id).whole())}; }

  /// A field whose box depends on the part of rows and of columns.
  template <class MakeBox>
  Field parts(VariableId id, const MakeBox& make) const {
    std::vector<Box> boxes;
    for (size_t r = 0; r + 1 < plan_.row_begin.size(); ++r)
      for (size_t c = 0; c + 1 < plan_.col_begin.size(); ++c) boxes.push_back(make(r, c));
    return {id, BoxSeries::table(std::move(boxes))};
  }

  uint32_t first_row(size_t part) const { return family_.first_row(plan_.row_begin[part]); }
  uint32_t rows_of(size_t part) const { return first_row(part + 1) - first_row(part); }
  uint32_t first_col(size_t part) const { return plan_.col_begin[part]; }
  uint32_t cols_of(size_t part) const { return plan_.col_begin[part + 1] - plan_.col_begin[part]; }

  /// Fields x, y, scalars, bias, scratch: what both families end with.
  std::vector<Field> activations() {
    const uint32_t m = family_.rows();
    const uint32_t k = family_.cols();
    SpmmVariables& v = out_.variables;
    v.x = external("X", Role::input, Type::f32, k, problem_.n);
    v.y = external("Y", Role::inout, Type::f32, m, problem_.n);
    v.scalars = external("scalars", Role::input, Type::f32, 1, 2);
    v.bias = external("bias", Role::input, Type::f32, 1, problem_.bias ? m : 0);
    return {parts(v.x,
                  [&](size_t, size_t c) {
                    return Box{0, k, first_col(c), cols_of(c)};
                  }),
            parts(v.y,
                  [&](size_t r, size_t c) {
                    return Box{first_row(r), rows_of(r), first_col(c), cols_of(c)};
                  }),
            whole(v.scalars),
            parts(v.bias,
                  [&](size_t r, size_t) {
                    return problem_.bias ? Box{0, 1, first_row(r), rows_of(r)} : Box{};
                  }),
            scratch()};
  }

  Field scratch() {
    const auto& schedule = std::get<typename Family::Schedule>(plan_.schedule);
    size_t floats = 0;
    for (size_t c = 0; c + 1 < plan_.col_begin.size(); ++c)
      floats = std::max(floats, family_.scratch_floats(schedule, cols_of(c)));
    const auto cols = static_cast<uint32_t>((floats + 15) / 16 * 16);
    const VariableId id = out_.program.add({"scratch", Type::f32, plan_.tiles_used(), cols, Role::temporary,
                                            program::map_shared(plan_.tiles_used(), cols), nullptr});
    return {id, BoxSeries::stepped({0, 1, 0, cols}, {.row = 1})};
  }

  std::vector<Param> with_knobs(std::vector<Param> params) const {
    typename Family::Schedule schedule = std::get<typename Family::Schedule>(plan_.schedule);
    Family::visit_knobs(
        schedule, [&](std::string_view, auto& knob) { params.emplace_back(static_cast<int64_t>(knob)); });
    return params;
  }

  /// The product, behind the steps that it needs first.
  SpmmProgram finish(std::vector<Field> fields, std::vector<Param> params,
                     std::vector<program::StepId> steps = {}) {
    program::VertexGroup group;
    group.codelet = &Family::codelet();
    group.tiles = plan_.tiles_used();
    group.fields = std::move(fields);
    group.params = with_knobs(std::move(params));
    program::ComputeSet set{"multiply", program::Phase::compute, {}};
    set.groups.push_back(std::move(group));
    steps.push_back(out_.program.execute(std::move(set)));
    out_.program.set_main(out_.program.sequence(std::move(steps)));
    return std::move(out_);
  }

  SpmmProgram& out() { return out_; }

 private:
  const Family& family_;
  std::shared_ptr<const PackedWeight> owner_;
  const SpmmProblem& problem_;
  const SpmmPlan& plan_;
  SpmmProgram out_;
};

std::vector<Field> concat(std::vector<Field> a, std::vector<Field> b) {
  a.insert(a.end(), std::make_move_iterator(b.begin()), std::make_move_iterator(b.end()));
  return a;
}

SpmmProgram build(const Blocks& family, const std::shared_ptr<const PackedWeight>& owner,
                  const SpmmProblem& problem, const SpmmPlan& plan) {
  Builder<Blocks> b(family, owner, problem, plan);
  const PackedBlocks& w = family.weight;
  const auto blocks = static_cast<uint32_t>(w.capacity());
  const sparse::BlockIndex& index = problem.transpose ? w.transposed_index() : w.index();
  const bool changes = w.is_dynamic();
  const VariableId values = b.external("W.values", Role::input, w.type(), blocks, w.order().block_values());
  const VariableId row_begin =
      b.index("W.row_begin", Type::u32, index.row_begin.data(), 1, index.rows() + 1, changes);
  const VariableId columns =
      b.index("W.columns", index.column_type, index.columns.data(), 1, blocks, changes);
  const VariableId slots = b.index("W.slots", Type::u32, index.slots.data(), 1,
                                   static_cast<uint32_t>(index.slots.size()), changes);
  b.out().variables.values = values;
  return b.finish(
      concat({b.whole(values),
              b.parts(row_begin,
                      [&](size_t r, size_t) {
                        return Box{0, 1, plan.row_begin[r], plan.row_begin[r + 1] - plan.row_begin[r] + 1};
                      }),
              b.whole(columns), b.whole(slots)},
             b.activations()),
      {Param(w.block_size()), Param(problem.transpose), Param(static_cast<int64_t>(problem.activation))});
}

/// Brings the values of a weight into the order of its transpose, on the tiles of the product.
std::pair<VariableId, program::StepId> gather_values(Builder<Elements>& b, const Elements& family,
                                                     VariableId values, uint32_t tiles) {
  const PackedElements& w = family.weight;
  const uint32_t rows = family.value_rows();
  const uint32_t lanes = sparse::kRowGroupLanes;
  const VariableId places =
      b.index("W.places", Type::u32, w.transposed().source.data(), rows, lanes, w.is_dynamic());
  program::Program& program = b.out().program;
  const VariableId gathered = program.add(
      {"W.gathered", w.type(), rows, lanes, Role::temporary, program::map_shared(rows, lanes), nullptr});
  const std::vector<uint32_t> begin = family.gather_parts(tiles);
  std::vector<Box> boxes;
  for (size_t p = 0; p + 1 < begin.size(); ++p)
    boxes.push_back({begin[p], begin[p + 1] - begin[p], 0, lanes});
  program::VertexGroup group;
  group.codelet = &kernels::gather_elements_codelet;
  group.tiles = static_cast<uint32_t>(boxes.size());
  group.fields = {b.whole(values), {places, BoxSeries::table(boxes)}, {gathered, BoxSeries::table(boxes)}};
  program::ComputeSet set{"gather", program::Phase::rearrange, {}};
  set.groups.push_back(std::move(group));
  return {gathered, program.execute(std::move(set))};
}

SpmmProgram build(const Elements& family, const std::shared_ptr<const PackedWeight>& owner,
                  const SpmmProblem& problem, const SpmmPlan& plan) {
  Builder<Elements> b(family, owner, problem, plan);
  const PackedElements& w = family.weight;
  const sparse::ElementIndex& index = family.index();
  const uint32_t lanes = sparse::kRowGroupLanes;
  const bool changes = w.is_dynamic();
  VariableId values =
      b.external("W.values", Role::input, w.type(), static_cast<uint32_t>(w.places() / lanes), lanes);
  b.out().variables.values = values;
  std::vector<program::StepId> before;
  if (problem.transpose) {
    const auto [gathered, step] = gather_values(b, family, values, plan.tiles_used());
    values = gathered;
    before.push_back(step);
  }
  const VariableId chunks =
      b.index("W.chunk_begin", Type::u32, index.chunk_begin.data(), 1, index.chunks() + 1);
  const VariableId blocks = b.index("W.blocks", Type::u8, index.blocks.data(), index.blocks.size(),
                                    sizeof(sparse::ElementBlock), changes);
  const VariableId row_groups = b.index("W.bundles", Type::u8, index.row_groups.data(),
                                        index.row_groups.size(), sizeof(sparse::RowGroup), changes);
  const VariableId indices =
      b.index("W.indices", Type::u32, index.words.data(), index.words.size() / lanes, lanes, changes);
  std::vector<int64_t> first_chunk, capacity;
  for (size_t r = 0; r + 1 < plan.row_begin.size(); ++r) {
    first_chunk.insert(first_chunk.end(), plan.col_begin.size() - 1, plan.row_begin[r]);
    capacity.insert(capacity.end(), plan.col_begin.size() - 1,
                    static_cast<int64_t>(family.capacity_of(plan.row_begin[r], plan.row_begin[r + 1])));
  }
  return b.finish(
      concat({b.whole(values),
              b.parts(chunks,
                      [&](size_t r, size_t) {
                        return Box{0, 1, plan.row_begin[r], plan.row_begin[r + 1] - plan.row_begin[r] + 1};
                      }),
              b.whole(blocks), b.whole(row_groups), b.whole(indices)},
             b.activations()),
      {Param(index.k_block), Param(std::move(first_chunk)), Param(std::move(capacity)),
       Param(static_cast<int64_t>(problem.activation))},
      std::move(before));
}

}  // namespace

const std::byte* PackedWeight::values() const {
  if (const auto* blocks = std::get_if<PackedBlocks>(&form)) return blocks->values().data();
  return std::get<PackedElements>(form).values();
}

PackedWeight prepack_weight(const SparseMatrix& matrix, Type type, uint32_t threads) {
  if (matrix.pattern.block_size > 1) return {PackedBlocks(matrix, type), false};
  return {PackedElements(matrix, type, {.parts = threads}), false};
}

void update_index(const PackedWeight& weight, const SpmmProblem& problem, const base::ParallelFor& parallel) {
  if (!problem.transpose) return;
  if (const auto* blocks = std::get_if<PackedBlocks>(&weight.form))
    blocks->transposed_index();
  else
    std::get<PackedElements>(weight.form).transposed(parallel);
}

SpmmProgram build_spmm(const std::shared_ptr<const PackedWeight>& weight, const SpmmProblem& problem,
                       const SpmmPlan& plan, const machine::Machine&) {
  return with_family(*weight, problem.transpose,
                     [&](const auto& family) { return build(family, weight, problem, plan); });
}

}  // namespace tessera::ops
