#include "program/traffic.h"

#include <algorithm>
#include <tuple>

#include "program/sizes.h"

namespace tessera::program {
namespace {

/// Moves of a variable in the same columns: their rows are comparable.
template <class Move>
auto columns_of(const Move& m) {
  return std::tuple(m.variable, m.box.col, m.box.cols);
}

/// Rows in the union of several moves, which are sorted by first row.
template <class Iterator>
uint64_t rows_in_union(Iterator begin, Iterator end) {
  uint64_t rows = 0;
  uint64_t reached = 0;
  for (Iterator m = begin; m != end; ++m) {
    const uint64_t first = std::max<uint64_t>(m->box.row, reached);
    if (m->box.row_end() > first) rows += m->box.row_end() - first;
    reached = std::max(reached, m->box.row_end());
  }
  return rows;
}

/// Rows that both tiles of a pair receive; moves are sorted by first row.
template <class Iterator>
uint64_t rows_of_both(Iterator begin, Iterator end) {
  uint64_t rows = 0;
  uint64_t reached[2] = {};
  for (Iterator m = begin; m != end; ++m) {
    uint64_t& own = reached[m->to & 1];
    const uint64_t first = std::max<uint64_t>(m->box.row, own);
    const uint64_t last = std::min(m->box.row_end(), reached[~m->to & 1]);
    if (last > first) rows += last - first;
    own = std::max(own, m->box.row_end());
  }
  return rows;
}

}  // namespace

/// Moves by tile, by columns within a tile, by distinct targets and by rows within these. There are many
/// tiles with few moves each, so moves are distributed over tiles before sorting.
template <class TileOf, class Target>
void Traffic::sort_by(const TileOf& tile_of, const Target& target_of) {
  std::vector<uint32_t> begin(tiles_.size() + 1, 0);
  for (const Move& m : moves_) ++begin[tile_of(m) + 1];
  for (size_t t = 1; t < begin.size(); ++t) begin[t] += begin[t - 1];
  std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
  sorted_.resize(moves_.size());
  for (const Move& m : moves_) sorted_[next[tile_of(m)]++] = m;
  // Two numbers per comparison: sorting takes a good part of planning.
  const auto pair = [](uint64_t high, uint32_t low) { return high << 32 | low; };
  const auto before = [&](const Move& a, const Move& b) {
    const auto compare = [](uint64_t x, uint64_t y) { return x < y ? -1 : static_cast<int>(x > y); };
    int order = compare(pair(a.variable, a.box.col), pair(b.variable, b.box.col));
    if (order == 0) order = compare(pair(a.box.cols, target_of(a)), pair(b.box.cols, target_of(b)));
    if (order == 0) order = compare(pair(a.box.row, a.box.rows), pair(b.box.row, b.box.rows));
    return order == 0 ? a.to < b.to : order < 0;
  };
  for (size_t t = 0; t + 1 < begin.size(); ++t) {
    const auto first = sorted_.begin() + begin[t];
    const auto last = sorted_.begin() + begin[t + 1];
    if (!std::is_sorted(first, last, before)) std::sort(first, last, before);
  }
}

void Traffic::count() {
  std::fill(tiles_.begin(), tiles_.end(), Tile{});
  sent_bytes_ = 0;
  if (chips_) chips_->clear();
  count_local();
  exchanges_ = !moves_.empty();
  if (exchanges_) {
    count_sent();
    count_received();
  }
  if (chips_)
    for (uint32_t slot = 0; slot < tiles_.size(); ++slot)
      chips_->count_tile(chip_of(slot), traffic_cycles(machine_, tiles_[slot].traffic));
  moves_.clear();
}

void Traffic::count_local() {
  std::erase_if(moves_, [&](const Move& m) {
    if (m.from != m.to) return false;
    const uint64_t bytes = m.box.elements() * m.element;
    tiles_[m.from].traffic.local += static_cast<double>(bytes);
    tiles_[m.from].code_bytes += exchange_code_bytes(bytes);
    if (chips_) chips_->copy_on(chip_of(m.from));
    return true;
  });
}

/// Calls visit(begin, end) for each run of equivalent neighbours.
template <class Iterator, class Alike, class Visit>
void each_run(Iterator begin, Iterator end, const Alike& alike, const Visit& visit) {
  while (begin != end) {
    const Iterator first = begin;
    while (begin != end && alike(*first, *begin)) ++begin;
    visit(first, begin);
  }
}

/// Gathers are sent to each pair of tiles separately, after what is broadcast.
void Traffic::count_sent() {
  sort_by([](const Move& m) { return m.from; }, [](const Move& m) { return m.gathered ? 1 + m.to / 2 : 0U; });
  const auto alike = [](const Move& a, const Move& b) {
    return a.from == b.from && columns_of(a) == columns_of(b) && a.gathered == b.gathered &&
           (!a.gathered || a.to / 2 == b.to / 2);
  };
  each_run(sorted_.cbegin(), sorted_.cend(), alike,
           [&](Iterator begin, Iterator end) { count_sent(begin, end); });
}

void Traffic::count_sent(Iterator begin, Iterator end) {
  Tile& tile = tiles_[begin->from];
  const double bytes = static_cast<double>(rows_in_union(begin, end)) * begin->row_bytes();
  (begin->gathered ? tile.traffic.gathered_out : tile.traffic.out) += bytes;
  sent_bytes_ += static_cast<uint64_t>(bytes);
  if (chips_) count_links(begin, end);
  each_run(
      begin, end, [](const Move& a, const Move& b) { return a.box == b.box; },
      [&](Iterator send, Iterator) {
        ++tile.traffic.transfers;
        tile.code_bytes += exchange_code_bytes(send->box.elements() * send->element);
      });
}

void Traffic::count_links(Iterator begin, Iterator end) {
  for (Iterator m = begin; m != end; ++m)
    chips_->send(chip_of(m->from), chip_of(m->to), m->box.row, m->box.row_end());
  chips_->close(begin->row_bytes());
}

void Traffic::count_received() {
  // The two tiles of a pair are adjacent, so that what both receive is found.
  sort_by([](const Move& m) { return m.to & ~1U; }, [](const Move& m) { return m.gathered ? 1U : 0U; });
  const auto alike = [](const Move& a, const Move& b) {
    return (a.to | 1) == (b.to | 1) && columns_of(a) == columns_of(b) && a.gathered == b.gathered;
  };
  each_run(sorted_.cbegin(), sorted_.cend(), alike,
           [&](Iterator begin, Iterator end) { count_received(begin, end); });
}

void Traffic::count_received(Iterator begin, Iterator end) {
  double received[2] = {};
  for (Iterator m = begin; m != end; ++m) {
    const uint64_t bytes = m->box.elements() * m->element;
    Tile& tile = tiles_[m->to];
    ++tile.traffic.transfers;
    tile.code_bytes += exchange_code_bytes(bytes);
    received[m->to & 1] += static_cast<double>(bytes);
  }
  const bool may_pair = received[0] > 0 && received[1] > 0;
  const double both = may_pair ? static_cast<double>(rows_of_both(begin, end)) * begin->row_bytes() : 0;
  for (const uint32_t i : {0U, 1U}) {
    if (received[i] == 0) continue;
    TileTraffic& traffic = tiles_[(begin->to & ~1U) + i].traffic;
    const double paired = std::min(both, received[i]);
    (begin->gathered ? traffic.gathered_paired_in : traffic.paired_in) += paired;
    (begin->gathered ? traffic.gathered_in : traffic.in) += received[i] - paired;
  }
}

PhaseTimes Traffic::cycles() const {
  if (chips_) {
    PhaseTimes slowest;
    for (const TiedChips& group : chips_->tied())
      if (group.cycles.total() > slowest.total()) slowest = group.cycles;
    return slowest;
  }
  double longest = 0;
  for (const Tile& tile : tiles_) longest = std::max(longest, traffic_cycles(machine_, tile.traffic));
  PhaseTimes cycles;
  cycles[Phase::exchange] = longest + (exchanges_ ? exchange_overhead_cycles(machine_) : 0);
  cycles[Phase::sync] = exchanges_ ? exchange_sync_cycles(machine_) : 0;
  return cycles;
}

}  // namespace tessera::program
