#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <unordered_map>

#include "compiler/passes.h"
#include "compiler/schedule.h"

namespace tessera::compiler {
namespace {

/// Finds when storage with one chain of touches is in use: when it is touched, and while it holds something
/// written that will be read.
class LifetimeFinder {
 public:
  LifetimeFinder(const Schedule& schedule, const TouchChains& chains)
      : schedule_(schedule), chains_(chains) {}

  Lifetime find(TouchChain chain) {
    events_.clear();
    for (; chain != kUntouched; chain = chains_[chain].before)
      for (const uint32_t position : schedule_.positions_of(chains_[chain].toucher))
        events_.push_back({position, chains_[chain].touch});
    std::sort(events_.begin(), events_.end(),
              [](const Event& a, const Event& b) { return a.position < b.position; });
    intervals_.clear();
    mark(schedule_.root(), false, false);
    return joined(std::move(intervals_));
  }

 private:
  struct Event {
    uint32_t position;
    Touch touch;
  };
  /// Effect of a part of the schedule: whether it reads previous contents, overwrites all of it on every
  /// path, writes.
  struct Effect {
    bool reads = false;
    bool kills = false;
    bool writes = false;

    bool before(bool after) const { return reads || (after && !kills); }
  };
  using Node = Schedule::Node;
  using Kind = Schedule::Kind;

  std::span<const Event> events_of(uint32_t begin, uint32_t end) const {
    const auto by_position = [](const Event& e, uint32_t position) { return e.position < position; };
    const auto first = std::lower_bound(events_.begin(), events_.end(), begin, by_position);
    return {first, std::lower_bound(first, events_.end(), end, by_position)};
  }
  bool writes(uint32_t begin, uint32_t end) const {
    const std::span<const Event> events = events_of(begin, end);
    return std::any_of(events.begin(), events.end(), [](const Event& e) { return e.touch.writes; });
  }

  /// The last child of a sequence that begins at or before `position`.
  uint32_t child_at(const Node& node, uint32_t position) const {
    uint32_t low = 0;
    uint32_t high = node.children;
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (schedule_.node(schedule_.child(node, middle)).begin <= position ? low : high) = middle;
    }
    return schedule_.child(node, low);
  }

  /// Calls visit(child) for those with events, last first.
  template <class Visit>
  void each_child_backwards(const Node& node, const Visit& visit) const {
    uint32_t end = node.end;
    while (true) {
      const std::span<const Event> events = events_of(node.begin, end);
      if (events.empty()) return;
      const uint32_t child = child_at(node, events.back().position);
      visit(child);
      end = schedule_.node(child).begin;
    }
  }

  Effect effect_of(uint32_t id) const {
    const Node& node = schedule_.node(id);
    const std::span<const Event> events = events_of(node.begin, node.end);
    if (events.empty()) return {};
    if (node.kind == Kind::position)
      return {events[0].touch.reads, events[0].touch.whole, events[0].touch.writes};
    Effect effect;
    effect.writes = writes(node.begin, node.end);
    if (node.kind == Kind::branch) {
      const Effect then = effect_of(schedule_.child(node, 1));
      const Effect otherwise = effect_of(schedule_.child(node, 2));
      effect.reads = effect_of(schedule_.child(node, 0)).reads || then.reads || otherwise.reads;
      effect.kills = then.kills && otherwise.kills;
    } else if (node.kind == Kind::loop) {
      const Effect test = effect_of_test(node);
      effect.reads = test.before(effect_of(schedule_.child(node, 2)).reads);
      effect.kills = test.kills;
    } else {
      each_child_backwards(node, [&](uint32_t child) {
        const Effect inner = effect_of(child);
        effect.reads = inner.before(effect.reads);
        effect.kills |= inner.kills;
      });
      effect.kills &= node.always;
    }
    return effect;
  }

  /// Effect of a loop's test and of reading its condition.
  Effect effect_of_test(const Node& loop) const {
    const Effect test = effect_of(schedule_.child(loop, 0));
    const Effect condition = effect_of(schedule_.child(loop, 1));
    return {test.before(condition.reads), test.kills, test.writes};
  }

