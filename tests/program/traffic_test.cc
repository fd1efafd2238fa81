// The data and cost of exchanges, against a count element by element.
#include "program/traffic.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "base/random.h"
#include "program/boxes_in_order.h"
#include "program/sizes.h"
#include "support/toy_machine.h"

namespace tessera::program {
namespace {

using testing::toy_machine;
using testing::toy_machine_with_regions;

constexpr VariableId kX = 3;

/// Exchange code of a tile at which this number of transfers of one exchange end or begin.
constexpr uint64_t code_of(uint64_t transfers) { return kExchangeCodeBytes + transfers * kTransferCodeBytes; }

TEST(Traffic, CountsWhatComesInAndGoesOut) {
  const machine::Machine m = toy_machine(4);
  Traffic traffic(m);
  traffic.add(0, 1, kX, {0, 2, 0, 8}, 4);
  traffic.add(2, 1, kX, {2, 1, 0, 8}, 4);
  traffic.count();
  EXPECT_EQ(traffic.of(1).in, 96);
  EXPECT_EQ(traffic.of(1).transfers, 2u);
  EXPECT_EQ(traffic.of(0).out, 64);
  EXPECT_EQ(traffic.of(3).transfers, 0u);
  EXPECT_EQ(traffic.code_bytes(1), code_of(2));
  EXPECT_EQ(traffic.code_bytes(0), code_of(1));
  EXPECT_EQ(traffic.code_bytes(3), 0U);
  EXPECT_EQ(traffic.sent_bytes(), 96u);
  EXPECT_EQ(traffic.cycles()[Phase::exchange], m.exchange_cycles + 96 / m.exchange_bytes_per_cycle);
  EXPECT_EQ(traffic.cycles()[Phase::sync], m.sync_cycles);
}

TEST(Traffic, SendsWhatSeveralReceiveOnce) {
  Traffic traffic(toy_machine(5));
  for (const TileId to : {1U, 2U, 3U}) traffic.add(0, to, kX, {0, 4, 0, 8}, 2);
  traffic.add(0, 4, kX, {2, 4, 0, 8}, 2);  // half of it is sent anyway
  traffic.count();
  EXPECT_EQ(traffic.of(0).out, 6 * 8 * 2);
  EXPECT_EQ(traffic.of(0).transfers, 2u);
  EXPECT_EQ(traffic.code_bytes(0), code_of(2));
  EXPECT_EQ(traffic.of(4).in, 4 * 8 * 2);
}

TEST(Traffic, PairsReceiveTheSameDataAtTheirRate) {
  const machine::Machine m = toy_machine_with_regions(6);
  Traffic traffic(m);
  traffic.add(0, 2, kX, {0, 4, 0, 8}, 4);
  traffic.add(0, 3, kX, {1, 4, 0, 8}, 4);  // three rows in common
  traffic.add(0, 4, kX, {0, 4, 0, 8}, 4);  // no pair of the others
  traffic.count();
  EXPECT_EQ(traffic.of(2).paired_in, 3 * 32);
  EXPECT_EQ(traffic.of(2).in, 32);
  EXPECT_EQ(traffic.of(3).paired_in, 3 * 32);
  EXPECT_EQ(traffic.of(4).paired_in, 0);
  EXPECT_EQ(traffic_cycles(m, traffic.of(2)),
            (32 + 96 / m.paired_exchange_factor) / m.exchange_bytes_per_cycle + m.exchange_transfer_cycles);
}

TEST(Traffic, GathersComeToEachTileAtTheirShareOfTheRateAndGoOutToEachPair) {
  const machine::Machine m = toy_machine_with_regions(6);
  Traffic traffic(m);
  for (const TileId to : {2U, 3U, 4U}) traffic.add(0, to, kX, {7, 1, 0, 8}, 4, true);
  traffic.count();
  for (const TileId to : {2U, 3U, 4U}) EXPECT_EQ(traffic.of(to).gathered_in, 32);
  EXPECT_EQ(traffic.of(2).paired_in, 0);
  EXPECT_EQ(traffic.of(4).in, 0);
  EXPECT_EQ(traffic.of(0).gathered_out, 2 * 32);
  const double rate = m.gather_exchange_share * m.exchange_bytes_per_cycle;
  for (const TileId to : {2U, 4U})
    EXPECT_EQ(traffic_cycles(m, traffic.of(to)), 32 / rate + m.exchange_transfer_cycles);
  EXPECT_EQ(traffic_cycles(m, traffic.of(0)), 64 / rate + 2 * m.exchange_transfer_cycles);
}

TEST(Traffic, CopiesWithinATileNeedNoSync) {
  const machine::Machine m = toy_machine(2);
  Traffic traffic(m);
  traffic.add(1, 1, kX, {0, 4, 0, 8}, 4);
  traffic.count();
  EXPECT_EQ(traffic.of(1).local, 128);
  EXPECT_EQ(traffic.cycles()[Phase::exchange], 128 / m.load_bytes_per_cycle);
  EXPECT_EQ(traffic.cycles()[Phase::sync], 0);
  traffic.count();
  EXPECT_EQ(traffic.cycles().total(), 0);
}

TEST(Traffic, LongMovesTakeSeveralTransfers) {
  Traffic traffic(toy_machine(2));
  traffic.add(0, 1, kX, {0, 1, 0, 4148 * 2 + 1}, 4);
  traffic.count();
  EXPECT_EQ(traffic.code_bytes(1), code_of(3));
  EXPECT_EQ(traffic.code_bytes(0), code_of(3));
}

/// One kind of data, element by element: who sends it to which pair, and who receives it.
struct ByElement {
  std::vector<std::set<std::pair<uint64_t, TileId>>> sent;
  std::vector<std::set<uint64_t>> received;

