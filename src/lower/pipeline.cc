#include "lower/pipeline.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <set>

namespace tessera::graph {
namespace {

using ops::Operand;
using program::Access;
using program::Role;
using program::StepId;

std::string name_of(const StagePart& part) {
  return fmt::format("{} of stage {}", graph::name_of(part.kind), part.stage);
}

/// The rows of an input that copies take, moved by another micro-batch.
program::CopyGroup moved_by(program::CopyGroup rows, const Operand& micro_batch) {
  rows.source_offset->index = micro_batch.variable;
  return rows;
}

/// The first kinds of spans are the kinds of passes.
ChipSpan::Kind kind_of_pass(PassKind kind) {
  static_assert(static_cast<size_t>(ChipSpan::Kind::backward_weight) ==
                static_cast<size_t>(PassKind::backward_weight));
  return static_cast<ChipSpan::Kind>(kind);
}

Lowered::PassStep pass_on(const machine::Machine& machine, Lowered::PassStep pass) {
  pass.first_chip = machine.first_chip();
  pass.chips = machine.chip_count();
  return pass;
}

}  // namespace

SequentialPasses::SequentialPasses(Lowering& around, Lowering& body, const LoopForm& form)
    : around_(around), body_(body) {
  const std::vector<uint32_t>& stages = body.stages_.nodes;
  const bool has_stages = std::ranges::adjacent_find(stages, std::ranges::not_equal_to()) != stages.end();
  is_followed_ =
      has_stages && body.builders_.size() > 1 && !form.reversed && !around.is_function_ && !around.is_body_;
}

void SequentialPasses::lower() {
  body_.lower_all([&](uint32_t node) {
    if (!node_ || !are_of_one_pass(*node_, node)) begin(node);
  });
  begin({});
}

void SequentialPasses::begin(std::optional<uint32_t> node) {
  std::vector<StepId>& steps = body_.steps_;
  if (is_followed_ && node_ && first_ < steps.size()) {
    const auto begin = steps.begin() + static_cast<std::ptrdiff_t>(first_);
    const StepId step = body_.builders_.front().sequence(body_.fetched_ahead({begin, steps.end()}));
    steps.erase(begin, steps.end());
    steps.push_back(step);
    const uint32_t stage = body_.stages_.nodes[*node_];
    const PassKind kind = body_.graph_.nodes()[*node_].backward ? PassKind::backward : PassKind::forward;
    around_.lowered_.passes[step] = pass_on(body_.builder_of_stage(stage).machine(),
                                            {.kind = kind_of_pass(kind), .stage = stage, .next = 1});
  }
  node_ = node;
  first_ = steps.size();
}

bool SequentialPasses::are_of_one_pass(uint32_t a, uint32_t b) const {
  const std::vector<uint32_t>& stages = body_.stages_.nodes;
  const std::vector<Node>& nodes = body_.graph_.nodes();
  return stages[a] == stages[b] && nodes[a].backward == nodes[b].backward;
}

PipelineLowering::PipelineLowering(Lowering& around, const Node& node, const LoopForm& form, Lowering& body)
    : around_(around),
      node_(node),
      form_(form),
      body_(body),
      schedule_(pipeline_schedule(form.pipeline, body.stages_.count(), form.count)) {}

void PipelineLowering::lower() {
  find_passes();
  const auto add = [&](const auto& what) { around_.add_as(around_.node_, what); };
  add([&] { place_given(); });
  for (LoweredPass& pass : passes_) lower(pass);
  add([&] { add_beginnings(); });
  add([&] { add_sendings(); });
  list_events();
  place_buffers();
  emit();
  add([&] {
    for (const auto& [from, to, part] : stacks_) {
      const program::PartScope scope = around_.as_part(part);
      around_.builders_.front().send(from, to, around_.steps_);
    }
  });
}

void PipelineLowering::find_passes() {
  const Graph& graph = body_.graph_;
  body_.early_nodes_ = body_.early_nodes();
  body_.parts_.resize(graph.nodes().size());
  std::vector<StagePart> parts = parts_of_stages(graph, body_.stages_, splits_backward(form_.pipeline.kind));
  if (parts.empty()) parts.emplace_back();  // the body gives what it takes
  find_routes(parts);
  for (StagePart& part : parts) {
    for (const uint32_t n : part.nodes) body_.parts_[n] = static_cast<uint32_t>(passes_.size());
    passes_.push_back({.part = std::move(part)});
  }
  std::set<ValueId> passed_on;
  for (size_t p = 0; p < passes_.size(); ++p) {
    std::set<ValueId> taken;
    for (const uint32_t n : passes_[p].part.nodes)
      for (const ValueId input : graph.nodes()[n].inputs)
        if (graph.info(input).node && pass_of(input) != p) taken.insert(input);
    passes_[p].takes.assign(taken.begin(), taken.end());
    passed_on.insert(taken.begin(), taken.end());
  }
  for (const ValueId id : passed_on) passes_[pass_of(id)].gives.push_back(id);
  for (size_t i = 0; i < form_.outputs.size(); ++i) {
    const ValueId id = form_.body_outputs[i];
    passes_[graph.info(id).node ? pass_of(id) : 0].outputs.push_back(i);
  }
}

/// Finds what passes send; on chips, they hand it on.
void PipelineLowering::find_routes(const std::vector<StagePart>& parts) {
  std::vector<uint32_t> places;
  for (uint32_t stage = 0; stage < schedule_.stages; ++stage)
    places.push_back(body_.has_parts_ ? body_.part_of_stage(stage) : body_.place_of_stage(stage));
  routes_ = routes_of_passes(body_.graph_, parts, places, !body_.has_parts_);
  list_.links = links_of_passes(body_.graph_, parts, routes_, std::move(places), body_.replicas_);
}

PipelineLowering::LoweredPass* PipelineLowering::find_pass(uint32_t stage, PassKind kind) {
  const auto found = std::ranges::find_if(
      passes_, [&](const LoweredPass& pass) { return pass.part.stage == stage && pass.part.kind == kind; });
  return found == passes_.end() ? nullptr : &*found;
}

/// Passes are listed in an order in which they can run.
PipelineLowering::LoweredPass* PipelineLowering::first_backward_pass(uint32_t stage) {
  const auto found = std::ranges::find_if(
      passes_, [&](const LoweredPass& pass) { return pass.part.stage == stage && pass.part.is_backward(); });
  return found == passes_.end() ? nullptr : &*found;
}

/// Places what is the same for all micro-batches.
void PipelineLowering::place_given() {
  for (size_t i = 0; i < form_.inputs.size(); ++i) {
    const ValueId inside = form_.body_inputs[i];
    const program::PartScope part = body_.as_part(body_.part_of(inside));
    body_.lowered_.operands[inside] = around_.given_to(body_, node_, form_, i);
  }
  body_.place_values();  // constants
}

void PipelineLowering::lower(LoweredPass& pass) {
  const ops::Builder& builder = this->builder(pass);
  const program::PartScope part = body_.as_part(body_.part_of_stage(pass.part.stage));
  body_.converted_.clear();
  body_.row_of_step_.reset();
  body_.given_by_function_ = {pass.gives.begin(), pass.gives.end()};
  std::vector<ops::FunctionOperand> operands;
  around_.add_as(around_.node_, [&] {
    begin_micro_batches(pass);
    take_rows(pass);
  });
  for (const ValueId id : pass.takes) {
    body_.lowered_.operands[id] = like(id, place_of(pass), Role::argument);
    operands.push_back({body_.operand_of(id), Access::in});
  }
  for (const uint32_t n : pass.part.nodes) {
    body_.node_ = n;
    if (body_.skipped_[n]) continue;
    body_.first_step_ = body_.steps_.size();
    body_.lower_with_fetched({&n, 1}, [&] { body_.lower(n); });
    body_.note_early();
  }
  add_sums(pass);
  if (!body_.side_results_.empty())
    throw UsageError(fmt::format(
        "layers of spiking neurons keep what one micro-batch leaves for its backward pass: train them with "
        "a sequential pipeline, not {}",
        graph::name_of(form_.pipeline.kind)));
  around_.add_as(around_.node_, [&] {
    for (const ValueId id : pass.gives) {
      given_[id] = own_argument(id, pass);
      operands.push_back({given_[id], Access::out});
    }
    keep_outputs(pass);
    pass.compute = builder.function(name_of(pass.part), std::move(operands),
                                    builder.sequence(body_.fetched_ahead(std::move(body_.steps_))));
    body_.steps_.clear();
    body_.converted_.clear();
    body_.row_of_step_.reset();
    for (const size_t output : pass.outputs) give(output, builder);
    count(pass);
    pass.finish =
        builder.function("end " + name_of(pass.part), {}, builder.sequence(std::move(body_.steps_)));
    body_.steps_.clear();
  });
}

void PipelineLowering::begin_micro_batches(LoweredPass& pass) {
  const ops::Builder& builder = this->builder(pass);
  pass.counter = builder.temporary("micro_batch", Type::u32, 1, 1);
  const Operand table = after_each(pass);
  around_.run(
      builder.copy({"micro_batch", {copy_of({table.variable, {form_.count - 1, 1, 0, 1}}, *pass.counter)}}));
  pass.present =
      is_recomputed(pass) ? builder.temporary("micro_batch.present", Type::u32, 1, 1) : *pass.counter;
  body_.counter_ = body_.pass_ = body_.micro_batch_ = pass.present;
  body_.own_substream_ = around_.own_substream_;
}

/// The rows of a micro-batch of the inputs that a pass takes.
void PipelineLowering::take_rows(const LoweredPass& pass) {
  const ops::Builder& builder = this->builder(pass);
  program::CopySet set{"micro-batch", {}}, lists{"lists of micro-batch", {}};
  for (size_t i = 0; i < form_.inputs.size(); ++i) {
    const ValueId inside = form_.body_inputs[i];
    const auto takes = [&](uint32_t n) {
      const std::vector<ValueId>& inputs = body_.graph_.nodes()[n].inputs;
      return std::ranges::find(inputs, inside) != inputs.end();
    };
    const auto gives = [&](size_t output) { return form_.body_outputs[output] == inside; };
    if (form_.inputs[i] != LoopInput::indexed ||
        (std::ranges::none_of(pass.part.nodes, takes) && std::ranges::none_of(pass.outputs, gives)))
      continue;
    const auto [known, is_new] = rows_.try_emplace({inside, place_of(pass)});
    if (is_new) {
      const Operand given =
          around_.in_layout(node_.inputs[i], around_.choice().inputs[i], body_.builder_of(inside));
      known->second = around_.place_part(inside, given, builder, body_);
    }
    body_.lowered_.operands[inside] = builder.whole(known->second.to);
    set.groups.push_back(moved_by(known->second, *pass.present));
    body_.gather_list(inside, builder, lists);
  }
  builder.copy(std::move(set), body_.steps_);
  builder.copy(std::move(lists), body_.steps_);
}

Operand PipelineLowering::like(ValueId id, uint32_t place, Role role, bool streaming) {
  const Operand given = given_.at(id);
  const ops::Builder &from = body_.builders_[home_of(id)], &to = body_.builders_[place];
  program::Variable variable = from.program().variable(given.variable);
  variable.role = role;
  variable.streaming = streaming;
  if (role == Role::argument) variable.name += ".taken";
  if (&from == &to) return from.whole(from.program().add(std::move(variable)));
  const bool lies_at_home = from.holds(given);
  variable.mapping.clear();
  if (lies_at_home) variable.mapping = from.mapping_of(given);
  return to.add(std::move(variable));
}

/// The argument as which a pass gives a result: the one in which it is computed, or a copy.
Operand PipelineLowering::own_argument(ValueId id, const LoweredPass& pass) {
  const ops::Builder& builder = this->builder(pass);
  const program::Program& program = builder.program();
  const Operand operand = body_.operand_of(id);
  const auto is_of = [&](const auto& other) { return other.second.variable == operand.variable; };
  const auto is_taken = [&](ValueId other) { return body_.operand_of(other).variable == operand.variable; };
  const program::Variable& has = program.variable(operand.variable);
  if (has.is_argument() && operand.box == has.whole() && std::ranges::none_of(given_, is_of) &&
      std::ranges::none_of(pass.takes, is_taken))
    return operand;
  ops::OperandLayout layout = body_.operand_layout(body_.graph_.type(id), body_.layout_of(id));
  if (!builder.is_host() && builder.holds(operand)) layout.mapping = builder.mapping_of(operand);
  const Operand argument =
      builder.argument(body_.graph_.info(id).name, builder.type_of(operand), layout, body_.purpose_of(id));
  builder.send(operand, argument, body_.steps_);
  return argument;
}

/// Adds to sums as soon as addends are computed, which then need memory no longer. A pass that is recomputed
/// computes them twice, and adds at its end.
void PipelineLowering::add_sums(LoweredPass& pass) {
  const size_t first = body_.steps_.size();
  if (!is_recomputed(pass)) {
    const auto summed = std::ranges::stable_partition(
        pass.outputs, [&](size_t output) { return form_.outputs[output] != LoopOutput::summed; });
    around_.add_as(around_.node_, [&] {
      for (const size_t output : summed) give(output, builder(pass));
    });
    pass.outputs.erase(summed.begin(), summed.end());
  }
  body_.give_early(first, body_.steps_.size());
}

/// Copies outputs that are arguments too, which are known only while the pass is computed.
void PipelineLowering::keep_outputs(const LoweredPass& pass) {
  const ops::Builder& builder = this->builder(pass);
  for (const size_t output : pass.outputs) {
    const ValueId id = form_.body_outputs[output];
    const Operand operand = body_.operand_of(id);
    if (!builder.program().variable(operand.variable).is_argument()) continue;
    const bool is_here = !builder.is_host() && builder.holds(operand);
    const Operand kept = builder.like(
        operand, body_.graph_.info(id).name + ".output",
        is_here ? builder.mapping_of(operand) : std::vector<program::MappedBox>(), body_.purpose_of(id));
    builder.send(operand, kept, body_.steps_);
    body_.lowered_.operands[id] = kept;
  }
}

/// Adds to a sum, or sets an output.
void PipelineLowering::give(size_t output, const ops::Builder& builder) {
  const ValueId inside = form_.body_outputs[output];
  const Operand own = body_.in_layout(inside, body_.layout_of_result(form_, output), builder);
  switch (form_.outputs[output]) {
    case LoopOutput::last: builder.send(own, around_.output(output), body_.steps_); break;
    case LoopOutput::summed:
      around_.add_to_sum(around_.result_beside(node_.outputs[output], own, builder), own, form_.scale,
                         builder, body_);
      break;
    case LoopOutput::stacked:
      if (const auto stack = around_.stack_pass(around_.stacked_output(output, own, form_.count, builder),
                                                own, builder, body_))
        stacks_.push_back({*stack, around_.output(output), builder.program().part()});
      break;
  }
}

/// For each micro-batch the number of the next one; after the last comes the first.
Operand PipelineLowering::after_each(const LoweredPass& pass) {
  const auto [known, is_new] = tables_.try_emplace(place_of(pass));
  if (is_new) {
    const ops::Builder& builder = this->builder(pass);
    const auto words = std::make_shared<std::vector<uint32_t>>(form_.count);
    for (uint32_t m = 0; m < form_.count; ++m) (*words)[m] = (m + 1) % form_.count;
    known->second = builder.constant("micro_batch.next", Type::u32, form_.count, 1,
                                     {words, reinterpret_cast<const std::byte*>(words->data())},
                                     Lowering::columns_on_tiles(builder, form_.count, 1));
  }
  return known->second;
}

void PipelineLowering::count(const LoweredPass& pass) {
  const ops::Builder& builder = this->builder(pass);
  const Operand next = builder.temporary("micro_batch.after", Type::u32, 1, 1);
  program::CopyGroup group = copy_of({after_each(pass).variable, {0, 1, 0, 1}}, next);
  group.source_offset = program::RuntimeRow{pass.counter->variable, 1};
  body_.run(builder.copy({"next micro_batch", {std::move(group)}}));
  builder.send(next, *pass.counter, body_.steps_);
}

void PipelineLowering::add_beginnings() {
  for (LoweredPass& pass : passes_) {
    if (!is_recomputed(pass)) continue;
    const ops::Builder& builder = this->builder(pass);
    const auto setting = [&](const LoweredPass& by) {
      const StepId copy = builder.copy({"present micro_batch", {copy_of(*by.counter, *pass.present)}});
      return builder.function("begin " + name_of(pass.part), {}, copy);
    };
    pass.begin = setting(pass);
    if (const LoweredPass* backward = first_backward_pass(pass.part.stage))
      pass.begin_again = setting(*backward);
  }
}

void PipelineLowering::add_sendings() {
  for (const PassRoute& route : routes_) {
    Sending sending{route.from, list_.links.places[passes_[route.to].part.stage], route.values, {}};
    program::CopySet set{fmt::format("send {}", name_of(passes_[sending.pass].part)), {}};
    std::vector<ops::FunctionOperand> operands;
    for (const ValueId id : sending.values) {
      const Operand from = like(id, origin_of(sending), Role::argument);
      operands.push_back({from, Access::in});
      if (body_.has_parts_) continue;
      const Operand to = like(id, sending.to, Role::argument);
      set.groups.push_back(copy_of(from, to));
      operands.push_back({to, Access::out});
    }
    const ops::Builder& builder = around_.builders_.front();
    const std::string name = set.name;
    const StepId body = body_.has_parts_ ? builder.sequence({}) : builder.copy(std::move(set));
    sending.function = builder.function(name, std::move(operands), body);
    sendings_.push_back(std::move(sending));
  }
}

/// Leaves out passes of stages that have no operations for them. Recomputation comes before the first
/// backward pass of a stage, if there is one: the first stage has no gradients of inputs.
void PipelineLowering::leave_out_empty_passes() {
  for (std::vector<StagePass>& slot : schedule_.slots)
    for (const StagePass& pass : std::exchange(slot, {})) {
      const LoweredPass* lowered = find_pass(pass.stage, pass.kind);
      if (pass.kind == PassKind::recomputed || lowered == nullptr) continue;
      if (lowered == first_backward_pass(pass.stage))
        if (const LoweredPass* forward = find_pass(pass.stage, PassKind::forward);
            forward != nullptr && forward->begin_again)
          slot.push_back({PassKind::recomputed, pass.stage, pass.micro_batch});
      slot.push_back(pass);
    }
}

void PipelineLowering::list_events() {
  leave_out_empty_passes();
  list_ = actions_of(schedule_, std::move(list_.links));
  const RouteIndex routes(list_.links.routes);
  for (size_t action = 0; action < list_.actions.size(); ++action)
    if (const std::optional<Event> event = event_of(action, routes)) events_.push_back(*event);
  if (body_.builders_.size() > 1 && body_.stages_.count() > body_.builders_.size()) order_by_time();
}

/// A RECV is the same exchange as its SEND, and gradients of a micro-batch are summed within its pass.
std::optional<PipelineLowering::Event> PipelineLowering::event_of(size_t action, const RouteIndex& routes) {
  const PipelineAction& what = list_.actions[action];
  if (is_sending(what.kind)) return Event{Event::Kind::send, routes.of(what), what.micro_batch, action};
  if (!is_pass(what.kind)) return {};
  const bool again = what.kind == ActionKind::recomputed;
  const LoweredPass* pass =
      find_pass(what.stage, again ? PassKind::forward : static_cast<PassKind>(what.kind));
  return Event{again ? Event::Kind::again : Event::Kind::pass, static_cast<size_t>(pass - passes_.data()),
               what.micro_batch, action};
}

/// The position after the actions of an event.
size_t PipelineLowering::end_of_actions(size_t event) const {
  return event + 1 < events_.size() ? events_[event + 1].action : list_.actions.size();
}

/// Where stages share chips, one may make the others wait in the order of the slots.
void PipelineLowering::order_by_time() {
  std::vector<Event> events;
  std::vector<PipelineAction> actions;
  for (const size_t e : faster_order(timed_events())) {
    const auto begin = list_.actions.begin();
    const size_t first = actions.size();
    actions.insert(actions.end(), begin + static_cast<std::ptrdiff_t>(events_[e].action),
                   begin + static_cast<std::ptrdiff_t>(end_of_actions(e)));
    events.push_back(events_[e]);
    events.back().action = first;
  }
  events_ = std::move(events);
  list_.actions = std::move(actions);
}

/// The events; each follows the events that give what it takes, and passes through the same stage.
std::vector<TimedEvent> PipelineLowering::timed_events() const {
  std::vector<TimedEvent> timed;
  std::map<uint32_t, size_t> latest;                        // by stage
  std::map<std::pair<BufferKey, uint32_t>, size_t> filled;  // by micro-batch
  for (const Event& event : events_) {
    const bool is_send = event.kind == Event::Kind::send;
    const LoweredPass& pass = passes_[is_send ? sendings_[event.index].pass : event.index];
    TimedEvent one{{place_of(pass)}, is_send ? 0 : work_of(pass), pass.part.stage, {}};
    if (is_send) one.places.push_back(sendings_[event.index].to);
    for (const BufferKey& key : keys_of(event, Direction::taken))
      if (const auto by = filled.find({key, event.micro_batch}); by != filled.end())
        one.after.push_back(by->second);
    if (!is_send) {
      const auto [before, is_first] = latest.try_emplace(pass.part.stage, timed.size());
      if (!is_first) one.after.push_back(std::exchange(before->second, timed.size()));
    }
    for (const BufferKey& key : keys_of(event, Direction::given))
      filled[{key, event.micro_batch}] = timed.size();
    timed.push_back(std::move(one));
  }
  return timed;
}

/// An estimate: the elements that the operations of a pass take, weights above all.
uint64_t PipelineLowering::work_of(const LoweredPass& pass) const {
  uint64_t work = 1;
  for (const uint32_t n : pass.part.nodes)
    for (const ValueId input : body_.graph_.nodes()[n].inputs) work += body_.graph_.type(input).elements();
  return work;
}

/// The intervals in which a buffer holds each micro-batch, in the order of their beginnings.
std::vector<PipelineLowering::KeptInterval> PipelineLowering::kept(const BufferKey& key) const {
  std::vector<KeptInterval> all;
  std::map<uint32_t, size_t> present;  // by micro-batch: position in `all`
  const auto has_key = [&](const std::vector<BufferKey>& keys) {
    return std::ranges::find(keys, key) != keys.end();
  };
  for (size_t e = 0; e < events_.size(); ++e) {
    const uint32_t micro_batch = events_[e].micro_batch;
    if (has_key(keys_of(events_[e], Direction::given))) {
      present[micro_batch] = all.size();
      all.push_back({micro_batch, e, e});
    }
    if (has_key(keys_of(events_[e], Direction::taken))) all[present.at(micro_batch)].last = e;
  }
  return all;
}

/// Whether this number of slots holds all micro-batches without overwriting one that is still kept. More
/// slots may not suffice where fewer do, as early micro-batches are recomputed beside late ones.
bool PipelineLowering::suffice(const std::vector<KeptInterval>& all, uint32_t slots) {
  std::vector<const KeptInterval*> latest(slots);
  for (const KeptInterval& one : all) {
    const KeptInterval*& before = latest[one.micro_batch % slots];
    if (before != nullptr && before->last >= one.first) return false;
    before = &one;
  }
  return true;
}

/// The fewest slots that suffice and divide `unit`; 0: none do.
uint32_t PipelineLowering::slots_of(const std::vector<KeptInterval>& all, uint32_t unit) {
  for (uint32_t slots = 1; slots <= unit; ++slots)
    if (unit % slots == 0 && suffice(all, slots)) return slots;
  return 0;
}

/// Numbers of slots are divisors of `unit_`, chosen so that buffers take few bytes where they take most, and
/// in all: the sum of the squares of what chips hold is least. With many micro-batches, it may be a little
/// larger: of 5, 4, 3 and 2 slots, 12 rounds up only the first.
void PipelineLowering::place_buffers() {
  constexpr uint32_t kLeastRepetitions = 5;
  std::map<BufferKey, std::vector<KeptInterval>> intervals;
  for (const auto& [id, operand] : given_) intervals.try_emplace({id, home_of(id)});
  if (!body_.has_parts_)
    for (const Sending& sending : sendings_)
      for (const ValueId id : sending.values) intervals.try_emplace({id, sending.to});
  uint32_t most = 1;
  for (auto& [key, all] : intervals) {
    all = kept(key);
    uint32_t fewest = 1;
    while (!suffice(all, fewest)) ++fewest;
    most = std::max(most, fewest);
  }
  constexpr double kNone = std::numeric_limits<double>::infinity();
  const auto weight_of = [&](uint32_t unit) {
    std::map<uint32_t, double> by_place;  // elements
    for (const auto& [key, all] : intervals) {
      const uint32_t slots = slots_of(all, unit);
      if (slots == 0) return kNone;
      by_place[key.second] += static_cast<double>(slots * given_.at(key.first).box.elements());
    }
    double weight = 0;
    for (const auto& [place, elements] : by_place) weight += elements * elements;
    return weight;
  };
  unit_ = most;
  double best = weight_of(unit_);
  const uint32_t last = std::max(2 * most - 1, std::min(3 * most, form_.count / kLeastRepetitions));
  for (uint32_t unit = most + 1; unit <= last || best == kNone; ++unit)
    if (const double weight = weight_of(unit); weight < best) {
      best = weight;
      unit_ = unit;
    }
  for (const auto& [key, all] : intervals) {
    const uint32_t slots = slots_of(all, unit_);
    const bool streaming = is_offloaded(key, slots);
    for (uint32_t slot = 0; slot < slots; ++slot)
      buffers_[key].push_back(like(key.first, key.second, Role::temporary, streaming));
    if (streaming) fetched_[key] = like(key.first, key.second, Role::temporary);
  }
}

bool PipelineLowering::is_offloaded(const BufferKey& key, uint32_t slots) const {
  const auto& least = form_.pipeline.offload_from;
  if (!least || slots == 1 || around_.on_host() || given_.at(key.first).box.elements() < *least) return false;
  around_.require_streaming(body_.graph_.info(key.first).name);
  return true;
}

Operand PipelineLowering::slot(const BufferKey& key, uint32_t micro_batch) const {
  const std::vector<Operand>& slots = buffers_.at(key);
  return slots[micro_batch % slots.size()];
}

Operand PipelineLowering::on_tiles(const BufferKey& key, uint32_t micro_batch) const {
  const auto fetched = fetched_.find(key);
  return fetched == fetched_.end() ? slot(key, micro_batch) : fetched->second;
}

std::vector<PipelineLowering::BufferKey> PipelineLowering::keys_of(const Event& event,
                                                                   Direction direction) const {
  const bool given = direction == Direction::given;
  std::vector<BufferKey> keys;
  if (event.kind == Event::Kind::send) {
    const Sending& sending = sendings_[event.index];
    if (given && body_.has_parts_) return keys;
    for (const ValueId id : sending.values) keys.emplace_back(id, given ? sending.to : origin_of(sending));
  } else {
    const LoweredPass& pass = passes_[event.index];
    for (const ValueId id : given ? pass.gives : pass.takes) keys.emplace_back(id, place_of(pass));
  }
  return keys;
}

/// Fetches values from streaming memory to the tiles, or stores them there.
void PipelineLowering::stream(const std::vector<BufferKey>& keys, uint32_t micro_batch, bool fetches,
                              std::vector<StepId>& steps) const {
  program::CopySet set{fetches ? "fetch" : "store", {}};
  for (const BufferKey& key : keys) {
    const auto fetched = fetched_.find(key);
    if (fetched == fetched_.end()) continue;
    const Operand kept = slot(key, micro_batch);
    set.groups.push_back(fetches ? copy_of(kept, fetched->second) : copy_of(fetched->second, kept));
  }
  if (!set.groups.empty()) steps.push_back(around_.builders_.front().copy(std::move(set)));
}

/// The longest repetition of the same events, each time for the next `unit_` micro-batches.
PipelineLowering::Repeated PipelineLowering::find_repeated() const {
  Repeated found;
  size_t length = 0;  // events of `unit_` micro-batches
  for (const Event& event : events_) length += event.micro_batch < unit_ ? 1 : 0;
  size_t same = 0;  // events up to the present one that the events `length` later repeat
  for (size_t e = 0; e + length < events_.size(); ++e) {
    const Event &event = events_[e], &later = events_[e + length];
    const bool repeats = event.kind == later.kind && event.index == later.index &&
                         event.micro_batch + unit_ == later.micro_batch;
    same = repeats ? same + 1 : 0;
    if (same / length > found.count) found = {e + 1 - same, length, same / length};
  }
  if (found.count > 0) ++found.count;
  return found;
}

void PipelineLowering::emit() {
  const Repeated repeated = find_repeated();
  const ops::Builder& builder = around_.builders_.front();
  std::map<StepId, size_t> ends;  // of the actions of each step
  const auto emit_range = [&](size_t first, size_t last, std::vector<StepId>& steps, uint32_t next = 0) {
    for (size_t e = first; e < last; ++e) {
      const StepId step = steps.emplace_back(emit(events_[e]));
      around_.lowered_.passes[step] = pass_step(events_[e], next);
      if (next == 0) ends[step] = end_of_actions(e);
    }
  };
  emit_range(0, repeated.first, around_.steps_);
  const size_t end_of_repeated = repeated.first + repeated.length * repeated.count;
  if (repeated.count > 0) {
    std::vector<StepId> steps;
    emit_range(repeated.first, repeated.first + repeated.length, steps, unit_);
    around_.run(builder.repeat(static_cast<uint32_t>(repeated.count), builder.sequence(std::move(steps))));
    ends[around_.steps_.back()] = end_of_actions(end_of_repeated - 1);
  }
  emit_range(end_of_repeated, events_.size(), around_.steps_);
  if (around_.is_function_ || around_.is_body_ || around_.lowered_.actions) return;
  around_.lowered_.actions = std::move(list_);
  around_.actions_until_ = std::move(ends);
}

Lowered::PassStep PipelineLowering::pass_step(const Event& event, uint32_t next) const {
  const bool is_send = event.kind == Event::Kind::send;
  const LoweredPass& pass = passes_[is_send ? sendings_[event.index].pass : event.index];
  ChipSpan::Kind kind = kind_of_pass(pass.part.kind);
  if (is_send) kind = ChipSpan::Kind::exchange;
  if (event.kind == Event::Kind::again) kind = ChipSpan::Kind::recomputed;
  return pass_on(builder(pass).machine(), {kind, pass.part.stage, event.micro_batch, next});
}

StepId PipelineLowering::emit(const Event& event) {
  std::vector<StepId> steps;
  const std::vector<BufferKey> taken = keys_of(event, Direction::taken),
                               given = keys_of(event, Direction::given);
  stream(taken, event.micro_batch, true, steps);
  if (event.kind == Event::Kind::send) {
    std::vector<Operand> operands;
    for (size_t i = 0; i < taken.size(); ++i) {
      operands.push_back(on_tiles(taken[i], event.micro_batch));
      if (!given.empty()) operands.push_back(on_tiles(given[i], event.micro_batch));
    }
    const program::PartScope part =
        around_.as_part(body_.has_parts_ ? sendings_[event.index].to : program::kEveryPart);
    steps.push_back(around_.builders_.front().call(sendings_[event.index].function, operands));
  } else {
    const LoweredPass& pass = passes_[event.index];
    const ops::Builder& builder = this->builder(pass);
    const program::PartScope part = body_.as_part(body_.part_of_stage(pass.part.stage));
    const bool again = event.kind == Event::Kind::again;
    std::vector<Operand> operands;
    for (const auto* keys : {&taken, &given})
      for (const BufferKey& key : *keys) operands.push_back(on_tiles(key, event.micro_batch));
    if (const auto& begin = again ? pass.begin_again : pass.begin) steps.push_back(builder.call(*begin, {}));
    steps.push_back(builder.call(pass.compute, operands));
    if (!again) steps.push_back(builder.call(pass.finish, {}));
  }
  stream(given, event.micro_batch, false, steps);
  return steps.size() == 1 ? steps.front() : around_.builders_.front().sequence(std::move(steps));
}

}  // namespace tessera::graph
