#include "ops/map/reduce_all.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/integer_types.h"
#include "base/memo.h"
#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"
#include "ops/map/key.h"
#include "ops/map/reduce.h"

namespace tessera::ops {
namespace {

using kernels::Reduction;
using program::Box;
using program::BoxSeries;
using program::MappedBox;
using program::Role;
using program::StepId;

/// By one vertex.
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

/// First the dimension that leaves more results, which are computed side by side.
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

/// On each tile what lies there.
class InPlace {
 public:
  InPlace(const Builder& builder, const ReduceAllProblem& problem, const Operand& in, const Operand& out)
      : builder_(builder), p_(problem), in_(in), out_(out), boxes_(partition_as_it_lies(builder, in)) {
    for (uint32_t i = 0; i < count(); ++i)
      if (i == 0 || tile_of(i) != tile_of(i - 1)) first_of_tiles_.push_back(i);
  }

  uint32_t tiles() const { return static_cast<uint32_t>(first_of_tiles_.size()); }

  StepId build(uint32_t groups) const {
    if (count() == 1) return reduce_boxes(out_, p_.scale);
    Operand partials = results("partial", first_of_tiles_, count());
    std::vector<StepId> steps = {reduce_boxes(partials, 1)};
    if (groups > 0) partials = join(partials, groups, steps);
    const AxisReduceProblem rest{joining(p_.op),       1,     partials.cols(), false,
                                 type_of_partials(p_), p_.to, p_.scale};
    steps.push_back(add(builder_, rest, {partials, out_}));
    return builder_.sequence(std::move(steps));
  }

 private:
  uint32_t count() const { return static_cast<uint32_t>(boxes_.boxes.size()); }
  program::TileId tile_of(uint32_t box) const { return boxes_.boxes[box].tile; }

  /// A row of as many results, of which those from `first[i]` on lie on the tile of that box.
  Operand results(const char* name, const std::vector<uint32_t>& first, uint32_t count) const {
    std::vector<MappedBox> mapping;
    for (size_t i = 0; i < first.size(); ++i) {
      const uint32_t end = i + 1 < first.size() ? first[i + 1] : count;
      mapping.push_back({{0, 1, first[i], end - first[i]}, tile_of(first[i])});
    }
    return builder_.temporary(name, type_of_partials(p_), 1, count, std::move(mapping));
  }

  /// A vertex for each box, with a result each.
  StepId reduce_boxes(const Operand& out, float scale) const {
    const MapOperation operation = operation_of(p_);
    program::ComputeSet set{std::string(operation.codelet->name), operation.phase, {}};
    uint32_t first = 0;
    for (const VertexRun& run : vertex_runs(boxes_)) {
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

  /// The partial results of neighbouring tiles become one, on the last of these: tile 0, where scalars lie,
  /// has to take the joined results.
  Operand join(const Operand& partials, uint32_t groups, std::vector<StepId>& steps) const {
    const program::Codelet& codelet = kernels::codelet_of(joining(p_.op));
    std::vector<Box> own;
    std::vector<MappedBox> mapping;
    for (uint32_t g = 0, begin = 0; g < groups; ++g) {
      const uint32_t end = g + 1 == groups ? count() : first_of_tiles_[uint64_t{tiles()} * (g + 1) / groups];
      own.push_back(partials.inside({0, 1, begin, end - begin}));
      mapping.push_back({{0, 1, g, 1}, tile_of(end - 1)});
      begin = end;
    }
    const Operand joined = builder_.temporary("joined", type_of_partials(p_), 1, groups, mapping);
    program::ComputeSet set{std::string(codelet.name), program::Phase::reduce, {}};
    for (uint32_t g = 0; g < groups; ++g)
      set.groups.push_back(
          {&codelet,
           mapping[g].tile,
           1,
           1,
           {{partials.variable, BoxSeries::same(own[g])}, {joined.variable, BoxSeries::same(mapping[g].box)}},
           {static_cast<int64_t>(kernels::ReduceOver::all), kernels::param_of(1)}});
    steps.push_back(builder_.execute(std::move(set)));
    return joined;
  }

  const Builder& builder_;
  const ReduceAllProblem& p_;
  const Operand &in_, &out_;
  MapPartition boxes_;                    ///< by ascending tiles
  std::vector<uint32_t> first_of_tiles_;  ///< the first box of each tile that has one
};

StepId build_as(const Builder& builder, const ReduceAllProblem& problem, const ReduceAllPartition& partition,
                std::span<const Operand> operands) {
  if (!partition.in_place) return reduce_by_axes(builder, problem, operands[0], operands[1]);
  return InPlace(builder, problem, operands[0], operands[1]).build(partition.groups);
}

std::vector<ReduceAllPartition> partitions_on(uint32_t tiles) {
  constexpr uint32_t kLeastGroups = 8, kMostGroups = 128;
  std::vector<ReduceAllPartition> partitions = {{}};
  if (tiles > 0) partitions.push_back({.in_place = true});
  for (uint32_t groups = kLeastGroups; groups <= std::min(kMostGroups, tiles / 2); groups *= 2)
    partitions.push_back({.in_place = true, .groups = groups});
  return partitions;
}

}  // namespace

std::string to_string(const ReduceAllPartition& partition) {
  if (!partition.in_place) return "over one axis, then the other";
  if (partition.groups == 0) return "in place";
  return fmt::format("in place, joined in {} groups of tiles", partition.groups);
}

ReduceAllPlan plan(const Builder& builder, const ReduceAllProblem& problem,
                   const std::vector<Operand>& operands) {
  if (builder.is_host()) return {};
  const auto evaluate = [&](const ReduceAllPartition& partition) {
    PlanCandidate candidate = predict(
        builder, {}, operands, [&](const Builder& scratch, const MapPlan&, std::span<const Operand> copies) {
          return build_as(scratch, problem, partition, copies);
        });
    candidate.partition = to_string(partition);
    candidate.rejected = overflow_of(candidate, builder.machine(), true);
    return candidate;
  };
  const auto make = [&] {
    const uint32_t tiles = InPlace(builder, problem, operands[0], operands[1]).tiles();
    return fastest_of(partitions_on(tiles), evaluate);
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
