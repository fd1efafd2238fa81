// Machine files: their contents, and messages on files that are refused.
#include "machine/model/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <regex>

#include "machine/model/keys.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::machine {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::kToyToml;

class MachineFile : public ::testing::Test {
 protected:
  ~MachineFile() override { std::filesystem::remove(path_); }

  Machine read_text(const std::string& text) {
    std::ofstream(path_) << text;
    return read(path_);
  }
  /// The message for a file in which the line of `key` is replaced.
  std::string error_with(const std::string& key, const std::string& line) {
    const std::string text =
        std::regex_replace(kToyToml, std::regex("(^|\n)" + key + " = [^\n]*"), "$1" + line);
    EXPECT_NE(text, kToyToml) << key;
    return error_of(text);
  }
  std::string error_of(const std::string& text) {
    const std::string error = test::error_of([&] { read_text(text); });
    EXPECT_THAT(error, AnyOf("(no error)", HasSubstr(path_.string())));
    return error;
  }

  std::filesystem::path path_ = std::filesystem::path(::testing::TempDir()) /
                                ::testing::UnitTest::GetInstance()->current_test_info()->name() += ".toml";
};

TEST_F(MachineFile, ReadsEveryNumber) {
  const Machine m = read_text(kToyToml);
  const Machine toy = testing::toy_machine(3);
  EXPECT_EQ(m.name, "toy");
  EXPECT_EQ(m.description, "three tiles for tests");
  EXPECT_EQ(m.kind, Kind::tiled);
  EXPECT_EQ(m.tiles, toy.tiles);
  EXPECT_EQ(m.workers_per_tile, toy.workers_per_tile);
  EXPECT_EQ(m.clock_hz, toy.clock_hz);
  EXPECT_EQ(m.tile_bytes, toy.tile_bytes);
  EXPECT_FALSE(m.has_shared_space());
  EXPECT_EQ(m.load_bytes_per_cycle, toy.load_bytes_per_cycle);
  EXPECT_EQ(m.exchange_bytes_per_cycle, toy.exchange_bytes_per_cycle);
  EXPECT_EQ(m.exchange_cycles, toy.exchange_cycles);
  EXPECT_EQ(m.sync_cycles, toy.sync_cycles);
  EXPECT_EQ(m.macs_per_cycle_f16, toy.macs_per_cycle_f16);
  EXPECT_EQ(m.macs_per_cycle_f32, toy.macs_per_cycle_f32);
  EXPECT_FALSE(m.has_interleaved_region());
  EXPECT_EQ(m.interleaved_load_bytes_per_cycle(), m.load_bytes_per_cycle);
  EXPECT_EQ(m.paired_exchange_factor, 1);
  EXPECT_EQ(m.gather_exchange_share, 1);
  EXPECT_EQ(m.exchange_transfer_cycles, 0);
}

TEST_F(MachineFile, KeepsTheSourceOfEachNumber) {
  const Machine m = read_text(kToyToml);
  ASSERT_EQ(m.sources.size(), keys().size());
  for (const Figure& figure : m.sources) {
    EXPECT_FALSE(figure.unit.empty()) << figure.name;
    const bool is_given = kToyToml.find(figure.name + " = ") != std::string::npos;
    EXPECT_EQ(figure.source, figure.name == "exchange_bytes_per_cycle" ? "made up"
                             : is_given                                ? ""
                                                                       : "default")
        << figure.name;
  }
}

TEST_F(MachineFile, ReadsTheHostLink) {
  EXPECT_FALSE(read_text(kToyToml).has_host_link());
  const Machine m = read_text(kToyToml + "host_link_gb_per_second = 12.5\nhost_link_latency_us = 10\n");
  EXPECT_TRUE(m.has_host_link());
  EXPECT_EQ(m.host_link_bytes_per_second, 12.5e9);
  EXPECT_NEAR(m.host_transfer_seconds(0), 10e-6, 1e-15);
  EXPECT_NEAR(m.host_transfer_seconds(125'000'000), 0.01001, 1e-12);
  EXPECT_THAT(error_of(kToyToml + "host_link_gb_per_second = -1\n"),
              HasSubstr("'host_link_gb_per_second' is -1; it must be a number from 0 to 1000000"));
  EXPECT_THAT(error_of(kToyToml + "host_link_latency_us = nan\n"),
              HasSubstr("'host_link_latency_us' is nan"));
}

