#include <fmt/format.h>
#include <tessera/machine.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/integer_types.h"
#include "base/parallel.h"
#include "compiler/addresses_in_use.h"
#include "compiler/passes.h"
#include "program/sizes.h"

namespace tessera::compiler {
namespace {

using program::TileId;

MemoryUse use_of(const Compilation& c, const Piece& piece) {
  const program::Variable& variable = c.program.variable(piece.variable);
  switch (variable.role) {
    case program::Role::input: return MemoryUse::inputs;
    case program::Role::output:
    case program::Role::inout: return MemoryUse::outputs;
    case program::Role::constant:
      return is_integer(variable.type) ? MemoryUse::work_lists : MemoryUse::constants;
    case program::Role::state: return MemoryUse::state;
    case program::Role::argument:
    case program::Role::temporary: break;
  }
  return piece.staging ? MemoryUse::staging_buffers : MemoryUse::temporaries;
}

program::Purpose purpose_of(const Compilation& c, const Piece& piece) {
  return program::purpose_of(c.program.variable(piece.variable));
}

/// Addresses in use, from both ends of a memory.
struct Occupancy {
  Occupancy(const std::vector<Lifetime>& times, uint32_t moments)
      : lifetimes(times),
        up(times, moments),
        down(times, moments),
        bytes(times.size()),
        changes(size_t{moments} + 1) {}

  const std::vector<Lifetime>& lifetimes;
  AddressesInUse up;
  AddressesInUse down;  ///< for a memory with an interleaved region: distances from its end
  // For counting what is alive; zero between memories.
  std::vector<uint64_t> bytes;    ///< by lifetime
  std::vector<uint64_t> changes;  ///< of the bytes alive, by moment, modulo 2^64
};

/// How pieces that are not always alive are placed.
struct PlacementWay {
  bool is_upward = false;      ///< also places pieces for the interleaved region from the code up
  bool longest_first = false;  ///< by lifetime first, not by bytes
};

/// One memory: what is at which address when. A tile's code comes first. First fit, always-live pieces first
/// and then by size: pieces for the interleaved region from the end of the memory down, the others from the
/// code up, so that both may use all free space. If that exceeds the memory, all go from the code up, and
/// then the longest alive first, if they take less that way.
class Arena {
 public:
  Arena(Compilation& c, TileId space, std::span<PieceId> ids, Occupancy& occupancy)
      : c_(c),
        memory_(c.memory[slot_of(c.machine, space)]),
        occupancy_(occupancy),
        base_(aligned(memory_.total(), program::kDataAlignment)),
        has_region_(
            std::any_of(ids.begin(), ids.end(), [&](PieceId id) { return c.pieces[id].interleaved; })),
        capacity_(has_region_ ? c.machine.tile_bytes / program::kDataAlignment * program::kDataAlignment
                              : kNever64) {
    place(ids, {});
    if (is_tiled(c) && space < c.machine.tiles && end_ > c.machine.tile_bytes) place_otherwise(ids);
    count(ids);
    for (PieceId id : ids) c.pieces[id].offset -= base_ + (c.pieces[id].offset >= top_ ? gap_ : 0);
  }

  ArenaAddresses addresses() const { return {base_, top_ - gap_ - base_, gap_}; }
  uint64_t bytes() const { return end_ - base_ - gap_; }

 private:
  static constexpr uint64_t kNever64 = ~uint64_t{0};

  uint64_t alignment_of(const Piece& piece) const {
    return piece.tile == program::kShared ? program::kDataAlignment : piece.alignment;
  }
  uint64_t room_of(const Piece& piece) const { return bytes_of(c_, piece) + piece.over_read; }

  void sort(std::span<PieceId> ids) const {
    using Rank = std::tuple<bool, bool, bool, uint64_t, uint64_t, PieceId>;
    std::vector<Rank> ranks;
    ranks.reserve(ids.size());
    for (const PieceId id : ids) {
      const Piece& piece = c_.pieces[id];
      // Concurrent runs share the part of a shared space that has the state.
      const bool is_shared_state =
          piece.tile == program::kShared && c_.program.variable(piece.variable).role == program::Role::state;
      const uint64_t longest = way_.longest_first ? moments_of(piece) : 0;
      ranks.emplace_back(!piece.always_live, !is_shared_state, !piece.interleaved && !way_.longest_first,
                         kNever64 - longest, kNever64 - bytes_of(c_, piece), id);
    }
    std::ranges::sort(ranks);
    std::ranges::transform(ranks, ids.begin(), [](const Rank& rank) { return std::get<PieceId>(rank); });
  }

