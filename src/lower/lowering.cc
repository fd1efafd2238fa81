#include "lower/lowering.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "base/integer_types.h"
#include "base/record_pass.h"
#include "graph/depends.h"
#include "graph/substream.h"
#include "kernels/common/element.h"
#include "lower/differences.h"
#include "ops/map/cast.h"
#include "ops/map/elementwise.h"
#include "ops/split.h"

namespace tessera::graph {
namespace {

using ops::Operand;
using ops::OperandLayout;
using program::Purpose;
using program::Role;

std::shared_ptr<const std::byte> bytes_of(Type type, const std::vector<float>& values) {
  std::shared_ptr<std::byte[]> bytes(new std::byte[values.size() * size_of(type)]);
  for (uint64_t i = 0; i < values.size(); ++i)
    kernels::store_number(type, bytes.get() + i * size_of(type), double{values[i]});
  return {bytes, bytes.get()};
}

[[noreturn]] void reject_sparse() {
  throw UsageError("a sparse weight can only be combined with its gradient and state, and with scalars");
}

/// An operand of a value in the form of a weight, or in the form of one: the operand itself, or a conversion.
Operand bring_weight(const ops::Builder& builder, const Operand& operand, const TensorType& type,
                     const OperandLayout& has, const OperandLayout& wants,
                     std::vector<program::StepId>& steps) {
  if (type.pattern && !has.has_order_of(wants)) reject_sparse();
  return builder.bring(operand, has, wants, steps);
}

/// On tiles, a row of words that all tiles take lies on one tile, from which it comes in one piece.
std::vector<program::MappedBox> on_one_tile(const ops::Builder& builder, uint32_t words) {
  return builder.is_host() ? std::vector<program::MappedBox>() : program::map_to_tile(1, words, 0);
}

/// The elements row by row, in a matrix of other sizes, one of which is a multiple of the other's.
Operand in_rows(const ops::Builder& builder, const Operand& operand, const OperandLayout& wants,
                std::vector<program::StepId>& steps) {
  const Operand result = builder.temporary(builder.variable_name(operand) + ".rows", builder.type_of(operand),
                                           wants.rows, wants.cols, wants.mapping);
  const uint32_t length = std::min(operand.cols(), wants.cols);
  std::vector<program::Box> from, to;
  for (uint32_t i = 0; i < wants.rows * wants.cols; i += length) {
    from.push_back({i / operand.cols(), 1, i % operand.cols(), length});
    to.push_back({i / wants.cols, 1, i % wants.cols, length});
  }
  steps.push_back(
      builder.copy({"rows of passes", {copy_boxes(operand, std::move(from), result, std::move(to))}}));
  return result;
}

/// What `add` adds to a program.
Lowered::Sets sets_of(const program::Program& program, const std::function<void()>& add) {
  const auto size = [](const auto& list) { return static_cast<uint32_t>(list.size()); };
  Lowered::Sets sets;
  sets.first_set = size(program.compute_sets());
  sets.first_copy = size(program.copy_sets());
  sets.first_collective = size(program.collectives());
  add();
  sets.last_set = size(program.compute_sets());
  sets.last_copy = size(program.copy_sets());
  sets.last_collective = size(program.collectives());
  return sets;
}

std::vector<float> rows_transposed(const std::vector<float>& values, uint64_t rows, uint64_t cols) {
  std::vector<float> result(values.size());
  for (uint64_t i = 0; i < values.size(); ++i) result[i % cols * rows + i / cols] = values[i];
  return result;
}

/// The chips of a machine of several, divided equally into parts on which stages run.
std::vector<ops::Builder> builders_of_stages(uint32_t stages, const std::vector<uint32_t>& places,
                                             const ops::Builder& builder) {
  const machine::Machine& machine = builder.machine();
  const uint32_t chips = machine.chip_count();
  if (stages == 1 || chips == 1) return {builder};
  const uint32_t parts = places.empty() ? stages : *std::ranges::max_element(places) + 1;
  if (!places.empty() && places.size() < stages)
    throw UsageError(fmt::format("{} stages are placed; the graph has {}", places.size(), stages));
  if (chips % parts != 0 || machine.tiles != chips * machine.chip_tiles)
    throw UsageError(
        places.empty()
            ? fmt::format("{} stages cannot share the {} chips of {} equally: choose a number that divides "
                          "the number of chips, or place several stages on a part of them (place_stages)",
                          stages, chips, machine.name)
            : fmt::format("stages are placed on {} parts of the {} chips of {}, which cannot be divided "
                          "equally: choose a number of parts that divides the number of chips",
                          parts, chips, machine.name));
  std::vector<ops::Builder> builders;
  const uint32_t tiles = machine.tiles / parts;
  for (uint32_t part = 0; part < parts; ++part)
    builders.emplace_back(builder.program(), builder.whole_machine(), builder.first_tile() + part * tiles,
                          tiles);
  return builders;
}

}  // namespace

Lowering::Lowering(const Graph& graph, const ops::Builder& builder, Stages stages, std::set<ValueId> bound)
    : graph_(graph),
      stages_(std::move(stages)),
      partial_sums_(graph.partial_sums()),
      prefetches_(graph.prefetch()),
      places_(graph.stage_places()),
      has_parts_(builder.is_host() && stages_.count() > 1),
      builders_(builders_of_stages(stages_.count(), places_, builder)),
      bound_(std::move(bound)),
      skipped_(graph.nodes().size()),
      replicas_(graph.replicas()),
      substream_words_(graph::substream_words(graph)) {
  prepare();
}

void Lowering::prepare() {
  lowered_.operands.resize(graph_.values().size());
  lowered_.sets.resize(graph_.nodes().size());
  users_ = users_of_values(graph_);
  outlasts_.resize(graph_.values().size());
  for (const auto& [name, id] : graph_.outputs()) outlasts_[id] = true;
  for (const Assignment& assignment : graph_.assignments()) {
    outlasts_[assignment.value] = true;
    assigned_.emplace(assignment.value, assignment.state);
  }
}

ops::Function Lowering::build_function(const std::string& name) {
  if (has_substreams(graph_))
    own_substream_ = builders_.front().argument(
        "substream", Type::u32,
        {.rows = 1, .cols = substream_words_, .mapping = on_one_tile(builders_.front(), substream_words_)},
        Purpose::metadata);
  const program::StepId body = build_steps();
  std::vector<ops::FunctionOperand> operands;
  for (ValueId id : graph_.inputs()) operands.push_back({operand_of(id), program::Access::in});
  for (const auto& [output, id] : graph_.outputs())
    operands.push_back({lowered_.outputs.at(output), program::Access::out});
  if (own_substream_) operands.push_back({*own_substream_, program::Access::in});
  return builders_.front().function(name, std::move(operands), body);
}

void Lowering::take(ChosenLayouts layouts, Boundary boundary) {
  lowered_.layouts = std::move(layouts);
  boundary_ = std::move(boundary);
}

/// How weights are used that a body takes whole: it has to plan for them as the graph around it does,
/// whatever its own uses.
std::map<ValueId, WeightUse> Lowering::uses_inside(const Node& node) const {
  std::map<ValueId, WeightUse> inside;
  if (on_host()) return inside;
  const std::map<ValueId, WeightUse> uses = uses_of_weights(graph_, lowered_.forms);
  for (const auto& [own, given] : same_inside(node)) {
    const ValueId weight = weight_of(lowered_.forms, given);
    if (const auto around = given_uses_.find(weight); around != given_uses_.end())
      inside[own] = around->second;
    else if (const auto use = uses.find(weight); use != uses.end())
      inside[own] = use->second;
  }
  return inside;
}

Lowering& Lowering::body_of(const Node& call) {
  const uint32_t place = place_of_stage(stages_.nodes[index_of(call)]);
  std::unique_ptr<Lowering>& body = bodies_[{call.body.get(), place}];
  if (body) return *body;
  body = std::make_unique<Lowering>(*call.body, builders_[place], stages_of(*call.body));
  body->replicas_ = replicas_;
  body->substream_words_ = substream_words_;
  body->partial_sums_ = partial_sums_;
  body->is_function_ = true;
  body->has_parts_ = false;  // it runs where it is called
  body->given_uses_ = uses_inside(call);
  body->choose_weights(forms_of_body(call));
  return *body;
}

const LoweredFunction& Lowering::function(const Node& call) {
  const uint32_t node = index_of(call);
  const std::pair key(call.body, place_of_stage(stages_.nodes[node]));
  const auto known = lowered_.functions.find(key);
  if (known != lowered_.functions.end()) {
    count_with(known->second.first_call, node);
    return known->second;
  }
  LoweredFunction& added = lowered_.functions[key];
  const program::PartScope part = as_part(program::kEveryPart);
  add_as(node, [&] {
    Lowering& lowering = body_of(call);
    const ops::Function function =
        lowering.build_function(fmt::format("function{}", lowered_.functions.size() - 1));
    added = {function, lowering.release(), node};
    std::ranges::copy(added.body.conversions, std::back_inserter(lowered_.conversions));
  });
  return added;
}

void Lowering::choose_weights(WeightForms forms) {
  lowered_.forms = std::move(forms);
  nan_padding_.reset();
  place_weights();
}

void Lowering::choose(WeightForms forms) {
  choose_weights(std::move(forms));
  lowered_.layouts = choose_layouts(*this);
}

/// Ranks count all parts on which stages are placed, as the chips of machines are counted: a stage may have
/// no steps, and a part no stage.
void Lowering::set_parts() {
  if (!has_parts_) return;
  const auto placed = static_cast<uint32_t>(places_.size());
  for (uint32_t stage = 0; stage < std::max(stages_.count(), placed); ++stage)
    builders_.front().program().set_parts(part_of_stage(stage) + 1);
}

program::StepId Lowering::build(std::vector<PassRecord>& passes) {
  set_parts();
  base::record_pass(passes, "weights", [&] {
    choose_weights(weight_forms(graph_));
    return fmt::format("{} weights", lowered_.weights.size());
  });
  base::record_pass(passes, "layouts", [&] {
    lowered_.layouts = choose_layouts(*this);
    const auto changed =
        std::ranges::count_if(lowered_.layouts.values, [](const auto& layout) { return layout != kRows; });
    return fmt::format("{} values not in rows", changed);
  });
  program::StepId step = 0;
  base::record_pass(passes, "lower", [&] {
    step = build_steps();
    return fmt::format("{} compute sets", builders_.front().program().compute_sets().size());
  });
  return step;
}

program::StepId Lowering::build_steps() {
  place_values();
  lower_all();
  with_fetched_results([&] {
    place_outputs();
    assign();
  });
  begin_early();
  list_sums();
  return builders_.front().sequence(std::move(steps_));
}

std::vector<program::MappedBox> Lowering::columns_on_tiles(const ops::Builder& builder, uint32_t rows,
                                                           uint32_t cols) {
  std::vector<program::MappedBox> mapping;
  if (builder.is_host()) return mapping;
  const std::vector<uint32_t> first = ops::split_evenly(cols, std::min(cols, builder.machine().tiles));
  for (uint32_t tile = 0; tile + 1 < first.size(); ++tile)
    mapping.push_back({{0, rows, first[tile], first[tile + 1] - first[tile]}, tile});
  return mapping;
}

void Lowering::place_weights() {
  const std::map<ValueId, WeightUse> uses = uses_of_weights(graph_, lowered_.forms);
  const auto place = [&](ValueId id) {
    if (lowered_.weights.contains(id) || given_weights_.contains(id)) return;
    TensorType type = graph_.type(id);
    const auto found = uses.find(id);
    WeightUse use = found != uses.end() ? found->second : WeightUse();
    if (const auto given = given_uses_.find(id); given != given_uses_.end()) use = given->second;
    if (use.rows != 0) type.type = use.type;
    use.partial_sums = partial_sums_;
    use.is_forward_only = use.is_forward_only && !is_function_;
    lowered_.weights[id] = make_weight(builder_of(id), type, graph_.info(id).name, use);
  };
  for (ValueId id = 0; id < graph_.values().size(); ++id)
    if (lowered_.forms[id] == id) place(id);
  for (const Node& node : graph_.nodes())
    for (ValueId weight : weights_of(node)) place(weight_of(lowered_.forms, weight));
}

void Lowering::place_values() {
  for (ValueId id = 0; id < graph_.values().size(); ++id) {
    if (graph_.info(id).kind == Kind::result || is_computed(id)) continue;
    place(id);
  }
}

Purpose Lowering::purpose_of(ValueId id) const {
  const ValueInfo& info = graph_.info(id);
  if (is_integer(info.type.type)) return Purpose::metadata;
  switch (info.kind) {
    case Kind::parameter:
    case Kind::constant: return Purpose::parameter;
    case Kind::state: return Purpose::optimizer;
    case Kind::input: return Purpose::activation;
    case Kind::result: break;
  }
  // Parts have no form of their own.
  const bool is_sum_in_parts = is_shard(id) && is_loop(graph_.nodes()[*info.node]);
  if (lowered_.forms[is_sum_in_parts ? *info.belongs : id]) return Purpose::gradient;
  if (graph_.nodes()[*info.node].backward) return Purpose::activation;
  const auto is_backward = [&](uint32_t n) { return graph_.nodes()[n].backward; };
  return std::ranges::any_of(users_[id], is_backward) ? Purpose::stash : Purpose::activation;
}

/// The first mapping that an operation wants for a value that is no result; for an optimizer's state, for its
/// parameter.
std::vector<program::MappedBox> Lowering::wanted_mapping(ValueId id) const {
  const ValueId wanted = graph_.info(id).belongs.value_or(id);
  for (const uint32_t n : users_[wanted]) {
    const std::vector<ValueId>& inputs = graph_.nodes()[n].inputs;
    const auto& mappings = lowered_.layouts.nodes[n].mappings;
    for (size_t i = 0; i < mappings.size(); ++i)
      if (inputs[i] == wanted && !mappings[i].empty() &&
          lowered_.layouts.nodes[n].inputs[i] == lowered_.layouts.values[id])
        return mappings[i];
  }
  return {};
}

/// Contents of a constant as they are stored.
std::shared_ptr<const std::byte> Lowering::contents_of(ValueId id) {
  const std::vector<float>& values = graph_.contents(id);
  const TensorType& type = graph_.type(id);
  if (layout_of(id).weight) return bytes_of(type.type, weight(id).store(values));
  if (layout_of(id).transposed) return bytes_of(type.type, rows_transposed(values, type.rows(), type.cols()));
  return bytes_of(type.type, values);
}

/// Places a part beside the value with whose elements it is aligned.
void Lowering::place_part(ValueId id) {
  const ValueInfo& info = graph_.info(id);
  Role role = info.kind == Kind::state ? Role::state : Role::temporary;
  if (given_by_function_.contains(id)) role = Role::argument;
  set_placed(id, add_part(id, whole_of_parts(info.belongs.value()), role));
}

void Lowering::place(ValueId id, std::vector<program::MappedBox> mapping) {
  const ValueInfo& info = graph_.info(id);
  if (is_shard(id)) return place_part(id);
  OperandLayout layout = operand_layout(info.type, layout_of(id));
  Role role = Role::temporary;
  bool is_gap = false;
  switch (info.kind) {
    case Kind::input: role = Role::input; break;
    case Kind::parameter:
    case Kind::state: role = bound_.contains(id) ? Role::input : Role::state; break;
    case Kind::constant:
      lowered_.operands[id] = builder_of(id).constant(info.name, info.type.type, layout.rows, layout.cols,
                                                      contents_of(id), layout.mapping);
      return;
    case Kind::result:
      if (!is_body_ && is_output(id) && !is_converted_output(id)) role = Role::output, outputs_.insert(id);
      if (role != Role::output && is_weight_gradient(graph_.nodes()[*info.node]) &&
          weight(id).gradient_has_gaps()) {
        role = Role::state;  // which is 0 at first
        is_gap = true;
      }
      break;
  }
  if (is_function_ && (role == Role::input || role == Role::output)) {
    lowered_.operands[id] = builder_of(id).argument(info.name, info.type.type, layout, purpose_of(id));
    return;
  }
  if (role == Role::temporary && !mapping.empty()) layout.mapping = std::move(mapping);
  if (role == Role::temporary && given_by_function_.contains(id)) role = Role::argument;
  if (info.kind != Kind::result && !on_host() && layout_of(id).is_matrix())
    if (std::vector<program::MappedBox> wanted = wanted_mapping(id); !wanted.empty())
      layout.mapping = std::move(wanted);
  if (is_in_parts(id)) return place_in_parts(id, layout);
  const std::string name = is_gap ? prefix_ + info.name : info.name;
  set_placed(id, builder_of(id).add({name, info.type.type, layout.rows, layout.cols, role, layout.mapping,
                                     nullptr, purpose_of(id), lies_in_streaming(id, role)}));
  if (is_gap) lowered_.gaps.push_back({weight_of(lowered_.forms, id), operand_of(id).variable});
}

Operand Lowering::input(size_t i) {
  return in_layout(graph_.nodes()[node_].inputs.at(i), choice().inputs.at(i));
}

Operand Lowering::argument(size_t i, const LoweredFunction& function) {
  const Node& node = graph_.nodes()[node_];
  const Operand operand = input(i);
  const ValueId inside = node.body->inputs().at(i);
  const Lowered& body = function.body;
  if (!body.forms[inside]) return operand;
  const LinearWeight& has = weight(node.inputs[i]);
  const LinearWeight& wants = *body.weights.at(*body.forms[inside]);
  return bring_weight(builder(), operand, graph_.type(node.inputs[i]), has.layout(), wants.layout(), steps_);
}

void Lowering::take_result(size_t i, const LoweredFunction& function, const Operand& result) {
  const Node& node = graph_.nodes()[node_];
  const ValueId id = node.outputs.at(i);
  const Lowered& body = function.body;
  const ValueId inside = std::next(node.body->outputs().begin(), static_cast<int64_t>(i))->second;
  const TensorType& type = graph_.type(id);
  const OperandLayout plain = form_of(id) ? matrix_layout(type, false) : operand_layout(type, layout_of(id));
  const OperandLayout has = body.forms[inside] ? body.weights.at(*body.forms[inside])->layout() : plain;
  const OperandLayout wants = form_of(id) ? weight(id).layout() : plain;
  copy_to_output(i, bring_weight(builder(), result, type, has, wants, steps_));
}

bool Lowering::takes_result_as_it_is(size_t i, const LoweredFunction& function) const {
  const Node& node = graph_.nodes()[node_];
  const ValueId id = node.outputs.at(i);
  const auto& inside =
      function.body.forms[std::next(node.body->outputs().begin(), static_cast<int64_t>(i))->second];
  if (!inside || !form_of(id)) return inside == form_of(id);
  return weight(id).layout().has_order_of(function.body.weights.at(*inside)->layout());
}

Operand Lowering::output(size_t i) {
  const ValueId id = graph_.nodes()[node_].outputs.at(i);
  if (!lowered_.operands[id]) place(id);
  return operand_of(id);
}

Operand Lowering::output(size_t i, std::vector<program::MappedBox> mapping) {
  const ValueId id = graph_.nodes()[node_].outputs.at(i);
  if (!lowered_.operands[id]) place(id, on_host() ? std::vector<program::MappedBox>() : std::move(mapping));
  return operand_of(id);
}

Operand Lowering::output_beside(size_t i, const Operand& operand) {
  return result_beside(graph_.nodes()[node_].outputs.at(i), operand);
}

Operand Lowering::result_beside(ValueId id, const Operand& operand) {
  return result_beside(id, operand, builder());
}

Operand Lowering::result_beside(ValueId id, const Operand& operand, const ops::Builder& builder) {
  if (lowered_.operands[id]) return operand_of(id);
  const OperandLayout wanted = operand_layout(graph_.type(id), layout_of(id));
  const bool is_beside = !on_host() && !layout_of(id).weight && wanted.rows == operand.rows() &&
                         wanted.cols == operand.cols() && builder.holds(operand);
  place(id, is_beside ? builder.mapping_of(operand) : std::vector<program::MappedBox>());
  return operand_of(id);
}

void Lowering::alias_output(size_t i, const Operand& operand) {
  const ValueId id = graph_.nodes()[node_].outputs.at(i);
  if (is_output(id)) return builder().send(operand, output(i), steps_);
  lowered_.operands[id] = operand;
}

bool Lowering::is_output(ValueId id) const {
  if (is_body_) return given_by_function_.contains(id);
  return std::ranges::any_of(graph_.outputs(), [&](const auto& output) { return output.second == id; });
}

void Lowering::copy_to_output(size_t i, const Operand& operand) {
  builder().send(operand, output(i), steps_);
}

void Lowering::begin_output_with(size_t i, size_t input) {
  const Operand begin = this->input(input);
  may_overwrite(input) ? alias_output(i, begin) : copy_to_output(i, begin);
}

/// Whether an input is a temporary whose variable holds nothing else that is read later, by this node or a
/// later one, by another pass, or by what gave it to this function or loop.
bool Lowering::may_overwrite(size_t input) {
  const Node& node = graph_.nodes()[node_];
  const ValueId id = node.inputs[input];
  const program::VariableId variable = this->input(input).variable;
  const auto& producer = graph_.info(id).node;
  if (!producer || builder().program().variable(variable).role != Role::temporary || is_read_after(id))
    return false;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (i != input && this->input(i).variable == variable) return false;
  for (ValueId other = 0; other < lowered_.operands.size(); ++other)
    if (is_computed(other) && operand_of(other).variable == variable &&
        (!graph_.info(other).node || is_read_after(other)))
      return false;
  return true;
}

bool Lowering::is_read_after(ValueId id) const {
  return outlasts_[id] || std::ranges::any_of(users_[id], [&](uint32_t n) { return is_later(n, node_); });
}

Operand Lowering::temporary(const std::string& name, Type type, uint32_t rows, uint32_t cols) {
  return builder().temporary(name_beside_result(name), type, rows, cols);
}

Operand Lowering::row_of_words(const std::string& name, uint32_t words) {
  return builder().temporary(name_beside_result(name), Type::u32, 1, words, on_one_tile(builder(), words));
}

Operand Lowering::temporary_like(const std::string& name, Type type, const Operand& like) {
  program::Program& program = builders_.front().program();
  const program::Variable& of = program.variable(like.variable);
  program::Variable own{.name = name_beside_result(name),
                        .type = type,
                        .rows = of.rows,
                        .cols = of.cols,
                        .mapping = of.mapping,
                        .contents = nullptr};
  return builder().whole(program.add(std::move(own)));
}

std::string Lowering::name_beside_result(std::string_view name) const {
  return fmt::format("{}.{}", graph_.info(graph_.nodes()[node_].outputs[0]).name, name);
}

Operand Lowering::constant_words(const std::string& name, std::vector<uint32_t> words, uint32_t rows) {
  const auto shared = std::make_shared<const std::vector<uint32_t>>(std::move(words));
  const uint32_t cols = static_cast<uint32_t>(shared->size()) / rows;
  // If there are several, one row is chosen at run time.
  return builder().constant(
      name_beside_result(name), Type::u32, rows, cols,
      {shared, reinterpret_cast<const std::byte*>(shared->data())},
      rows > 1 ? columns_on_tiles(builder(), rows, cols) : on_one_tile(builder(), cols));
}

void Lowering::copy_substream(program::CopySet& set, const Operand& to, std::optional<uint32_t> call) {
  uint32_t next = 0;
  const auto append = [&](const Operand& words) {
    set.groups.push_back(copy_of(words, to.part({0, 1, next, words.cols()})));
    next += words.cols();
  };
  const uint32_t around = substream_words_ - kCallWord - (call ? 1 : 0);
  if (own_substream_) {
    append(own_substream_->part({0, 1, 0, kCallWord}));
  } else {
    std::vector<uint32_t> replicas(replicas_);
    std::iota(replicas.begin(), replicas.end(), 0);
    append(by_replica("replica", std::move(replicas)));
    append(micro_batch_ ? *micro_batch_ : constant_words("micro_batch", {0}));
  }
  if (call) append(constant_words("call", {*call}));
  if (around > 0)
    append(own_substream_ ? own_substream_->part({0, 1, kCallWord, around})
                          : constant_words("calls", std::vector<uint32_t>(around)));
}

Operand Lowering::with_substream(size_t i) {
  const Operand step = input(i);
  if (substream_words_ == 0) return step;
  // By value: a step that becomes the contents of state may lie where earlier ones lay.
  const ValueId id = graph_.nodes()[node_].inputs.at(i);
  if (row_of_step_ && row_of_step_->first == id && builder().holds(row_of_step_->second))
    return row_of_step_->second;
  const Operand row = row_of_words("step", 1 + substream_words_);
  program::CopySet set{"step", {copy_of(step, {row.variable, {0, 1, 0, 1}})}};
  copy_substream(set, {row.variable, {0, 1, 1, row.cols() - 1}});
  run(builder().copy(std::move(set)));
  row_of_step_.emplace(id, row);
  return row;
}

Operand Lowering::substream_of_call(uint32_t call) {
  const Operand row = row_of_words("substream", substream_words_);
  program::CopySet set{"substream", {}};
  copy_substream(set, row, call);
  run(builder().copy(std::move(set)));
  return row;
}

Operand Lowering::by_replica(const std::string& name, std::vector<uint32_t> words) {
  if (replicas_ == 1) return constant_words(name, std::move(words));
  const auto shared = std::make_shared<const std::vector<uint32_t>>(std::move(words));
  const std::string own = name_beside_result(name);
  const auto cols = static_cast<uint32_t>(shared->size() / replicas_);
  const Operand operand = builder().external(own, Role::input, Type::u32, 1, cols);
  lowered_.by_replica.push_back({operand, shared});
  return operand;
}

Operand Lowering::in_layout(ValueId id, const ValueLayout& layout) {
  return in_layout(id, layout, builder());
}

Operand Lowering::in_layout(ValueId id, const ValueLayout& layout, const ops::Builder& builder) {
  if (layout_of(id) == layout) return operand_of(id);
  auto& known = converted_[id];
  for (const auto& [has, operand] : known)
    if (has == layout) return operand;
  const TensorType& type = graph_.type(id);
  try {
    Operand converted;
    const Lowered::Sets sets = sets_of(builder.program(), [&] {
      converted = is_function_ && is_output(id) && is_converted_output(id) && layout == result_layout(id)
                      ? give_converted(id)
                      : convert(builder, operand_of(id), type, layout_of(id), layout, steps_);
    });
    lowered_.conversions.push_back({graph_.info(id).name, type.bytes(), sets});
    known.emplace_back(layout, converted);
    return converted;
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: {}", graph_.info(id).name, error.what()));
  }
}

/// Gives an output that a function computes in another layout.
Operand Lowering::give_converted(ValueId id) {
  const TensorType& type = graph_.type(id);
  const OperandLayout has = operand_layout(type, layout_of(id)),
                      wants = operand_layout(type, result_layout(id));
  const ops::Builder& builder = builders_.front();
  const Operand argument = builder.argument(graph_.info(id).name, type.type, wants, purpose_of(id));
  builder.convert(operand_of(id), has, argument, wants, steps_);
  outputs_.insert(id);
  return argument;
}

Operand Lowering::convert(const ops::Builder& builder, const Operand& operand, const TensorType& type,
                          const ValueLayout& from, const ValueLayout& to,
                          std::vector<program::StepId>& steps) const {
  const OperandLayout has = operand_layout(type, from), wants = operand_layout(type, to);
  if (from.weight || to.weight) {
    // Patterns that are the same now may differ in a later run.
    if (type.capacity) reject_sparse();
    return bring_weight(builder, operand, type, has, wants, steps);
  }
  if (type.elements() == 1) return operand;
  if (from.passes != to.passes) return in_rows(builder, operand, wants, steps);
  return builder.bring(operand, has, wants, steps);
}

ValueLayout Lowering::parted(const OperandLayout& layout) {
  for (const ValueLayout& known : parted_)
    if (known.parts->has_order_of(layout)) return known;
  return parted_.emplace_back(ValueLayout{.parts = std::make_shared<const OperandLayout>(layout)});
}

ValueLayout Lowering::placed(const OperandLayout& parts) {
  add_parts(parts);
  return *std::ranges::find(parted_, parts, [](const ValueLayout& known) { return *known.parts; });
}

bool Lowering::add_parts(const OperandLayout& parts) {
  if (std::ranges::any_of(parted_, [&](const ValueLayout& known) { return *known.parts == parts; }))
    return false;
  parted_.push_back({.parts = std::make_shared<const OperandLayout>(parts)});
  return true;
}

std::vector<ValueLayout> Lowering::parted(const TensorType& type) const {
  std::vector<ValueLayout> all;
  for (const ValueLayout& known : parted_) {
    const ops::PartedMatrix& matrix = *known.parts->parts;
    const bool transposed = known.parts->transposed;
    if (matrix.rows() == (transposed ? type.cols() : type.rows()) &&
        matrix.cols() == (transposed ? type.rows() : type.cols()))
      all.push_back(known);
  }
  return all;
}

Operand Lowering::as_type(const Operand& operand, Type type) {
  const Type has = builder().type_of(operand);
  if (has == type) return operand;
  std::vector<program::MappedBox> mapping;
  if (!on_host() && builder().holds(operand)) mapping = builder().mapping_of(operand);
  const Operand converted = builder().temporary(name_beside_result(fmt::format("as {}", name_of(type))), type,
                                                operand.rows(), operand.cols(), std::move(mapping));
  convert_type(operand, converted);
  return converted;
}

void Lowering::convert_type(const Operand& from, const Operand& to) {
  if (from == to) return;
  add(ops::CastProblem{builder().type_of(from), builder().type_of(to), to.rows(), to.cols()}, {from, to});
}

const Node* Lowering::sole_user(size_t output) const {
  const ValueId id = graph_.nodes()[node_].outputs.at(output);
  const std::vector<uint32_t>& users = users_[id];
  if (outlasts_[id] || users.size() != 1 || !are_of_one_pass(node_, users[0])) return nullptr;
  return &graph_.nodes()[users[0]];
}

bool Lowering::is_read_later(ValueId id, const Node& update) const {
  if (outlasts_[id]) return true;
  for (const uint32_t n : users_[id]) {
    const Node& node = graph_.nodes()[n];
    const auto read = node.inputs.begin() + static_cast<std::ptrdiff_t>(inputs_read(node));
    if (&node == &update || std::ranges::count(node.inputs.begin(), read, id) == 0) continue;
    if (n > node_ || (node.operation->traits.aliases && is_read_later(node.outputs[0], update))) return true;
  }
  return false;
}

void Lowering::skip(const Node& node) { skipped_[index_of(node)] = true; }

void Lowering::lower(uint32_t index) {
  const Node& node = graph_.nodes()[index];
  if (is_loop(node))
    return node.operation->lower(*this, node);  // whose body's operations count by themselves
  if (node.body) function(node);                // which counts once
  const program::PartScope part = as_part(part_of_stage(stages_.nodes[index]));
  add_as(index, [&] { node.operation->lower(*this, node); });
}

void Lowering::add_as(uint32_t node, const std::function<void()>& add) {
  lowered_.sets[node].push_back(sets_of(builders_.front().program(), add));
}

/// State that was not updated in place gets its new value, all states at once: one may be set to another.
void Lowering::assign() {
  if (graph_.replicas() > 1) {
    const std::vector<bool> differ = differ_between_replicas(graph_);
    for (const Assignment& assignment : graph_.assignments())
      if (differ[assignment.value] && !graph_.type(assignment.value).sharded)
        throw UsageError(fmt::format("{}: replicas would set it to values of their own: set it to their mean",
                                     graph_.info(assignment.state).name));
  }
  std::vector<PlannedCopy> all;
  for (const Assignment& assignment : graph_.assignments()) {
    if (stored_.contains(assignment.state)) continue;
    const uint32_t part = part_of(assignment.state);
    const program::PartScope scope = as_part(part);
    const Operand from = brought(assignment.value, assignment.state);
    const Operand to = operand_of(assignment.state);
    if (const auto home = homes_.find(assignment.state); home != homes_.end())
      all.push_back({beside(from, home->second), home->second.kept, part});
    else if (from != to)
      all.push_back({from, to, part});
  }
  copy_at_once(std::move(all));
}

void Lowering::copy_at_once(std::vector<PlannedCopy> all) {
  const ops::Builder& builder = builders_.front();
  std::map<uint32_t, program::CopySet> sets;  // by part
  for (auto& [from, to, part] : all) {
    const program::VariableId read = from.variable;
    if (std::ranges::any_of(all, [&](const PlannedCopy& other) { return other.to.variable == read; })) {
      const program::PartScope scope = as_part(part);
      const Operand before =
          builder.like(from, builder.variable_name(from) + ".before", builder.mapping_of(from));
      builder.send(from, before, steps_);
      from = before;
    }
    sets.try_emplace(part, program::CopySet{"assign", {}}).first->second.groups.push_back(copy_of(from, to));
  }
  for (auto& [part, set] : sets) {
    const program::PartScope scope = as_part(part);
    steps_.push_back(builder.copy(std::move(set)));
  }
}

/// A result is computed where its first name is bound; other outputs are copies.
void Lowering::place_outputs() {
  std::set<ValueId> bound;
  for (const auto& [name, id] : graph_.outputs()) {
    const program::PartScope part = as_part(part_of(id));
    const Operand operand =
        is_converted_output(id) ? in_layout(id, result_layout(id), builder_of(id)) : operand_of(id);
    Operand& output = lowered_.outputs[name] = operand;
    if (outputs_.contains(id) && bound.insert(id).second) continue;
    // It may have been converted for another stage, on whose tiles it lies; tiles count from the first
    // stage's.
    const ops::Builder& builder = builders_.front();
    const OperandLayout layout{operand.rows(), operand.cols(), builder.mapping_of(operand)};
    output = is_function_
                 ? builder.argument(name, builder.type_of(operand), layout, purpose_of(id))
                 : builder.add(name + ".out", Role::output, builder.type_of(operand), layout, purpose_of(id));
    builder.send(operand, output, steps_);
  }
}

}  // namespace tessera::graph
