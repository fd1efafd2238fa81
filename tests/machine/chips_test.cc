// Machines of several chips: their files, limits, tiles and links.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <regex>

#include "machine/model/keys.h"
#include "machine/model/links.h"
#include "machine/model/machine.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::machine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kToyToml;
using testing::toy_chips;

const std::string kChipsToml = kToyToml + R"(chips = 4
topology = "ladder"
link_gb_per_second = 2
link_latency_ns = 5
chip_sync_cycles = 50
hosts = 2
streaming_bytes = 1000000
streaming_gb_per_second = 20
)";

std::string error_of(const std::string& text) {
  return test::error_of([&] { parse(text, "file"); });
}
std::string error_with(const std::string& key, const std::string& line) {
  const std::string text = std::regex_replace(kChipsToml, std::regex("\n" + key + " = [^\n]*"), "\n" + line);
  EXPECT_NE(text, kChipsToml) << key;
  return error_of(text);
}

TEST(ChipsFile, ReadsEveryNumber) {
  const Machine m = parse(kChipsToml, "file");
  EXPECT_EQ(m.chips, 4u);
  EXPECT_EQ(m.chip_tiles, 3u);
  EXPECT_EQ(m.tiles, 12u);
  EXPECT_EQ(m.topology, Topology::ladder);
  EXPECT_EQ(m.link_bytes_per_second, 2e9);
  EXPECT_DOUBLE_EQ(m.link_latency_cycles(), 5);
  EXPECT_DOUBLE_EQ(m.link_cycles(64), 32);
  EXPECT_EQ(m.chip_sync_cycles, 50);
  EXPECT_EQ(m.hosts, 2u);
  EXPECT_EQ(m.streaming_bytes, 1000000u);
  EXPECT_EQ(m.streaming_bytes_per_second, 20e9);
  EXPECT_EQ(m.sources.size(), keys().size() + chip_keys().size());
}

TEST(ChipsFile, OneChipHasNoLinks) {
  const Machine m = parse(kToyToml + "chips = 1\n", "file");
  EXPECT_EQ(m.chips, 1u);
  EXPECT_EQ(m.chip_count(), 1u);
  EXPECT_EQ(m.tiles, 3u);
  EXPECT_THAT(error_of(kToyToml + "chips = 1\ntopology = \"torus\"\n"),
              HasSubstr("'topology' is for machines of several chips; 'chips' is 1"));
  EXPECT_THAT(error_of(kToyToml + "chips = 1\nlink_latency_ns = 3\n"),
              HasSubstr("'link_latency_ns' is for machines of several chips; 'chips' is 1"));
  EXPECT_THAT(error_of(kToyToml + "link_gb_per_second = 3\n"),
              HasSubstr("'link_gb_per_second' is for machines of several chips; set 'chips'"));
}

TEST(ChipsFile, RefusesWhatIsMissing) {
  for (const char* key : {"link_gb_per_second", "link_latency_ns", "chip_sync_cycles"})
    EXPECT_THAT(error_with(key, "# none"), HasSubstr(std::string("'") + key + "' (")) << key;
  EXPECT_THAT(error_with("topology", "# none"),
              HasSubstr(" chips need links: set 'topology' (ladder, torus"));
  EXPECT_EQ(error_with("streaming_bytes", "# none"), "(no error)");
  EXPECT_EQ(error_with("streaming_gb_per_second", "# none"), "(no error)");
}

TEST(ChipsFile, RefusesBadValues) {
  EXPECT_THAT(error_with("topology", "topology = \"star\""), HasSubstr("'topology' is 'star'"));
  EXPECT_THAT(error_with("topology", "topology = 3"), HasSubstr("'topology' must be text"));
  EXPECT_THAT(error_with("chips", "chips = 3"), HasSubstr("'chips' is 3; a ladder has an even number"));
  EXPECT_THAT(error_with("chips", "chips = 2.5"), HasSubstr("'chips' is 2.5; it must be a whole number"));
  EXPECT_THAT(error_with("chips", "chips = \"four\""), HasSubstr("'chips' must be a number (chips)"));
  EXPECT_THAT(error_with("topology", "topology = \"torus\"\ntorus_width = 3"),
              HasSubstr("'chips' is 4; a torus has whole rows of 'torus_width' = 3"));
  EXPECT_THAT(error_of(kChipsToml + "torus_width = 2\n"),
              HasSubstr("'torus_width' is for a torus, not for 'ladder'"));
  EXPECT_THAT(error_of(std::regex_replace(kChipsToml, std::regex("\ntiles = 3"), "\ntiles = 1048576")),
              HasSubstr("4 chips of 1048576 tiles are 4194304 tiles; a machine has at most 1048576"));
}