  uint64_t moments_of(const Piece& piece) const {
    uint64_t moments = 0;
    for (const Interval& interval : occupancy_.lifetimes[piece.lifetime])
      moments += interval.last - interval.first + 1;
    return moments;
  }

  void place(std::span<PieceId> ids, const PlacementWay& way) {
    way_ = way;
    sort(ids);
    occupancy_.up.clear();
    occupancy_.down.clear();
    low_ = end_ = base_;
    top_ = capacity_;
    const auto dynamic =
        std::partition_point(ids.begin(), ids.end(), [&](PieceId id) { return c_.pieces[id].always_live; });
    for (auto id = ids.begin(); id != dynamic; ++id) place_always(c_.pieces[*id]);
    if (low_ > base_) occupy({base_, low_}, kAlways);
    if (top_ < capacity_) occupy({top_, capacity_}, kAlways);
    for (auto id = dynamic; id != ids.end(); ++id) place_dynamic(c_.pieces[*id]);
  }

  /// Places pieces in the first other way in which they fit, or else in the way in which they end lowest.
  void place_otherwise(std::span<PieceId> ids) {
    constexpr PlacementWay kOthers[] = {{true, false}, {true, true}};
    PlacementWay best = way_;
    uint64_t least = end_;
    for (const PlacementWay& other : kOthers) {
      const bool is_same = !has_region_ && !other.longest_first;
      const bool is_hopeless = other.longest_first && least > c_.machine.tile_bytes / 8 * 9;
      if (least <= c_.machine.tile_bytes || is_same || is_hopeless) continue;
      place(ids, other);
      if (end_ < least) best = way_, least = end_;
    }
    if (end_ > least) place(ids, best);
  }

  /// Always-live pieces are adjacent. What has no room goes past the end of the memory.
  void place_always(Piece& piece) {
    const uint64_t room = room_of(piece);
    if (piece.interleaved && fits_below(top_, room)) {
      piece.offset = top_ = (top_ - room) / alignment_of(piece) * alignment_of(piece);
      return;
    }
    piece.offset = aligned(low_, alignment_of(piece));
    if (piece.offset < capacity_ && (piece.interleaved || piece.offset + room > top_))
      piece.offset = capacity_;
    low_ = piece.offset + room;
  }

  bool fits_below(uint64_t end, uint64_t room) const {
    return end >= room && end - room >= std::max(low_, c_.machine.interleaved_from);
  }

  void place_dynamic(Piece& piece) {
    const uint64_t room = room_of(piece);
    const bool is_down = piece.interleaved && !way_.is_upward;
    const uint64_t lowest = piece.interleaved ? std::max(base_, c_.machine.interleaved_from) : base_;
    uint64_t offset = is_down ? highest_fit(piece, room) : lowest_fit(piece, room, lowest);
    if (offset == kNever64) offset = lowest_fit(piece, room, std::max(base_, capacity_));
    piece.offset = offset;
    if (is_down && offset < capacity_) top_ = std::min(top_, offset);
    occupy({offset, offset + room}, piece.lifetime);
  }

  uint64_t lowest_fit(const Piece& piece, uint64_t room, uint64_t from) {
    return occupancy_.up.lowest_free(from, room, alignment_of(piece), piece.lifetime);
  }

  uint64_t highest_fit(const Piece& piece, uint64_t bytes) {
    const uint64_t room = aligned(bytes, alignment_of(piece));
    const uint64_t below_end = occupancy_.down.lowest_free(0, room, alignment_of(piece), piece.lifetime);
    const bool fits = capacity_ >= below_end + room &&
                      capacity_ - below_end - room >= std::max(base_, c_.machine.interleaved_from);
    return fits ? capacity_ - below_end - room : kNever64;
  }

  void occupy(const AddressRange& range, LifetimeId lifetime) {
    end_ = std::max(end_, range.end);
    occupancy_.up.occupy(range, lifetime);
    if (has_region_ && range.begin < capacity_)
      occupancy_.down.occupy({capacity_ - std::min(range.end, capacity_), capacity_ - range.begin}, lifetime);
  }

