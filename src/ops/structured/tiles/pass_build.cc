#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "kernels/tile/kronecker/codelet.h"
#include "ops/owners.h"
#include "ops/structured/tiles/pass_grid.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::MappedBox;
using program::Phase;
using program::StepId;
using program::TileId;

/// Rows that one order has together and another too.
struct RowRun {
  uint32_t from, to, count;
};

/// The rows [begin, end) of an order, and where they are in another.
std::vector<RowRun> runs_of_rows(const FeatureOrder& from, const FeatureOrder& to, uint32_t begin,
                                 uint32_t end) {
  std::vector<RowRun> runs;
  for (uint32_t row = begin; row < end; ++row) {
    const uint32_t source = from.row_of(to.plain_of(row));
    if (!runs.empty() && runs.back().from + runs.back().count == source) {
      ++runs.back().count;
    } else {
      runs.push_back({source, row, 1});
    }
  }
  return runs;
}

class TilePassBuilder {
 public:
  TilePassBuilder(const Builder& builder, const TilePassProblem& problem, const TilePassPartition& partition,
                  const TilePassOperands& operands)
      : b_(builder),
        problem_(problem),
        pass_(problem.pass),
        partition_(partition),
        grid_(problem, partition),
        o_(operands) {}

  StepId build() {
    program::VertexGroup group{nullptr, 0, grid_.tiles(), 1, {}, {}};
    switch (problem_.product) {
      case TilePassProduct::forward: forward(group); break;
      case TilePassProduct::input_gradient: input_gradient(group); break;
      case TilePassProduct::weight_gradient: weight_gradient(group); break;
      case TilePassProduct::gradients: gradients(group); break;
    }
    std::vector<StepId> steps;
    b_.copy(std::move(brought_), steps);
    steps.push_back(b_.execute({"multiply groups", Phase::compute, {std::move(group)}}));
    if (partials_) steps.push_back(reduce());
    b_.copy(std::move(returned_), steps);
    return b_.in_order(std::move(steps));
  }

 private:
  using Position = TilePassGrid::Position;

  void forward(program::VertexGroup& group) {
    add_weights(group, true);
    group.fields.push_back(bring(*o_.x, FeatureOrder::inputs_of(pass_), true));
    group.fields.push_back(give(*o_.y, FeatureOrder::outputs_of(pass_)));
    if (pass_.levels > 0) return set_butterfly(group, kernels::butterfly_pass_codelet);
    group.codelet = &kernels::kronecker_product_codelet;
    group.params = {outputs(), pass_.c, pass_.c, 1, 0};
  }

  void input_gradient(program::VertexGroup& group) {
    add_weights(group, false);
    group.fields.push_back(bring(*o_.y, FeatureOrder::outputs_of(pass_), true));
    group.fields.push_back(give(*o_.dx, FeatureOrder::inputs_of(pass_)));
    group.codelet = &kernels::kronecker_product_codelet;
    group.params = {outputs(), pass_.b, 1, pass_.c,
                    table([&](const Position& p) { return grid_.outputs_begin(p); })};
  }

  void weight_gradient(program::VertexGroup& group) {
    group.fields.push_back(bring(*o_.y, FeatureOrder::outputs_of(pass_), false));
    group.fields.push_back(bring(*o_.x, FeatureOrder::inputs_of(pass_), true));
    group.fields.push_back(give_weights());
    group.codelet = &kernels::kronecker_weight_gradient_codelet;
    group.params = {outputs(), pass_.c};
  }

  void gradients(program::VertexGroup& group) {
    add_weights(group, true);
    group.fields.push_back(bring(*o_.x, FeatureOrder::inputs_of(pass_), true));
    group.fields.push_back(bring(*o_.y, FeatureOrder::outputs_of(pass_), true));
    group.fields.push_back(give(*o_.dx, FeatureOrder::inputs_of(pass_)));
    group.fields.push_back(give_weights());
    group.fields.push_back(inputs_of_levels());
    set_butterfly(group, kernels::butterfly_pass_gradients_codelet);
  }

  void set_butterfly(program::VertexGroup& group, const program::Codelet& codelet) const {
    group.codelet = &codelet;
    group.params = {pass_.levels, pass_.decreasing ? 1 : 0, pass_.width};
  }

