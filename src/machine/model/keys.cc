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

constexpr Key kKeys[] = {
    {"tiles", "tiles", 1, 1 << 20, true, kRequired, assign<&Machine::tiles>},
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
};

std::string names_of(const std::vector<const Key*>& keys) {
  std::string names;
  for (const Key* key : keys) names += fmt::format("{}{}", names.empty() ? "" : ", ", key->name);
  return names;
}

}  // namespace

std::span<const Key> keys() { return kKeys; }

const Key& find_key(std::string_view name, std::string_view where) {
  std::vector<const Key*> all;
  std::vector<const Key*> fitting;
  for (const Key& key : kKeys) {
    if (key.name == name) return key;
    all.push_back(&key);
    if (!name.empty() && key.name.starts_with(name)) fitting.push_back(&key);
  }
  if (fitting.size() == 1) return *fitting[0];
  if (fitting.empty())
    throw UsageError(fmt::format("{}: a machine has no '{}'; it has {}", where, name, names_of(all)));
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
