// Data passed between compiler passes: the pieces of storage of a program, and their users.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/executable.h"
#include "compiler/lifetime.h"
#include "compiler/touches.h"

namespace tessera::compiler {

/// Index in Compilation::lifetimes.
using LifetimeId = uint32_t;
inline constexpr LifetimeId kAlways = 0;
inline constexpr LifetimeId kNever = ~LifetimeId{0};

/// A contiguous box of a variable in one space: a mapped box, or a staging buffer filled or written back by
/// an exchange.
struct Piece {
  program::VariableId variable = 0;
  program::Box box;
  program::TileId tile = program::kShared;
  bool staging = false;
  bool always_live = false;
  bool interleaved = false;  ///< must be in the interleaved region of its tile
  uint8_t over_read = 0;     ///< bytes after it that must not belong to another piece
  uint32_t alignment = 8;
  TouchChain touches = kUntouched;
  LifetimeId lifetime = kNever;  ///< set by liveness
  uint64_t offset = 0;           ///< offset in its arena, set by placement

  bool used() const { return lifetime != kNever; }
};

using PieceId = uint32_t;

/// A move between pieces (or bound arrays), before addresses are known.
struct Move {
  PieceId from = 0;
  PieceId to = 0;
  program::Box from_box;  ///< box in the variable of `from`
  program::Box to_box;
  uint32_t runtime = kNoRuntimeRow;  ///< index in Moves::runtime_rows
  bool gathered = false;             ///< whether rows are scattered
};

struct Moves {
  std::vector<Move> moves;
  std::vector<RuntimeRows> runtime_rows;

  void clear() {
    moves.clear();
    runtime_rows.clear();
  }
};

/// The piece that holds a field of a vertex.
struct FieldPiece {
  PieceId piece = 0;
  program::Box box;
  bool moves = false;  ///< whether it moves with the field's run-time row; a staging buffer does not
};

struct SetPieces {
  Moves before;
  Moves after;
  std::vector<FieldPiece> fields;  ///< fields of the set's vertices; CompiledVertex::first_place indexes them
};

/// The moves and fields that a compilation keeps once they are counted.
enum class Kept {
  none,      ///< for an estimate
  metadata,  ///< what dry runs move, execute and read
  all,
};

/// A program during compilation to an executable, or to an estimate.
struct Compilation {
  Compilation(const program::Program& of, const machine::Machine& for_machine, Kept what = Kept::all)
      : program(of), machine(for_machine), kept(what) {}

  const program::Program& program;
  const machine::Machine& machine;
  const Kept kept;
  std::vector<Piece> pieces;
  std::vector<std::vector<PieceId>> mapped;  ///< by variable, for each mapped box
  std::vector<uint32_t> first_argument_box;  ///< by variable: number of its first box among the boxes of all
                                             ///< arguments
  std::vector<SetPieces> sets;
  std::vector<Moves> copies;
  TouchChains chains;
  std::vector<Lifetime> lifetimes;  ///< in moments
  uint32_t moments = 0;
  std::vector<TileMemory> memory;  ///< by slot
  std::shared_ptr<Executable> executable = std::make_shared<Executable>();
};

inline bool is_tiled(const Compilation& c) { return c.machine.kind == machine::Kind::tiled; }

inline bool is_streaming(const Compilation& c, const Piece& piece) {
  return c.program.variable(piece.variable).streaming;
}

/// The memory in which a piece lies: its tile's memory, or the streaming memory of its chip.
inline program::TileId space_of(const Compilation& c, const Piece& piece) {
  return is_streaming(c, piece) ? streaming_space(c.machine, piece.tile) : piece.tile;
}

inline uint64_t bytes_of(const Compilation& c, const Piece& piece) {
  return piece.box.elements() * size_of(c.program.variable(piece.variable).type);
}

/// Whether a piece needs storage: bound arrays, constants of a shared space and operands of calls are used in
/// place.
inline bool needs_storage(const Compilation& c, const Piece& piece) {
  const program::Variable& variable = c.program.variable(piece.variable);
  if (!piece.used() || piece.box.empty()) return false;
  if (variable.is_argument()) return piece.staging;
  return piece.tile != program::kShared || variable.role == program::Role::temporary ||
         variable.role == program::Role::state;
}

}  // namespace tessera::compiler
