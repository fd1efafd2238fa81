#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <functional>
#include <set>
#include <span>
#include <tuple>

#include "compiler/passes.h"
#include "program/box_index.h"

namespace tessera::compiler {
namespace {

using program::Access;
using program::Box;
using program::TileId;
using program::Variable;
using program::VariableId;

[[noreturn]] void fail(const std::string& what) {
  throw Error("the compiler made an unsound executable: " + what);
}

std::string name_of(TileId tile) {
  return tile == program::kShared ? std::string("the shared space") : fmt::format("tile {}", tile);
}

/// `place`, `rows` and `cols` into a box of which it is the beginning.
Place moved(Place place, uint32_t rows, uint32_t cols, size_t element) {
  if (place.store == Store::external)
    place.offset += (uint64_t{rows} << 32) + cols;
  else
    place.offset += (uint64_t{rows} * place.stride + cols) * element;
  return place;
}

/// Holds an executable against its program. What it knows of addresses comes from the executable
/// alone: where mapped boxes lie, what exchanges move, where vertices look.
class Checker {
 public:
  explicit Checker(const Compilation& c) : c_(c), e_(*c.executable) {}

  void check() {
    index_mappings();
    arena_bytes_.resize(c_.machine.tiles);
    for (const auto& [tile, bytes] : e_.arena_bytes)
      (tile == program::kShared ? shared_bytes_ : arena_bytes_.at(tile)) = bytes;
    for (size_t s = 0; s < e_.sets.size(); ++s)
      if (c_.sets[s].reached) check(c_.program.compute_sets()[s], e_.sets[s]);
    for (size_t s = 0; s < e_.copies.size(); ++s) {
      if (!c_.copies[s].reached) continue;
      const program::CopySet& source = c_.program.copy_sets()[s];
      where_ = [&source] { return fmt::format("copy '{}'", source.name); };
      check_ends(e_.copies[s]);
      check_complete(source, e_.copies[s]);
    }
    check_storage();
  }

 private:
  /// The mapped boxes of a variable.
  struct Mapping {
    program::BoxIndex index;
    program::BoxIndex::Cursor cursor;
  };

  void index_mappings() {
    std::vector<Box> boxes;
    for (VariableId v = 0; v < e_.mapped.size(); ++v) {
      const Variable& variable = c_.program.variable(v);
      boxes.clear();
      for (const program::MappedBox& mapped : variable.mapping) boxes.push_back(mapped.box);
      mappings_.push_back({program::BoxIndex(boxes), {}});
    }
  }

  /// Calls visit(place of the common part, common part, tile) for the mapped boxes that share
  /// elements with `box`.
  template <class Visit>
  void each_home(VariableId v, const Box& box, const Visit& visit) {
    const Variable& variable = c_.program.variable(v);
    mappings_[v].index.each_overlap(box, mappings_[v].cursor, [&](uint32_t i, const Box& common) {
      const program::MappedBox& mapped = variable.mapping[i];
      visit(moved(e_.mapped[v][i], common.row - mapped.box.row, common.col - mapped.box.col,
                  size_of(variable.type)),
            common, mapped.tile);
    });
  }

  // Vertices.

  void check(const program::ComputeSet& source, const CompiledSet& set) {
    where_ = [&source] { return fmt::format("compute set '{}'", source.name); };
    check_ends(set.before);
    check_ends(set.after);
    before_.reset(set.before.transfers);
    after_.reset(set.after.transfers);
    size_t vertices = 0;
    for (const program::VertexGroup& group : source.groups) vertices += group.count();
    if (set.vertices.size() != vertices)
      fail(fmt::format("{} has {} of {} vertices", where_(), set.vertices.size(), vertices));
    for (size_t t = 0; t < set.tiles.size(); ++t)
      for (uint32_t i = set.tile_begin[t]; i < set.tile_begin[t + 1]; ++i)
        check(source, set, set.vertices[i], set.tiles[t]);
  }

  void check(const program::ComputeSet& source, const CompiledSet& set,
             const CompiledVertex& vertex, TileId tile) {
    const program::VertexGroup& group = source.groups[vertex.group];
    if (group.tile_of(vertex.index) != tile)
      fail(fmt::format("{}: a vertex of tile {} runs on tile {}", where_(),
                       group.tile_of(vertex.index), tile));
    for (size_t f = 0; f < group.fields.size(); ++f) {
      const VariableId v = group.fields[f].variable;
      const Box box =
          intersection(group.fields[f].boxes.at(vertex.index), c_.program.variable(v).whole());
      if (!box.empty())
        check_field(v, box, group.codelet->fields[f], set.places[vertex.first_place + f], tile);
    }
  }