  /// Marks a part of the schedule, given whether the storage is read after it and written before it.
  void mark(uint32_t id, bool read_after, bool written) {
    const Node& node = schedule_.node(id);
    if (node.begin == node.end) return;
    if (events_of(node.begin, node.end).empty()) {
      if (read_after && written) intervals_.push_back({node.begin, node.end - 1});
      return;
    }
    switch (node.kind) {
      case Kind::position: intervals_.push_back({node.begin, node.begin}); break;
      case Kind::sequence: mark_sequence(node, read_after, written); break;
      case Kind::repeat:
        // What a pass reads before it overwrites it comes from the preceding pass.
        if (node.again) {
          read_after = read_after || effect_of(id).reads;
          written = written || writes(node.begin, node.end);
        }
        mark_sequence(node, read_after, written);
        break;
      case Kind::loop: mark_loop(node, read_after, written); break;
      case Kind::branch: {
        const uint32_t then = schedule_.child(node, 1);
        const uint32_t otherwise = schedule_.child(node, 2);
        const bool read_in = effect_of(then).before(read_after) || effect_of(otherwise).before(read_after);
        mark(then, read_after, written);
        mark(otherwise, read_after, written);
        mark(schedule_.child(node, 0), read_in, written);
      }
    }
  }

  void mark_sequence(const Node& node, bool read_after, bool written) {
    uint32_t end = node.end;
    const auto mark_between = [&](uint32_t begin) {
      if (begin < end && read_after && (written || writes(node.begin, begin)))
        intervals_.push_back({begin, end - 1});
    };
    each_child_backwards(node, [&](uint32_t id) {
      const Node& child = schedule_.node(id);
      mark_between(child.end);
      mark(id, read_after, written || writes(node.begin, child.begin));
      read_after = effect_of(id).before(read_after);
      end = child.begin;
    });
    mark_between(node.begin);
  }

  void mark_loop(const Node& node, bool read_after, bool written) {
    const uint32_t condition = schedule_.child(node, 1);
    const Effect test = effect_of_test(node);
    const Effect body = effect_of(schedule_.child(node, 2));
    const bool read_before = test.before(read_after || body.reads);
    const bool read_after_test = read_after || body.before(read_before);
    written = written || writes(node.begin, node.end);
    mark(schedule_.child(node, 2), read_before, written);
    mark(condition, read_after_test, written);
    mark(schedule_.child(node, 0), effect_of(condition).before(read_after_test), written);
  }

  const Schedule& schedule_;
  const TouchChains& chains_;
  std::vector<Event> events_;  ///< of the chain, by position
  std::vector<Interval> intervals_;
};

/// Lifetimes of chains, each stored once.
class Lifetimes {
 public:
  explicit Lifetimes(Compilation& c) : c_(c), schedule_(c.program), finder_(schedule_, c.chains) {
    c.lifetimes = {{{0, std::max(1U, schedule_.positions()) - 1}}};  // kAlways
    known_.emplace(c.lifetimes[kAlways], kAlways);
  }

  LifetimeId of(TouchChain chain) {
    if (chain == kUntouched) return kNever;
    const auto [it, is_new] = by_chain_.try_emplace(chain, 0);
    if (is_new) {
      const Lifetime lifetime = finder_.find(chain);
      const auto [known, is_new_lifetime] =
          known_.try_emplace(lifetime, static_cast<LifetimeId>(c_.lifetimes.size()));
      if (is_new_lifetime) c_.lifetimes.push_back(lifetime);
      it->second = lifetime.empty() ? kNever : known->second;
    }
    return it->second;
  }

  const Schedule& schedule() const { return schedule_; }

 private:
  Compilation& c_;
  Schedule schedule_;
  LifetimeFinder finder_;
  std::unordered_map<TouchChain, LifetimeId> by_chain_;
  std::map<Lifetime, LifetimeId> known_;
};

}  // namespace

std::string find_liveness(Compilation& c) {
  Lifetimes lifetimes(c);
  for (Piece& piece : c.pieces) piece.lifetime = piece.always_live ? kAlways : lifetimes.of(piece.touches);
  c.moments = number_moments(c.lifetimes);
  return fmt::format("{} supersteps and copies", lifetimes.schedule().supersteps());
}

}  // namespace tessera::compiler
