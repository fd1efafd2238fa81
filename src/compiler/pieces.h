// Data passed between compiler passes: the pieces of storage of a program, and their users.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/executable.h"

namespace tessera::compiler {

/// A contiguous box of a variable in one space: a mapped box, or a landing buffer that an exchange
/// fills or empties.
struct Piece {
  program::VariableId variable = 0;
  program::Box box;
  program::TileId tile = program::kShared;
  bool staging = false;
  bool always_live = false;
  bool interleaved = false;  ///< must be in the interleaved region of its tile
  uint8_t over_read = 0;     ///< bytes after it that must be memory of its own
  uint32_t alignment = 8;
  uint32_t first = ~0U;  ///< position in the schedule of its first use
  uint32_t last = 0;     ///< and of its last
  uint64_t offset = 0;   ///< in its arena, set by placement

  bool used() const { return first <= last; }
};

using PieceId = uint32_t;

/// A move between pieces (or bound arrays), before addresses are known.
struct Move {
  PieceId from = 0;
  PieceId to = 0;
  program::Box from_box;  ///< in the variable of `from`
  program::Box to_box;
  uint32_t runtime = kNoRuntimeRow;  ///< index in Moves::runtime_rows
  bool gathered = false;             ///< as scattered rows
};

struct Moves {
  std::vector<Move> moves;
  std::vector<RuntimeRows> runtime_rows;
  ExchangeCost cost;
  bool reached = false;  ///< by the schedule; what it does not reach has no storage
};

/// The piece that holds a field of a vertex.
struct FieldPiece {
  PieceId piece = 0;
  program::Box box;
};

struct SetPieces {
  Moves before;
  Moves after;
  std::vector<CompiledVertex> vertices;  ///< by tile; first_place indexes fields
  std::vector<program::TileId> tile_of;  ///< of each vertex
  std::vector<FieldPiece> fields;
  bool reached = false;  ///< by the schedule
};

/// A program on its way to an executable.
struct Compilation {
  const program::Program& program;
  const machine::Machine& machine;
  std::vector<Piece> pieces;
  std::vector<std::vector<PieceId>> mapped;  ///< by variable, for each mapped box
  std::vector<SetPieces> sets;
  std::vector<Moves> copies;
  uint32_t positions = 0;          ///< length of the schedule
  std::vector<TileMemory> memory;  ///< by slot: each tile, and last the shared space
  std::shared_ptr<Executable> executable;
};

inline bool is_tiled(const Compilation& c) { return c.machine.kind == machine::Kind::tiled; }

/// Index in lists with one entry per tile and a last one for the shared space.
inline size_t slot_of(const Compilation& c, program::TileId tile) {
  return tile == program::kShared ? c.machine.tiles : tile;
}

inline uint64_t bytes_of(const Compilation& c, const Piece& piece) {
  return piece.box.elements() * size_of(c.program.variable(piece.variable).type);
}

/// Bound arrays and constants of a shared space are used in place.
inline bool needs_storage(const Compilation& c, const Piece& piece) {
  const program::Variable& variable = c.program.variable(piece.variable);
  if (!piece.used() || piece.box.empty()) return false;
  return piece.tile != program::kShared || variable.role == program::Role::temporary ||
         variable.role == program::Role::state;
}

}  // namespace tessera::compiler
