// What exchanges move and cost, against a count element by element.
#include "program/traffic.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "program/sizes.h"
#include "support/toy_machine.h"

namespace tessera::program {
namespace {

using testing::toy_machine;
using testing::toy_machine_with_regions;

constexpr VariableId kX = 3;

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
  EXPECT_EQ(traffic.code_bytes(1), 2 * kExchangeCodeBytes);
  EXPECT_EQ(traffic.code_bytes(0), kExchangeCodeBytes);
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
  EXPECT_EQ(traffic.code_bytes(0), 2 * kExchangeCodeBytes);
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

TEST(Traffic, GathersComeAtTheirShareOfTheRate) {
  const machine::Machine m = toy_machine_with_regions(4);
  Traffic traffic(m);
  for (const TileId to : {2U, 3U}) traffic.add(0, to, kX, {7, 1, 0, 8}, 4, true);
  traffic.count();
  EXPECT_EQ(traffic.of(2).gathered_in, 32);
  EXPECT_EQ(traffic.of(2).paired_in, 0);
  EXPECT_EQ(traffic_cycles(m, traffic.of(2)),
            32 / (m.gather_exchange_share * m.exchange_bytes_per_cycle) + m.exchange_transfer_cycles);
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
  EXPECT_EQ(traffic.code_bytes(1), 3 * kExchangeCodeBytes);
}

/// Every element that is sent, by hand. Moves of one pair in the same columns, as mappings make them.
TEST(Traffic, CountsAsElementsDo) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    base::RandomSequence random{base::RandomStream(seed, 7)};
    const machine::Machine m = toy_machine_with_regions(1 + random.below(9));
    Traffic traffic(m);
    std::vector<std::set<uint64_t>> sent(m.tiles);
    std::vector<std::map<uint64_t, uint32_t>> received(m.tiles);
    std::vector<double> local(m.tiles);
    for (uint32_t i = random.below(40); i > 0; --i) {
      const TileId from = random.below(m.tiles);
      const TileId to = random.below(m.tiles);
      // A tile of ten rows, cut in two bands of columns.
      const Box box{from * 10 + random.below(5), 1 + random.below(5), 4 * random.below(2), 4};
      bool again = false;
      for (uint64_t r = box.row; r < box.row_end(); ++r) again |= received[to].count(r * 8 + box.col) != 0;
      if (again && from != to) continue;  // a tile lands no element twice
      traffic.add(from, to, kX, box, 4);
      if (from == to) local[to] += static_cast<double>(box.elements() * 4);
      for (uint64_t r = box.row; r < box.row_end() && from != to; ++r)
        for (uint64_t c = box.col; c < box.col_end(); ++c) {
          sent[from].insert(r * 8 + c);
          ++received[to][r * 8 + c];
        }
    }
    traffic.count();
    for (TileId tile = 0; tile < m.tiles; ++tile) {
      const TileId other = tile ^ 1U;
      double in = 0;
      double paired = 0;
      for (const auto& [element, times] : received[tile])
        (other < m.tiles && received[other].count(element) != 0 ? paired : in) += 4;
      EXPECT_EQ(traffic.of(tile).in, in);
      EXPECT_EQ(traffic.of(tile).paired_in, paired);
      EXPECT_EQ(traffic.of(tile).out, static_cast<double>(4 * sent[tile].size()));
      EXPECT_EQ(traffic.of(tile).local, local[tile]);
    }
  }
}

}  // namespace
}  // namespace tessera::program
