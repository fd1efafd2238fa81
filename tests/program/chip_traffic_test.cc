// What exchanges carry between chips, against a count element by element.
#include "program/chip_traffic.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "base/random.h"
#include "program/traffic.h"
#include "support/toy_machine.h"

namespace tessera::program {
namespace {

using testing::toy_chips;

constexpr VariableId kX = 3;

std::map<std::pair<uint32_t, uint32_t>, double> loads_of(const Traffic& traffic) {
  std::map<std::pair<uint32_t, uint32_t>, double> loads;
  for (const LinkLoad& load : traffic.link_loads()) loads[{load.from, load.to}] = load.bytes;
  return loads;
}

TEST(ChipTraffic, ACopyOverOneLink) {
  const machine::Machine m = toy_chips(2, 2);
  Traffic traffic(m);
  traffic.add(0, 2, kX, {0, 1, 0, 16}, 4);
  traffic.count();
  ASSERT_EQ(traffic.tied().size(), 1u);
  const TiedChips tied = traffic.tied()[0];
  EXPECT_EQ(tied.chips, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(tied.cycles[Phase::exchange], 64 / 2 + 5 + 20);  // link, latency, fixed
  EXPECT_EQ(tied.cycles[Phase::sync], 50);
  EXPECT_EQ(loads_of(traffic), (std::map<std::pair<uint32_t, uint32_t>, double>{{{0, 1}, 64}}));
  EXPECT_EQ(traffic.cycles().total(), tied.cycles.total());
}

TEST(ChipTraffic, ARouteOfThreeChips) {
  const machine::Machine m = toy_chips(4, 1);
  Traffic traffic(m);
  traffic.add(0, 3, kX, {0, 1, 0, 16}, 4);
  traffic.count();
  EXPECT_EQ(loads_of(traffic), (std::map<std::pair<uint32_t, uint32_t>, double>{{{0, 2}, 64}, {{2, 3}, 64}}));
  EXPECT_EQ(traffic.tied()[0].chips, (std::vector<uint32_t>{0, 3}));  // data only passes through chip 2
  EXPECT_EQ(traffic.cycles()[Phase::exchange], 64 / 2 + 2 * 5 + 20);
}

TEST(ChipTraffic, TransfersShareALink) {
  const machine::Machine m = toy_chips(2, 2);
  Traffic traffic(m);
  traffic.add(0, 2, kX, {0, 1, 0, 16}, 4);
  traffic.add(1, 3, kX, {1, 1, 0, 16}, 4);
  traffic.count();
  EXPECT_EQ(traffic.cycles()[Phase::exchange], 128 / 2 + 5 + 20);
}

TEST(ChipTraffic, WhatSeveralTilesReceiveCrossesALinkOnce) {
  const machine::Machine m = toy_chips(4, 2);
  Traffic traffic(m);
  for (const TileId to : {2U, 3U, 4U, 6U, 7U}) traffic.add(0, to, kX, {0, 4, 0, 4}, 4);
  traffic.add(0, 7, kX, {2, 4, 0, 4}, 4);  // half of it is sent anyway
  traffic.count();
  EXPECT_EQ(loads_of(traffic),
            (std::map<std::pair<uint32_t, uint32_t>, double>{{{0, 1}, 64}, {{0, 2}, 96}, {{2, 3}, 96}}));
}

TEST(ChipTraffic, ExchangesOfDifferentChipsAreApart) {
  const machine::Machine m = toy_chips(4, 2, machine::Topology::all_to_all);
  Traffic traffic(m);
  traffic.add(0, 1, kX, {0, 1, 0, 4}, 4);   // within chip 0
  traffic.add(2, 4, kX, {1, 1, 0, 16}, 4);  // chip 1 to chip 2
  traffic.add(6, 6, kX, {2, 1, 0, 8}, 4);   // within a tile of chip 3
  traffic.count();
  const std::vector<TiedChips> tied = traffic.tied();
  ASSERT_EQ(tied.size(), 3u);
  EXPECT_EQ(tied[0].chips, (std::vector<uint32_t>{0}));
  EXPECT_EQ(tied[0].cycles[Phase::exchange], 16 / 4 + 20);
  EXPECT_EQ(tied[0].cycles[Phase::sync], 10);
  EXPECT_EQ(tied[1].chips, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(tied[2].chips, (std::vector<uint32_t>{3}));
  EXPECT_EQ(tied[2].cycles.total(), 32 / 8);  // no exchange, hence no sync
  EXPECT_EQ(traffic.cycles().total(), tied[1].cycles.total());
}

TEST(ChipTraffic, ThoseWhoShareALinkAreTied) {
  const machine::Machine m = toy_chips(6, 1);
  Traffic traffic(m);
  traffic.add(0, 4, kX, {0, 1, 0, 4}, 4);  // through chip 2
  traffic.add(2, 5, kX, {1, 1, 0, 4}, 4);  // over 2 to 4, and 4 to 5
  traffic.count();
  ASSERT_EQ(traffic.tied().size(), 1u);
  EXPECT_EQ(traffic.tied()[0].chips, (std::vector<uint32_t>{0, 2, 4, 5}));
  EXPECT_EQ(traffic.tied()[0].cycles[Phase::exchange], 32 / 2 + 2 * 5 + 20);
}

TEST(ChipTraffic, CountsAsElementsDo) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    base::RandomSequence random(base::RandomStream(seed, 1));
    const machine::Topology topologies[] = {machine::Topology::ladder, machine::Topology::torus,
                                            machine::Topology::all_to_all};
    const machine::Machine m =
        toy_chips(2 * (1 + random.below(3)), 1 + random.below(3), topologies[random.below(3)]);
    const machine::Links links(m);
    Traffic traffic(m);
    using Element = std::tuple<TileId, VariableId, uint32_t, uint32_t>;
    std::map<std::pair<uint32_t, uint32_t>, std::set<Element>> crossing;
    for (uint32_t i = random.below(30); i-- > 0;) {
      const TileId from = random.below(m.tiles), to = random.below(m.tiles);
      const VariableId variable = random.below(2);
      const Box box{random.below(6), 1 + random.below(5), 4 * random.below(2), 4};
      traffic.add(from, to, variable, box, 4);
      for (const uint32_t id : links.route(m.chip_of(from), m.chip_of(to)))
        for (uint32_t row = box.row; row < box.row_end(); ++row)
          for (uint32_t col = box.col; col < box.col_end(); ++col)
            crossing[{links[id].from, links[id].to}].insert({from, variable, row, col});
    }
    traffic.count();
    std::map<std::pair<uint32_t, uint32_t>, double> expected;
    for (const auto& [link, elements] : crossing) expected[link] = 4.0 * static_cast<double>(elements.size());
    ASSERT_EQ(loads_of(traffic), expected);
    std::set<uint32_t> seen;
    for (const TiedChips& tied : traffic.tied())
      for (const uint32_t chip : tied.chips) EXPECT_TRUE(seen.insert(chip).second);
  }
}

}  // namespace
}  // namespace tessera::program
