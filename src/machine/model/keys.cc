#include "machine/model/keys.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tessera::machine {
namespace {

constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();
constexpr double kMostBytes = 1e12;

template <auto Member>
void assign(Machine& m, double value) {
  m.*Member = static_cast<std::remove_reference_t<decltype(m.*Member)>>(value);
}

constexpr std::string_view kRate = "bytes per cycle and tile";
constexpr std::string_view kMacs = "multiply-accumulates per cycle and tile";

constexpr uint32_t kMostTiles = 1 << 20;

void set_chips(Machine& m, uint32_t chips, uint32_t tiles_each) {
  m.chips = chips;
  m.chip_tiles = tiles_each;
  m.tiles = chips * tiles_each;
}
uint32_t tiles_of_chip(const Machine& m) { return m.chips == 1 ? m.tiles : m.chip_tiles; }

constexpr Key kKeys[] = {
    {"tiles", "tiles", 1, kMostTiles, true, kRequired,
     [](Machine& m, double tiles) { set_chips(m, m.chips, static_cast<uint32_t>(tiles)); }},
    {"workers_per_tile", "workers", 1, 64, true, 1, assign<&Machine::workers_per_tile>},
    {"clock_ghz", "GHz", 1e-6, 1e3, false, kRequired, [](Machine& m, double ghz) { m.clock_hz = ghz * 1e9; }},
    {"tile_bytes", "bytes", 1, kMostBytes, true, kRequired, assign<&Machine::tile_bytes>},
    {"interleaved_from", "bytes", 0, kMostBytes, true, kMostBytes, assign<&Machine::interleaved_from>},
    {"load_bytes_per_cycle", kRate, 1e-3, 1e6, false, kRequired, assign<&Machine::load_bytes_per_cycle>},
    {"interleaved_load_factor", "times", 1, 1e3, false, 1, assign<&Machine::interleaved_load_factor>},
    {"exchange_bytes_per_cycle", kRate, 1e-3, 1e6, false, kRequired,
     assign<&Machine::exchange_bytes_per_cycle>},
    {"paired_exchange_factor", "times", 1, 1e3, false, 1, assign<&Machine::paired_exchange_factor>},
    {"gather_exchange_share", "fraction", 1e-3, 1, false, 1, assign<&Machine::gather_exchange_share>},
    {"exchange_cycles", "cycles per exchange", 0, 1e9, false, kRequired, assign<&Machine::exchange_cycles>},
    {"exchange_transfer_cycles", "cycles per transfer and endpoint", 0, 1e9, false, 0,
     assign<&Machine::exchange_transfer_cycles>},
    {"sync_cycles", "cycles per sync", 0, 1e9, false, kRequired, assign<&Machine::sync_cycles>},
    {"superstep_cycles", "cycles per compute set", 0, 1e9, false, 0, assign<&Machine::superstep_cycles>},
    {"macs_per_cycle_f16", kMacs, 1e-3, 1e9, false, kRequired, assign<&Machine::macs_per_cycle_f16>},
    {"macs_per_cycle_f32", kMacs, 1e-3, 1e9, false, kRequired, assign<&Machine::macs_per_cycle_f32>},
    {"host_link_gb_per_second", "10^9 bytes per second, each direction", 0, 1e6, false, 0,
     [](Machine& m, double rate) { m.host_link_bytes_per_second = rate * 1e9; }},
    {"host_link_latency_us", "microseconds per transfer", 0, 1e9, false, 0,
     [](Machine& m, double latency) { m.host_link_latency_seconds = latency * 1e-6; }},
    {"streaming_bytes", "bytes per chip", 0, 1e15, true, 0, assign<&Machine::streaming_bytes>},
    {"streaming_gb_per_second", "10^9 bytes per second and chip", 0, 1e6, false, 0,
     [](Machine& m, double rate) { m.streaming_bytes_per_second = rate * 1e9; }},
};

constexpr Key kChipKeys[] = {
    {"chips", "chips", 1, 4096, true, 1,
     [](Machine& m, double chips) { set_chips(m, static_cast<uint32_t>(chips), tiles_of_chip(m)); }},
    {"torus_width", "chips in a row", 1, 4096, true, 2, assign<&Machine::torus_width>},
    {"link_gb_per_second", "10^9 bytes per second, each direction", 1e-6, 1e6, false, kRequired,
     [](Machine& m, double rate) { m.link_bytes_per_second = rate * 1e9; }},
    {"link_latency_ns", "nanoseconds per link of a route", 0, 1e9, false, kRequired,
     [](Machine& m, double latency) { m.link_latency_seconds = latency * 1e-9; }},
    {"chip_sync_cycles", "cycles per sync of several chips", 0, 1e9, false, kRequired,
     assign<&Machine::chip_sync_cycles>},
    {"hosts", "hosts", 1, 4096, true, 1, assign<&Machine::hosts>},
};

std::string names_of(const std::vector<const Key*>& keys) {
  std::string names;
  for (const Key* key : keys) names += fmt::format("{}{}", names.empty() ? "" : ", ", key->name);
  return names;
}

}  // namespace

