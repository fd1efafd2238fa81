// A compiled program: every piece has an address, and an exchange resolves every mismatch of mappings.
// Offsets into one arena per space, no pointers: immutable, and shared by any number of engines.
#pragma once

#include <tessera/pass_record.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "compiler/memory.h"
#include "machine/model/machine.h"
#include "program/chip_traffic.h"
#include "program/program.h"

namespace tessera::compiler {

/// Kinds of storage.
enum class Store : uint8_t {
  arena,     ///< arena of a tile, or the shared arena
  external,  ///< the array that the caller binds to a variable, or that a call passes
  contents,  ///< a constant of a shared space, in the program's contents
  argument,  ///< the box that a call passes for a box of an argument on tiles
};

/// The place of a box of elements. Its shape is known from the program.
struct BoxAddress {
  uint64_t offset = 0;  ///< arena, contents: bytes; external: row · 2^32 + column; argument: number of the
                        ///< box among the boxes of all arguments · 2^32 + bytes
  uint32_t space = 0;   ///< arena, argument: tile, program::kShared, or streaming memory; else: variable
  uint32_t stride = 0;  ///< elements from row to row; an external variable has its own strides
  Store store = Store::arena;
  bool moves = false;  ///< for a field: whether it moves down its variable with the field's run-time row

  /// The tile whose memory this is, program::kShared, or the streaming memory of a chip.
  program::TileId tile() const {
    return store == Store::arena || store == Store::argument ? space : program::kShared;
  }
  /// For an argument on tiles: the number of the box.
  uint32_t argument_box() const { return static_cast<uint32_t>(offset >> 32); }
  uint64_t argument_offset() const { return offset & 0xFFFFFFFFU; }
  bool operator==(const BoxAddress&) const = default;
};

inline constexpr uint32_t kNoRuntimeRow = ~0U;

/// Elements that move from one place to another.
struct Transfer {
  BoxAddress from;
  BoxAddress to;
  uint32_t rows = 0;
  uint32_t cols = 0;
  Type type = Type::f32;
  uint32_t runtime = kNoRuntimeRow;  ///< index in Exchange::runtime_rows of the row that moves it

  uint64_t bytes() const { return uint64_t{rows} * cols * size_of(type); }
};

/// The run-time rows by which a transfer is moved down its variables.
struct RuntimeRows {
  struct End {
    std::optional<program::RuntimeRow> row;
    program::VariableId variable = 0;
    uint32_t room = 0;  ///< rows available below the transfer's own
  };
  End from;
  End to;
};

/// Load balance of a step over the tiles of a machine: minimum, mean and maximum cycles.
struct Balance {
  double least = 0;
  double mean = 0;
  double most = 0;
};

/// Cost of an exchange on a machine with private memories.
struct ExchangeCost {
  program::PhaseTimes cycles;  ///< exchange, and the sync before it
  Balance tiles;               ///< cycles for receiving, sending and copying
  uint64_t bytes = 0;          ///< bytes sent between tiles; broadcasts count once
  // The following are for machines of several chips.
  std::vector<program::TiedChips> tied{};  ///< cycles of the chips that take part; `cycles` has the slowest's
  std::vector<program::LinkLoad> links{};
};

/// Transfers of one exchange.
struct Exchange {
  std::vector<Transfer> transfers;
  std::vector<RuntimeRows> runtime_rows;
  ExchangeCost cost;
  bool empty() const { return transfers.empty(); }
};

struct CompiledVertex {
  uint32_t group = 0;
  uint32_t index = 0;        ///< position in its group
  uint32_t first_place = 0;  ///< position in `places` of its first field
};

/// Cycles of a chip's slowest tile in a compute set, with the fixed cost.
struct ChipCycles {
  uint32_t chip = 0;
  program::PhaseTimes cycles;
};

/// A compute set with its vertices by tile, and the exchanges before and after it.
struct CompiledSet {
  Exchange before;
  Exchange after;
  std::vector<program::TileId> tiles;  ///< tiles that have vertices, ascending
  std::vector<uint32_t> tile_begin;    ///< first vertex of each of `tiles`, and the end
  std::vector<CompiledVertex> vertices;
  std::vector<BoxAddress> places;       ///< addresses of the fields of each vertex; unspecified for empty
                                        ///< fields
  std::vector<float> tile_cycles;       ///< cycles of the vertices of each of `tiles`
  Balance balance;                      ///< balance of tile_cycles, over all tiles of the machine
  std::vector<ChipCycles> chip_cycles;  ///< cycles of each chip that has any of `tiles`, if the machine has
                                        ///< several chips
};

/// Cost of a collective, for all replicas together.
struct CollectiveCost {
  program::PhaseTimes cycles;
  double under_way = 0;                  ///< of these, cycles of exchange in which only links are busy
  std::vector<uint32_t> chips;           ///< chips of the first replica that take part, ascending
  uint64_t bytes = 0;                    ///< bytes that a replica sends
  std::vector<program::LinkLoad> links;  ///< loads by all replicas
};

/// The address of a tile's arena in its memory: after its code, in one or two parts.
struct ArenaAddresses {
  uint64_t base = 0;       ///< address of its first byte
  uint64_t gap_begin = 0;  ///< arena offset at which the second part begins
  uint64_t gap = 0;        ///< free bytes between the parts

