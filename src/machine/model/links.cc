#include "machine/model/links.h"

#include <algorithm>
#include <set>

namespace tessera::machine {
namespace {

/// The position after `at` on the way to `to`, on a line of `length` positions or around a ring of them.
uint32_t step_towards(uint32_t at, uint32_t to, uint32_t length, bool is_ring) {
  if (!is_ring) return to > at ? at + 1 : at - 1;
  const uint32_t up = (to + length - at) % length;
  return up <= length - up ? (at + 1) % length : (at + length - 1) % length;
}

}  // namespace

Links::Links(const Machine& machine)
    : topology_(machine.topology),
      chips_(machine.chips),
      width_(machine.topology == Topology::torus ? machine.torus_width : 2) {
  for (uint32_t chip = 0; chip < chips_; ++chip) {
    first_of_.push_back(static_cast<uint32_t>(all_.size()));
    std::set<uint32_t> neighbours;
    const uint32_t row = chip / width_, rows = chips_ / width_, first = row * width_, col = chip % width_;
    if (topology_ == Topology::all_to_all) {
      for (uint32_t other = 0; other < chips_; ++other) neighbours.insert(other);
    } else if (topology_ == Topology::ladder) {
      neighbours.insert(first + (1 - col));
      if (row > 0) neighbours.insert(chip - width_);
      if (row + 1 < rows) neighbours.insert(chip + width_);
    } else {
      for (const uint32_t other : {(col + 1) % width_, (col + width_ - 1) % width_})
        neighbours.insert(first + other);
      for (const uint32_t other : {(row + 1) % rows, (row + rows - 1) % rows})
        neighbours.insert(other * width_ + col);
    }
    neighbours.erase(chip);
    neighbours.erase(neighbours.lower_bound(chips_), neighbours.end());  // the other column of a single chip
    for (const uint32_t other : neighbours) all_.push_back({chip, other});
  }
  first_of_.push_back(static_cast<uint32_t>(all_.size()));
}

uint32_t Links::id_of(uint32_t from, uint32_t to) const {
  const auto begin = all_.begin() + first_of_[from], end = all_.begin() + first_of_[from + 1];
  return static_cast<uint32_t>(std::ranges::find(begin, end, to, &Link::to) - all_.begin());
}

uint32_t Links::next_on_route(uint32_t from, uint32_t to) const {
  if (topology_ == Topology::all_to_all) return to;
  const bool is_ring = topology_ == Topology::torus;
  const uint32_t row = from / width_, to_row = to / width_;
  if (row != to_row) return step_towards(row, to_row, chips_ / width_, is_ring) * width_ + from % width_;
  return row * width_ + step_towards(from % width_, to % width_, width_, is_ring);
}

std::vector<uint32_t> Links::route(uint32_t from, uint32_t to) const {
  std::vector<uint32_t> route;
  while (from != to) {
    const uint32_t next = next_on_route(from, to);
    route.push_back(id_of(from, next));
    from = next;
  }
  return route;
}

}  // namespace tessera::machine