  template <class ValueOf>
  program::Param table(const ValueOf& value_of) const {
    std::vector<int64_t> values;
    for (TileId tile = 0; tile < grid_.tiles(); ++tile) values.push_back(value_of(grid_.place_of(tile)));
    return values;
  }
  program::Param outputs() const {
    return table([&](const Position& p) { return grid_.outputs_at(p); });
  }

  template <class BoxOf>
  std::vector<Box> boxes(const BoxOf& box_of) const {
    std::vector<Box> all;
    for (TileId tile = 0; tile < grid_.tiles(); ++tile) all.push_back(box_of(grid_.place_of(tile)));
    return all;
  }
  static program::Field field(const Operand& operand, std::vector<Box> boxes) {
    return {operand.variable, BoxSeries::table(operand.inside(std::move(boxes)))};
  }

  void add_weights(program::VertexGroup& group, bool only_its_outputs) const {
    group.fields.push_back(
        field(*o_.weight, boxes([&](const Position& p) { return grid_.weights(p, only_its_outputs); })));
  }

  std::string name_of(const Operand& operand, std::string_view suffix) const {
    return b_.variable_name(operand) + std::string(suffix);
  }

  /// Samples that are read in a group's order: features of whole groups, or of the tile's outputs.
  program::Field bring(const FeatureOperand& from, const FeatureOrder& order, bool whole) {
    return in_order(from, order, whole, true);
  }
  /// Results that are written in a group's order.
  program::Field give(const FeatureOperand& to, const FeatureOrder& order) {
    return in_order(to, order, false, false);
  }

  /// The operand itself; or a temporary, with a copy for each tile that shares whole groups, and copies from
  /// the operand or, unless it is read, to it.
  program::Field in_order(const FeatureOperand& given, const FeatureOrder& order, bool whole, bool is_read) {
    const uint32_t copies = whole ? partition_.output_parts : 1, rows = given.operand.rows();
    const auto box_of = [&](const Position& p) {
      return whole ? grid_.whole_groups(p, order.rows_of_group())
                   : grid_.part_of_groups(p, order.rows_of_group());
    };
    if (given.order == order) return field(given.operand, boxes(box_of));
    std::vector<Box> local = boxes([&](const Position& p) {
      Box box = box_of(p);
      if (whole) box.row += p.output * rows;
      return box;
    });
    const Operand grouped =
        b_.temporary(name_of(given.operand, ".groups"), b_.type_of(given.operand), copies * rows,
                     given.operand.cols(), on_tiles(local), b_.purpose_of(given.operand));
    std::vector<Box> outside, inside;
    for (TileId tile = 0; tile < grid_.tiles(); ++tile) {
      const Box part = box_of(grid_.place_of(tile));
      const uint32_t offset = local[tile].row - part.row;
      for (const RowRun& run : runs_of_rows(given.order, order, part.row, part.row + part.rows)) {
        outside.push_back({run.from, run.count, part.col, part.cols});
        inside.push_back({offset + run.to, run.count, part.col, part.cols});
      }
    }
    if (is_read)
      brought_.groups.push_back(copy_boxes(given.operand, std::move(outside), grouped, std::move(inside)));
    else
      returned_.groups.push_back(copy_boxes(grouped, std::move(inside), given.operand, std::move(outside)));
    return field(grouped, std::move(local));
  }

  /// The gradient itself, or a row of partial sums for each part of the columns.
  program::Field give_weights() {
    const auto box_of = [&](const Position& p) { return grid_.weights(p, true); };
    if (partition_.n_parts == 1) return field(*o_.dweight, boxes(box_of));
    std::vector<Box> local = boxes([&](const Position& p) {
      Box box = box_of(p);
      box.row = p.column;
      return box;
    });
    partials_ = b_.temporary("partials", problem_.numbers.partials, partition_.n_parts, pass_.all_weights(),
                             on_tiles(local), program::Purpose::gradient);
    return field(*partials_, std::move(local));
  }