  void count(std::span<const PieceId> ids) {
    uint64_t low = low_;
    std::vector<PieceId> dynamic;
    for (PieceId id : ids) {
      const Piece& piece = c_.pieces[id];
      if (piece.always_live) {
        memory_.add(use_of(c_, piece), purpose_of(c_, piece), bytes_of(c_, piece));
        continue;
      }
      dynamic.push_back(id);
      if (piece.offset < top_) low = std::max(low, piece.offset + room_of(piece));
    }
    // Whole free lines between what grows up and what grows down are not allocated on the host.
    if (low < top_ && end_ > top_) gap_ = (top_ - low) / program::kDataAlignment * program::kDataAlignment;
    count_peak(dynamic);
    if (end_ > base_) memory_[MemoryUse::padding] += base_ + bytes() - memory_.total();
    memory_.end = std::max(memory_.total(), end_ > c_.machine.tile_bytes ? end_ : 0);
  }

  /// Counts the data alive at the first moment at which most is alive.
  void count_peak(std::span<const PieceId> dynamic) {
    const uint32_t peak = peak_of(dynamic);
    for (const PieceId id : dynamic) {
      const Piece& piece = c_.pieces[id];
      const Lifetime& lifetime = occupancy_.lifetimes[piece.lifetime];
      const auto interval = std::ranges::lower_bound(lifetime, peak, {}, &Interval::last);
      if (interval == lifetime.end() || interval->first > peak) continue;
      memory_.add(piece.staging ? MemoryUse::staging_buffers : MemoryUse::temporaries, purpose_of(c_, piece),
                  bytes_of(c_, piece));
    }
  }

  uint32_t peak_of(std::span<const PieceId> dynamic) {
    std::vector<uint64_t>& bytes = occupancy_.bytes;
    std::vector<uint64_t>& changes = occupancy_.changes;
    std::vector<LifetimeId> lifetimes;
    for (const PieceId id : dynamic) {
      uint64_t& of_lifetime = bytes[c_.pieces[id].lifetime];
      if (of_lifetime == 0) lifetimes.push_back(c_.pieces[id].lifetime);
      of_lifetime += bytes_of(c_, c_.pieces[id]);
    }
    for (const LifetimeId id : lifetimes) {
      const uint64_t of_lifetime = std::exchange(bytes[id], 0);
      for (const Interval& interval : occupancy_.lifetimes[id]) {
        changes[interval.first] += of_lifetime;
        changes[interval.last + 1] -= of_lifetime;
      }
    }
    uint32_t peak = 0;
    uint64_t alive = 0, most = 0;
    for (uint32_t moment = 0; moment < changes.size(); ++moment) {
      alive += std::exchange(changes[moment], 0);
      if (alive > most) most = alive, peak = moment;
    }
    return peak;
  }

