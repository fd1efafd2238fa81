// Weight gradients that are consumed strip by strip.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "ops/dense/host/group.h"
#include "ops/split.h"
#include "ops/window.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::VertexGroup;

/// Strips of all threads' slices: equally many of each, so some may be empty.
struct Strips {
  std::vector<std::vector<DensePart>> parts;  ///< [strip][tile]
  uint32_t panels = 0;                        ///< of the largest
  uint32_t cols = 0;
};

/// Strips fit in an eighth of an L2 cache, beside the operands and the data that the consumer reads; strips
/// are larger for weights that would have more than kMostStrips, as compiling takes time.
constexpr uint64_t kMostStrips = 256;
/// Each strip that takes all columns transforms all images.
constexpr uint64_t kPanelsOfImages = 4;
Strips strips_of(const HostDenseProblem& p, const std::vector<DensePart>& slices,
                 const machine::Machine& machine) {
  uint32_t most_panels = 1, most_cols = 1;
  for (const DensePart& slice : slices) {
    most_panels = std::max(most_panels, slice.panels);
    most_cols = std::max(most_cols, slice.cols);
  }
  const uint64_t column_bytes = PanelLayout::kRows * size_of(p.weights);
  const uint64_t columns = std::max<uint64_t>(
      {1, machine.figures.l2_bytes / 8 / column_bytes, uint64_t{most_panels} * most_cols / kMostStrips});
  // Two panels are multiplied at once. If a strip copies X, or reads it from beyond the L2 cache, more panels
  // share this cost.
  const bool holds_x = p.values == Type::f32 && !p.window &&
                       uint64_t{p.n} * p.k * sizeof(float) <= machine.figures.l2_bytes / 2;
  const uint64_t wanted_panels = holds_x ? 2 : 8;
  const bool has_all_columns = takes_all_columns(p);
  const auto cols = has_all_columns
                        ? most_cols
                        : static_cast<uint32_t>(std::clamp<uint64_t>(columns / wanted_panels, 1, most_cols));
  const uint64_t least_panels = has_all_columns ? kPanelsOfImages : 1;
  const auto panels =
      static_cast<uint32_t>(std::min<uint64_t>(std::max(columns / cols, least_panels), most_panels));
  const uint32_t down = (most_panels - 1) / panels + 1, across = (most_cols - 1) / cols + 1;
  Strips strips{std::vector(size_t{down} * across, std::vector<DensePart>(slices.size(), DensePart{}))};
  for (size_t tile = 0; tile < slices.size(); ++tile) {
    const DensePart& slice = slices[tile];
    const std::vector<uint32_t> rows = split_evenly(slice.panels, down, panels > 1 ? 2 : 1);
    const std::vector<uint32_t> columns_of = split_evenly(slice.cols, across);
    for (size_t i = 0; i + 1 < rows.size(); ++i)
      for (size_t j = 0; j + 1 < columns_of.size(); ++j) {
        DensePart& part = strips.parts[i * across + j][tile];
        part = slice;
        part.panel += rows[i], part.panels = rows[i + 1] - rows[i];
        part.col += columns_of[j], part.cols = columns_of[j + 1] - columns_of[j];
        strips.panels = std::max(strips.panels, part.panels);
        strips.cols = std::max(strips.cols, part.cols);
      }
  }
  return strips;
}

/// Where the strips of dW lie: each in the tile's own rows of a buffer, or in dW itself.
class StripBoxes {
 public:
  StripBoxes(const Operand& dw, bool in_place, const Strips& strips)
      : dw_(dw), in_place_(in_place), rows_(strips.panels) {}

  std::vector<Box> of(const HostDenseProblem& p, const std::vector<DensePart>& parts) const {
    std::vector<Box> boxes;
    for (uint32_t tile = 0; tile < parts.size(); ++tile) {
      const Box box = box_of(p, parts[tile], DenseRole::w);
      boxes.push_back(box.empty() ? Box{}
                      : in_place_ ? dw_.inside(box)
                                  : Box{tile * rows_, box.rows, 0, box.cols});
    }
    return boxes;
  }

 private:
  const Operand& dw_;
  const bool in_place_;
  const uint32_t rows_;  // of a tile
};