  uint64_t of(uint64_t offset) const { return base + offset + (offset >= gap_begin ? gap : 0); }
};

struct Executable {
  std::shared_ptr<const program::Program> program;
  machine::Machine machine;                         ///< the part of the machine on which one replica of the
                                                    ///< program runs
  std::vector<CompiledSet> sets;                    ///< by ComputeSetId
  std::vector<Exchange> copies;                     ///< by CopySetId
  std::vector<CollectiveCost> collectives;          ///< by CollectiveId
  std::vector<std::vector<BoxAddress>> mapped;      ///< by VariableId, for each mapped box
  std::map<program::TileId, uint64_t> arena_bytes;  ///< by space
  std::vector<ArenaAddresses> addresses;            ///< by tile
  std::vector<program::PhaseTimes> set_cycles;      ///< by ComputeSetId, from the codelets' costs, with
                                                    ///< the exchanges before and after; on several chips
                                                    ///< until the last is ready, if all begin at once
  MemoryReport memory;
  std::vector<bool> costed_at_run;  ///< by ComputeSetId: costs may read metadata that is known only in a run
  bool cycles_vary = false;         ///< whether cycles vary from run to run: a set is costed at run time, or
                                    ///< there are conditions
  std::vector<bool> known_ahead;  ///< by VariableId, if cycles vary: contents follow from the program alone,
                                  ///< so a dry run knows them
  std::vector<PassRecord> passes;
};

/// The streaming memory of a tile's chip, as a space.
inline program::TileId streaming_space(const machine::Machine& machine, program::TileId tile) {
  return program::kStreaming + (machine.chip_of(tile) - machine.first_chip());
}

/// Number of a machine's memory spaces, and the position of one in lists of all: tiles, the shared space, the
/// streaming memories of the chips.
inline size_t slots_of(const machine::Machine& machine) {
  return size_t{machine.tiles} + 1 + machine.chip_count();
}
inline size_t slot_of(const machine::Machine& machine, program::TileId space) {
  if (space == program::kShared) return machine.tiles;
  return space < program::kStreaming ? space : size_t{machine.tiles} + 1 + (space - program::kStreaming);
}

/// The part of a machine that one replica of a program runs on: all of a host, on which replicas take turns
/// unless each has a computer of its own. Throws UsageError if a machine's chips cannot be divided among
/// replicas.
machine::Machine machine_of_replica(const program::Program& program, const machine::Machine& machine);

/// Whether the cost of vertices on tiles reads integers of a field that change between or within runs: true
/// for all costed fields except constants at known rows.
bool reads_changing_metadata(const program::Program& program, const program::VertexGroup& group,
                             size_t field);

/// Whether a dry run that knows these variables, by VariableId, knows integers that the costs of a set read.
bool knows_costs(const program::Program& program, const program::ComputeSet& set,
                 const std::vector<bool>& known);

/// Whether a dry run that knows these variables has to follow the program: control flow or costs depend on
/// what it knows. Otherwise the executable has its cycles.
bool has_to_follow(const Executable& executable, const std::vector<bool>& known);

/// By VariableId: whether its contents follow from the program and from the arrays bound to the integer
/// inputs `given`, so that a dry run with these bindings knows it; and from no variable in `unknown`.
std::vector<bool> variables_known(const program::Program& program,
                                  const std::vector<program::VariableId>& given,
                                  const std::vector<program::VariableId>& unknown = {});

}  // namespace tessera::compiler
