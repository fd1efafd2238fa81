#include "compiler/step_watch.h"

#include <cassert>

#include "compiler/chip_clocks.h"

namespace tessera::compiler {

void StepWatch::begin(const ChipClocks& clocks) {
  for (auto& [step, executions] : executions_) executions = 0;
  inside_.reset();
  under_way_.clear();
  since_.assign(clocks.of_chips().size(), 0);
  chips_.assign(clocks.of_chips().size(), {});
}

void StepWatch::enter(program::StepId step, const ChipClocks& clocks) {
  enter({.kind = Kind::step, .step = step, .execution = executions_.at(step)++}, clocks);
}

void StepWatch::enter(Span what, const ChipClocks& clocks) {
  assert(!inside_);
  close(clocks);
  inside_ = what;
}

void StepWatch::leave(const ChipClocks& clocks) {
  close(clocks);
  inside_.reset();
}

/// Ends the spans of chips at their clocks.
void StepWatch::close(const ChipClocks& clocks) {
  for (size_t chip = 0; chip < chips_.size(); ++chip)
    add(chip, inside_.value_or(Span()), clocks.of_chips()[chip].total());
}

void StepWatch::add(size_t chip, Span span, double until) {
  if (until <= since_[chip]) return;
  span.begin = since_[chip];
  span.end = since_[chip] = until;
  chips_[chip].push_back(span);
}

void StepWatch::wait(size_t chip, double from, double until) {
  if (inside_ && from > since_[chip]) return;
  add(chip, inside_.value_or(Span()), from);
  add(chip, {.kind = Kind::waiting}, until);
}

void StepWatch::end(const ChipClocks& clocks) {
  close(clocks);
  for (size_t chip = 0; chip < chips_.size(); ++chip) {
    add(chip, {.kind = Kind::waiting}, clocks.last());
    merge(chips_[chip]);
  }
}

/// Merges adjacent spans of the same kind.
void StepWatch::merge(std::vector<Span>& spans) {
  size_t count = 0;
  for (const Span& span : spans) {
    const bool is_same = count > 0 && spans[count - 1].kind == span.kind &&
                         (span.kind == Kind::other || span.kind == Kind::waiting);
    if (is_same)
      spans[count - 1].end = span.end;
    else
      spans[count++] = span;
  }
  spans.resize(count);
}

StepWatch::Mark StepWatch::mark(const ChipClocks& clocks) {
  if (inside_) return {};
  close(clocks);
  Mark mark{{}, executions_};
  for (const std::vector<Span>& spans : chips_) mark.spans.push_back(spans.size());
  return mark;
}

void StepWatch::repeat_since(const Mark& mark, const ChipClocks& before, const ChipClocks& passed,
                             const ChipClocks& clocks, uint32_t times) {
  if (inside_) return;
  close(passed);
  for (size_t chip = 0; chip < chips_.size(); ++chip) {
    std::vector<Span>& spans = chips_[chip];
    const size_t end = spans.size();
    const double length = passed.of_chips()[chip].total() - before.of_chips()[chip].total();
    for (uint32_t time = 1; time <= times && mark.spans[chip] < end; ++time)
      for (size_t s = mark.spans[chip]; s < end; ++s) {
        Span span = spans[s];
        if (span.kind == Kind::step)
          span.execution += (executions_.at(span.step) - mark.executions.at(span.step)) * time;
        add(chip, span, span.end + length * time);
      }
    if (mark.spans[chip] < end) spans.back().end = since_[chip] = clocks.of_chips()[chip].total();
  }
  for (auto& [step, executions] : executions_) executions += (executions - mark.executions.at(step)) * times;
}

}  // namespace tessera::compiler
