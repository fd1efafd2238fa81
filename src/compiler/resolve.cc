#include <fmt/format.h>

#include <algorithm>

#include "compiler/passes.h"

namespace tessera::compiler {
namespace {

using program::Box;
using program::Variable;

Place place_of(const Compilation& c, PieceId id, const Box& box) {
  const Piece& piece = c.pieces[id];
  const Variable& variable = c.program.variable(piece.variable);
  const uint64_t element = size_of(variable.type);
  if (piece.tile == program::kShared && variable.is_external())
    return {uint64_t{box.row} << 32 | box.col, piece.variable, 0, Store::external};
  if (piece.tile == program::kShared && variable.role == program::Role::constant)
    return {(uint64_t{box.row} * variable.cols + box.col) * element, piece.variable, variable.cols,
            Store::contents};
  const uint64_t elements = uint64_t{box.row - piece.box.row} * piece.box.cols + (box.col - piece.box.col);
  return {piece.offset + elements * element, piece.tile, piece.box.cols, Store::arena};
}

Exchange resolve(const Compilation& c, Moves& moves) {
  Exchange exchange;
  exchange.transfers.reserve(moves.moves.size());
  for (const Move& move : moves.moves)
    exchange.transfers.push_back({place_of(c, move.from, move.from_box), place_of(c, move.to, move.to_box),
                                  move.to_box.rows, move.to_box.cols,
                                  c.program.variable(c.pieces[move.from].variable).type, move.runtime});
  exchange.runtime_rows = std::move(moves.runtime_rows);
  exchange.cost = moves.cost;
  return exchange;
}

CompiledSet resolve(const Compilation& c, SetPieces& set) {
  CompiledSet out;
  out.before = resolve(c, set.before);
  out.after = resolve(c, set.after);
  out.vertices = std::move(set.vertices);
  for (uint32_t i = 0; i < out.vertices.size(); ++i)
    if (i == 0 || set.tile_of[i] != set.tile_of[i - 1]) {
      out.tiles.push_back(set.tile_of[i]);
      out.tile_begin.push_back(i);
    }
  out.tile_begin.push_back(static_cast<uint32_t>(out.vertices.size()));
  out.places.reserve(set.fields.size());
  for (const FieldPiece& field : set.fields)
    out.places.push_back(field.box.empty() ? Place{} : place_of(c, field.piece, field.box));
  return out;
}

}  // namespace

std::string resolve(Compilation& c) {
  Executable& e = *c.executable;
  size_t vertices = 0;
  for (SetPieces& set : c.sets) {
    vertices += set.vertices.size();
    e.sets.push_back(resolve(c, set));
  }
  for (Moves& moves : c.copies) e.copies.push_back(resolve(c, moves));
  for (const std::vector<PieceId>& ids : c.mapped) {
    std::vector<Place>& places = e.mapped.emplace_back();
    places.reserve(ids.size());
    for (PieceId id : ids) places.push_back(place_of(c, id, c.pieces[id].box));
  }
  return fmt::format("{} vertices", vertices);
}

}  // namespace tessera::compiler
