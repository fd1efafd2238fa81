// A compiled program: every piece has an address, every mapping mismatch an exchange. Offsets
// into one arena per space, no pointers: immutable, and shared by any number of engines.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "machine/machine.h"
#include "program/program.h"

namespace tessera::compiler {

/// Where storage lies.
enum class Store : uint8_t {
  arena,     ///< of a tile, or the shared one
  external,  ///< the array that the caller binds to a variable
  contents,  ///< a constant of a shared space, where it was built
};

/// Where a box of elements lies. Its shape is known from the program.
struct Place {
  uint64_t offset = 0;  ///< arena, contents: bytes; external: row · 2^32 + column
  uint32_t space = 0;   ///< arena: tile or program::kShared; else: variable
  uint32_t stride = 0;  ///< elements from row to row; an external variable has its own strides
  Store store = Store::arena;

  /// The tile whose memory this is, or program::kShared.
  program::TileId tile() const { return store == Store::arena ? space : program::kShared; }
  bool operator==(const Place&) const = default;
};

inline constexpr uint32_t kNoRuntimeRow = ~0U;

/// Elements that move from one place to another.
struct Transfer {
  Place from;
  Place to;
  uint32_t rows = 0;
  uint32_t cols = 0;
  Type type = Type::f32;
  uint32_t runtime = kNoRuntimeRow;  ///< position in Exchange::runtime_rows, of what moves it

  uint64_t bytes() const { return uint64_t{rows} * cols * size_of(type); }
};

/// How far down its variables a transfer is moved when it runs.
struct RuntimeRows {
  struct End {
    std::optional<program::CopyGroup::RuntimeRow> row;
    program::VariableId variable = 0;
    uint32_t room = 0;  ///< rows below the transfer's own
  };
  End from;
  End to;
};

/// Transfers of one exchange, and what they cost on a machine with private memories.
struct Exchange {
  std::vector<Transfer> transfers;
  std::vector<RuntimeRows> runtime_rows;
  double cycles = 0;
  bool empty() const { return transfers.empty(); }
};

struct CompiledVertex {
  uint32_t group = 0;
  uint32_t index = 0;        ///< in its group
  uint32_t first_place = 0;  ///< of its fields
};

/// A compute set with its vertices by tile, and the exchanges that bring and take what they touch.
struct CompiledSet {
  Exchange before;
  Exchange after;
  std::vector<program::TileId> tiles;     ///< that have vertices, ascending
  std::vector<uint32_t> tile_begin;       ///< first vertex of each of them, and the end
  std::vector<CompiledVertex> vertices;
  std::vector<Place> places;              ///< of the fields of each vertex; any, where empty
};

/// Bytes of one tile (or of the shared space), by category.
using Categories = std::map<std::string, uint64_t>;

struct MemoryReport {
  uint64_t total_bytes = 0;
  uint64_t max_tile_bytes = 0;       ///< on a host: total_bytes
  uint64_t tile_capacity_bytes = 0;  ///< on a host: main memory
  program::TileId fullest_tile = 0;
  Categories total;
  Categories fullest;
  bool fits() const { return max_tile_bytes <= tile_capacity_bytes; }
};

/// Cycles of one step of an executable, by phase.
using StepCycles = std::vector<program::PhaseTimes>;

struct PassRecord {
  std::string name;
  std::string did;
  double seconds = 0;
};

struct Executable {
  std::shared_ptr<const program::Program> program;
  machine::Machine machine;
  std::vector<CompiledSet> sets;       ///< by ComputeSetId
  std::vector<Exchange> copies;        ///< by CopySetId
  std::vector<std::vector<Place>> mapped;   ///< by VariableId, for each mapped box
  std::map<program::TileId, uint64_t> arena_bytes;
  std::vector<program::PhaseTimes> set_cycles;  ///< by ComputeSetId, from the codelets' costs
  MemoryReport memory;
  bool has_runtime_control = false;  ///< counters, conditions or copies with run-time rows
  std::vector<bool> known_ahead;     ///< by VariableId: contents follow from the program alone, so
                                     ///< that a dry run has them
  std::vector<PassRecord> passes;
};

}  // namespace tessera::compiler
