// The traffic of an exchange between the chips of a machine: loads of links, and the chips that wait for each
// other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "machine/model/links.h"
#include "program/codelet.h"

namespace tessera::program {

/// Bytes over one direction of a link.
struct LinkLoad {
  uint32_t from = 0;  ///< sending chip
  uint32_t to = 0;
  double bytes = 0;
};

/// Chips that an exchange ties to each other, because they exchange data or share a link: the exchange begins
/// when the last of them is ready, and ends for all at once. An exchange within a chip ties it to no other.
struct TiedChips {
  std::vector<uint32_t> chips;  ///< ascending
  PhaseTimes cycles;
};

/// Counts one exchange at a time. Data that several tiles of several chips receive crosses each link once.
class ChipTraffic {
 public:
  explicit ChipTraffic(const machine::Machine& machine);

  void clear();
  /// Counts a copy within a tile of a chip.
  void copy_on(uint32_t chip) { of_[chip].takes_part = true; }
  /// Counts an exchange with a chip's streaming memory.
  void exchange_on(uint32_t chip) { of_[chip].takes_part = of_[chip].exchanges = true; }
  /// Rows [first, last) of data on one chip are received by another chip, or by the same.
  void send(uint32_t from, uint32_t to, uint64_t first, uint64_t last);
  /// Completes the data sent since the last call, all from one tile, with `row_bytes` bytes per row.
  void close(double row_bytes);
  /// Counts the cycles of one of a chip's tiles.
  void count_tile(uint32_t chip, double cycles) { of_[chip].busiest = std::max(of_[chip].busiest, cycles); }

  // The results for what was counted since clear().

  std::vector<TiedChips> tied() const;
  std::vector<LinkLoad> loads() const;

 private:
  struct Rows {
    uint64_t first;
    uint64_t last;
  };
  struct Chip {
    uint32_t joins = 0;  ///< a chip with which it is tied, or itself
    bool takes_part = false;
    bool exchanges = false;   ///< between its tiles or with other chips
    uint32_t hops = 0;        ///< hops of the longest route from it
    double busiest = 0;       ///< cycles of its busiest tile
    std::vector<Rows> wants;  ///< rows of the current data that it receives, disjoint and ascending
  };

  uint32_t root_of(uint32_t chip) const;
  void tie(uint32_t a, uint32_t b);
  void carry(uint32_t from, uint32_t to);

  const machine::Machine& machine_;
  machine::Links links_;
  std::vector<Chip> of_;
  std::vector<double> bytes_;            ///< by link
  std::vector<uint32_t> user_of_;        ///< by link: a chip that sends over it
  std::vector<std::vector<Rows>> over_;  ///< by link: rows of the current data that go over it
  std::vector<uint32_t> links_in_use_;
  std::vector<uint32_t> receivers_;
  uint32_t sender_ = 0;
};

}  // namespace tessera::program
