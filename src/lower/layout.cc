#include "lower/layout.h"

#include <algorithm>

#include "base/integer_types.h"
#include "compiler/compile.h"
#include "graph/operation.h"
#include "lower/boundaries.h"
#include "lower/layout_search.h"
#include "lower/lowering.h"

namespace tessera::graph {
namespace {

/// All values in one layout; if that is the form of a weight, values with a form of their own in that form.
LayoutChoice all_in(const Lowering& l, const Node& node, const ValueLayout& layout) {
  LayoutChoice choice;
  const auto of = [&](ValueId id) {
    if (l.is_shard(id)) return kRows;
    if (const auto& own = l.form_of(id); own && layout.weight) return ValueLayout{.weight = own};
    return l.graph().type(id).elements() == 1 ? kRows : layout;
  };
  for (ValueId input : node.inputs) choice.inputs.push_back(of(input));
  for (ValueId output : node.outputs) choice.outputs.push_back(of(output));
  return choice;
}

/// Parts of rows on as many tiles as leave more than a few elements on each: a tile that needs all of a short
/// row takes code for each part. All tiles mostly need all integers, as lists of rows. The parts lie on the
/// last tiles: products and whole rows begin on the first, and leave some of the last free.
std::vector<program::MappedBox> in_parts(uint32_t rows, uint32_t cols, Type type, uint32_t tiles) {
  const uint32_t least = is_integer(type) ? 128 : 32;  // elements
  const uint64_t most = uint64_t{rows} * std::max(cols / least, 1U);
  std::vector<program::MappedBox> parts =
      program::map_linearly(rows, cols, static_cast<uint32_t>(std::min<uint64_t>(tiles, most)));
  const uint32_t used = parts.empty() ? tiles : parts.back().tile + 1;
  const uint32_t first = (tiles - used) / 2 * 2;  // neighbours, which share what they receive, remain such
  for (program::MappedBox& part : parts) part.tile += first;
  return parts;
}

/// A mapping of whole rows, if there are almost as many rows as tiles: divided linearly, most would lie on
/// one tile each anyway, and values taken row by row would have to be exchanged. Otherwise none.
std::vector<program::MappedBox> whole_rows(uint32_t rows, uint32_t cols, uint32_t tiles) {
  const bool are_almost_as_many = rows < tiles && 2 * uint64_t{tiles} <= 3 * uint64_t{rows};
  return are_almost_as_many ? program::map_rows_to_tiles(rows, cols) : std::vector<program::MappedBox>();
}

}  // namespace

double seconds_alone(const machine::Machine& machine,
                     const std::function<program::StepId(const ops::Builder&)>& build) {
  program::Program program;
  program.set_main(build(ops::Builder(program, machine)));
  return compiler::estimate_cycles(program, machine).total() / machine.clock_hz;
}

ops::OperandLayout matrix_layout(const TensorType& type, bool transposed) {
  if (transposed) return {.rows = type.cols(), .cols = type.rows(), .transposed = true};
  return {.rows = type.rows(), .cols = type.cols()};
}

ops::OperandLayout Lowering::operand_layout(const TensorType& type, const ValueLayout& layout) const {
  if (layout.weight) return weight(*layout.weight).layout();
  if (layout.parts) return *layout.parts;
  if (layout.passes > 0)
    return {.rows = layout.passes, .cols = static_cast<uint32_t>(type.elements() / layout.passes)};
  ops::OperandLayout matrix = matrix_layout(type, layout.transposed);
  if (on_host()) return matrix;
  const uint32_t tiles = builders_.front().machine().tiles;
  if (type.shape.size() == 1 && layout.transposed) {
    // A vector has the same mapping as a row and as a column; products take pieces of it as bias.
    matrix.mapping = in_parts(1, matrix.rows, type.type, tiles);
    for (program::MappedBox& mapped : matrix.mapping) mapped.box = program::transpose(mapped.box);
    return matrix;
  }
  matrix.mapping = matrix.rows == 1 || is_integer(type.type)
                       ? in_parts(matrix.rows, matrix.cols, type.type, tiles)
                       : whole_rows(matrix.rows, matrix.cols, tiles);
  return matrix;
}

bool Lowering::may_have_nan_padding(ValueId id) {
  const TensorType& type = graph_.type(id);
  const ops::OperandLayout layout = operand_layout(type, {.weight = form_of(id)});
  if (uint64_t{layout.rows} * layout.cols == type.elements()) return false;
  if (!nan_padding_) nan_padding_ = padding_may_be_nan(graph_, lowered_.forms);
  return (*nan_padding_)[id];
}

ValueLayout bound_layout(const ValueLayout& layout) {
  if (layout.parts) return layout.parts->transposed ? kTransposed : kRows;
  return layout.weight ? kRows : layout;
}

bool LayoutChoice::is_transposed() const {
  return std::ranges::any_of(inputs, &ValueLayout::transposed) ||
         std::ranges::any_of(outputs, &ValueLayout::transposed);
}

std::vector<LayoutChoice> same_layouts(Lowering& l, const Node& node) {
  for (ValueId output : node.outputs)
    if (l.form_of(output)) return {all_in(l, node, {.weight = l.form_of(node.outputs[0])})};
  return {all_in(l, node, kRows), all_in(l, node, kTransposed)};
}

std::vector<LayoutChoice> elementwise_layouts(Lowering& l, const Node& node) {
  std::vector<LayoutChoice> choices = same_layouts(l, node);
  const TensorType& type = l.graph().type(node.outputs[0]);
  if (l.form_of(node.outputs[0]) || type.pattern) return choices;
  for (ValueId input : node.inputs) {
    const TensorType& given = l.graph().type(input);
    const bool is_whole = given.rows() == type.rows() && given.cols() == type.cols();
    if (!is_whole && given.elements() != 1) return choices;
  }
  for (const ValueLayout& parts : l.parted(type)) choices.push_back(all_in(l, node, parts));
  return choices;
}

std::vector<LayoutChoice> shard_layouts(Lowering& l, const Node& node) {
  if (const auto& form = l.form_of(node.inputs.back())) return {all_in(l, node, {.weight = form})};
  return same_layouts(l, node);
}

std::vector<LayoutChoice> row_layouts(Lowering& l, const Node& node) { return {all_in(l, node, kRows)}; }

std::optional<ValueLayout> given_layout(const Boundary& boundary, ValueId id, const ValueLayout& own) {
  const auto found = boundary.find(id);
  return found == boundary.end() ? bound_layout(own) : found->second;
}

ChosenLayouts choose_layouts(Lowering& lowering) {
  choose_boundaries(lowering);
  ConversionCosts costs(lowering);
  return LayoutSearch(lowering, costs).run();
}

}  // namespace tessera::graph