/// The consumer's vertices for one strip of each tile.
VertexGroup consume(const HostDenseProblem& p, const GradientConsumer& consumer,
                    const std::vector<Operand>& operands, const Operand& dw, const std::vector<Box>& dw_boxes,
                    const std::vector<DensePart>& parts) {
  VertexGroup group;
  group.codelet = consumer.operation.codelet;
  group.tiles = static_cast<uint32_t>(parts.size());
  for (size_t f = 0; f < consumer.operation.operands.size(); ++f) {
    if (f == consumer.gradient) {
      group.fields.push_back({dw.variable, BoxSeries::table(dw_boxes)});
      continue;
    }
    std::vector<Box> boxes;
    for (const DensePart& part : parts) {
      const Box box = operand_box(consumer.operation.operands[f], box_of(p, part, DenseRole::w));
      boxes.push_back(box.empty() ? Box{} : operands[f].inside(box));
    }
    group.fields.push_back({operands[f].variable, BoxSeries::table(std::move(boxes))});
  }
  for (int64_t param : consumer.operation.params) group.params.emplace_back(param);
  return group;
}

/// The consumer's operands in the order of its fields, with its constants; dW's place is left as it is.
std::vector<Operand> operands_of(const Builder& builder, const HostDenseProblem& p,
                                 const GradientConsumer& consumer) {
  const MapOperation& operation = consumer.operation;
  const auto fail = [&](std::string_view what) {
    throw UsageError(fmt::format("{} cannot consume a gradient of {} × {} in {}: {}", operation.codelet->name,
                                 p.m, p.k, name_of(p.weights), what));
  };
  if (operation.rows != p.layout().rows() || operation.cols != p.layout().cols())
    fail(fmt::format("it is for {} × {}, and there are {} panels of {}", operation.rows, operation.cols,
                     p.layout().rows(), p.layout().cols()));
  if (consumer.gradient >= operation.operands.size() ||
      operation.operands[consumer.gradient].type != p.weights)
    fail("none of its operands has that place and type");
  std::vector<Operand> operands(operation.operands.size());
  size_t next = 0;
  for (size_t f = 0; f < operands.size(); ++f) {
    const MapOperand& wanted = operation.operands[f];
    if (f == consumer.gradient) continue;
    if (wanted.is_own()) {
      operands[f] = builder.constant(wanted.name, wanted.type, wanted.rows, wanted.cols, wanted.contents);
      continue;
    }
    if (next == consumer.operands.size()) fail(fmt::format("its operand {} is missing", wanted.name));
    operands[f] = consumer.operands[next++];
    builder.require(operands[f], wanted.name, wanted.type, wanted.rows, wanted.cols);
  }
  if (next != consumer.operands.size()) fail("there are more operands than it takes");
  return operands;
}

}  // namespace

program::StepId build_host_dense_strips(const Builder& builder, const HostDenseProblem& problem,
                                        const HostDensePlan& plan, const HostDenseOperands& operands,
                                        const GradientConsumer& consumer) {
  if (problem.product != ProductKind::sddmm)
    throw UsageError("only a weight gradient can be consumed strip by strip");
  check_operands(builder, problem, operands, problem.adds);
  const std::vector<Operand> consumed = operands_of(builder, problem, consumer);
  const std::vector<DensePart> slices = parts_of(problem, plan.partition);
  const auto tiles = static_cast<uint32_t>(slices.size());
  const Strips strips = strips_of(problem, slices, builder.machine());
  HostDenseOperands fields = operands;
  if (problem.window) fields.window = window_constant(builder, *problem.window);
  if (!problem.adds)
    fields.w = builder.temporary("gradient strips", problem.weights, tiles * strips.panels,
                                 strips.cols * PanelLayout::kRows, {}, program::Purpose::gradient);
  const StripBoxes boxes(fields.w, problem.adds, strips);
  const Operand scratch = scratch_of(builder, problem, tiles, slices);
  program::ComputeSet set{
      fmt::format("{} and {}", dense_name(problem.product), consumer.operation.codelet->name),
      program::Phase::compute,
      {},
      true};
  for (const std::vector<DensePart>& parts : strips.parts) {
    const std::vector<Box> strip = boxes.of(problem, parts);
    set.groups.push_back(group_of(problem, fields, scratch, parts, strip));
    set.groups.push_back(consume(problem, consumer, consumed, fields.w, strip, parts));
  }
  return builder.execute(std::move(set));
}

}  // namespace tessera::ops
