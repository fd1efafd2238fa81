// The data that an exchange moves, tile by tile: its cycles and its code. Planner and compiler both use this
// class.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "program/boxes_in_order.h"
#include "program/chip_traffic.h"
#include "program/cycles.h"
#include "program/program.h"

namespace tessera::program {

/// The moves of one exchange on a machine whose tiles have their own memories. Reused for many exchanges.
///
/// The exchange broadcasts: data that one tile sends to several tiles leaves it once, and takes code once;
/// gathered rows are sent to each pair separately. Tiles 2i and 2i + 1 form a pair; data for both arrives at
/// the paired rate. Moves from a tile to itself are copies in its memory. A move longer than the maximum
/// transfer takes the code of several transfers. On a machine of several chips, an exchange of many moves
/// within one is counted once, if the same moves come again, between tiles of any chip.
class Traffic {
 public:
  explicit Traffic(const machine::Machine& machine)
      : machine_(machine), chip_streamed_(machine.chip_count()), tiles_(slot(kShared) + size_t{2}) {
    if (machine.chip_count() == 1) return;
    chips_.emplace(machine);
    for (uint32_t slot = 0; slot < tiles_.size(); ++slot)
      chip_of_.push_back(machine.chip_of(std::min(slot, machine.tiles - 1)));
  }

  /// Elements of `box` of a variable move from one tile (or kShared) to another. No two tiles of a pair
  /// receive an element from different tiles. `gathered`: as scattered rows of the variable.
  void add(TileId from, TileId to, VariableId variable, const Box& box, uint64_t element_bytes,
           bool gathered = false) {
    if (box.empty()) return;
    moves_.push_back({slot(from), slot(to), variable, box, static_cast<uint8_t>(element_bytes), gathered});
    added_.add(slot(from));
    added_.add(slot(to));
  }

  /// Bytes move between the streaming memory of a tile's chip and the tile.
  void add_streamed(TileId tile, uint64_t bytes, bool to_tile) {
    streamed_.push_back({tile, bytes, to_tile});
    added_.add(slot(tile));
  }

  /// Counts the moves added since the last call, and clears them.
  void count();

  // The following are for the exchange that was counted last.

  /// Cycles of its sync, its fixed cost and its busiest tile; 0 if nothing moves. Copies within tiles alone
  /// need no exchange, hence no sync. On several chips, the cycles of the tied chips that take longest.
  PhaseTimes cycles() const;
  /// Chips that the exchange ties to each other, on a machine of several chips.
  std::vector<TiedChips> tied() const { return chips_ ? chips_->tied() : std::vector<TiedChips>(); }
  std::vector<LinkLoad> link_loads() const { return chips_ ? chips_->loads() : std::vector<LinkLoad>(); }
  /// The first and the last tile that take part, and one more: all others are idle.
  std::pair<TileId, TileId> tiles_in_use() const {
    return {counted_.begin, std::min(counted_.end, machine_.tiles)};
  }
  const TileTraffic& of(TileId tile) const { return tiles_[slot(tile)].traffic; }
  /// Exchange code on a tile: for each end of each transfer, and each copy within the tile.
  uint64_t code_bytes(TileId tile) const { return tiles_[slot(tile)].code_bytes; }
  uint64_t sent_bytes() const { return sent_bytes_; }

 private:
  struct Streamed {
    TileId tile;
    uint64_t bytes;
    bool to_tile;
  };
  struct Move {
    uint32_t from;
    uint32_t to;
    VariableId variable;
    Box box;
    uint8_t element;
    bool gathered;

    double row_bytes() const { return static_cast<double>(uint64_t{box.cols} * element); }
  };
  struct Tile {
    TileTraffic traffic;
    uint64_t code_bytes = 0;
  };
  using Iterator = std::span<Move>::iterator;

  /// The counts of an exchange within a chip.
  struct Known {
    std::vector<Tile> tiles;  ///< from the first that takes part to the last
    uint64_t sent_bytes = 0;
    bool copies = false;     ///< within tiles
    bool exchanges = false;  ///< between tiles
  };

  /// A range of slots.
  struct Slots {
    uint32_t begin = ~0U;
    uint32_t end = 0;

    void add(uint32_t slot) {
      begin = std::min(begin, slot);
      end = std::max(end, slot + 1);
    }
  };
  /// The boxes of a variable that a tile sends.
  struct Sent {
    uint32_t exchange = 0;  ///< last exchange in which it did so
    BoxesInOrder boxes;
  };

  /// Moves whose rows are comparable have the same key: variable, columns and target.
  struct Key {
    Key(const Move& move, uint32_t target)
        : from(uint64_t{move.variable} << 32 | move.box.col), size(uint64_t{move.box.cols} << 32 | target) {}

    uint64_t from;
    uint64_t size;

    bool operator==(const Key&) const = default;
    size_t hash() const { return ((from * 0x9E3779B97F4A7C15 ^ size) * 0xBF58476D1CE4E5B9) >> 32; }
  };

  /// Position in `tiles_`: a shared space comes after the tiles, in its own pair.
  uint32_t slot(TileId tile) const { return tile == kShared ? (machine_.tiles + 1) & ~1U : tile; }
  template <class TileOf>
  std::span<Move> by_tile(const TileOf& tile_of);
  template <class KeyOf>
  void group(std::span<Move> moves, const KeyOf& key_of);
  template <class KeyOf, class Visit>
  void each_group(Iterator begin, Iterator end, const KeyOf& key_of, const Visit& visit);
  static void sort_rows(Iterator begin, Iterator end);
  uint32_t chip_of(uint32_t slot) const { return chip_of_[slot]; }
  std::span<Tile> counted() {
    return counted_.end == 0 ? std::span<Tile>()
                             : std::span(tiles_).subspan(counted_.begin, counted_.end - counted_.begin);
  }
  std::optional<uint64_t> hash_within_chip() const;
  bool take_known(uint64_t hash);
  void count_moves();
  void count_local();
  bool are_apart();
  void count_apart();
  void count_streamed();
  void count_sent();
  void count_sent(Iterator begin, Iterator end);
  void count_received();
  void count_received(Iterator begin, Iterator end);
  void count_links(Iterator begin, Iterator end);

  const machine::Machine& machine_;
  std::vector<Move> moves_;
  std::vector<Move> sorted_;  ///< by tile
  // For grouping the moves of a tile.
  std::vector<uint32_t> slots_;     ///< of a hash table: groups
  std::vector<uint32_t> firsts_;    ///< by group: its first move
  std::vector<uint32_t> begin_;     ///< by group
  std::vector<uint32_t> group_of_;  ///< by move
  std::vector<Move> grouped_;
  // For finding whether a tile sends anything twice: by variable, then by tile.
  std::vector<VariableId> variables_;
  std::vector<std::vector<Sent>> sent_;
  uint32_t exchange_ = 0;
  std::vector<Streamed> streamed_;
  std::vector<double> chip_streamed_;  ///< bytes by chip
  std::vector<Tile> tiles_;
  Slots added_;    ///< that take part in the moves since the last count
  Slots counted_;  ///< of the exchange that was counted last
  std::optional<ChipTraffic> chips_;
  std::vector<uint32_t> chip_of_;              ///< by slot, if there are several chips
  std::unordered_map<uint64_t, Known> known_;  ///< by hash of the moves
  uint64_t sent_bytes_ = 0;
  bool exchanges_ = false;
};

}  // namespace tessera::program