TEST_F(MachineFile, IsNamedAfterItsFileWhereItHasNoName) {
  const Machine m = read_text(std::regex_replace(kToyToml, std::regex("name = [^\n]*\n"), "",
                                                 std::regex_constants::format_first_only));
  EXPECT_EQ(m.name, path_.stem().string());
}

TEST_F(MachineFile, IsFoundByItsPath) {
  read_text(kToyToml);
  EXPECT_EQ(find(path_.string()).tiles, 3u);
  EXPECT_EQ(find("host", 2).tiles, 2u);
  EXPECT_THROW(find("gc3000"), UsageError);
}

TEST_F(MachineFile, MissesNoNumberThatItNeeds) {
  for (const char* key :
       {"tiles", "clock_ghz", "tile_bytes", "load_bytes_per_cycle", "exchange_bytes_per_cycle",
        "exchange_cycles", "sync_cycles", "macs_per_cycle_f16", "macs_per_cycle_f32"})
    EXPECT_THAT(error_with(key, "# none"), HasSubstr(std::string("'").append(key).append("' (")));
  EXPECT_EQ(error_with("workers_per_tile", "# none"), "(no error)");
}

TEST_F(MachineFile, RefusesAbsurdNumbers) {
  EXPECT_THAT(error_with("tiles", "tiles = 0"),
              HasSubstr("'tiles' is 0; it must be a whole number from 1 to 1048576 (tiles)"));
  EXPECT_THAT(error_with("tiles", "tiles = -3"), HasSubstr("'tiles' is -3;"));
  EXPECT_THAT(error_with("tiles", "tiles = 2.5"), HasSubstr("'tiles' is 2.5; it must be a whole number"));
  EXPECT_THAT(error_with("tiles", "tiles = 4294967296"), HasSubstr("'tiles' is 4294967296;"));
  EXPECT_THAT(error_with("clock_ghz", "clock_ghz = nan"), HasSubstr("'clock_ghz' is nan;"));
  EXPECT_THAT(error_with("clock_ghz", "clock_ghz = inf"), HasSubstr("'clock_ghz' is inf;"));
  EXPECT_THAT(error_with("clock_ghz", "clock_ghz = 0.0"), HasSubstr("'clock_ghz' is 0;"));
  EXPECT_THAT(error_with("sync_cycles", "sync_cycles = -inf"), HasSubstr("'sync_cycles' is -inf;"));
  EXPECT_THAT(error_with("tile_bytes", "tile_bytes = 1e300"), HasSubstr("'tile_bytes' is 1e+300;"));
  EXPECT_THAT(error_with("workers_per_tile", "workers_per_tile = 65"), HasSubstr("from 1 to 64 (workers)"));
}

TEST_F(MachineFile, RefusesValuesThatAreNoNumbers) {
  for (const char* value :
       {"\"many\"", "true", "[3]", "1979-05-27", "{ source = \"a book\" }", "{ value = \"3\" }"})
    EXPECT_THAT(error_with("tiles", std::string("tiles = ") + value),
                HasSubstr("'tiles' must be a number (tiles)"))
        << value;
}

TEST_F(MachineFile, RefusesKeysThatItDoesNotKnow) {
  EXPECT_THAT(error_of(kToyToml + "tile_byte = 3\n"),
              HasSubstr("unknown key 'tile_byte'; docs/machines.md lists the keys"));
  EXPECT_THAT(error_of(kToyToml + "[memory]\nbytes = 3\n"), HasSubstr("unknown key 'memory'"));
  EXPECT_THAT(error_with("exchange_cycles", "exchange_cycles = { value = 20, units = \"s\" }"),
              HasSubstr("unknown key 'exchange_cycles.units'"));
}

TEST_F(MachineFile, RefusesNamesThatAreNoText) {
  EXPECT_THAT(error_with("name", "name = 3"), HasSubstr("'name' must be text"));
  EXPECT_THAT(error_with("description", "description = [1]"), HasSubstr("'description' must be text"));
  EXPECT_THAT(error_with("exchange_cycles", "exchange_cycles = { value = 20, source = 3 }"),
              HasSubstr("'exchange_cycles.source' must be text"));
}

TEST_F(MachineFile, SaysWhereItIsMalformed) {
  EXPECT_THAT(error_of("name = \"toy\"\ntiles = = 3\n"), HasSubstr(":2: "));
  EXPECT_THAT(error_of(std::string("\0\xff\xfe", 3)), HasSubstr(":1: "));
  EXPECT_THROW(read("/no/such/machine.toml"), Error);
}

