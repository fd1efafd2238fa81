// Cross-entropy on tiles, of whole columns or of classes that are spread.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/memo.h"
#include "kernels/tile/cross_entropy/codelet.h"
#include "ops/map/boxes_on_tiles.h"
#include "ops/map/key.h"
#include "ops/map/softmax.h"

namespace tessera::ops {
namespace {

using kernels::kCrossEntropyTerms;
using program::Box;
using program::BoxSeries;
using program::MappedBox;
using program::StepId;
using TileGroup = BoxesOnTiles::Group;

/// The operands of a problem.
struct LossOperands {
  Operand logits, labels;
  std::optional<Operand> weights, gradient;
  Operand loss;

  LossOperands(const SoftmaxCrossEntropyProblem& p, std::span<const Operand> operands) {
    size_t next = 0;
    logits = operands[next++];
    labels = operands[next++];
    if (p.weighted) weights = operands[next++];
    if (p.gradient) gradient = operands[next++];
    loss = operands[next];
  }
};

program::Field whole_field(const Operand& operand) {
  return {operand.variable, BoxSeries::same(operand.box)};
}

/// The terms of parts of the classes, one below the other.
Box terms_of_parts(uint32_t first, uint32_t count, uint32_t columns) {
  return {kCrossEntropyTerms * first, kCrossEntropyTerms * count, 0, columns};
}

/// Each tile has some classes of all columns: where the logits lie, if they are mapped like that, otherwise
/// evenly spread.
MapPartition partition_of_classes(const Builder& builder, const SoftmaxCrossEntropyProblem& p,
                                  const Operand& logits) {
  const auto has_all_columns = [&](const MappedBox& mapped) {
    return (p.classes_in_rows ? mapped.box.cols : mapped.box.rows) == p.columns;
  };
  MapPartition partition = partition_as_it_lies(builder, logits);
  if (partition.tiles() > 1 && std::ranges::all_of(partition.boxes, has_all_columns)) return partition;
  const uint32_t tiles = builder.machine().tiles;
  const MapPartition even = p.classes_in_rows ? partition_evenly(p.classes, p.columns, tiles, 1)
                                              : partition_evenly(p.columns, p.classes, 1, tiles);
  partition = {even.rows, even.cols};
  for (program::TileId tile = 0; tile < even.tiles(); ++tile)
    partition.boxes.push_back({even.box(tile), tile});
  return partition;
}

/// Each tile computes the terms of its classes, and from the terms of all classes its part of the gradient.
class SpreadClasses {
 public:
  SpreadClasses(const Builder& builder, const SoftmaxCrossEntropyProblem& problem,
                std::span<const Operand> operands)
      : builder_(builder),
        p_(problem),
        of_(problem, operands),
        boxes_(partition_of_classes(builder, problem, of_.logits)) {}

  std::vector<uint32_t> numbers_of_groups() const {
    return boxes_.tiles() > 1 ? boxes_.numbers_of_groups() : std::vector<uint32_t>();
  }

  StepId build(uint32_t groups) {
    std::vector<StepId> steps;
    gather_columns(steps);
    Operand terms = add_terms("terms", boxes_.by_tile());
    steps.push_back(compute_terms(terms));
    if (groups > 0) terms = join(terms, boxes_.groups(groups), steps);
    const uint32_t parts = terms.rows() / kCrossEntropyTerms;
    terms = join(terms, {{0, parts, boxes_.boxes().back().tile}}, steps);
    steps.push_back(compute_results(terms));
    return builder_.sequence(std::move(steps));
  }

 private:
  /// All tiles take operands with one number per column as a whole: if these lie on many tiles, from a single
  /// tile, so that no tile has a transfer from each of them.
  void gather_columns(std::vector<StepId>& steps) {
    program::CopySet gather{"gather columns", {}};
    const auto move = [&](Operand& of_columns) {
      if (builder_.mapping_of(of_columns).size() <= kFewParts) return;
      const Operand whole = builder_.like(of_columns, builder_.variable_name(of_columns) + ".whole",
                                          mapping_of_whole(), builder_.purpose_of(of_columns));
      gather.groups.push_back(copy_of(of_columns, whole));
      of_columns = whole;
    };
    move(of_.labels);
    if (of_.weights) move(*of_.weights);
    builder_.copy(std::move(gather), steps);
  }

  /// A tile other than the last one, which combines terms, and tile 0, which has scalars.
  std::vector<MappedBox> mapping_of_whole() const {
    return program::map_to_tile(of_.labels.rows(), of_.labels.cols(),
                                boxes_.by_tile()[boxes_.tiles() / 4].tile);
  }

  /// The terms of all parts in the groups, on their tiles.
  Operand add_terms(const char* name, const std::vector<TileGroup>& groups) const {
    std::vector<MappedBox> mapping;
    for (const TileGroup& group : groups)
      mapping.push_back({terms_of_parts(group.begin, group.count(), p_.columns), group.tile});
    return builder_.temporary(name, Type::f32, kCrossEntropyTerms * groups.back().end, p_.columns,
                              std::move(mapping));
  }

  /// The vertices of a run of boxes, by class `first` of each as their last parameter.
  program::VertexGroup vertices_of(const program::Codelet& codelet, const VertexRun& run,
                                   std::vector<program::Param> params) const {
    std::vector<int64_t> first;
    for (const Box& own : run.own) first.push_back(p_.classes_in_rows ? own.row : own.col);
    params.emplace_back(std::move(first));
    return {&codelet, run.first_tile, run.tiles, run.per_tile, {}, std::move(params)};
  }
  static program::Field own_boxes(const Operand& operand, const VertexRun& run) {
    return {operand.variable, BoxSeries::table(operand.inside(run.own))};
  }
  int64_t classes_in_rows() const { return p_.classes_in_rows ? 1 : 0; }

