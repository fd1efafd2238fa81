#include "compiler/schedule.h"

#include <fmt/format.h>
#include <tessera/error.h>

namespace tessera::compiler {

using program::StepId;

Schedule::Schedule(const program::Program& program) : program_(program), touchers_(program) {
  positions_of_.resize(touchers_.count());
  root_ = expand(program.main());
}

void refuse_schedule() {
  throw Error(fmt::format("the program's schedule, its calls expanded, has more than {} steps", kMostSteps));
}

uint32_t Schedule::position(ToucherId toucher) {
  positions_of_[toucher].push_back(position_);
  Node node;
  node.kind = Kind::position;
  node.begin = position_++;
  node.end = position_;
  nodes_.push_back(node);
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t Schedule::add(Node node, const std::vector<uint32_t>& children) {
  node.end = position_;
  node.first_child = static_cast<uint32_t>(children_.size());
  node.children = static_cast<uint32_t>(children.size());
  children_.insert(children_.end(), children.begin(), children.end());
  nodes_.push_back(node);
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t Schedule::expand(StepId id) {
  if (++steps_ > kMostSteps) refuse_schedule();
  Node node;
  node.begin = position_;
  std::vector<uint32_t> children;
  // An exchange ends after the step beside it.
  const auto expand_exchange = [&](ToucherId exchange, StepId beside) {
    ++supersteps_;
    if (beside == program::kNoStep) return position(exchange);
    children.push_back(position(touchers_.of_control(id)));
    children.push_back(expand(beside));
    children.push_back(position(touchers_.of_end(id)));
    children.push_back(position(exchange));
    return add(node, children);
  };
  if (id == program::kNoStep) return add(node, children);
  const program::Step& step = program_.steps().at(id);
  if (const auto* sequence = std::get_if<program::Sequence>(&step)) {
    for (const StepId inner : sequence->steps) children.push_back(expand(inner));
  } else if (const auto* execute = std::get_if<program::Execute>(&step)) {
    ++supersteps_;
    return position(touchers_.of_set(execute->set));
  } else if (const auto* copy = std::get_if<program::Copy>(&step)) {
    return expand_exchange(touchers_.of_copy(copy->set), copy->beside);
  } else if (const auto* collect = std::get_if<program::Collect>(&step)) {
    return expand_exchange(touchers_.of_collective(collect->collective), collect->beside);
  } else if (const auto* repeat = std::get_if<program::Repeat>(&step)) {
    node.kind = Kind::repeat;
    node.always = repeat->count > 0;
    node.again = repeat->count > 1;
    if (repeat->counter) children.push_back(position(touchers_.of_control(id)));
    children.push_back(expand(repeat->body));
  } else if (const auto* loop = std::get_if<program::While>(&step)) {
    node.kind = Kind::loop;
    children.push_back(expand(loop->test));
    children.push_back(position(touchers_.of_control(id)));
    children.push_back(expand(loop->body));
  } else if (const auto* branch = std::get_if<program::If>(&step)) {
    node.kind = Kind::branch;
    children.push_back(position(touchers_.of_control(id)));
    children.push_back(expand(branch->then));
    children.push_back(expand(branch->otherwise));
  } else {
    const auto& call = std::get<program::Call>(step);
    if (call.operands.empty()) return expand(program_.functions().at(call.function).body);
    touchers_.function(call.function)
        .walk([&](uint32_t bound) { children.push_back(position(touchers_.of_bound(id, bound))); },
              [&](StepId inner) { children.push_back(expand(inner)); });
  }
  return add(node, children);
}

}  // namespace tessera::compiler
