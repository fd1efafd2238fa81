// The order of passes through stages, and of what is sent between them, in a program: chips run what the
// program has for them in its order, and both ends of what is sent wait for each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::graph {

/// A pass through a stage on one part of the chips, or what is sent from one part to another.
struct TimedEvent {
  std::vector<uint32_t> places = {};  ///< parts of the chips that are busy
  uint64_t work = 0;                  ///< relative time; 0: it is sent
  uint32_t stage = 0;
  std::vector<size_t> after = {};  ///< events that come before
};

/// When the last event ends if all run in this order.
uint64_t end_of(const std::vector<TimedEvent>& events, const std::vector<size_t>& order);

/// Repeatedly takes the event that can begin first; what is sent goes before a pass that begins hardly
/// earlier, as passes keep chips busy for long.
std::vector<size_t> earliest_first(const std::vector<TimedEvent>& events);

/// Events earliest first, if the last one then ends clearly earlier than in the listed order; otherwise as
/// they are listed. Work is an estimate, and a list that repeats itself may no longer do so in another order.
std::vector<size_t> faster_order(const std::vector<TimedEvent>& events);

}  // namespace tessera::graph
