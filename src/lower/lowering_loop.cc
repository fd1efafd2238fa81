// Loops in a program: a repetition of their bodies' steps.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/integer_types.h"
#include "graph/substream.h"
#include "kernels/map/gather/codelet.h"
#include "lower/lowering.h"
#include "lower/pipeline.h"
#include "ops/map/elementwise.h"
#include "ops/map/fill.h"
#include "ops/owners.h"

namespace tessera::graph {
namespace {

using ops::Operand;
using program::Role;

/// Values of fewer dimensions have a row for each pass.
ValueLayout layout_of_passes(const TensorType& of_pass, uint32_t passes) {
  return of_pass.shape.size() < 2 ? ValueLayout{.passes = passes} : kRows;
}

/// Whether a value has so few columns, as images have, that whole ones would fill a few tiles.
bool has_few_columns(const TensorType& of_pass, const ops::Builder& builder) {
  constexpr uint32_t kTilesForColumn = 8;
  if (builder.is_host() || of_pass.shape.size() < 2) return false;
  const uint32_t tiles = builder.machine().tiles;
  return uint64_t{kTilesForColumn} * of_pass.cols() <= tiles && of_pass.rows() >= tiles;
}

/// Whole rows of a matrix on each tile.
std::vector<program::MappedBox> rows_on_tiles(const ops::Builder& builder, const TensorType& type) {
  std::vector<program::MappedBox> mapping = Lowering::columns_on_tiles(builder, type.cols(), type.rows());
  for (auto& [box, tile] : mapping) box = program::transpose(box);
  return mapping;
}

/// The same elements as a row.
std::vector<program::MappedBox> in_a_row(std::vector<program::MappedBox> rows) {
  for (auto& [box, tile] : rows) box = {0, 1, box.row * box.cols, box.rows * box.cols};
  return rows;
}

/// The matrices of all passes with a row for each.
std::vector<program::MappedBox> passes_on_tiles(const ops::Builder& builder, const TensorType& of_pass,
                                                uint32_t passes) {
  std::vector<program::MappedBox> mapping = in_a_row(rows_on_tiles(builder, of_pass));
  for (auto& [box, tile] : mapping) box.rows = passes;
  return mapping;
}

/// The input that an output becomes in the next pass.
std::optional<size_t> next_input(const LoopForm& form, size_t output) {
  for (const auto& [input, becomes] : form.carried)
    if (becomes == output) return input;
  return {};
}

bool lies_on(const ops::Builder& builder, const Operand& operand,
             const std::vector<program::MappedBox>& mapping) {
  return builder.is_host() || (builder.holds(operand) && builder.mapping_of(operand) == mapping);
}

/// The first rows of an operand of several passes; a row known at run time is added.
Operand first_rows(const Operand& operand, uint32_t rows) {
  return operand.part({0, rows, 0, operand.cols()});
}

}  // namespace

Lowering::Lowering(const Lowering& around, const Node& loop)
    : graph_(*loop.body),
      stages_(around.stages_.loops.at(around.index_of(loop))),
      partial_sums_(around.partial_sums_),
      prefetches_(around.prefetches_),
      places_(around.places_),
      has_parts_(around.has_parts_),
      builders_(around.builders_),
      skipped_(graph_.nodes().size()),
      replicas_(around.replicas_),
      substream_words_(around.substream_words_),
      is_body_(true),
      prefix_(around.graph_.info(loop.outputs[0]).name + ".") {
  prepare();
}

LayoutChoice Lowering::layout_of_loop(const Node& node) {
  const LoopForm form = loop_form(node);
  Lowering& body = *(loops_[index_of(node)] = std::make_unique<Lowering>(*this, node));
  WeightForms forms = forms_of_body(node);
  for (size_t i = 0; i < form.inputs.size(); ++i) {
    const ValueId inside = form.body_inputs[i];
    if (form.inputs[i] == LoopInput::indexed) body.parts_of_passes_.insert(inside);
    if (forms[inside] == inside) body.given_weights_[inside] = &weight(node.inputs[i]);
  }
  body.given_uses_ = uses_inside(node);
  body.choose(std::move(forms));
  LayoutChoice choice;
  for (size_t i = 0; i < form.inputs.size(); ++i) {
    const ValueId inside = form.body_inputs[i];
    const TensorType& type = body.graph_.type(inside);
    if (form.inputs[i] == LoopInput::indexed && lies_flat(node.inputs[i], type, form)) {
      choice.inputs.push_back({.passes = form.count});
      choice.mappings.push_back(passes_on_tiles(body.builder_of(inside), type, form.count));
    } else if (form.inputs[i] == LoopInput::indexed) {
      choice.inputs.push_back(layout_of_passes(type, form.count));
      choice.mappings.push_back(
          columns_on_tiles(body.builder_of(inside), type.rows() * form.count, type.cols()));
    } else {
      const ValueLayout& layout = body.layout_of(inside);
      choice.inputs.push_back(layout.weight ? weight_layout(node.inputs[i]) : layout);
      choice.mappings.push_back(body.wanted_mapping(inside));
    }
  }
  for (size_t i = 0; i < form.outputs.size(); ++i) {
    const ValueLayout layout = body.layout_of_result(form, i);
    if (form.outputs[i] == LoopOutput::stacked)
      choice.outputs.push_back(layout_of_passes(body.graph_.type(form.body_outputs[i]), form.count));
    else
      choice.outputs.push_back(layout.weight ? ValueLayout{.weight = form_of(node.outputs[i])} : layout);
  }
  return choice;
}

/// Whether a pass' matrix is taken as a row: its elements then lie on all tiles.
bool Lowering::lies_flat(ValueId given, const TensorType& of_pass, const LoopForm& form) const {
  const bool is_only_ours =
      graph_.info(given).kind == Kind::input && users_of(given).size() == 1 && !is_body_ && !is_function_;
  return is_only_ours && !form.is_pipelined() && has_few_columns(of_pass, builders_.front());
}

/// The layout in which a result of the body is taken from it.
ValueLayout Lowering::layout_of_result(const LoopForm& form, size_t output) const {
  const ValueLayout& layout = layout_of(form.body_outputs[output]);
  switch (form.outputs[output]) {
    case LoopOutput::stacked: return kRows;
    case LoopOutput::last:
      if (const auto input = next_input(form, output)) return layout_of(form.body_inputs[*input]);
      if (!layout.weight) return layout;
      break;
    case LoopOutput::summed: break;
  }
  const bool is_form_outside = layout.weight && given_weights_.contains(*layout.weight);
  return is_form_outside ? layout : bound_layout(layout);
}

void Lowering::lower_loop(const Node& node) {
  const LoopForm form = loop_form(node);
  const uint32_t index = node_;
  Lowering& body = *loops_.at(index);
  if (form.is_pipelined()) {
    PipelineLowering(*this, node, form, body).lower();
  } else {
    add_as(index, [&] { begin_passes(node, form, body); });
    SequentialPasses passes(*this, body, form);
    passes.lower();
    add_as(index, [&] { end_passes(form, body, passes); });
  }
  const std::map<ValueId, ValueId> same = same_inside(node);
  for (const Lowered::Gap& gap : body.lowered_.gaps)
    if (const auto given = same.find(gap.weight); given != same.end())
      lowered_.gaps.push_back({weight_of(lowered_.forms, given->second), gap.variable});
  std::ranges::copy(body.lowered_.conversions, std::back_inserter(lowered_.conversions));
  lowered_.loops[index] = std::make_unique<Lowered>(body.release());
}

/// Before the passes, and at the beginning of each: provides what they take.
void Lowering::begin_passes(const Node& node, const LoopForm& form, Lowering& body) {
  const ops::Builder& builder = builders_.front();
  const auto number = substream_words_ > 0 ? number_of_call(node) : std::nullopt;
  const auto is_indexed = [](LoopInput kind) { return kind == LoopInput::indexed; };
  const auto is_stacked = [](LoopOutput kind) { return kind == LoopOutput::stacked; };
  if (number || std::ranges::any_of(form.inputs, is_indexed) || std::ranges::any_of(form.outputs, is_stacked))
    body.counter_ = body.pass_ = builder.temporary("pass", Type::u32, 1, 1);
  if (body.counter_ && form.reversed) {
    std::vector<uint32_t> indices(form.count);
    for (uint32_t pass = 0; pass < form.count; ++pass) indices[pass] = form.index(pass);
    const Operand all = constant_words("passes", std::move(indices), form.count);
    body.pass_ = builder.temporary("index", Type::u32, 1, 1);
    program::CopyGroup group = copy_of({all.variable, {0, 1, 0, 1}}, *body.pass_);
    group.source_offset = program::RuntimeRow{body.counter_->variable, 1};
    body.run(builder.copy({"index", {std::move(group)}}));
  }
  if (number) begin_draws(*number, body);
  program::CopySet parts{"pass", {}}, lists{"lists of a pass", {}};
  std::vector<program::StepId> unfolded;
  for (size_t i = 0; i < form.inputs.size(); ++i) {
    const ValueId inside = form.body_inputs[i];
    const program::PartScope part = as_part(body.part_of(inside));
    const Operand given = given_to(body, node, form, i);
    body.lowered_.operands[inside] = given;
    if (form.inputs[i] == LoopInput::carried) place_carried(inside, given, body);
    if (form.inputs[i] != LoopInput::indexed) continue;
    const bool is_flat = body.graph_.type(inside).shape.size() > 1 && choice().inputs[i].passes > 0;
    parts.groups.push_back(is_flat ? place_flat(inside, given, body.builder_of(inside), body, unfolded)
                                   : place_part(inside, given, body.builder_of(inside), body));
    body.gather_list(inside, body.builder_of(inside), lists);
  }
  builder.copy(std::move(parts), body.steps_);
  for (const program::StepId step : unfolded) body.run(step);
  builder.copy(std::move(lists), body.steps_);
  body.place_values();  // constants
}

void Lowering::begin_draws(uint32_t number, Lowering& body) {
  body.own_substream_ = own_substream_;
  body.micro_batch_ = number == 0 ? body.pass_ : micro_batch_;
  if (number == 0) return;
  const Operand of_loop = substream_of_call(number);
  const Operand row = row_of_words("passes", substream_words_);
  const program::Box before{0, 1, 0, kCallWord};
  program::CopySet set{"substream", {copy_of(of_loop.part(before), row.part(before))}};
  const uint32_t around = substream_words_ - kCallWord - 1;
  set.groups.push_back(
      copy_of(of_loop.part({0, 1, kCallWord, around}), row.part({0, 1, kCallWord + 1, around})));
  run(builders_.front().copy(std::move(set)));
  body.run(builders_.front().copy({"substream", {copy_of(*body.pass_, row.part({0, 1, kCallWord, 1}))}}));
  body.own_substream_ = row;
}

void Lowering::place_carried(ValueId inside, const Operand& given, Lowering& body) {
  const ValueInfo& info = body.graph_.info(inside);
  const ops::Builder& builder = body.builder_of(inside);
  const Operand carried =
      builder.add(info.name + ".carried", Role::temporary, info.type.type,
                  body.operand_layout(info.type, body.layout_of(inside)), body.purpose_of(inside));
  builder.send(given, carried, steps_);
  body.lowered_.operands[inside] = carried;
}

/// The matrix of a pass, in a body.
Operand Lowering::matrix_of_pass(ValueId inside, const ops::Builder& builder,
                                 std::vector<program::MappedBox> mapping) {
  const ValueInfo& info = graph_.info(inside);
  ops::OperandLayout layout = matrix_layout(info.type, false);
  layout.mapping = std::move(mapping);
  const Operand part =
      builder.add(info.name + ".micro", Role::temporary, info.type.type, layout, purpose_of(inside));
  lowered_.operands[inside] = part;
  return part;
}

/// The copy of a pass's rows. On tiles, they have the mapping of all rows.
program::CopyGroup Lowering::place_part(ValueId inside, const Operand& given, const ops::Builder& builder,
                                        Lowering& body) {
  const ValueInfo& info = body.graph_.info(inside);
  const TensorType& type = info.type;
  const Operand part =
      body.matrix_of_pass(inside, builder, columns_on_tiles(builder, type.rows(), type.cols()));
  const Operand whole =
      placed_on(given, info.name + ".passes", builder, columns_on_tiles(builder, given.rows(), given.cols()));
  program::CopyGroup group = copy_of(first_rows(whole, type.rows()), part);
  group.source_offset = program::RuntimeRow{body.pass_->variable, type.rows()};
  return group;
}

/// The copy of a pass that is taken as a row, and a step that gives it the rows and columns of its matrix.
program::CopyGroup Lowering::place_flat(ValueId inside, const Operand& given, const ops::Builder& builder,
                                        Lowering& body, std::vector<program::StepId>& steps) {
  const ValueInfo& info = body.graph_.info(inside);
  const TensorType& type = info.type;
  const Operand whole = placed_on(given, info.name + ".passes", builder,
                                  passes_on_tiles(builder, type, static_cast<uint32_t>(given.rows())));
  const std::vector<program::MappedBox> rows = rows_on_tiles(builder, type), flat = in_a_row(rows);
  const Operand row =
      builder.temporary(info.name + ".pass", type.type, 1, static_cast<uint32_t>(type.elements()), flat);
  const Operand part = body.matrix_of_pass(inside, builder, rows);
  steps.push_back(builder.execute(
      {"rows of a pass", program::Phase::rearrange,
       ops::groups_of_owners(rows, kernels::join_rows_codelet,
                             {{row, ops::boxes_of(flat)}, {part, ops::boxes_of(rows)}}, {})}));
  program::CopyGroup group = copy_of(first_rows(whole, 1), row);
  group.source_offset = program::RuntimeRow{body.pass_->variable, 1};
  return group;
}

/// The operand itself if it has this mapping, or a copy that does.
Operand Lowering::placed_on(const Operand& given, const std::string& name, const ops::Builder& builder,
                            const std::vector<program::MappedBox>& mapping) {
  if (lies_on(builder, given, mapping)) return given;
  const Operand placed = builder.temporary(name, builder.type_of(given), given.rows(), given.cols(), mapping);
  builder.send(given, placed, steps_);
  return placed;
}

/// Moves integers of a pass from many tiles, with a few each, to the few tiles on which such values lie
/// outside loops: otherwise a tile that takes all of them, as with lists of rows, would have a transfer for
/// each piece.
void Lowering::gather_list(ValueId inside, const ops::Builder& builder, program::CopySet& copies) {
  constexpr uint64_t kManyPieces = 256;
  const ValueInfo& info = graph_.info(inside);
  if (on_host() || !is_integer(info.type.type)) return;
  const Operand part = operand_of(inside);
  const ops::OperandLayout layout = operand_layout(info.type, kRows);
  const uint64_t pieces = part.rows() * uint64_t{builder.mapping_of(part).size()};
  if (pieces < kManyPieces || pieces < 2 * uint64_t{layout.mapping.size()}) return;
  const Operand list =
      builder.add(info.name + ".list", Role::temporary, info.type.type, layout, purpose_of(inside));
  copies.groups.push_back(copy_of(part, list));
  lowered_.operands[inside] = list;
}

/// At the end of each pass, and after all of them: stores what they give.
void Lowering::end_passes(const LoopForm& form, Lowering& body, SequentialPasses& passes) {
  const size_t first_giving = body.steps_.size();
  std::vector<std::pair<size_t, Operand>> aliased;
  std::vector<PlannedCopy> sent;
  for (size_t i = 0; i < form.outputs.size(); ++i) {
    const ValueId inside = form.body_outputs[i];
    const ops::Builder& builder = body.builder_of(inside);
    if (const auto input = next_input(form, i); input && form.outputs[i] == LoopOutput::last) {
      aliased.emplace_back(i, body.operand_of(form.body_inputs[*input]));
      continue;
    }
    passes.begin(body.graph_.info(inside).node);
    const uint32_t part = body.part_of(inside);
    const program::PartScope scope = as_part(part);
    const Operand own = body.in_layout(inside, body.layout_of_result(form, i), builder);
    switch (form.outputs[i]) {
      case LoopOutput::last: aliased.emplace_back(i, body.kept_of_pass(form, inside, own)); break;
      case LoopOutput::summed:
        add_to_sum(result_beside(graph_.nodes()[node_].outputs[i], own, builder), own, form.scale, builder,
                   body);
        break;
      case LoopOutput::stacked:
        if (const auto stack = stack_pass(stacked_output(i, own, form.count, builder), own, builder, body))
          sent.push_back({*stack, output(i), part});
        break;
    }
  }
  passes.begin({});
  const size_t end_of_giving = body.steps_.size();
  std::vector<PlannedCopy> carried;
  for (const auto& [input, becomes] : form.carried) {
    const ValueId id = form.body_inputs[input];
    const uint32_t part = body.part_of(id);
    const program::PartScope scope = as_part(part);
    carried.push_back({body.in_layout(form.body_outputs[becomes], body.layout_of(id), body.builder_of(id)),
                       body.operand_of(id), part});
  }
  body.copy_at_once(std::move(carried));
  run_passes(form, body, first_giving, end_of_giving);
  for (const auto& [i, operand] : aliased) {
    const program::PartScope scope = as_part(body.part_of(form.body_outputs[i]));
    body.is_given(form, operand) ? copy_to_output(i, operand) : alias_output(i, operand);
  }
  for (const auto& [from, to, part] : sent) {
    const program::PartScope scope = as_part(part);
    builders_.front().send(from, to, steps_);
  }
}

/// Where sums over replicas take results of a loop, they can begin in its last pass, which is run separately:
/// the parts of a pass are functions.
void Lowering::run_passes(const LoopForm& form, Lowering& body, size_t first_giving, size_t end_of_giving) {
  const ops::Builder& builder = builders_.front();
  const auto counter = body.counter_ ? std::optional(body.counter_->variable) : std::nullopt;
  if (!ends_apart(form)) {
    body.give_early(first_giving, end_of_giving);
    run(builder.repeat(form.count, builder.sequence(body.fetched_ahead(std::move(body.steps_))), counter));
    return;
  }
  const std::vector<program::StepId> parts = body.parts_of_pass(first_giving, end_of_giving);
  run(builder.repeat(form.count - 1, builder.sequence(parts), counter));
  if (counter)
    run(builder.copy(
        {"last pass", {copy_of(constant_words("last pass", {form.count - 1}), *body.counter_)}}));
  for (const program::StepId part : parts) run(part);
}

/// Whether an operand is an input that all passes take, which may change after the loop.
bool Lowering::is_given(const LoopForm& form, const Operand& operand) const {
  for (size_t i = 0; i < form.inputs.size(); ++i)
    if (form.inputs[i] == LoopInput::same && operand_of(form.body_inputs[i]).variable == operand.variable)
      return true;
  return false;
}

/// A value of the last pass, which nothing overwrites at its end.
Operand Lowering::kept_of_pass(const LoopForm& form, ValueId inside, const Operand& own) {
  const bool is_overwritten = std::ranges::any_of(form.carried, [&](const auto& carried) {
    return operand_of(form.body_inputs[carried.first]).variable == own.variable;
  });
  if (!is_overwritten) return own;
  const ops::Builder& builder = builder_of(inside);
  const Operand kept = builder.like(own, graph_.info(inside).name + ".last", builder.mapping_of(own));
  builder.send(own, kept, steps_);
  return kept;
}

void Lowering::add_to_sum(const Operand& sum, const Operand& own, double scale, const ops::Builder& builder,
                          Lowering& body) {
  const Type type = builder.type_of(sum);
  const bool is_streamed = is_in_streaming(sum);
  const Operand at = is_streamed ? on_tiles_like(sum) : sum;
  run(ops::add(builder, ops::FillProblem{type, sum.rows(), sum.cols(), 0}, {at}));
  const program::StepId step = ops::add(builder,
                                        ops::BinaryProblem{.op = kernels::Binary::add_scaled,
                                                           .type = type,
                                                           .rows = sum.rows(),
                                                           .cols = sum.cols(),
                                                           .factor = static_cast<float>(scale),
                                                           .addend = builder.type_of(own)},
                                        {at, own, at});
  if (!is_streamed) return body.run(step);
  const auto store = [&] { return builder.copy({"store", {copy_of(at, sum)}}); };
  run(store());
  const program::StepId fetch = builder.copy({"fetch", {copy_of(sum, at)}});
  body.run(builder.sequence({fetch, step, store()}));
}

Operand Lowering::stacked_output(size_t i, const Operand& own, uint32_t count, const ops::Builder& builder) {
  return output(i, columns_on_tiles(builder, own.rows() * count, own.cols()));
}

/// Copies a result of a pass to its rows; returns the stack if it is not where it is wanted.
std::optional<Operand> Lowering::stack_pass(const Operand& wanted, const Operand& own,
                                            const ops::Builder& builder, Lowering& body) {
  const std::vector<program::MappedBox> mapping = columns_on_tiles(builder, wanted.rows(), wanted.cols());
  const bool is_there = lies_on(builder, wanted, mapping);
  const Operand stack = is_there
                            ? wanted
                            : builder.temporary(builder.variable_name(wanted) + ".passes",
                                                builder.type_of(own), wanted.rows(), wanted.cols(), mapping);
  program::CopyGroup group = copy_of(own, first_rows(stack, own.rows()));
  group.target_offset = program::RuntimeRow{body.pass_->variable, own.rows()};
  body.run(builder.copy({"pass", {std::move(group)}}));
  return is_there ? std::nullopt : std::optional(stack);
}

}  // namespace tessera::graph
