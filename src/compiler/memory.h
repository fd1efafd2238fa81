// Memory reports of all tiles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "machine/model/machine.h"
#include "program/program.h"

namespace tessera::compiler {

/// Uses of a tile's bytes.
enum class MemoryUse : uint8_t {
  inputs,
  outputs,
  state,
  constants,        ///< constants of floating-point type
  work_lists,       ///< integer constants, which vertices read as metadata
  vertex_state,     ///< records of vertices: pointers, lengths, parameters
  vertex_code,      ///< codelets, once on every tile that runs them
  control_code,     ///< for starting supersteps
  exchange_code,    ///< for each end of each transfer
  stack,            ///< of supervisor and workers
  temporaries,      ///< not always alive: counted at the step with the most temporaries
  staging_buffers,  ///< not always alive: data being exchanged at that step
  padding,          ///< alignment, over-read space, and gaps between data alive at different times
};
inline constexpr size_t kMemoryUses = 13;

std::string_view name_of(MemoryUse use);

/// Whether bytes of a use are alive during the whole program; temporaries and staging buffers share bytes
/// from step to step.
constexpr bool is_always_live(MemoryUse use) {
  return use != MemoryUse::temporaries && use != MemoryUse::staging_buffers && use != MemoryUse::padding;
}

/// Bytes by name of the use, without zeros.
using Categories = std::map<std::string, uint64_t>;

/// The memory of one tile, or the shared memory.
struct TileMemory {
  std::array<uint64_t, kMemoryUses> bytes{};
  std::array<uint64_t, program::kPurposes> purposes{};  ///< bytes of data by purpose: `bytes` without code,
                                                        ///< vertex state, stack and padding, with the
                                                        ///< temporaries of the same step
  uint64_t end = 0;  ///< total(), or the last address in use if the memory's regions do not suffice

  uint64_t& operator[](MemoryUse use) { return bytes[static_cast<size_t>(use)]; }
  uint64_t operator[](MemoryUse use) const { return bytes[static_cast<size_t>(use)]; }
  uint64_t operator[](program::Purpose purpose) const { return purposes[static_cast<size_t>(purpose)]; }
  /// Adds bytes of data of one variable, or of several.
  void add(MemoryUse use, program::Purpose purpose, uint64_t more) {
    bytes[static_cast<size_t>(use)] += more;
    purposes[static_cast<size_t>(purpose)] += more;
  }
  uint64_t total() const;
  uint64_t always_live() const;
  Categories categories() const;
  Categories by_purpose() const;
  TileMemory& operator+=(const TileMemory& other);
};

struct MemoryReport {
  std::vector<TileMemory> tiles;  ///< by tile; on a host one entry, main memory
  TileMemory shared;              ///< for a tiled machine with a shared space
  uint64_t total_bytes = 0;
  uint64_t max_tile_bytes = 0;       ///< bytes of the fullest tile; on a host: total_bytes
  uint64_t tile_capacity_bytes = 0;  ///< on a host: main memory
  uint64_t overflow_bytes = 0;       ///< bytes by which the fullest tile exceeds its memory
  program::TileId fullest_tile = 0;  ///< the tile that overflows most, otherwise the one with most bytes; on
                                     ///< a host kShared
  Categories total;
  Categories fullest;
  Categories total_purposes;  ///< data by purpose, over all memories
  Categories fullest_purposes;
  std::vector<uint64_t>
      streaming_bytes;  ///< by chip of a tiled machine: bytes of its streaming memory in use
  uint64_t streaming_capacity_bytes = 0;  ///< of a chip

  uint64_t most_streaming_bytes() const;
  bool fits() const { return overflow_bytes == 0 && most_streaming_bytes() <= streaming_capacity_bytes; }
};

/// Combines the memories of tiles of `capacity` bytes each into a report.
MemoryReport report_memory(std::vector<TileMemory> tiles, const TileMemory& shared, uint64_t capacity);

/// The same memories, as if tiles had `capacity` bytes each, or a host `capacity` bytes in all.
MemoryReport with_capacity(const MemoryReport& memory, uint64_t capacity);

/// The memory of each chip: the sum over its tiles; `end` is its fullest tile's.
std::vector<TileMemory> memory_by_chip(const MemoryReport& memory, const machine::Machine& machine);

/// "tile 17 needs 640000 bytes and has 638976; it holds inputs 300000, …", largest first; or that a chip's
/// streaming memory is too small, with what `of_chip` adds about it.
std::string overflow_text(const MemoryReport& memory, std::string_view of_chip = {});

}  // namespace tessera::compiler