TEST(ChipsFile, TakesEveryFigureUpToItsLimits) {
  for (const Key& key : chip_keys()) {
    if (key.name == "torus_width" || key.name == "chips" || key.name == "hosts") continue;
    const auto with = [&](double value) {
      return error_with(std::string(key.name), fmt::format("{} = {}", key.name, value));
    };
    EXPECT_EQ(with(key.least), "(no error)") << key.name;
    EXPECT_EQ(with(key.most), "(no error)") << key.name;
    EXPECT_THAT(with(key.least - 1), HasSubstr("it must be")) << key.name;
    EXPECT_THAT(with(key.most * 2), HasSubstr("it must be")) << key.name;
    EXPECT_THAT(error_with(std::string(key.name), fmt::format("{} = nan", key.name)),
                HasSubstr("is nan; it must be"));
  }
  EXPECT_THAT(error_with("chips", "chips = 0"),
              HasSubstr("it must be a whole number from 1 to 4096 (chips)"));
  EXPECT_THAT(error_with("chips", "chips = 4097"), HasSubstr("from 1 to 4096"));
  EXPECT_EQ(error_with("chips", "chips = 4096"), "(no error)");
  EXPECT_THAT(error_with("hosts", "hosts = 0"), HasSubstr("from 1 to 4096 (hosts)"));
  EXPECT_EQ(error_with("hosts", "hosts = 4"), "(no error)");
  for (const char* hosts : {"3", "8"})
    EXPECT_THAT(error_with("hosts", std::string("hosts = ") + hosts),
                HasSubstr(std::string("'chips' is 4; 'hosts' = ") + hosts + " have equally many of them"));
}

TEST(ChipSettings, ChangeChipsAndTheirTiles) {
  Machine m = find("m2000");
  EXPECT_EQ(m.tiles, 4 * 1472u);
  apply({"chips", 2}, m);
  EXPECT_EQ(m.tiles, 2 * 1472u);
  apply({"tiles", 100}, m);
  EXPECT_EQ(m.chip_tiles, 100u);
  EXPECT_EQ(m.tiles, 200u);
  EXPECT_THROW(apply({"chips", 3}, m), UsageError);
  EXPECT_EQ(m.chips, 2u);
  Machine one = find("gc200");
  EXPECT_USAGE_ERROR("4 chips need links: set 'link_gb_per_second'", apply({"chips", 4}, one));
  apply({"link_gb_per_second", 48}, one);
  apply({"chips", 4}, one);
  EXPECT_EQ(one.tiles, 4 * 1472u);
}

TEST(BuiltinChips, AreThoseOfGc200) {
  const Machine chip = find("gc200");
  for (const auto& [name, chips] :
       {std::pair("m2000", 4U), {"pod16", 16U}, {"pod64", 64U}, {"pod128", 128U}, {"pod256", 256U}}) {
    const Machine m = find(name);
    EXPECT_EQ(m.chips, chips);
    EXPECT_EQ(m.chip_tiles, chip.tiles);
    EXPECT_EQ(m.tiles, chips * chip.tiles);
    for (const Figure& figure : chip.sources) {
      const auto same = std::ranges::find(m.sources, figure.name, &Figure::name);
      ASSERT_NE(same, m.sources.end());
      EXPECT_EQ(same->value, figure.value) << figure.name;
      EXPECT_EQ(same->source, figure.source) << figure.name;
    }
  }
}