  StepId compute_terms(const Operand& terms) const {
    program::ComputeSet set{"class_terms", program::Phase::compute, {}};
    uint32_t part = 0;
    for (const VertexRun& run : vertex_runs(boxes_.partition())) {
      std::vector<Box> results;
      for (size_t i = 0; i < run.own.size(); ++i) results.push_back(terms_of_parts(part++, 1, p_.columns));
      set.groups.push_back(vertices_of(kernels::class_terms_codelet, run, {classes_in_rows()}));
      set.groups.back().fields = {own_boxes(of_.logits, run),
                                  whole_field(of_.labels),
                                  {terms.variable, BoxSeries::table(std::move(results))}};
    }
    return builder_.execute(std::move(set));
  }

  /// Combines the terms of each group's parts into the terms of one part.
  Operand join(const Operand& terms, const std::vector<TileGroup>& groups, std::vector<StepId>& steps) const {
    std::vector<TileGroup> joined;
    for (uint32_t g = 0; g < groups.size(); ++g) joined.push_back({g, g + 1, groups[g].tile});
    const Operand out = add_terms("joined", joined);
    program::ComputeSet set{"join_class_terms", program::Phase::compute, {}};
    for (uint32_t g = 0; g < groups.size(); ++g) {
      const Box parts = terms_of_parts(groups[g].begin, groups[g].count(), p_.columns);
      set.groups.push_back({&kernels::join_class_terms_codelet,
                            groups[g].tile,
                            1,
                            1,
                            {{terms.variable, BoxSeries::same(parts)},
                             {out.variable, BoxSeries::same(terms_of_parts(g, 1, p_.columns))}},
                            {}});
    }
    steps.push_back(builder_.execute(std::move(set)));
    return out;
  }

  /// The weights of columns: those given, or a constant.
  Operand weights_or(float constant) const {
    if (of_.weights) return *of_.weights;
    const auto weights = std::make_shared<const std::vector<float>>(p_.columns, constant);
    return builder_.constant("weights", Type::f32, of_.labels.rows(), of_.labels.cols(),
                             {weights, reinterpret_cast<const std::byte*>(weights->data())},
                             p_.columns > kFewParts ? mapping_of_whole() : std::vector<MappedBox>());
  }

  /// Computes the loss on the tile with the terms, and the gradient on all tiles.
  StepId compute_results(const Operand& terms) const {
    program::ComputeSet set{"class_gradient", program::Phase::compute, {}};
    set.groups.push_back(
        {&kernels::class_loss_codelet,
         boxes_.boxes().back().tile,
         1,
         1,
         {whole_field(terms), whole_field(of_.labels), whole_field(weights_or(1)), whole_field(of_.loss)},
         {classes_in_rows(), int64_t{p_.classes}}});
    if (of_.gradient) {
      const Operand weights = weights_or(p_.scale);
      for (const VertexRun& run : vertex_runs(boxes_.partition())) {
        set.groups.push_back(
            vertices_of(kernels::class_gradient_codelet, run, {classes_in_rows(), int64_t{p_.classes}}));
        set.groups.back().fields = {own_boxes(of_.logits, run), whole_field(of_.labels), whole_field(weights),
                                    whole_field(terms), own_boxes(*of_.gradient, run)};
      }
    }
    return builder_.execute(std::move(set));
  }

  static constexpr size_t kFewParts = 64;

  const Builder& builder_;
  const SoftmaxCrossEntropyProblem& p_;
  LossOperands of_;
  BoxesOnTiles boxes_;
};

StepId build_as(const Builder& builder, const SoftmaxCrossEntropyProblem& problem,
                const CrossEntropyPartition& partition, std::span<const Operand> operands) {
  if (!partition.spreads_classes)
    return build_map(builder, operation_of(problem), {partition.columns, {}, {}}, operands);
  return SpreadClasses(builder, problem, operands).build(partition.groups);
}

}  // namespace

std::string to_string(const CrossEntropyPartition& partition) {
  if (!partition.spreads_classes) return to_string(partition.columns);
  return "classes spread" + groups_text(partition.groups);
}

CrossEntropyPlan plan(const Builder& builder, const SoftmaxCrossEntropyProblem& problem,
                      const std::vector<Operand>& operands) {
  const MapOperation operation = operation_of(problem);
  const MapPlan of_columns = plan_map(builder, operation, operands);
  if (builder.is_host()) return {{of_columns.partition}, of_columns.chosen, of_columns.candidates};
  const auto make = [&] {
    std::vector<CrossEntropyPartition> partitions = {{of_columns.partition}};
    for (const uint32_t groups : SpreadClasses(builder, problem, operands).numbers_of_groups())
      partitions.push_back({.spreads_classes = true, .groups = groups});
    return fastest_of(std::move(partitions), [&](const CrossEntropyPartition& partition) {
      return predict(builder, to_string(partition), operands,
                     [&](const Builder& scratch, std::span<const Operand> copies) {
                       return build_as(scratch, problem, partition, copies);
                     });
    });
  };
  constexpr size_t kMost = 64;
  static base::Memo<MapKey, CrossEntropyPlan> plans(kMost);
  return plans.get(key_of(builder, operation, operands), make);
}

StepId build(const Builder& builder, const SoftmaxCrossEntropyProblem& problem, const CrossEntropyPlan& plan,
             const std::vector<Operand>& operands) {
  return build_as(builder, problem, plan.partition, operands);
}

}  // namespace tessera::ops
