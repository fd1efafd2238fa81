#include <fmt/format.h>
#include <tessera/error.h>

#include "compiler/passes.h"

namespace tessera::compiler {
namespace {

using program::Box;
using program::Variable;

BoxAddress place_of(const Compilation& c, PieceId id, const Box& box, bool moves = false) {
  const Piece& piece = c.pieces[id];
  const Variable& variable = c.program.variable(piece.variable);
  const uint64_t element = size_of(variable.type);
  if (piece.tile == program::kShared && (variable.is_external() || variable.is_argument()))
    return {uint64_t{box.row} << 32 | box.col, piece.variable, 0, Store::external, moves};
  if (piece.tile == program::kShared && variable.role == program::Role::constant)
    return {(uint64_t{box.row} * variable.cols + box.col) * element, piece.variable, variable.cols,
            Store::contents, moves};
  const uint64_t elements = uint64_t{box.row - piece.box.row} * piece.box.cols + (box.col - piece.box.col);
  if (variable.is_argument() && !piece.staging) {
    const uint32_t number = c.first_argument_box[piece.variable] + id - c.mapped[piece.variable].front();
    if (bytes_of(c, piece) > UINT32_MAX)
      throw UsageError(
          fmt::format("'{}' has more than 4 GiB on a tile: calls cannot pass it", variable.name));
    return {uint64_t{number} << 32 | elements * element, piece.tile, piece.box.cols, Store::argument, moves};
  }
  return {piece.offset + elements * element, space_of(c, piece), piece.box.cols, Store::arena, moves};
}

void resolve(const Compilation& c, Moves& moves, Exchange& exchange) {
  exchange.transfers.reserve(moves.moves.size());
  for (const Move& move : moves.moves)
    exchange.transfers.push_back({place_of(c, move.from, move.from_box), place_of(c, move.to, move.to_box),
                                  move.to_box.rows, move.to_box.cols,
                                  c.program.variable(c.pieces[move.from].variable).type, move.runtime});
  exchange.runtime_rows = std::move(moves.runtime_rows);
}

void resolve(const Compilation& c, SetPieces& set, CompiledSet& compiled) {
  resolve(c, set.before, compiled.before);
  resolve(c, set.after, compiled.after);
  compiled.places.reserve(set.fields.size());
  for (const FieldPiece& field : set.fields)
    compiled.places.push_back(field.box.empty() ? BoxAddress{}
                                                : place_of(c, field.piece, field.box, field.moves));
}

}  // namespace

std::string resolve(Compilation& c) {
  Executable& e = *c.executable;
  size_t vertices = 0;
  for (size_t s = 0; s < c.sets.size(); ++s) {
    resolve(c, c.sets[s], e.sets[s]);
    vertices += e.sets[s].vertices.size();
  }
  for (size_t s = 0; s < c.copies.size(); ++s) resolve(c, c.copies[s], e.copies[s]);
  for (const std::vector<PieceId>& ids : c.mapped) {
    std::vector<BoxAddress>& places = e.mapped.emplace_back();
    places.reserve(ids.size());
    for (PieceId id : ids) places.push_back(place_of(c, id, c.pieces[id].box));
  }
  return fmt::format("{} vertices", vertices);
}

}  // namespace tessera::compiler