  explicit ByElement(uint32_t tiles) : sent(tiles), received(tiles) {}

  double in(TileId tile, bool paired) const {
    const TileId other = tile ^ 1U;
    double bytes = 0;
    for (const uint64_t element : received[tile])
      if (paired == (other < received.size() && received[other].count(element) != 0)) bytes += 4;
    return bytes;
  }
};

/// Every element that is sent, counted directly. Tiles have ten rows each, split in two bands of columns.
TEST(Traffic, CountsAsElementsDo) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    base::RandomSequence random{base::RandomStream(seed, 7)};
    const machine::Machine m = toy_machine_with_regions(1 + random.below(9));
    Traffic traffic(m);
    ByElement broadcast(m.tiles);
    ByElement gathered(m.tiles);
    std::vector<double> local(m.tiles);
    for (uint32_t i = random.below(60); i > 0; --i) {
      const TileId from = random.below(m.tiles);
      const TileId to = random.below(m.tiles);
      const Box box{from * 10 + random.below(5), 1 + random.below(5), 4 * random.below(2), 4};
      const bool is_gather = random.below(3) == 0;
      ByElement& kind = is_gather ? gathered : broadcast;
      bool again = false;  // a tile receives no element twice
      for (uint64_t r = box.row; r < box.row_end(); ++r)
        again |= kind.received[to].count(r * 8 + box.col) != 0;
      if (again && from != to) continue;
      traffic.add(from, to, kX, box, 4, is_gather);
      if (from == to) local[to] += static_cast<double>(box.elements() * 4);
      for (uint64_t r = box.row; r < box.row_end() && from != to; ++r)
        for (uint64_t c = box.col; c < box.col_end(); ++c) {
          kind.sent[from].insert({r * 8 + c, is_gather ? to / 2 : 0});
          kind.received[to].insert(r * 8 + c);
        }
    }
    traffic.count();
    for (TileId tile = 0; tile < m.tiles; ++tile) {
      const TileTraffic& t = traffic.of(tile);
      EXPECT_EQ(t.in, broadcast.in(tile, false));
      EXPECT_EQ(t.paired_in, broadcast.in(tile, true));
      EXPECT_EQ(t.gathered_in, gathered.in(tile, false) + gathered.in(tile, true));
      EXPECT_EQ(t.out, static_cast<double>(4 * broadcast.sent[tile].size()));
      EXPECT_EQ(t.gathered_out, static_cast<double>(4 * gathered.sent[tile].size()));
      EXPECT_EQ(t.local, local[tile]);
    }
  }
}

