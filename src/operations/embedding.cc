// Rows of a matrix that a list known at run time selects, and the sum of their gradients; elements along any
// dimension.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/ceil_divide.h"
#include "graph/dims.h"
#include "lower/lowering.h"
#include "operations/absorb.h"
#include "operations/constants.h"
#include "operations/list.h"
#include "operations/stored_elements.h"
#include "ops/map/elementwise.h"
#include "ops/map/fill.h"
#include "ops/map/gather.h"
#include "ops/map/table.h"

namespace tessera::graph {
namespace {

using ops::Operand;

void require_embedding_ids(const Signature& s, const TensorType& ids) {
  if (ids.type != Type::u32)
    throw UsageError(fmt::format("{}: the ids are {}; they must be u32", s.operation, to_string(ids)));
}

/// −1: there is none.
std::optional<uint32_t> padding_of(const Node& node) {
  const int64_t padding = node.integer("padding", -1);
  return padding < 0 ? std::nullopt : std::optional(static_cast<uint32_t>(padding));
}

void require_padding(const Signature& s, int64_t rows) {
  if (const int64_t padding = s.attributes.integer("padding", -1); padding < -1 || padding >= rows)
    throw UsageError(fmt::format("{}: the padding is row {} of {}", s.operation, padding, rows));
}

/// Rows of a weight for each of the ids.
TensorType type_of_rows(const Signature& s) {
  const TensorType &ids = s.inputs[0], &weight = s.inputs[1];
  require_embedding_ids(s, ids);
  if (weight.shape.size() != 2)
    throw UsageError(fmt::format("{}: the weight is {}, not a matrix", s.operation, to_string(weight)));
  if (ids.shape.size() == kMaxDimensions)
    throw UsageError(fmt::format("{}: rows of {} would have more than {} dimensions", s.operation,
                                 to_string(ids), kMaxDimensions));
  require_padding(s, weight.rows());
  TensorType y = dense_type(weight.type, ids.shape);
  y.shape.push_back(weight.cols());
  return y;
}

/// Ids and the weight.
Types infer_embedding(const Signature& s) {
  require_number(s, s.inputs[1]);
  require_dense(s);
  return {type_of_rows(s)};
}

Gradients embedding_gradient(const Differentiation& d) {
  Attributes attributes = d.node.attributes;
  attributes["rows"] = int64_t{d.input(1).type().rows()};
  return {{}, d.graph.apply("embedding_gradient", {*d.dy[0], d.input(0)}, std::move(attributes))[0]};
}

uint64_t row_of(const Evaluation& e, double id, uint32_t rows) {
  if (id < rows) return static_cast<uint64_t>(id);
  throw UsageError(
      fmt::format("{}: the id {} is out of range for {} rows", e.node.operation->name, id, rows));
}

std::vector<Array> embedding_reference(const Evaluation& e) {
  const uint32_t rows = e.input_type(1).rows(), cols = e.input_type(1).cols();
  Array y;
  for (const double id : *e.inputs[0]) {
    const uint64_t row = row_of(e, id, rows);
    for (uint32_t c = 0; c < cols; ++c) y.push_back((*e.inputs[1])[row * cols + c]);
  }
  return {y};
}

/// A list of ids is a column; on tiles it lies on one tile, from which all others receive it in one piece.
ops::OperandLayout list_layout(const ops::Builder& builder, uint32_t rows) {
  return ops::matrix_layout(
      rows, 1, builder.is_host() ? std::vector<program::MappedBox>() : program::map_to_tile(rows, 1, 0));
}

/// The ids, row by row.
Operand list_of(Lowering& l, size_t input) {
  const Operand ids = l.input(input);
  if (ids.cols() == 1 && l.on_host()) return ids;
  const ops::OperandLayout layout = list_layout(l.builder(), ids.rows() * ids.cols());
  const Operand list =
      l.builder().add(l.name_beside_result("ids"), program::Role::temporary, Type::u32, layout);
  l.run(l.builder().copy(ops::conversion(ids, ops::matrix_layout(ids.rows(), ids.cols(), {}), list, layout)));
  return list;
}

/// Number of rows stored together: the rows of a panel, or 1.
uint32_t panel_rows(const ops::OperandLayout& layout) { return layout.panels ? ops::PanelLayout::kRows : 1; }

/// Whether rows can be read from a weight, and added to its gradient, in the layout of its products: panels,
/// or a grid of parts.
bool has_rows(const Lowering& l, ValueId weight) {
  const ops::OperandLayout layout = l.weight(weight).layout();
  return layout.panels || (layout.parts && layout.parts->slices() == 1 && !layout.transposed);
}

/// The mapping of a matrix, on tiles, from which rows are selected: whole columns, if a few columns take a
/// small part of a tile. Empty: any mapping.
std::vector<program::MappedBox> mapping_of_rows(const Lowering& l, const TensorType& type) {
  constexpr uint64_t kShareOfTile = 16;  // with its gradient and an optimizer's state, a quarter
  if (l.on_host()) return {};
  const ops::Builder& builder = l.builder();
  const uint64_t cols = base::ceil_divide(type.cols(), builder.machine().tiles);
  const uint64_t bytes = cols * type.rows() * size_of(type.type);
  if (bytes > builder.machine().tile_bytes / kShareOfTile) return {};
  return Lowering::columns_on_tiles(builder, type.rows(), type.cols());
}

/// Operands ids, table and result.
program::StepId add_lookup(const ops::Builder& builder, const TensorType& table,
                           const ops::OperandLayout& layout, const std::vector<Operand>& operands) {
  const uint32_t rows = operands[0].rows();
  const Type type = builder.type_of(operands[1]);
  if (layout.parts) return ops::add(builder, ops::TableLookupProblem{type, *layout.parts, rows}, operands);
  return ops::add(builder,
                  ops::LookupProblem{.type = type,
                                     .source_rows = table.rows(),
                                     .cols = table.cols(),
                                     .rows = rows,
                                     .panel_rows = panel_rows(layout)},
                  operands);
}

/// Seconds of a lookup on tiles if all operands except the list are spread over all tiles.
double lookup_seconds(const Lowering& l, const TensorType& table, const ops::OperandLayout& layout,
                      uint32_t rows) {
  const std::tuple key(table.type, table.rows(), table.cols(), layout, rows);
  return seconds_alone(l.builder().machine(), key, [&](const ops::Builder& builder) {
    return add_lookup(
        builder, table, layout,
        {builder.add("ids", program::Role::input, Type::u32, list_layout(builder, rows)),
         builder.add("table", program::Role::state, table.type, layout),
         builder.add("y", program::Role::output, table.type, ops::matrix_layout(rows, table.cols(), {}))});
  });
}

/// The weight lies row by row, or as its products have it.
std::vector<LayoutChoice> embedding_layouts(Lowering& l, const Node& node) {
  const TensorType& table = l.graph().type(node.inputs[1]);
  std::vector<LayoutChoice> choices = row_layouts(l, node);
  choices.front().mappings = {{}, mapping_of_rows(l, table)};
  if (!l.form_of(node.inputs[1]) || !has_rows(l, node.inputs[1])) return choices;
  choices.push_back(choices.front());
  choices.back().inputs[1] = l.weight_layout(node.inputs[1]);
  if (l.on_host()) return choices;
  const TensorType& y = l.graph().type(node.outputs[0]);
  for (LayoutChoice& choice : choices)
    choice.seconds = lookup_seconds(l, table, l.operand_layout(table, choice.inputs[1]), y.rows());
  return choices;
}

void lower_embedding(Lowering& l, const Node& node) {
  const TensorType& table = l.graph().type(node.inputs[1]);
  // Beside a table in whole columns.
  const std::vector<program::MappedBox> mapping =
      mapping_of_rows(l, table).empty() || l.input_layout(1).weight
          ? std::vector<program::MappedBox>()
          : Lowering::columns_on_tiles(l.builder(), l.graph().type(node.outputs[0]).rows(), table.cols());
  const Operand ids = list_of(l, 0), weight = l.input(1), y = l.output(0, mapping);
  l.run(add_lookup(l.builder(), table, l.operand_layout(table, l.input_layout(1)), {ids, weight, y}));
}

constexpr size_t kAddend = 2;

/// The gradient of y, and ids; and a matrix that the rows are added to.
Types infer_embedding_gradient(const Signature& s) {
  const TensorType &dy = s.inputs[0], &ids = s.inputs[1];
  require_float(s, dy);
  require_embedding_ids(s, ids);
  require_dense(s);
  const int64_t rows = s.attributes.integer("rows");
  if (dy.shape.empty() || dy.rows() != ids.elements() || rows < 1 ||
      rows > std::numeric_limits<uint32_t>::max())
    throw UsageError(fmt::format(
        "{}: dy is {} and the weight has {} rows; it needs a row of dy for each of the ids {}, and a "
        "row of the weight or more",
        s.operation, to_string(dy), rows, to_string(ids)));
  require_padding(s, rows);
  const TensorType dw{dy.type, {static_cast<uint32_t>(rows), dy.cols()}, {}, {}};
  if (s.inputs.size() > kAddend && !(s.inputs[kAddend] == dw))
    throw UsageError(fmt::format("{}: the addend is {}, not {}", s.operation, to_string(s.inputs[kAddend]),
                                 to_string(dw)));
  return {dw};
}

/// The gradient of the added rows; the row of padding has none.
Gradients second_gradient(const Differentiation& d) {
  const Value ids = d.input(1), dy = *d.dy[0], rows = reshape(embedding(ids, dy), d.input(0).shape());
  Gradients gradients(d.node.inputs.size());
  if (gradients.size() > kAddend) gradients[kAddend] = dy;
  gradients[0] = rows;
  if (const auto padding = padding_of(d.node)) {
    Shape column = d.input(0).shape();
    column.back() = 1;
    gradients[0] =
        where(reshape(not_equal(ids, whole_number(d.graph, *padding)), column), rows, number(dy, 0));
  }
  return gradients;
}

/// Adds the rows of dy to those of a table that the ids name.
void add_named_rows(const Evaluation& e, uint32_t rows, uint32_t cols, Array& table) {
  for (uint64_t i = 0; i < e.inputs[1]->size(); ++i) {
    const double id = (*e.inputs[1])[i];
    if (padding_of(e.node) == id) continue;
    const uint64_t row = row_of(e, id, rows);
    for (uint32_t c = 0; c < cols; ++c) table[row * cols + c] += (*e.inputs[0])[i * cols + c];
  }
}

std::vector<Array> gradient_reference(const Evaluation& e) {
  const TensorType& type = e.output_type(0);
  Array dw = e.inputs.size() > kAddend ? *e.inputs[kAddend] : Array(type.elements());
  add_named_rows(e, type.rows(), type.cols(), dw);
  return {dw};
}

/// The type of the added values: tables in parts keep theirs.
Type type_of_added(const ops::OperandLayout& layout, Type has) { return layout.parts ? has : Type::f32; }

/// Operands ids, values and sums. On tiles rows are summed where columns are whole, and the sums added where
/// the addend lies, unless that is in parts, in which case all of it would be exchanged twice.
program::StepId add_rows(const ops::Builder& builder, const Node& node, const TensorType& type,
                         const ops::OperandLayout& layout, const std::vector<Operand>& operands) {
  const bool adds = node.inputs.size() > kAddend, apart = adds && !builder.is_host();
  const Operand &ids = operands[0], &sums = operands[2];
  if (layout.parts)
    return ops::add(
        builder,
        ops::TableAddProblem{*layout.parts, ids.rows(), padding_of(node), builder.type_of(operands[1])},
        operands);
  const Operand rows = apart ? builder.temporary("rows", Type::f32, sums.rows(), sums.cols()) : sums;
  const program::StepId summed = ops::add(builder,
                                          ops::ScatterAddProblem{.out_rows = type.rows(),
                                                                 .cols = type.cols(),
                                                                 .rows = ids.rows(),
                                                                 .skipped = padding_of(node),
                                                                 .panel_rows = panel_rows(layout),
                                                                 .adds = adds && !apart},
                                          {ids, operands[1], rows});
  if (!apart) return summed;
  const ops::BinaryProblem both{kernels::Binary::add, Type::f32, sums.rows(), sums.cols()};
  return builder.sequence({summed, ops::add(builder, both, {sums, rows, sums})});
}

/// The parts in which tiles sum a gradient that lies row by row and is too large for whole columns: each tile
/// sums the rows of its own part.
std::optional<ops::PartedMatrix> parts_of_sums(const Lowering& l, const Node& node, const TensorType& type) {
  constexpr uint32_t kCols = 8;  // columns of a part, whose rows take little more time than with one column
  const ops::OperandLayout layout = l.operand_layout(type, l.output_layout(0));
  const bool lies_in_rows = !layout.parts && !layout.panels && !layout.transposed;
  const bool adds = node.inputs.size() > kAddend;
  if (l.on_host() || adds || !lies_in_rows || !mapping_of_rows(l, type).empty()) return {};
  const uint32_t tiles = l.builder().machine().tiles;
  const uint32_t across = std::min(tiles, base::ceil_divide(type.cols(), kCols));
  return ops::PartedMatrix(type.rows(), type.cols(), 1, 1, tiles / across, 1, across, 1);
}

/// The gradient lies row by row, or if it is added to the gradient of a product's weight, in the layout of
/// that.
std::vector<LayoutChoice> embedding_gradient_layouts(Lowering& l, const Node& node) {
  std::vector<LayoutChoice> choices = row_layouts(l, node);
  const std::optional<ValueId> form = l.form_of(node.outputs[0]);
  if (!form || !has_rows(l, *form)) return choices;
  choices.push_back(choices.front());
  choices.back().inputs[kAddend] = choices.back().outputs[0] = {.weight = form};
  if (l.on_host()) return choices;
  const TensorType& type = l.graph().type(node.outputs[0]);
  const uint32_t rows = l.graph().type(node.inputs[0]).rows();
  for (LayoutChoice& choice : choices)
    choice.seconds = seconds_alone(l.builder().machine(), [&](const ops::Builder& builder) {
      using program::Role;
      const ops::OperandLayout layout = l.operand_layout(type, choice.outputs[0]);
      const Type added = type_of_added(layout, l.graph().type(node.inputs[0]).type);
      return add_rows(builder, node, type, layout,
                      {builder.add("ids", Role::input, Type::u32, list_layout(builder, rows)),
                       builder.add("dy", Role::input, added, ops::matrix_layout(rows, type.cols(), {})),
                       builder.add("dw", Role::state, Type::f32, layout)});
    });
  return choices;
}

/// Sums in FP32, each tile its own part.
void lower_gradient_in_parts(Lowering& l, const Node& node, const ops::PartedMatrix& parts) {
  const std::vector<program::MappedBox> boxes = ops::part_boxes(parts);
  const ops::Builder& builder = l.builder();
  const Operand ids = list_of(l, 1), dy = l.input(0), dw = l.output(0, boxes);
  const Operand sums = builder.type_of(dw) == Type::f32
                           ? dw
                           : builder.temporary("sums", Type::f32, dw.rows(), dw.cols(), boxes);
  l.add(ops::FillProblem{Type::f32, sums.rows(), sums.cols(), 0}, {sums});
  l.run(ops::add(builder,
                 ops::TableAddProblem{parts, ids.rows(), padding_of(node), builder.type_of(dy), true},
                 {ids, dy, sums}));
  l.convert_type(sums, dw);
}

/// Sums in FP32.
void lower_embedding_gradient(Lowering& l, const Node& node) {
  const bool adds = node.inputs.size() > kAddend;
  const TensorType& type = l.graph().type(node.outputs[0]);
  if (const auto parts = parts_of_sums(l, node, type)) return lower_gradient_in_parts(l, node, *parts);
  const ops::OperandLayout layout = l.operand_layout(type, l.output_layout(0));
  const Operand ids = list_of(l, 1), given = l.input(0),
                dy = l.as_type(given, type_of_added(layout, l.builder().type_of(given)));
  if (adds) l.begin_output_with(0, kAddend);
  const Operand dw = l.output(0, mapping_of_rows(l, type));
  const bool is_sum = type.type == Type::f32;
  const Operand sums =
      is_sum ? dw
             : l.builder().temporary("sums", Type::f32, dw.rows(), dw.cols(), l.builder().mapping_of(dw));
  if (adds) l.convert_type(dw, sums);
  l.run(add_rows(l.builder(), node, type, layout, {ids, dy, sums}));
  l.convert_type(sums, dw);
}

std::optional<Node> absorb_gradient(const Graph& graph, const Node& own, const Node& next) {
  if (next.operation->name != "add" || own.inputs.size() > kAddend) return {};
  return absorb_addend(graph, own, next);
}

TensorType ids_type(Shape shape) { return {Type::u32, std::move(shape), {}, {}}; }

std::vector<Case> embedding_cases() {
  std::vector<Case> cases;
  for (const Type type : {Type::f32, Type::f16, Type::bf16})
    cases.push_back({.inputs = {ids_type({3, 7}), {type, {24, 20}, {}, {}}}, .below = 24});
  cases.push_back({.inputs = {ids_type({40}), {Type::f32, {5, 33}, {}, {}}},
                   .attributes = {{"padding", int64_t{2}}},
                   .below = 5,
                   .differentiable = false});
  cases.push_back({.inputs = {ids_type({}), {Type::f32, {7, 3}, {}, {}}}, .below = 7});
  cases.push_back(
      {.inputs = {ids_type({9}), {Type::i32, {7, 3}, {}, {}}}, .below = 7, .differentiable = false});
  return cases;
}

/// Of single elements and of blocks, which overhang; of patterns that may change too.
std::vector<TensorType> sparse_tables() {
  std::vector<TensorType> tables = {sparse_type(24, 20, 1, false), sparse_type(33, 41, 1, true),
                                    sparse_type(24, 20, 4, false), sparse_type(45, 40, 8, true)};
  for (const Type type : {Type::f16, Type::bf16})
    for (const uint32_t block_size : {1U, 16U}) {
      tables.push_back(sparse_type(40, 48, block_size, false));
      tables.back().type = type;
    }
  return tables;
}

std::vector<Case> sparse_embedding_cases() {
  std::vector<Case> cases;
  for (const TensorType& table : sparse_tables())
    cases.push_back({.inputs = {ids_type({3, 7}), table}, .below = table.rows()});
  cases.push_back({.inputs = {ids_type({}), sparse_type(24, 20, 1, false)}, .below = 24});
  cases.push_back({.inputs = {ids_type({40}), sparse_type(24, 20, 4, false)},
                   .attributes = {{"padding", int64_t{2}}},
                   .below = 24,
                   .differentiable = false});
  return cases;
}

std::vector<Case> sparse_embedding_gradient_cases() {
  std::vector<Case> cases;
  for (const TensorType& table : sparse_tables())
    cases.push_back({.inputs = {{table.type, {3, 7, table.cols()}, {}, {}}, ids_type({3, 7}), table},
                     .attributes = {{"padding", int64_t{4}}},
                     .below = table.rows(),
                     .differentiable = false});
  return cases;
}

std::vector<Case> embedding_gradient_cases() {
  std::vector<Case> cases;
  for (const Type type : {Type::f32, Type::f16, Type::bf16}) {
    cases.push_back({.inputs = {{type, {3, 7, 20}, {}, {}}, ids_type({3, 7})},
                     .attributes = {{"rows", int64_t{9}}, {"padding", int64_t{4}}},
                     .below = 9});
    cases.push_back(cases.back());
    cases.back().inputs.push_back({type, {9, 20}, {}, {}});
  }
  return cases;
}

bool embedding_keeps_samples(const Divided& divided) { return divided.operands[0] && !divided.operands[1]; }

// Embeddings from a sparse weight: a row has its stored elements, and zeros between them.

void require_sparse(const Signature& s, const TensorType& weight) {
  require_float(s, weight);
  if (!weight.pattern)
    throw UsageError(
        fmt::format("{}: the weight is {}, which is not sparse", s.operation, to_string(weight)));
}

/// Ids and the weight.
Types infer_sparse_embedding(const Signature& s) {
  require_sparse(s, s.inputs[1]);
  return {type_of_rows(s)};
}

Gradients gradient_of_sparse_embedding(const Differentiation& d) {
  return {
      {},
      d.graph.apply("sparse_embedding_gradient", {*d.dy[0], d.input(0), d.input(1)}, d.node.attributes)[0]};
}

std::vector<Array> sparse_embedding_reference(const Evaluation& e) {
  const TensorType& weight = e.input_type(1);
  const uint32_t rows = weight.rows(), cols = weight.cols();
  Array dense(uint64_t{rows} * cols), y;
  each_weight(weight,
              [&](uint32_t r, uint32_t c, uint64_t i) { dense[uint64_t{r} * cols + c] = (*e.inputs[1])[i]; });
  for (const double id : *e.inputs[0]) {
    const auto row = dense.begin() + static_cast<std::ptrdiff_t>(row_of(e, id, rows) * cols);
    y.insert(y.end(), row, row + cols);
  }
  return {y};
}

/// An identity matrix: its products with a weight are all columns of the weight.
Value identity_of(Graph& graph, uint32_t n, Type type) {
  std::vector<float> values(uint64_t{n} * n);
  for (uint64_t i = 0; i < n; ++i) values[i * (n + 1)] = 1;
  return graph.constant("", {n, n}, std::move(values), type);
}

/// The embedding from the dense weight.
std::vector<Value> decompose_sparse_embedding(const Decomposition& d) {
  const Value weight = d.inputs[1];
  const Value columns = linear(identity_of(weight.owner(), weight.type().cols(), weight.type().type), weight);
  return {embedding(d.inputs[0], transpose(columns))};
}

/// The rows row by row, and the weight as its products have it.
std::vector<LayoutChoice> sparse_embedding_layouts(Lowering& l, const Node& node) {
  std::vector<LayoutChoice> choices = row_layouts(l, node);
  choices.front().inputs[1] = l.weight_layout(node.inputs[1]);
  return choices;
}

void lower_sparse_embedding(Lowering& l, const Node& node) {
  LinearWeight& weight = l.weight(node.inputs[1]);
  const Operand ids = list_of(l, 0), values = l.as_type(l.input(1), weight.type()), y = l.output(0);
  const bool is_result = l.builder().type_of(y) == weight.type();
  const Operand rows = is_result ? y : l.temporary("rows", weight.type(), y.rows(), y.cols());
  l.run(weight.add_taking(l.builder(), {.list = ids, .values = values, .rows = rows}));
  l.convert_type(rows, y);
}

/// The gradient of y, ids, and the weight, whose values are not read.
Types infer_sparse_embedding_gradient(const Signature& s) {
  const TensorType &dy = s.inputs[0], &ids = s.inputs[1], &weight = s.inputs[2];
  require_embedding_ids(s, ids);
  require_sparse(s, weight);
  if (weight.shape.size() != 2 || dy.pattern || dy.type != weight.type || dy.shape.empty() ||
      dy.rows() != ids.elements() || dy.cols() != weight.cols())
    throw UsageError(fmt::format("{}: {} and the ids {} do not match the weight {}", s.operation,
                                 to_string(dy), to_string(ids), to_string(weight)));
  require_padding(s, weight.rows());
  return {weight};
}

std::vector<Array> sparse_embedding_gradient_reference(const Evaluation& e) {
  const TensorType& weight = e.input_type(2);
  const uint32_t rows = weight.rows(), cols = weight.cols();
  Array sums(uint64_t{rows} * cols), dw(weight.elements());
  add_named_rows(e, rows, cols, sums);
  each_weight(weight, [&](uint32_t r, uint32_t c, uint64_t i) { dw[i] = sums[uint64_t{r} * cols + c]; });
  return {dw};
}

/// The gradient of the dense weight, from which a product takes the elements that the weight has.
std::vector<Value> decompose_sparse_embedding_gradient(const Decomposition& d) {
  const Value dy = d.inputs[0], ids = d.inputs[1], weight = d.inputs[2];
  Graph& graph = weight.owner();
  Attributes attributes = d.node.attributes;
  attributes["rows"] = int64_t{weight.type().rows()};
  const Value sums = graph.apply("embedding_gradient", {dy, ids}, std::move(attributes))[0];
  const Value all = identity_of(graph, weight.type().cols(), weight.type().type);
  return {graph.apply("linear_weight_gradient", {all, transpose(sums), weight})[0]};
}

std::vector<LayoutChoice> sparse_embedding_gradient_layouts(Lowering& l, const Node& node) {
  std::vector<LayoutChoice> choices = row_layouts(l, node);
  choices.front().inputs[2] = choices.front().outputs[0] = l.weight_layout(node.inputs[2]);
  return choices;
}

/// Sums in FP32.
void lower_sparse_embedding_gradient(Lowering& l, const Node& node) {
  LinearWeight& weight = l.weight(node.inputs[2]);
  const Operand ids = list_of(l, 1), dy = l.as_type(l.input(0), Type::f32), dw = l.output(0);
  const bool is_sum = l.builder().type_of(dw) == Type::f32;
  const Operand sums = is_sum ? dw : l.temporary("sums", Type::f32, dw.rows(), dw.cols());
  l.run(weight.add_summing(l.builder(),
                           {.list = ids, .values = sums, .rows = dy, .skipped = padding_of(node)}));
  l.convert_type(sums, dw);
}

constexpr Operation kEmbedding[] = {{.name = "embedding",
                                     .least_inputs = 2,
                                     .most_inputs = 2,
                                     .infer = infer_embedding,
                                     .gradient = embedding_gradient,
                                     .reference = embedding_reference,
                                     .layouts = embedding_layouts,
                                     .lower = lower_embedding,
                                     .cases = embedding_cases,
                                     .traits = {.table = 1, .keeps_samples = embedding_keeps_samples}},
                                    {.name = "embedding_gradient",
                                     .least_inputs = 2,
                                     .most_inputs = 3,
                                     .infer = infer_embedding_gradient,
                                     .gradient = second_gradient,
                                     .reference = gradient_reference,
                                     .layouts = embedding_gradient_layouts,
                                     .lower = lower_embedding_gradient,
                                     .cases = embedding_gradient_cases,
                                     .traits = {.addend = kAddend},
                                     .absorb = absorb_gradient},
                                    {.name = "sparse_embedding",
                                     .least_inputs = 2,
                                     .most_inputs = 2,
                                     .infer = infer_sparse_embedding,
                                     .gradient = gradient_of_sparse_embedding,
                                     .reference = sparse_embedding_reference,
                                     .layouts = sparse_embedding_layouts,
                                     .lower = lower_sparse_embedding,
                                     .cases = sparse_embedding_cases,
                                     .traits = {.weight = {{1, ProductKind::input_gradient}},
                                                .table = 1,
                                                .keeps_samples = embedding_keeps_samples},
                                     .decompose = decompose_sparse_embedding,
                                     .lowers_on = lowers_on_hosts},
                                    {.name = "sparse_embedding_gradient",
                                     .least_inputs = 3,
                                     .most_inputs = 3,
                                     .infer = infer_sparse_embedding_gradient,
                                     .reference = sparse_embedding_gradient_reference,
                                     .layouts = sparse_embedding_gradient_layouts,
                                     .lower = lower_sparse_embedding_gradient,
                                     .cases = sparse_embedding_gradient_cases,
                                     .traits = {.weight = {{2, ProductKind::sddmm}}},
                                     .decompose = decompose_sparse_embedding_gradient,
                                     .lowers_on = lowers_on_hosts}};

}  // namespace

std::span<const Operation> embedding_operations() { return kEmbedding; }

namespace {

/// An array as a matrix whose rows are its first dimension.
Value as_rows(Value x) {
  return reshape(x, {x.shape()[0], static_cast<uint32_t>(x.type().elements() / x.shape()[0])});
}

void require_list(std::string_view operation, Value ids) {
  if (ids.type().type != Type::u32 || ids.shape().size() != 1)
    throw UsageError(
        fmt::format("{}: the indices are {}; they must be a list of u32", operation, to_string(ids.type())));
}

}  // namespace

Value index_select(Value x, int dim, Value ids) {
  const size_t at = dimension_of("index_select", x.type(), dim);
  ids = as_indices(ids);
  require_list("index_select", ids);
  const Value front = moved(x, at, 0);
  Shape shape = front.shape();
  shape[0] = ids.shape()[0];
  return moved(reshape(embedding(ids, as_rows(front)), shape), 0, at);
}

Value scatter_add(Value values, int dim, Value ids, uint32_t size) {
  const size_t at = dimension_of("scatter_add", values.type(), dim);
  ids = as_indices(ids);
  require_list("scatter_add", ids);
  const Value front = moved(values, at, 0);
  Shape shape = front.shape();
  if (shape[0] != ids.shape()[0])
    throw UsageError(
        fmt::format("scatter_add: there are {} indices; {} needs one for each place of dimension {}",
                    ids.shape()[0], to_string(values.type()), dim));
  shape[0] = size;
  const Value sums =
      values.owner().apply("embedding_gradient", {as_rows(front), ids}, {{"rows", int64_t{size}}})[0];
  return moved(reshape(sums, shape), 0, at);
}

Value gather(Value x, int dim, Value ids) {
  const size_t at = dimension_of("gather", x.type(), dim), last = x.shape().size() - 1;
  const Value from = moved(x, at, last);
  ids = as_indices(ids);
  Shape rest = ids.shape();
  if (rest.size() == last + 1) rest[at] = x.shape()[at];
  if (ids.type().type != Type::u32 || rest != x.shape())
    throw UsageError(
        fmt::format("gather: the indices are {}; they must be u32, and as {} but for dimension {}",
                    to_string(ids.type()), to_string(x.type()), dim));
  const uint32_t rows = from.type().rows(), cols = from.type().cols();
  constexpr uint64_t kMost = 1 << 24;  // which constants hold
  if (from.type().elements() > kMost)
    throw UsageError(fmt::format("gather: {} has more than 2^24 elements", to_string(x.type())));
  std::vector<float> begins(rows);
  for (uint32_t row = 0; row < rows; ++row) begins[row] = static_cast<float>(row * cols);
  const Value own = moved(ids, at, last), in_row = reshape(own, {rows, own.type().cols()});
  const Value places = in_row + x.owner().constant("", {rows, 1}, std::move(begins), Type::u32);
  const Value or_none = where(less(in_row, number(in_row, cols)), places, number(places, rows * cols));
  const Value found =
      x.owner().apply("embedding", {or_none, reshape(from, {rows * cols, 1})}, {{"size", int64_t{cols}}})[0];
  return moved(reshape(found, own.shape()), last, at);
}

Value embedding(Value ids, Value weight, std::optional<uint32_t> padding) {
  Attributes attributes;
  if (padding) attributes["padding"] = int64_t{*padding};
  const std::string_view operation = weight.type().pattern ? "sparse_embedding" : "embedding";
  return weight.owner().apply(operation, {as_indices(ids), weight}, std::move(attributes))[0];
}

}  // namespace tessera::graph
