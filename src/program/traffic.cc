#include "program/traffic.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "program/sizes.h"

namespace tessera::program {
namespace {

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

/// The moves tile by tile. There are many tiles with few moves each, often in order already.
template <class TileOf>
std::span<Traffic::Move> Traffic::by_tile(const TileOf& tile_of) {
  if (std::ranges::is_sorted(moves_, {}, tile_of)) return moves_;
  std::vector<uint32_t> next(tiles_.size() + 1, 0);
  for (const Move& m : moves_) ++next[tile_of(m) + 1];
  for (size_t t = 1; t < next.size(); ++t) next[t] += next[t - 1];
  if (sorted_.size() < moves_.size()) sorted_.resize(moves_.size());
  for (const Move& m : moves_) sorted_[next[tile_of(m)]++] = m;
  return std::span(sorted_).first(moves_.size());
}

/// Brings moves with equal keys together, in the order in which they were.
template <class KeyOf>
void Traffic::group(std::span<Move> moves, const KeyOf& key_of) {
  constexpr uint32_t kNone = ~0U;
  slots_.assign(std::bit_ceil(2 * moves.size()), kNone);
  group_of_.resize(moves.size());
  firsts_.clear();
  begin_.assign(1, 0);
  const auto find = [&](uint32_t i) {
    size_t slot = key_of(moves[i]).hash();
    while (true) {
      uint32_t& found = slots_[slot++ & (slots_.size() - 1)];
      if (found == kNone) {
        found = static_cast<uint32_t>(firsts_.size());
        firsts_.push_back(i);
        begin_.push_back(0);
      }
      if (key_of(moves[firsts_[found]]) == key_of(moves[i])) return found;
    }
  };
  for (uint32_t i = 0; i < moves.size(); ++i) {
    const bool goes_on = i > 0 && key_of(moves[i]) == key_of(moves[i - 1]);
    group_of_[i] = goes_on ? group_of_[i - 1] : find(i);
    ++begin_[group_of_[i] + 1];
  }
  for (size_t g = 1; g < begin_.size(); ++g) begin_[g] += begin_[g - 1];
  if (grouped_.size() < moves.size()) grouped_.resize(moves.size());
  for (uint32_t i = 0; i < moves.size(); ++i) grouped_[begin_[group_of_[i]]++] = moves[i];
  std::copy_n(grouped_.begin(), moves.size(), moves.begin());
}

void Traffic::count() {
  constexpr size_t kMostKnown = 1024;
  std::ranges::fill(counted(), Tile{});
  counted_ = std::exchange(added_, {});
  sent_bytes_ = 0;
  if (chips_) chips_->clear();
  const std::optional<uint64_t> hash = hash_within_chip();
  if (!hash || !take_known(*hash)) {
    const size_t moves = moves_.size();
    count_local();
    const bool copies = moves_.size() < moves;
    count_moves();
    const std::span<const Tile> tiles = counted();
    if (hash && known_.size() < kMostKnown)
      known_.try_emplace(*hash, Known{{tiles.begin(), tiles.end()}, sent_bytes_, copies, exchanges_});
  }
  count_streamed();
  for (Tile& tile : counted())
    if (tile.code_bytes != 0) tile.code_bytes += kExchangeCodeBytes;
  if (chips_)
    for (uint32_t slot = counted_.begin; slot < counted_.end; ++slot)
      chips_->count_tile(chip_of(slot), traffic_cycles(machine_, tiles_[slot].traffic));
  moves_.clear();
}

void Traffic::count_moves() {
  exchanges_ = !moves_.empty() || !streamed_.empty();
  if (are_apart()) {
    count_apart();
  } else {
    count_sent();
    count_received();
  }
}

/// A hash of many moves within a chip, equal to that of the same moves between other tiles: variables count
/// by the order in which they come first.
std::optional<uint64_t> Traffic::hash_within_chip() const {
  constexpr size_t kManyMoves = 4096, kMostVariables = 64;
  if (!chips_ || moves_.size() < kManyMoves || !streamed_.empty() || counted_.end > machine_.tiles ||
      chip_of(counted_.begin) != chip_of(counted_.end - 1))
    return {};
  const uint32_t first = counted_.begin & ~1U;  // of a pair
  std::vector<VariableId> variables;
  uint64_t position = 0, hash = moves_.size();
  const auto add = [&](uint64_t a, uint64_t b) {
    hash = (hash ^ (a << 32 | b)) * 0x9E3779B97F4A7C15;
    hash ^= hash >> 32;
  };
  for (const Move& m : moves_) {
    if (position == variables.size() || variables[position] != m.variable) {
      position = static_cast<uint64_t>(std::ranges::find(variables, m.variable) - variables.begin());
      if (position == kMostVariables) return {};
      if (position == variables.size()) variables.push_back(m.variable);
    }
    add(m.from - first, m.to - first);
    add(position, uint64_t{m.element} << 1 | uint64_t{m.gathered});
    add(m.box.row, m.box.rows);
    add(m.box.col, m.box.cols);
  }
  return hash;
}

/// Takes the counts of equal moves from before, if there are any.
bool Traffic::take_known(uint64_t hash) {
  const auto found = known_.find(hash);
  if (found == known_.end()) return false;
  const Known& known = found->second;
  std::ranges::copy(known.tiles, counted().begin());
  sent_bytes_ = known.sent_bytes;
  exchanges_ = known.exchanges;
  const uint32_t chip = chip_of(counted_.begin);
  if (known.copies) chips_->copy_on(chip);
  if (known.exchanges) chips_->send(chip, chip, 0, 0);
  return true;
}

/// Whether the order of the moves shows that nothing is sent twice, so that no two tiles receive the same
/// data and moves need not be compared.
bool Traffic::are_apart() {
  constexpr size_t kMostVariables = 8;
  ++exchange_;
  variables_.clear();
  size_t position = 0;
  for (const Move& m : moves_) {
    if (position == variables_.size() || variables_[position] != m.variable) {
      position = static_cast<size_t>(std::ranges::find(variables_, m.variable) - variables_.begin());
      if (position == kMostVariables) return false;
      if (position == variables_.size()) variables_.push_back(m.variable);
      if (position == sent_.size()) sent_.emplace_back(tiles_.size());
    }
    Sent& sent = sent_[position][m.from];
    if (std::exchange(sent.exchange, exchange_) != exchange_) sent.boxes = {};
    if (!sent.boxes.add(m.box)) return false;
  }
  return true;
}

/// Counts moves of which none shares elements with another one.
void Traffic::count_apart() {
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> carried;  // bytes by sending and receiving chip
  for (const Move& m : moves_) {
    const uint64_t bytes = m.box.elements() * m.element;
    Tile &from = tiles_[m.from], &to = tiles_[m.to];
    (m.gathered ? from.traffic.gathered_out : from.traffic.out) += static_cast<double>(bytes);
    (m.gathered ? to.traffic.gathered_in : to.traffic.in) += static_cast<double>(bytes);
    for (Tile* tile : {&from, &to}) {
      ++tile->traffic.transfers;
      tile->code_bytes += transfer_code_bytes(bytes);
    }
    sent_bytes_ += bytes;
    if (chips_) carried[{chip_of(m.from), chip_of(m.to)}] += bytes;
  }
  for (const auto& [chips, bytes] : carried) {
    chips_->send(chips.first, chips.second, 0, bytes);
    chips_->close(1);
  }
}

void Traffic::count_local() {
  std::erase_if(moves_, [&](const Move& m) {
    if (m.from != m.to) return false;
    const uint64_t bytes = m.box.elements() * m.element;
    tiles_[m.from].traffic.local += static_cast<double>(bytes);
    tiles_[m.from].code_bytes += transfer_code_bytes(bytes);
    if (chips_) chips_->copy_on(chip_of(m.from));
    return true;
  });
}

void Traffic::count_streamed() {
  std::fill(chip_streamed_.begin(), chip_streamed_.end(), 0.0);
  for (const Streamed& move : streamed_) {
    Tile& tile = tiles_[slot(move.tile)];
    const auto bytes = static_cast<double>(move.bytes);
    (move.to_tile ? tile.traffic.in : tile.traffic.out) += bytes;
    ++tile.traffic.transfers;
    tile.code_bytes += transfer_code_bytes(move.bytes);
    chip_streamed_[machine_.chip_of(move.tile) - machine_.first_chip()] += bytes;
    if (chips_) chips_->exchange_on(chip_of(move.tile));
  }
  streamed_.clear();
  for (uint32_t chip = 0; chips_ && chip < chip_streamed_.size(); ++chip)
    chips_->count_tile(machine_.first_chip() + chip, streaming_cycles(machine_, chip_streamed_[chip]));
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

/// Calls visit(begin, end) for all moves of a tile that have equal keys.
template <class KeyOf, class Visit>
void Traffic::each_group(Iterator begin, Iterator end, const KeyOf& key_of, const Visit& visit) {
  const auto alike = [&](const Move& a, const Move& b) { return key_of(a) == key_of(b); };
  const bool is_one = std::all_of(begin, end, [&](const Move& m) { return alike(*begin, m); });
  if (!is_one) group({begin, end}, key_of);
  each_run(begin, end, alike, visit);
}

/// Gathered rows are sent to each pair of tiles separately, and are not part of broadcasts.
void Traffic::count_sent() {
  const std::span<Move> moves = by_tile([](const Move& m) { return m.from; });
  const auto same_tile = [](const Move& a, const Move& b) { return a.from == b.from; };
  const auto key_of = [](const Move& m) { return Key(m, m.gathered ? 1 + m.to / 2 : 0); };
  each_run(moves.begin(), moves.end(), same_tile, [&](Iterator begin, Iterator end) {
    each_group(begin, end, key_of, [&](Iterator first, Iterator last) { count_sent(first, last); });
  });
}

void Traffic::count_sent(Iterator begin, Iterator end) {
  sort_rows(begin, end);
  Tile& tile = tiles_[begin->from];
  const double bytes = static_cast<double>(rows_in_union(begin, end)) * begin->row_bytes();
  (begin->gathered ? tile.traffic.gathered_out : tile.traffic.out) += bytes;
  sent_bytes_ += static_cast<uint64_t>(bytes);
  if (chips_) count_links(begin, end);
  each_run(
      begin, end, [](const Move& a, const Move& b) { return a.box == b.box; },
      [&](Iterator send, Iterator) {
        ++tile.traffic.transfers;
        tile.code_bytes += transfer_code_bytes(send->box.elements() * send->element);
      });
}

void Traffic::count_links(Iterator begin, Iterator end) {
  const uint32_t from = chip_of(begin->from);
  for (Iterator m = begin; m != end; ++m) {
    const bool is_same = m != begin && m->box == (m - 1)->box && chip_of(m->to) == chip_of((m - 1)->to);
    if (!is_same) chips_->send(from, chip_of(m->to), m->box.row, m->box.row_end());
  }
  chips_->close(begin->row_bytes());
}

void Traffic::count_received() {
  const std::span<Move> moves = by_tile([](const Move& m) { return m.to / 2; });
  const auto same_pair = [](const Move& a, const Move& b) { return a.to / 2 == b.to / 2; };
  const auto key_of = [](const Move& m) { return Key(m, m.gathered ? 1 : 0); };
  each_run(moves.begin(), moves.end(), same_pair, [&](Iterator begin, Iterator end) {
    const auto count = [&](Iterator first, Iterator last) { count_received(first, last); };
    // Only what both tiles of a pair receive is compared.
    if (std::all_of(begin, end, [&](const Move& m) { return m.to == begin->to; }))
      each_run(
          begin, end, [](const Move& a, const Move& b) { return a.gathered == b.gathered; }, count);
    else
      each_group(begin, end, key_of, count);
  });
}

void Traffic::count_received(Iterator begin, Iterator end) {
  struct {
    uint64_t bytes = 0;
    uint64_t first = ~uint64_t{0};
    uint64_t last = 0;
  } received[2];
  for (Iterator m = begin; m != end; ++m) {
    const uint64_t bytes = m->box.elements() * m->element;
    Tile& tile = tiles_[m->to];
    ++tile.traffic.transfers;
    tile.code_bytes += transfer_code_bytes(bytes);
    auto& of_tile = received[m->to & 1];
    of_tile.bytes += bytes;
    of_tile.first = std::min<uint64_t>(of_tile.first, m->box.row);
    of_tile.last = std::max(of_tile.last, m->box.row_end());
  }
  double both = 0;
  const bool is_gather = begin->gathered;
  if (!is_gather &&
      std::max(received[0].first, received[1].first) < std::min(received[0].last, received[1].last)) {
    sort_rows(begin, end);
    both = static_cast<double>(rows_of_both(begin, end)) * begin->row_bytes();
  }
  for (const uint32_t i : {0U, 1U}) {
    const auto bytes = static_cast<double>(received[i].bytes);
    if (bytes == 0) continue;
    TileTraffic& traffic = tiles_[(begin->to & ~1U) + i].traffic;
    const double paired = std::min(both, bytes);
    traffic.paired_in += paired;
    (is_gather ? traffic.gathered_in : traffic.in) += bytes - paired;
  }
}

/// The moves of a pair are often two sorted runs, one for each tile.
void Traffic::sort_rows(Iterator begin, Iterator end) {
  const auto rows_of = [](const Move& m) { return uint64_t{m.box.row} << 32 | m.box.rows; };
  const Iterator second = std::ranges::is_sorted_until(begin, end, {}, rows_of);
  if (second == end) return;
  if (std::ranges::is_sorted(second, end, {}, rows_of))
    std::ranges::inplace_merge(begin, second, end, {}, rows_of);
  else
    std::ranges::sort(begin, end, {}, rows_of);
}

PhaseTimes Traffic::cycles() const {
  if (chips_) {
    PhaseTimes slowest;
    for (const TiedChips& group : chips_->tied())
      if (group.cycles.total() > slowest.total()) slowest = group.cycles;
    return slowest;
  }
  double longest = streaming_cycles(machine_, chip_streamed_.front());
  for (uint32_t slot = counted_.begin; slot < counted_.end; ++slot)
    longest = std::max(longest, traffic_cycles(machine_, tiles_[slot].traffic));
  PhaseTimes cycles;
  cycles[Phase::exchange] = longest + (exchanges_ ? exchange_overhead_cycles(machine_) : 0);
  cycles[Phase::sync] = exchanges_ ? exchange_sync_cycles(machine_) : 0;
  return cycles;
}

}  // namespace tessera::program