  /// A field lies where its variable does, or where exchanges bring it from there and back.
  void check_field(VariableId v, const Box& box, const program::FieldSpec& spec, const Place& place,
                   TileId tile) {
    const Variable& variable = c_.program.variable(v);
    const auto field = [&] {
      return fmt::format("{}: field '{}' of '{}' on tile {}", where_(), spec.name, variable.name,
                         tile);
    };
    if (place.tile() != tile && place.tile() != program::kShared)
      fail(fmt::format("{} lies on tile {}", field(), place.tile()));
    check_inside(place, v, box.rows, box.cols, field);
    if (place.store == Store::arena && place.space != program::kShared) check_address(spec, place, field);
    const size_t element = size_of(variable.type);
    each_home(v, box, [&](const Place& home, const Box& common, TileId) {
      const Place part = moved(place, common.row - box.row, common.col - box.col, element);
      if (home.store == part.store && home.space == part.space && home.offset == part.offset &&
          (home.stride == part.stride || common.rows == 1))
        return;
      if (spec.access != Access::out && !before_.has(home, part, common))
        fail(fmt::format("{} misses the exchange that brings it", field()));
      if (spec.access != Access::in && !after_.has(part, home, common))
        fail(fmt::format("{} misses the exchange that takes it back", field()));
    });
  }

  template <class What>
  void check_address(const program::FieldSpec& spec, const Place& place, const What& what) const {
    const uint64_t address = e_.addresses.at(place.space).of(place.offset);
    if (spec.alignment > 4 && address % spec.alignment != 0)
      fail(fmt::format("{} lies at byte {}, not at a multiple of {}", what(), address, spec.alignment));
    if (spec.interleaved && c_.machine.has_interleaved_region() && address < c_.machine.interleaved_from)
      fail(fmt::format("{} lies at byte {}, below the interleaved region", what(), address));
  }

  // Exchanges.

  /// Finds transfers. They are mostly asked for in the order in which they stand; only where they are
  /// not, they are sorted.
  class TransferList {
    static auto key_of(const Transfer& t) {
      return std::tuple(t.to.space, t.to.offset, t.from.space, t.from.offset, t.rows, t.cols);
    }

   public:
    void reset(const std::vector<Transfer>& transfers) {
      transfers_ = transfers;
      next_ = 0;
      sorted_.clear();
    }

    bool has(const Place& from, const Place& to, const Box& shape) {
      const Transfer wanted{from, to, shape.rows, shape.cols, {}, kNoRuntimeRow};
      if (next_ < transfers_.size() && same(transfers_[next_], wanted)) {
        ++next_;
        return true;
      }
      if (sorted_.empty()) sort();
      const auto it = std::lower_bound(
          sorted_.begin(), sorted_.end(), wanted,
          [](const Transfer* a, const Transfer& b) { return key_of(*a) < key_of(b); });
      if (it == sorted_.end() || !same(**it, wanted)) return false;
      next_ = static_cast<size_t>(*it - transfers_.data()) + 1;
      return true;
    }

   private:
    static bool same(const Transfer& a, const Transfer& b) {
      return a.from == b.from && a.to == b.to && a.rows == b.rows && a.cols == b.cols;
    }
    void sort() {
      sorted_.reserve(transfers_.size());
      for (const Transfer& t : transfers_) sorted_.push_back(&t);
      std::sort(sorted_.begin(), sorted_.end(),
                [](const Transfer* a, const Transfer* b) { return key_of(*a) < key_of(*b); });
    }

    std::span<const Transfer> transfers_;
    size_t next_ = 0;
    std::vector<const Transfer*> sorted_;  ///< by target, once it is needed
  };

  void check_ends(const Exchange& exchange) const {
    for (const Transfer& t : exchange.transfers)
      for (const Place* end : {&t.from, &t.to}) {
        const auto what = [&] {
          return fmt::format("{}: a transfer of {} × {} elements", where_(), t.rows, t.cols);
        };
        if (end->store == Store::arena)
          check_in_arena(*end, t.rows, t.cols, size_of(t.type), what);
        else
          check_inside(*end, end->space, t.rows, t.cols, what);
      }
  }