void expect_equal(const Traffic& a, const Traffic& b, uint32_t tiles) {
  for (TileId tile = 0; tile < tiles; ++tile) {
    const TileTraffic &of_a = a.of(tile), &of_b = b.of(tile);
    EXPECT_EQ(of_a.in, of_b.in);
    EXPECT_EQ(of_a.paired_in, of_b.paired_in);
    EXPECT_EQ(of_a.gathered_in, of_b.gathered_in);
    EXPECT_EQ(of_a.out, of_b.out);
    EXPECT_EQ(of_a.gathered_out, of_b.gathered_out);
    EXPECT_EQ(of_a.local, of_b.local);
    EXPECT_EQ(of_a.transfers, of_b.transfers);
    EXPECT_EQ(a.code_bytes(tile), b.code_bytes(tile));
  }
  EXPECT_EQ(a.sent_bytes(), b.sent_bytes());
  EXPECT_EQ(a.cycles().at, b.cycles().at);
  EXPECT_EQ(a.tiles_in_use(), b.tiles_in_use());
  ASSERT_EQ(a.tied().size(), b.tied().size());
  for (size_t i = 0; i < a.tied().size(); ++i) {
    EXPECT_EQ(a.tied()[i].chips, b.tied()[i].chips);
    EXPECT_EQ(a.tied()[i].cycles.at, b.tied()[i].cycles.at);
  }
  const std::vector<LinkLoad> of_a = a.link_loads(), of_b = b.link_loads();
  ASSERT_EQ(of_a.size(), of_b.size());
  for (size_t i = 0; i < of_a.size(); ++i) {
    EXPECT_EQ(of_a[i].from, of_b[i].from);
    EXPECT_EQ(of_a[i].to, of_b[i].to);
    EXPECT_EQ(of_a[i].bytes, of_b[i].bytes);
  }
}

/// Moves from bands of rows to bands of columns, in an order that shows that they do not overlap, and in
/// another order. Sometimes one of them goes to another tile as well.
TEST(Traffic, IsTheSameInAnyOrder) {
  struct Sent {
    TileId from, to;
    VariableId variable;
    Box box;
    bool gathered;
  };
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    base::RandomSequence random{base::RandomStream(seed, 8)};
    const machine::Machine m =
        seed % 3 == 0 ? testing::toy_chips(4, 2) : toy_machine_with_regions(2 + random.below(9));
    const uint32_t rows = 1 + random.below(4), cols = 1 + random.below(4), first = random.below(m.tiles);
    std::vector<Sent> moves;
    for (const VariableId variable : {kX, kX + 1})
      for (TileId from = first; from < m.tiles; ++from)
        for (TileId to = first; to < m.tiles; ++to)
          if (random.below(4) != 0 && (seed % 6 != 0 || m.chip_of(from) == m.chip_of(to)))
            moves.push_back({from, to, variable, {from * rows, rows, to * cols, cols}, random.below(5) == 0});
    if (seed % 4 == 0 && !moves.empty()) {
      moves.push_back(moves[random.below(static_cast<uint32_t>(moves.size()))]);
      moves.back().to = (moves.back().to + 1) % m.tiles;
    }
    const auto count = [&](Traffic& traffic) {
      for (const Sent& sent : moves)
        traffic.add(sent.from, sent.to, sent.variable, sent.box, 4, sent.gathered);
      traffic.count();
    };
    Traffic in_order(m), in_any(m);
    count(in_order);
    count(in_any);
    expect_equal(in_order, in_any, m.tiles);
    for (size_t i = moves.size(); i > 1; --i)
      std::swap(moves[i - 1], moves[random.below(static_cast<uint32_t>(i))]);
    count(in_any);
    expect_equal(in_order, in_any, m.tiles);
  }
}