TEST(BuiltinChips, OfBowDifferInTheClock) {
  const Machine chip = find("bow"), old = find("pod64"), pod = find("bow_pod64");
  EXPECT_EQ(pod.chips, 64u);
  EXPECT_EQ(pod.clock_hz, chip.clock_hz);
  EXPECT_EQ(pod.topology, old.topology);
  EXPECT_EQ(pod.link_bytes_per_second, old.link_bytes_per_second);
  EXPECT_EQ(pod.streaming_bytes * 4, 526'000'000'000u);
}

TEST(HostLinks, AreThoseOfTheHostsOfAPart) {
  Machine m = parse(kChipsToml + "host_link_gb_per_second = 10\nhost_link_latency_us = 1\n", "file");
  EXPECT_EQ(m.host_count(), 2u);
  EXPECT_DOUBLE_EQ(m.host_transfer_seconds(40'000), 1e-6 + 2e-6);
  EXPECT_EQ(m.part(0, 3).host_count(), 1u);
  EXPECT_EQ(m.part(3, 9).host_count(), 2u);
  EXPECT_DOUBLE_EQ(m.part(0, 3).host_transfer_seconds(40'000), 1e-6 + 4e-6);
  apply({"hosts", 1}, m);
  EXPECT_DOUBLE_EQ(m.host_transfer_seconds(40'000), 1e-6 + 4e-6);
  Machine pod = find("pod256");
  EXPECT_USAGE_ERROR("'chips' is 2; 'hosts' = 4 have equally many of them", apply({"chips", 2}, pod));
  apply({"chips", 1}, pod);
  EXPECT_EQ(pod.host_count(), 1u);
  EXPECT_THAT(error_of(kToyToml + "hosts = 2\n"),
              HasSubstr("'hosts' is for machines of several chips; set 'chips'"));
}

TEST(HostLinks, OfPodsAreAsManyAsTheirHosts) {
  for (const auto& [name, hosts] : {std::pair("m2000", 1U),
                                    {"pod16", 1U},
                                    {"pod64", 1U},
                                    {"pod128", 2U},
                                    {"pod256", 4U},
                                    {"bow2000", 1U},
                                    {"bow_pod16", 1U},
                                    {"bow_pod64", 1U},
                                    {"bow_pod128", 2U},
                                    {"bow_pod256", 4U}})
    EXPECT_EQ(find(name).host_count(), hosts) << name;
}

TEST(MachineFiles, AreLikeOthers) {
  const Machine two = parse("like = \"m2000\"\nchips = 2\nclock_ghz = 2", "two.toml");
  EXPECT_EQ(two.name, "two");
  EXPECT_EQ(two.chips, 2u);
  EXPECT_EQ(two.tiles, 2 * 1472u);
  EXPECT_EQ(two.clock_hz, 2e9);
  EXPECT_EQ(two.topology, Topology::ladder);
  EXPECT_EQ(two.link_bytes_per_second, find("m2000").link_bytes_per_second);
  EXPECT_EQ(parse("like = \"gc200\"\ntiles = 8", "small.toml").tiles, 8u);
  EXPECT_EQ(parse("like = \"m2000\"\ntiles = 8", "small.toml").tiles, 4 * 8u);
  EXPECT_THAT(test::error_of([] { parse("like = \"host\"", "a.toml"); }),
              ::testing::HasSubstr("a.toml: unknown machine 'host' for 'like' (choose from gc2, gc200, "));
  EXPECT_THAT(
      test::error_of([] { parse("like = \"gc200\"\nchips = 2", "a.toml"); }),
      ::testing::HasSubstr("a.toml: 2 chips need links: set 'topology' (ladder, torus or all-to-all)"));
  EXPECT_THAT(test::error_of([] { parse("like = \"gc200\"\nlink_gb_per_second = 2", "a.toml"); }),
              ::testing::HasSubstr("'link_gb_per_second' is for machines of several chips; set 'chips'"));
}

TEST(Chips, HaveTheirTilesOneAfterTheOther) {
  const Machine m = toy_chips(4, 3);
  EXPECT_EQ(m.chip_count(), 4u);
  EXPECT_EQ(m.chip_of(2), 0u);
  EXPECT_EQ(m.chip_of(3), 1u);
  EXPECT_EQ(m.chip_of(11), 3u);
  const Machine part = m.part(5, 4);
  EXPECT_EQ(part.tiles, 4u);
  EXPECT_EQ(part.first_chip(), 1u);
  EXPECT_EQ(part.chip_count(), 2u);
  EXPECT_EQ(part.chip_of(1), 2u);
  EXPECT_EQ(part.part(1, 3).first_chip(), 2u);
  EXPECT_EQ(m.part(6, 3).chip_count(), 1u);
}

TEST(Chips, AreLikeEachOther) {
  const Machine m = find("m2000");
  const uint32_t tiles = m.chip_tiles;
  EXPECT_TRUE(m.part(0, tiles).is_like(m.part(2 * tiles, tiles)));
  EXPECT_TRUE(m.part(8, 4).is_like(m.part(tiles + 8, 4)));
  EXPECT_FALSE(m.part(8, 4).is_like(m.part(tiles + 10, 4)));
  EXPECT_FALSE(m.part(0, tiles).is_like(m.part(tiles, tiles - 1)));
  // Links between chips are not alike.
  EXPECT_FALSE(m.part(0, 2 * tiles).is_like(m.part(tiles, 2 * tiles)));
  Machine faster = m;
  faster.clock_hz *= 2;
  EXPECT_FALSE(m.part(0, tiles).is_like(faster.part(0, tiles)));
  EXPECT_FALSE(find("gc200").is_like(find("bow")));
  EXPECT_TRUE(find("gc200").is_like(find("gc200")));
}

/// Chips on the way, without the first.
std::vector<uint32_t> way(const Links& links, uint32_t from, uint32_t to) {
  std::vector<uint32_t> chips;
  uint32_t at = from;
  for (const uint32_t id : links.route(from, to)) {
    EXPECT_EQ(links[id].from, at);
    chips.push_back(at = links[id].to);
  }
  return chips;
}

TEST(Links, OfALadder) {
  const Links links(toy_chips(6, 1));
  EXPECT_EQ(links.all().size(), 2 * 7u);
  EXPECT_THAT(way(links, 0, 5), ElementsAre(2, 4, 5));
  EXPECT_THAT(way(links, 5, 0), ElementsAre(3, 1, 0));
  EXPECT_THAT(way(links, 1, 0), ElementsAre(0));
  EXPECT_TRUE(links.route(3, 3).empty());
}

TEST(Links, OfATorus) {
  const Links links(toy_chips(12, 1, Topology::torus, 3));
  EXPECT_EQ(links.all().size(), 12 * 4u);
  EXPECT_THAT(way(links, 0, 9), ElementsAre(9));        // round the column
  EXPECT_THAT(way(links, 0, 2), ElementsAre(2));        // round the row
  EXPECT_THAT(way(links, 0, 7), ElementsAre(3, 6, 7));  // column first, upwards
  EXPECT_THAT(way(links, 7, 0), ElementsAre(10, 1, 0));
  const Links ring(toy_chips(3, 1, Topology::torus, 1));
  EXPECT_THAT(way(ring, 0, 2), ElementsAre(2));
  const Links pair(toy_chips(2, 1, Topology::torus, 2));
  EXPECT_EQ(pair.all().size(), 2u);
}

TEST(Links, OfOneChip) {
  for (const Topology topology : {Topology::ladder, Topology::torus, Topology::all_to_all})
    EXPECT_TRUE(Links(toy_chips(1, 4, topology, 1)).all().empty());
}

TEST(Links, OfAllToAll) {
  const Links links(toy_chips(5, 1, Topology::all_to_all));
  EXPECT_EQ(links.all().size(), 20u);
  EXPECT_THAT(way(links, 4, 1), ElementsAre(1));
}

TEST(Links, ReachEveryChipWithoutDetours) {
  for (const Machine& m : {toy_chips(8, 1), toy_chips(1, 1), toy_chips(16, 1, Topology::torus, 2),
                           toy_chips(15, 1, Topology::torus, 5), toy_chips(7, 1, Topology::all_to_all)}) {
    const Links links(m);
    for (uint32_t from = 0; from < m.chips; ++from) {
      // Distances by breadth.
      std::vector<uint32_t> distance(m.chips, ~0U);
      std::vector<uint32_t> front = {from};
      distance[from] = 0;
      while (!front.empty()) {
        std::vector<uint32_t> next;
        for (const uint32_t chip : front)
          for (const Link& link : links.all())
            if (link.from == chip && distance[link.to] == ~0U) {
              distance[link.to] = distance[chip] + 1;
              next.push_back(link.to);
            }
        front = next;
      }
      for (uint32_t to = 0; to < m.chips; ++to) {
        const std::vector<uint32_t> chips = way(links, from, to);
        EXPECT_EQ(chips.size(), distance[to]) << from << " to " << to;
        EXPECT_TRUE(from == to || chips.back() == to);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::machine