std::span<const Key> keys() { return kKeys; }
std::span<const Key> chip_keys() { return kChipKeys; }

void check_chips(const Machine& m, std::string_view where) {
  if (m.chips == 1) return;
  const auto refuse = [&](const std::string& why) { throw Error(fmt::format("{}: {}", where, why)); };
  if (uint64_t{m.chips} * m.chip_tiles > kMostTiles)
    refuse(fmt::format("{} chips of {} tiles are {} tiles; a machine has at most {}", m.chips, m.chip_tiles,
                       uint64_t{m.chips} * m.chip_tiles, kMostTiles));
  if (m.link_bytes_per_second == 0)
    refuse(fmt::format("{} chips need links: set 'link_gb_per_second'", m.chips));
  if (m.topology == Topology::ladder && m.chips % 2 != 0)
    refuse(fmt::format("'chips' is {}; a ladder has an even number", m.chips));
  if (m.topology == Topology::torus && m.chips % m.torus_width != 0)
    refuse(
        fmt::format("'chips' is {}; a torus has whole rows of 'torus_width' = {}", m.chips, m.torus_width));
  if (m.chips % m.hosts != 0)
    refuse(fmt::format("'chips' is {}; 'hosts' = {} have equally many of them each", m.chips, m.hosts));
}

const Key& find_key(std::string_view name, std::string_view where) {
  std::vector<const Key*> all;
  std::vector<const Key*> fitting;
  for (const std::span<const Key> list : {keys(), chip_keys()})
    for (const Key& key : list) {
      if (key.name == name) return key;
      all.push_back(&key);
      if (!name.empty() && key.name.starts_with(name)) fitting.push_back(&key);
    }
  if (fitting.size() == 1) return *fitting[0];
  if (fitting.empty())
    throw UsageError(fmt::format("{}: unknown figure '{}' (choose from {})", where, name, names_of(all)));
  throw UsageError(fmt::format("{}: '{}' is ambiguous: it may mean {}", where, name, names_of(fitting)));
}

void enter(Machine& machine, const Key& key, double value, std::string source, std::string_view where) {
  if (!(value >= key.least && value <= key.most) || (key.whole && value != std::floor(value)))
    throw Error(fmt::format("{}: '{}' is {}; it must be {} from {} to {} ({})", where, key.name, value,
                            key.whole ? "a whole number" : "a number", key.least, key.most, key.unit));
  key.set(machine, value);
  Figure figure{std::string(key.name), value, std::string(key.unit), std::move(source)};
  const auto same = std::find_if(machine.sources.begin(), machine.sources.end(),
                                 [&](const Figure& f) { return f.name == figure.name; });
  if (same != machine.sources.end())
    *same = std::move(figure);
  else
    machine.sources.push_back(std::move(figure));
}

}  // namespace tessera::machine
