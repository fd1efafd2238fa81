#include <algorithm>
#include <set>
#include <span>
#include <tuple>

#include "compiler/soundness.h"

namespace tessera::compiler {
namespace {

class Overlaps {
 public:
  explicit Overlaps(const Compilation& c) : c_(c) {}

  void check() const {
    std::vector<PieceId> stored;
    for (PieceId id = 0; id < c_.pieces.size(); ++id)
      if (needs_storage(c_, c_.pieces[id])) stored.push_back(id);
    const auto tile_of = [&](PieceId id) { return c_.pieces[id].tile; };
    std::stable_sort(stored.begin(), stored.end(),
                     [&](PieceId a, PieceId b) { return tile_of(a) < tile_of(b); });
    for (size_t begin = 0, end = 0; begin < stored.size(); begin = end) {
      while (end < stored.size() && tile_of(stored[end]) == tile_of(stored[begin])) ++end;
      check_arena({&stored[begin], end - begin});
    }
  }

 private:
  void check_arena(std::span<PieceId> ids) const {
    std::sort(ids.begin(), ids.end(),
              [&](PieceId a, PieceId b) { return c_.pieces[a].offset < c_.pieces[b].offset; });
    const auto shares_bytes = [&](PieceId a, PieceId b) { return end_of(a) > c_.pieces[b].offset; };
    if (std::adjacent_find(ids.begin(), ids.end(), shares_bytes) != ids.end()) check_shared_bytes(ids);
  }

  /// Where pieces share bytes: sweeps down the schedule with those that are alive, by offset.
  void check_shared_bytes(std::span<PieceId> ids) const {
    std::sort(ids.begin(), ids.end(),
              [&](PieceId a, PieceId b) { return c_.pieces[a].first < c_.pieces[b].first; });
    // Equal offsets cannot be alive together, so an order by offset is strict among the living.
    const auto by_offset = [&](PieceId a, PieceId b) { return c_.pieces[a].offset < c_.pieces[b].offset; };
    const auto by_last = [&](PieceId a, PieceId b) {
      return std::tuple(c_.pieces[a].last, a) < std::tuple(c_.pieces[b].last, b);
    };
    std::set<PieceId, decltype(by_offset)> alive(by_offset);
    std::set<PieceId, decltype(by_last)> dying(by_last);
    for (PieceId id : ids) {
      while (!dying.empty() && c_.pieces[*dying.begin()].last < c_.pieces[id].first) {
        alive.erase(*dying.begin());
        dying.erase(dying.begin());
      }
      const auto [it, is_new] = alive.insert(id);
      if (!is_new) fail_overlap(id, *it);
      if (it != alive.begin() && end_of(*std::prev(it)) > c_.pieces[id].offset)
        fail_overlap(id, *std::prev(it));
      if (std::next(it) != alive.end() && c_.pieces[*std::next(it)].offset < end_of(id))
        fail_overlap(id, *std::next(it));
      dying.insert(id);
    }
  }

  uint64_t end_of(PieceId id) const {
    const Piece& piece = c_.pieces[id];
    return piece.offset + bytes_of(c_, piece) + piece.over_read;
  }

  [[noreturn]] void fail_overlap(PieceId a, PieceId b) const {
    fail(fmt::format("'{}' and '{}' overlap on {} while both are alive",
                     c_.program.variable(c_.pieces[a].variable).name,
                     c_.program.variable(c_.pieces[b].variable).name, name_of(c_.pieces[a].tile)));
  }

  const Compilation& c_;
};

}  // namespace

void check_overlaps(const Compilation& c) { Overlaps(c).check(); }

}  // namespace tessera::compiler
