// The links between the chips of a machine, and routes over them.
#pragma once

#include <cstdint>
#include <vector>

#include "machine/model/machine.h"

namespace tessera::machine {

/// One direction of a link between two chips.
struct Link {
  uint32_t from = 0;
  uint32_t to = 0;

  bool operator==(const Link&) const = default;
};

/// All links of a machine, by chip, and the routes that data takes over them.
class Links {
 public:
  /// The links of a machine; none for a machine of one chip.
  explicit Links(const Machine& machine);

  const std::vector<Link>& all() const { return all_; }
  const Link& operator[](uint32_t id) const { return all_[id]; }
  /// The links of the route from one chip to another: on a ladder or a torus first along the column, then
  /// along the row; in a ring the shorter way round, upwards if both ways are equally long.
  std::vector<uint32_t> route(uint32_t from, uint32_t to) const;

 private:
  uint32_t next_on_route(uint32_t from, uint32_t to) const;
  uint32_t id_of(uint32_t from, uint32_t to) const;

  Topology topology_;
  uint32_t chips_;
  uint32_t width_;
  std::vector<Link> all_;
  std::vector<uint32_t> first_of_;  ///< by chip: its first link
};

}  // namespace tessera::machine
