#include <fmt/format.h>

#include <algorithm>

#include "compiler/passes.h"

namespace tessera::compiler {
namespace {

constexpr uint64_t kArenaAlignment = 64;

bool alive_together(const Piece& a, const Piece& b) { return a.first <= b.last && b.first <= a.last; }

/// First fit, always-live pieces first and then by size: the pieces of one arena.
uint64_t place_arena(Compilation& c, std::vector<PieceId>& ids) {
  std::stable_sort(ids.begin(), ids.end(), [&](PieceId a, PieceId b) {
    const Piece& pa = c.pieces[a];
    const Piece& pb = c.pieces[b];
    if (pa.always_live != pb.always_live) return pa.always_live;
    return bytes_of(c, pa) > bytes_of(c, pb);
  });
  uint64_t high = 0;
  std::vector<PieceId> placed;  // by offset
  for (PieceId id : ids) {
    Piece& piece = c.pieces[id];
    const uint64_t bytes = bytes_of(c, piece);
    const uint64_t alignment = piece.tile == program::kShared ? kArenaAlignment : piece.alignment;
    const auto aligned = [&](uint64_t at) { return (at + alignment - 1) / alignment * alignment; };
    uint64_t offset = 0;
    for (PieceId other_id : placed) {
      const Piece& other = c.pieces[other_id];
      if (!alive_together(piece, other)) continue;
      if (offset + bytes <= other.offset) break;
      offset = std::max(offset, aligned(other.offset + bytes_of(c, other)));
    }
    piece.offset = offset;
    high = std::max(high, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), id, [&](PieceId a, PieceId b) {
                    return c.pieces[a].offset < c.pieces[b].offset;
                  }), id);
  }
  return high;
}

}  // namespace

std::string place(Compilation& c) {
  std::map<program::TileId, std::vector<PieceId>> arenas;
  for (PieceId id = 0; id < c.pieces.size(); ++id)
    if (needs_storage(c, c.pieces[id])) arenas[c.pieces[id].tile].push_back(id);
  uint64_t total = 0;
  for (auto& [tile, ids] : arenas) {
    const uint64_t bytes = place_arena(c, ids);
    c.executable->arena_bytes[tile] = bytes;
    total += bytes;
  }
  return fmt::format("{} bytes in {} arenas", total, arenas.size());
}

}  // namespace tessera::compiler