  /// Working memory of the inputs of all levels but the first.
  program::Field inputs_of_levels() const {
    std::vector<Box> local = boxes([&](const Position& p) {
      Box box = grid_.whole_groups(p, pass_.c * pass_.width);
      box.row *= pass_.levels - 1;
      box.rows *= pass_.levels - 1;
      return box;
    });
    if (pass_.levels == 1) return {o_.dx->operand.variable, BoxSeries::same(Box{})};
    const Operand memory = b_.temporary("levels", b_.type_of(o_.x->operand),
                                        pass_.inputs() * (pass_.levels - 1), problem_.n, on_tiles(local));
    return field(memory, std::move(local));
  }

  /// Each tile adds a slice of the weights that it shares with others.
  StepId reduce() const {
    return b_.execute(sums_of_rows(pass_weight_mapping(problem_, partition_), *partials_, *o_.dweight));
  }

  const Builder& b_;
  const TilePassProblem& problem_;
  const TilePass& pass_;
  const TilePassPartition& partition_;
  TilePassGrid grid_;
  const TilePassOperands& o_;
  program::CopySet brought_{"bring groups", {}};
  program::CopySet returned_{"return groups", {}};
  std::optional<Operand> partials_;
};

void check_operands(const Builder& b, const TilePassProblem& p, const TilePassOperands& o) {
  const TilePass& pass = p.pass;
  const auto require = [&](const Operand* operand, bool needed, std::string_view name, uint32_t rows,
                           uint32_t cols) {
    if ((operand != nullptr) != needed)
      throw UsageError(fmt::format("a pass {} an operand '{}' here", needed ? "needs" : "takes no", name));
    if (needed) b.require(*operand, name, p.numbers.operands, rows, cols);
  };
  const auto require_features = [&](const std::optional<FeatureOperand>& features, bool needed,
                                    std::string_view name, uint32_t rows) {
    require(features ? &features->operand : nullptr, needed, name, rows, p.n);
  };
  const auto require_weights = [&](const std::optional<Operand>& weights, bool needed,
                                   std::string_view name) {
    require(weights ? &*weights : nullptr, needed, name, 1, pass.all_weights());
  };
  require_weights(o.weight, p.reads_weight(), "weight");
  require_features(o.x, p.reads_x(), "x", pass.inputs());
  require_features(o.y, true, p.is_forward() ? "y" : "dy", pass.outputs());
  require_features(o.dx, p.gives_dx(), "dx", pass.inputs());
  require_weights(o.dweight, p.gives_dweight(), "dweight");
}

}  // namespace

uint32_t TilePass::weights() const { return levels > 0 ? kernels::butterfly_weights(levels, width) : b * c; }

std::vector<MappedBox> pass_result_mapping(const TilePassProblem& problem,
                                           const TilePassPartition& partition) {
  const TilePassGrid grid(problem, partition);
  const uint32_t rows = (problem.is_forward() ? problem.pass.b : problem.pass.c) * problem.pass.width;
  std::vector<MappedBox> mapping;
  for (TileId tile = 0; tile < grid.tiles(); ++tile)
    mapping.push_back({grid.part_of_groups(grid.place_of(tile), rows), tile});
  return mapping;
}

std::vector<MappedBox> pass_weight_mapping(const TilePassProblem& problem,
                                           const TilePassPartition& partition) {
  const TilePassGrid grid(problem, partition);
  const bool by_outputs = problem.product != TilePassProduct::input_gradient;
  const uint32_t holders = partition.n_parts * (by_outputs ? 1 : partition.output_parts);
  std::vector<MappedBox> mapping;
  for (TileId tile = 0; tile < grid.tiles(); ++tile) {
    const TilePassGrid::Position p = grid.place_of(tile);
    const Box all = grid.weights(p, by_outputs);
    const uint32_t holder = by_outputs ? p.column : p.column * partition.output_parts + p.output;
    const std::vector<uint32_t> begin = split_evenly(all.cols, holders);
    if (holder + 1 < begin.size())
      mapping.push_back({{0, 1, all.col + begin[holder], begin[holder + 1] - begin[holder]}, tile});
  }
  return mapping;
}

StepId build_tile_pass(const Builder& builder, const TilePassProblem& problem,
                       const TilePassPartition& partition, const TilePassOperands& operands) {
  check_operands(builder, problem, operands);
  return TilePassBuilder(builder, problem, partition, operands).build();
}

}  // namespace tessera::ops