  Compilation& c_;
  TileMemory& memory_;
  Occupancy& occupancy_;
  const uint64_t base_;  ///< where data begins
  PlacementWay way_ = {};
  const bool has_region_;     ///< whether any piece must be in the interleaved region
  const uint64_t capacity_;   ///< where pieces that grow down begin
  uint64_t low_ = base_;      ///< end of what is always live and grows up
  uint64_t top_ = capacity_;  ///< beginning of what grows down
  uint64_t end_ = base_;
  uint64_t gap_ = 0;
};

/// The pieces of each memory that has any, side by side.
std::vector<PieceId> stored_by_tile(const Compilation& c) {
  std::vector<uint32_t> begin(c.memory.size() + 1, 0);
  for (const Piece& piece : c.pieces)
    if (needs_storage(c, piece)) ++begin[slot_of(c.machine, space_of(c, piece)) + 1];
  for (size_t t = 1; t < begin.size(); ++t) begin[t] += begin[t - 1];
  std::vector<PieceId> stored(begin.back());
  for (PieceId id = 0; id < c.pieces.size(); ++id)
    if (needs_storage(c, c.pieces[id])) stored[begin[slot_of(c.machine, space_of(c, c.pieces[id]))]++] = id;
  return stored;
}

/// A memory that has any pieces: these, and the bytes that they take.
struct Memory {
  TileId space = 0;
  std::span<PieceId> pieces = {};
  uint64_t bytes = 0;
};

std::vector<Memory> memories_of(const Compilation& c, std::span<PieceId> stored) {
  std::vector<Memory> memories;
  for (size_t begin = 0, end = 0; begin < stored.size(); begin = end) {
    const TileId space = space_of(c, c.pieces[stored[begin]]);
    while (end < stored.size() && space_of(c, c.pieces[stored[end]]) == space) ++end;
    memories.push_back({space, stored.subspan(begin, end - begin)});
  }
  return memories;
}

/// Memories whose storage is nearly independent of other memories.
using Region = std::span<Memory>;

/// A region for the tiles of each chip, and one for memories that are no tile's.
std::vector<Region> regions_of(const machine::Machine& machine, std::span<Memory> memories) {
  const auto chip_of = [&](const Memory& memory) {
    return memory.space < machine.tiles ? machine.chip_of(memory.space) : ~0U;
  };
  std::vector<Region> regions;
  for (size_t begin = 0, end = 0; begin < memories.size(); begin = end) {
    while (end < memories.size() && chip_of(memories[end]) == chip_of(memories[begin])) ++end;
    regions.push_back(memories.subspan(begin, end - begin));
  }
  return regions;
}

/// The lifetimes in a region, by LifetimeId.
std::vector<Lifetime> lifetimes_in(const Compilation& c, std::span<const Memory> region) {
  std::vector<Lifetime> lifetimes(c.lifetimes.size());
  lifetimes[kAlways] = c.lifetimes[kAlways];
  for (const Memory& memory : region)
    for (const PieceId id : memory.pieces) {
      const LifetimeId lifetime = c.pieces[id].lifetime;
      if (lifetimes[lifetime].empty()) lifetimes[lifetime] = c.lifetimes[lifetime];
    }
  return lifetimes;
}

void place_region(Compilation& c, Region region, const std::vector<Lifetime>& lifetimes, uint32_t moments) {
  Occupancy occupancy(lifetimes, moments);
  for (Memory& memory : region) {
    const Arena arena(c, memory.space, memory.pieces, occupancy);
    memory.bytes = arena.bytes();
    if (memory.space < c.machine.tiles) c.executable->addresses[memory.space] = arena.addresses();
  }
}

/// Places regions that do not depend on each other, each in moments of its own: many moments of the program
/// differ in other regions only.
void place_apart(Compilation& c, std::span<const Region> regions, bool on_threads) {
  const auto most = static_cast<uint32_t>(regions.size());
  const uint32_t threads = on_threads ? std::min(default_threads(), most) : 1;
  base::run_parallel(regions.size(), threads, [&](size_t i, const std::atomic<bool>&) {
    std::vector<Lifetime> lifetimes = lifetimes_in(c, regions[i]);
    const uint32_t moments = number_moments(lifetimes);
    place_region(c, regions[i], lifetimes, moments);
  });
}

}  // namespace

std::string place(Compilation& c) {
  constexpr size_t kManyPieces = 1 << 16;  // for fewer, starting a thread takes longer than placing them
  c.executable->addresses.assign(c.machine.tiles, {});
  for (TileMemory& memory : c.memory) memory.end = memory.total();
  std::vector<PieceId> stored = stored_by_tile(c);
  std::vector<Memory> memories = memories_of(c, stored);
  const std::vector<Region> regions = regions_of(c.machine, memories);
  if (regions.size() == 1)
    place_region(c, regions.front(), c.lifetimes, c.moments);
  else
    place_apart(c, regions, stored.size() >= kManyPieces);
  uint64_t total = 0;
  for (const Memory& memory : memories) {
    c.executable->arena_bytes[memory.space] = memory.bytes;
    total += memory.bytes;
  }
  for (const Piece& piece : c.pieces)  // bound arrays and constants of a shared space
    if (piece.always_live && !needs_storage(c, piece) && !c.program.variable(piece.variable).is_argument()) {
      TileMemory& memory = c.memory[slot_of(c.machine, piece.tile)];
      memory.add(use_of(c, piece), purpose_of(c, piece), bytes_of(c, piece));
      memory.end = memory.total();
    }
  return fmt::format("{} bytes in {} arenas", total, c.executable->arena_bytes.size());
}

}  // namespace tessera::compiler
