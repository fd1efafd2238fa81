#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include <toml++/toml.h>

#include "io/source.h"
#include "machine/machine.h"

namespace tessera::machine {
namespace {

/// A number that a machine file must or may have.
struct Key {
  std::string_view name;
  std::string_view unit;
  double least;
  double most;
  bool whole;
  double otherwise;  ///< NaN: the key is required
};

constexpr double kRequired = std::numeric_limits<double>::quiet_NaN();

constexpr Key kTiles{"tiles", "tiles", 1, 1 << 20, true, kRequired};
constexpr Key kWorkers{"workers_per_tile", "workers", 1, 64, true, 1};
constexpr Key kClock{"clock_ghz", "GHz", 1e-6, 1e3, false, kRequired};
constexpr Key kTileBytes{"tile_bytes", "bytes", 1, 1e12, true, kRequired};
constexpr Key kLoad{"load_bytes_per_cycle", "bytes per cycle and tile", 1e-3, 1e6, false, kRequired};
constexpr Key kExchange{"exchange_bytes_per_cycle", "bytes per cycle and tile", 1e-3, 1e6, false, kRequired};
constexpr Key kExchangeFixed{"exchange_cycles", "cycles an exchange", 0, 1e9, false, kRequired};
constexpr Key kSync{"sync_cycles", "cycles a superstep", 0, 1e9, false, kRequired};
constexpr Key kMacs16{"macs_per_cycle_f16", "multiply-accumulates per cycle and tile", 1e-3, 1e9, false, kRequired};
constexpr Key kMacs32{"macs_per_cycle_f32", "multiply-accumulates per cycle and tile", 1e-3, 1e9, false, kRequired};

class Reader {
 public:
  Reader(const std::filesystem::path& file, Machine& machine) : file_(file.string()), machine_(machine) {
    const std::vector<char> content = io::Source::open(file_).read_all();
    try {
      table_ = toml::parse(std::string_view(content.data(), content.size()), file_);
    } catch (const toml::parse_error& e) {
      throw Error(fmt::format("{}:{}: {}", file_, e.source().begin.line, e.description()));
    }
  }

  std::string text(std::string_view key, std::string otherwise) const {
    return text(table_[key], std::string(key), std::move(otherwise));
  }

  /// `key = number`, or `key = { value = number, source = "where it is from" }`.
  double number(const Key& key) {
    seen_.push_back(key.name);
    const Node node = std::as_const(table_)[key.name];
    if (!node && !std::isnan(key.otherwise)) return key.otherwise;
    if (!node)
      throw Error(fmt::format("{}: '{}' ({}) is missing; docs/machines.md lists what a machine needs",
                              file_, key.name, key.unit));
    const auto value_node = node.is_table() ? node["value"] : node;
    const auto value = value_node.is_number() ? value_node.value<double>() : std::nullopt;
    if (!value) throw Error(fmt::format("{}: '{}' must be a number ({})", file_, key.name, key.unit));
    if (!(*value >= key.least && *value <= key.most) || (key.whole && *value != std::floor(*value)))
      throw Error(fmt::format("{}: '{}' is {}; it must be {} from {} to {} ({})", file_, key.name, *value,
                              key.whole ? "a whole number" : "a number", key.least, key.most, key.unit));
    machine_.sources.push_back({std::string(key.name), *value, std::string(key.unit), source_of(key, node)});
    return *value;
  }

  void reject_unknown() const {
    for (const auto& [key, value] : table_) {
      const std::string_view name = key.str();
      if (name != "name" && name != "description" && std::find(seen_.begin(), seen_.end(), name) == seen_.end())
        throw Error(fmt::format("{}: unknown key '{}'; docs/machines.md lists the keys", file_, name));
    }
  }

 private:
  using Node = toml::node_view<const toml::node>;

  std::string text(const Node& node, const std::string& key, std::string otherwise) const {
    if (node && !node.is_string()) throw Error(fmt::format("{}: '{}' must be text", file_, key));
    return node.value_or(std::move(otherwise));
  }

  std::string source_of(const Key& key, const Node& node) const {
    if (!node.is_table()) return {};
    for (const auto& [inner, value] : *node.as_table())
      if (inner.str() != "value" && inner.str() != "source")
        throw Error(fmt::format("{}: unknown key '{}.{}'; docs/machines.md lists the keys", file_, key.name, inner.str()));
    return text(node["source"], fmt::format("{}.source", key.name), "");
  }

  std::string file_;
  Machine& machine_;
  toml::table table_;
  std::vector<std::string_view> seen_;
};

}  // namespace

Machine read(const std::filesystem::path& file) {
  Machine m;
  m.kind = Kind::tiled;
  Reader reader(file, m);
  m.name = reader.text("name", file.stem().string());
  m.description = reader.text("description", "");
  m.tiles = static_cast<uint32_t>(reader.number(kTiles));
  m.workers_per_tile = static_cast<uint32_t>(reader.number(kWorkers));
  m.clock_hz = reader.number(kClock) * 1e9;
  m.tile_bytes = static_cast<uint64_t>(reader.number(kTileBytes));
  m.load_bytes_per_cycle = reader.number(kLoad);
  m.exchange_bytes_per_cycle = reader.number(kExchange);
  m.exchange_cycles = reader.number(kExchangeFixed);
  m.sync_cycles = reader.number(kSync);
  m.macs_per_cycle_f16 = reader.number(kMacs16);
  m.macs_per_cycle_f32 = reader.number(kMacs32);
  reader.reject_unknown();
  return m;
}

}  // namespace tessera::machine