TEST(BuiltinMachines, GiveTheSourceOfEveryNumber) {
  EXPECT_EQ(builtin_names(),
            (std::vector<std::string>{"gc2", "gc200", "bow", "m2000", "pod16", "pod64", "pod128", "pod256",
                                      "bow2000", "bow_pod16", "bow_pod64", "bow_pod128", "bow_pod256"}));
  for (const std::string& name : builtin_names()) {
    const Machine m = find(name);
    EXPECT_EQ(m.name, name);
    EXPECT_EQ(m.kind, Kind::tiled);
    EXPECT_TRUE(m.has_interleaved_region());
    EXPECT_FALSE(m.description.empty());
    ASSERT_EQ(m.sources.size(), keys().size() + (m.chips > 1 ? chip_keys().size() : 0));
    for (const Figure& figure : m.sources) EXPECT_FALSE(figure.source.empty()) << name << " " << figure.name;
  }
}

TEST(BuiltinMachines, HaveTheVendorsPeaks) {
  const auto tflops = [](const Machine& m, double macs) { return 2e-12 * macs * m.tiles * m.clock_hz; };
  const Machine bow = find("bow");
  EXPECT_NEAR(tflops(bow, bow.macs_per_cycle_f16), 349, 1);
  EXPECT_NEAR(tflops(bow, bow.macs_per_cycle_f32), 87, 0.5);
  const Machine gc200 = find("gc200");
  EXPECT_NEAR(tflops(gc200, gc200.macs_per_cycle_f16), 250, 1);
  EXPECT_NEAR(tflops(gc200, gc200.macs_per_cycle_f32), 62.5, 0.5);
  EXPECT_EQ(gc200.tile_bytes - gc200.interleaved_from, 425984u);
  EXPECT_EQ(gc200.host_link_bytes_per_second, 100e9 / 8);
  const Machine gc2 = find("gc2");
  EXPECT_NEAR(tflops(gc2, gc2.macs_per_cycle_f32), 31.1, 0.1);
}

/// The message for one setting of a machine.
std::string error_of(const Setting& setting, const std::string& machine = "bow") {
  Machine m = find(machine, 1);
  return test::error_of<UsageError>([&] { apply(setting, m); });
}

TEST(Settings, ChangeAFigureAndItsSource) {
  Machine m = find("bow");
  apply({"tiles", 2944}, m);
  apply({"exchange_bytes", 8}, m);  // cut short, as no other key begins with it
  EXPECT_EQ(m.tiles, 2944u);
  EXPECT_EQ(m.exchange_bytes_per_cycle, 8);
  ASSERT_EQ(m.sources.size(), keys().size());
  for (const Figure& figure : m.sources)
    EXPECT_EQ(figure.source == "set by hand",
              figure.name == "tiles" || figure.name == "exchange_bytes_per_cycle");
}

TEST(Settings, TakeEveryFigureUpToItsLimits) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Key& key : keys()) {
    const std::string name(key.name);
    const auto below = [&](double value) { return key.whole ? value - 1 : std::nextafter(value, -infinity); };
    const auto above = [&](double value) { return key.whole ? value + 1 : std::nextafter(value, infinity); };
    EXPECT_EQ(error_of(Setting{name, key.least}), "(no error)") << name;
    EXPECT_EQ(error_of(Setting{name, key.most}), "(no error)") << name;
    EXPECT_THAT(error_of(Setting{name, below(key.least)}), HasSubstr("it must be")) << name;
    EXPECT_THAT(error_of(Setting{name, above(key.most)}), HasSubstr("it must be")) << name;
  }
}

TEST(Settings, RefuseWhatNoMachineHas) {
  EXPECT_EQ(error_of({"tiles", 0}), "bow: 'tiles' is 0; it must be a whole number from 1 to 1048576 (tiles)");
  EXPECT_THAT(error_of({"clock_ghz", NAN}), HasSubstr("'clock_ghz' is nan;"));
  EXPECT_THAT(error_of({"cores", 4}),
              HasSubstr("unknown figure 'cores' (choose from tiles, workers_per_tile, "));
  EXPECT_THAT(error_of({"", 4}), HasSubstr("unknown figure ''"));
  EXPECT_THAT(error_of({"exchange", 4}),
              HasSubstr("'exchange' is ambiguous: it may mean exchange_bytes_per_cycle, exchange_cycles, "
                        "exchange_transfer_cycles"));
  EXPECT_THAT(error_of({"tiles", 4}, "host"), HasSubstr("its figures are the host's"));
}

}  // namespace
}  // namespace tessera::machine