/// From all tiles of a chip to all, so many that earlier counts are used again.
TEST(Traffic, IsTheSameOnEachChip) {
  constexpr uint32_t kTiles = 64;
  machine::Machine m = testing::toy_chips(2, kTiles);
  m.paired_exchange_factor = 2;
  const auto count = [&](Traffic& traffic, uint32_t chip, TileId also) {
    const TileId first = chip * kTiles;
    for (TileId from = 0; from < kTiles; ++from)
      for (TileId to = 0; to < kTiles; ++to)
        traffic.add(first + from, first + to, kX + chip, {2 * from, 2, 4 * to, 4}, 4);
    traffic.add(first, first + also, kX + chip, {0, 2, 4, 4}, 4);
    traffic.count();
  };
  Traffic traffic(m);
  for (const auto& [chip, also] : {std::pair{0U, 4U}, {1U, 4U}, {1U, 5U}, {0U, 5U}, {0U, 4U}}) {
    SCOPED_TRACE(also);
    Traffic alone(m);
    count(traffic, chip, also);
    count(alone, chip, also);
    expect_equal(traffic, alone, m.tiles);
  }
}

TEST(Traffic, ForgetsTheExchangeBefore) {
  const machine::Machine m = toy_machine(6);
  Traffic traffic(m);
  traffic.add(0, 5, kX, {0, 4, 0, 8}, 4);
  traffic.count();
  EXPECT_EQ(traffic.tiles_in_use(), std::pair(0U, 6U));
  traffic.add(2, 3, kX, {0, 4, 0, 8}, 4);
  traffic.count();
  EXPECT_EQ(traffic.tiles_in_use(), std::pair(2U, 4U));
  Traffic alone(m);
  alone.add(2, 3, kX, {0, 4, 0, 8}, 4);
  alone.count();
  expect_equal(traffic, alone, m.tiles);
}

TEST(BoxesInOrder, AreAlongRowsOrColumns) {
  const auto all_of = [](const std::vector<Box>& boxes) {
    BoxesInOrder in_order;
    bool all = true;
    for (const Box& box : boxes) all = in_order.add(box);
    return all;
  };
  EXPECT_TRUE(all_of({{0, 2, 0, 4}, {0, 2, 4, 1}, {2, 1, 0, 5}, {3, 2, 3, 1}, {3, 2, 0, 3}}));
  EXPECT_TRUE(all_of({{0, 2, 4, 1}, {2, 3, 4, 1}, {0, 2, 0, 4}, {2, 3, 0, 4}}));
  EXPECT_TRUE(all_of({{4, 2, 0, 4}, {2, 2, 0, 4}, {0, 2, 0, 4}}));
  EXPECT_FALSE(all_of({{0, 2, 0, 4}, {0, 2, 0, 4}}));
  EXPECT_FALSE(all_of({{0, 2, 0, 4}, {1, 2, 3, 4}}));
  // They do not overlap, but the order does not show it.
  EXPECT_FALSE(all_of({{0, 2, 0, 4}, {2, 2, 4, 4}, {0, 2, 4, 4}, {2, 2, 0, 4}}));
}

/// Boxes in any order: whenever they are reported not to overlap, they do not.
TEST(BoxesInOrder, DoNotOverlap) {
  uint32_t found = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    base::RandomSequence random{base::RandomStream(seed, 9)};
    std::vector<Box> boxes;
    BoxesInOrder in_order;
    while (boxes.size() < 5) {
      const Box box{random.below(4), 1 + random.below(2), random.below(4), 1 + random.below(2)};
      if (!in_order.add(box)) break;
      for (const Box& other : boxes) ASSERT_FALSE(overlap(box, other)) << "seed " << seed;
      boxes.push_back(box);
    }
    found += boxes.size() > 3;
  }
  EXPECT_GT(found, 20U);
}

}  // namespace
}  // namespace tessera::program
