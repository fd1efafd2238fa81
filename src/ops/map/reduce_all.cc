#include "ops/map/reduce_all.h"

#include "base/integer_types.h"
#include "base/memo.h"
#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"
#include "ops/map/boxes_on_tiles.h"
#include "ops/map/key.h"
#include "ops/map/reduce.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::MappedBox;
using program::Role;
using program::StepId;

/// The reduction by a single vertex.
MapOperation operation_of(const ReduceAllProblem& p) {
  return {.codelet = &kernels::codelet_of(p.op),
          .phase = program::Phase::reduce,
          .rows = 1,
          .cols = 1,
          .operands = {{"in", p.from, Role::input, p.rows, p.cols, false, false},
                       {"out", p.to, Role::output, 1, 1}},
          .params = {static_cast<int64_t>(kernels::ReduceOver::all), kernels::param_of(p.scale)}};
}

Type type_of_partials(const ReduceAllProblem& p) { return is_integer(p.from) ? p.from : Type::f32; }

/// Reduces first over the dimension that leaves more results, which are computed in parallel.
StepId reduce_by_axes(const Builder& builder, const ReduceAllProblem& p, const Operand& in,
                      const Operand& out) {
  if (p.rows == 1 || p.cols == 1)
    return add(builder, AxisReduceProblem{p.op, p.rows, p.cols, p.cols == 1, p.from, p.to, p.scale},
               {in, out});
  const bool rows_first = p.cols > p.rows;
  const Type sums = type_of_partials(p);
  const Operand partials =
      builder.temporary("partial", sums, rows_first ? 1 : p.rows, rows_first ? p.cols : 1);
  return builder.sequence(
      {add(builder, AxisReduceProblem{p.op, p.rows, p.cols, rows_first, p.from, sums}, {in, partials}),
       add(builder,
           AxisReduceProblem{joining(p.op), partials.rows(), partials.cols(), !rows_first, sums, p.to,
                             p.scale},
           {partials, out})});
}

/// Reduces the elements of each tile where they lie.
class InPlace {
 public:
  InPlace(const Builder& builder, const ReduceAllProblem& problem, const Operand& in, const Operand& out)
      : builder_(builder), p_(problem), in_(in), out_(out), boxes_(builder, in) {}

  StepId build(uint32_t groups) const {
    if (boxes_.count() == 1) return reduce_boxes(out_, p_.scale);
    Operand partials = add_results("partial", boxes_.by_tile());
    std::vector<StepId> steps = {reduce_boxes(partials, 1)};
    if (groups > 0) {
      std::vector<BoxesOnTiles::Group> joined = boxes_.groups(groups);
      for (uint32_t g = 0; g < groups; ++g) joined[g].begin = g, joined[g].end = g + 1;
      const Operand results = add_results("joined", joined);
      steps.push_back(join(partials, boxes_.groups(groups), results, 1));
      partials = results;
    }
    // Not on tile 0, where scalars lie, which would have most to exchange.
    const program::TileId tile = boxes_.by_tile()[boxes_.tiles() / 2].tile;
    steps.push_back(join(partials, {{0, partials.cols(), tile}}, out_, p_.scale));
    return builder_.sequence(std::move(steps));
  }

 private:
  /// A vertex for each box, with a result each.
  StepId reduce_boxes(const Operand& out, float scale) const {
    const MapOperation operation = operation_of(p_);
    program::ComputeSet set{std::string(operation.codelet->name), operation.phase, {}};
    uint32_t first = 0;
    for (const VertexRun& run : vertex_runs(boxes_.partition())) {
      std::vector<Box> results;
      for (uint32_t i = 0; i < run.own.size(); ++i) results.push_back(out.inside({0, 1, first++, 1}));
      set.groups.push_back({operation.codelet,
                            run.first_tile,
                            run.tiles,
                            run.per_tile,
                            {{in_.variable, BoxSeries::table(in_.inside(run.own))},
                             {out.variable, BoxSeries::table(std::move(results))}},
                            {operation.params[0], kernels::param_of(scale)}});
    }
    return builder_.execute(std::move(set));
  }

  /// A row with one result for each part of the groups, on their tiles.
  Operand add_results(const char* name, const std::vector<BoxesOnTiles::Group>& groups) const {
    std::vector<MappedBox> mapping;
    for (const BoxesOnTiles::Group& group : groups)
      mapping.push_back({{0, 1, group.begin, group.count()}, group.tile});
    return builder_.temporary(name, type_of_partials(p_), 1, groups.back().end, std::move(mapping));
  }

  /// Combines the results of each group into one.
  StepId join(const Operand& partials, const std::vector<BoxesOnTiles::Group>& groups, const Operand& out,
              float scale) const {
    const program::Codelet& codelet = kernels::codelet_of(joining(p_.op));
    program::ComputeSet set{std::string(codelet.name), program::Phase::reduce, {}};
    for (uint32_t g = 0; g < groups.size(); ++g) {
      const Box own{0, 1, groups[g].begin, groups[g].count()};
      set.groups.push_back({&codelet,
                            groups[g].tile,
                            1,
                            1,
                            {{partials.variable, BoxSeries::same(partials.inside(own))},
                             {out.variable, BoxSeries::same(out.inside({0, 1, g, 1}))}},
                            {static_cast<int64_t>(kernels::ReduceOver::all), kernels::param_of(scale)}});
    }
    return builder_.execute(std::move(set));
  }

  const Builder& builder_;
  const ReduceAllProblem& p_;
  const Operand &in_, &out_;
  BoxesOnTiles boxes_;
};

StepId build_as(const Builder& builder, const ReduceAllProblem& problem, const ReduceAllPartition& partition,
                std::span<const Operand> operands) {
  if (!partition.in_place) return reduce_by_axes(builder, problem, operands[0], operands[1]);
  return InPlace(builder, problem, operands[0], operands[1]).build(partition.groups);
}

}  // namespace

std::string to_string(const ReduceAllPartition& partition) {
  if (!partition.in_place) return "over one axis, then the other";
  return "in place" + groups_text(partition.groups);
}

ReduceAllPlan plan(const Builder& builder, const ReduceAllProblem& problem,
                   const std::vector<Operand>& operands) {
  if (builder.is_host()) return {};
  const auto evaluate = [&](const ReduceAllPartition& partition) {
    return predict(builder, to_string(partition), operands,
                   [&](const Builder& scratch, std::span<const Operand> copies) {
                     return build_as(scratch, problem, partition, copies);
                   });
  };
  const auto make = [&] {
    std::vector<ReduceAllPartition> partitions = {{}};
    for (const uint32_t groups : BoxesOnTiles(builder, operands[0]).numbers_of_groups())
      partitions.push_back({.in_place = true, .groups = groups});
    return fastest_of(std::move(partitions), evaluate);
  };
  constexpr size_t kMost = 256;
  static base::Memo<MapKey, ReduceAllPlan> plans(kMost);
  return plans.get(key_of(builder, operation_of(problem), operands), make);
}

StepId build(const Builder& builder, const ReduceAllProblem& problem, const ReduceAllPlan& plan,
             const std::vector<Operand>& operands) {
  return build_as(builder, problem, plan.partition, operands);
}

}  // namespace tessera::ops