  /// Every element that a copy set wants moved is, from where it lies to where it shall, and no other.
  void check_complete(const program::CopySet& source, const Exchange& exchange) {
    uint64_t wanted = 0;
    uint64_t moved = 0;
    before_.reset(exchange.transfers);
    for (const program::CopyGroup& group : source.groups)
      for (uint32_t i = 0; i < group.count; ++i) {
        wanted += group.target.at(i).elements();
        check_copy(group, group.source.at(i), group.target.at(i));
      }
    for (const Transfer& t : exchange.transfers) moved += uint64_t{t.rows} * t.cols;
    if (moved != wanted) fail(fmt::format("{} moves {} of {} elements", where_(), moved, wanted));
  }

  void check_copy(const program::CopyGroup& group, const Box& source, const Box& target) {
    if (!group.source_rows) return check_boxes(group, source, target);
    program::each_run_of_rows(*group.source_rows, source.row, source.row_end(), [&](uint64_t first, uint64_t count) {
      const auto rows = static_cast<uint32_t>(count);
      check_boxes(group, {(*group.source_rows)[first], rows, source.col, source.cols},
                  {target.row + static_cast<uint32_t>(first - source.row), rows, target.col, target.cols});
    });
  }

  void check_boxes(const program::CopyGroup& group, const Box& source, const Box& target) {
    const size_t element = size_of(c_.program.variable(group.from).type);
    each_home(group.from, source, [&](const Place& from, const Box& part, TileId) {
      const Box shifted{target.row + (part.row - source.row), part.rows, target.col + (part.col - source.col), part.cols};
      each_home(group.to, shifted, [&](const Place& to, const Box& common, TileId) {
        const Place origin = moved(from, common.row - shifted.row, common.col - shifted.col, element);
        if (!before_.has(origin, to, common))
          fail(fmt::format("{} misses a transfer from '{}' to '{}'", where_(), c_.program.variable(group.from).name,
                           c_.program.variable(group.to).name));
      });
    });
  }

  // Places.

  template <class What>
  void check_inside(const Place& place, VariableId v, uint32_t rows, uint32_t cols,
                    const What& what) const {
    const Variable& variable = c_.program.variable(v);
    if (place.store == Store::arena)
      return check_in_arena(place, rows, cols, size_of(variable.type), what);
    uint64_t row = place.offset >> 32;
    uint64_t col = place.offset & 0xFFFFFFFFU;
    if (place.store == Store::contents) {
      const uint64_t element = place.offset / size_of(variable.type);
      row = element / variable.cols;
      col = element % variable.cols;
    }
    if (place.space != v || row + rows > variable.rows || col + cols > variable.cols)
      fail(fmt::format("{} leaves '{}'", what(), variable.name));
  }

  template <class What>
  void check_in_arena(const Place& place, uint32_t rows, uint32_t cols, size_t element,
                      const What& what) const {
    const uint64_t end = place.offset + (uint64_t{rows - 1} * place.stride + cols) * element;
    const uint64_t bytes =
        place.space == program::kShared ? shared_bytes_ : arena_bytes_.at(place.space);
    if (cols > place.stride && rows > 1) fail(fmt::format("{} has rows that overlap", what()));
    if (end > bytes)
      fail(fmt::format("{} ends at byte {} of {} in {}", what(), end, bytes, name_of(place.space)));
  }

  // Storage.

  void check_storage() const {
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

  void check_arena(std::span<PieceId> ids) const {
    std::sort(ids.begin(), ids.end(),
              [&](PieceId a, PieceId b) { return c_.pieces[a].offset < c_.pieces[b].offset; });
    const auto shares_bytes = [&](PieceId a, PieceId b) { return end_of(a) > c_.pieces[b].offset; };
    if (std::adjacent_find(ids.begin(), ids.end(), shares_bytes) != ids.end())
      check_shared_bytes(ids);
  }

  /// Where pieces share bytes: sweeps down the schedule with those that are alive, by offset.
  void check_shared_bytes(std::span<PieceId> ids) const {
    std::sort(ids.begin(), ids.end(),
              [&](PieceId a, PieceId b) { return c_.pieces[a].first < c_.pieces[b].first; });
    // Equal offsets cannot be alive together, so an order by offset is strict among the living.
    const auto by_offset = [&](PieceId a, PieceId b) {
      return c_.pieces[a].offset < c_.pieces[b].offset;
    };
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
  const Executable& e_;
  std::vector<Mapping> mappings_;
  std::vector<uint64_t> arena_bytes_;  ///< by tile
  uint64_t shared_bytes_ = 0;
  TransferList before_;  ///< of the current compute set
  TransferList after_;
  std::function<std::string()> where_;
};

}  // namespace

std::string check(Compilation& c) {
  Checker(c).check();
  return "sound";
}

}  // namespace tessera::compiler
