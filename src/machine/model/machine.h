// Machines: tiles with their memories, and the costs of compute and exchange.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "machine/model/figures.h"

namespace tessera::machine {

enum class Kind : uint8_t {
  host,   ///< the CPU: tiles are threads, variables lie in the shared space
  tiled,  ///< modelled: every tile has its own memory, and exchange is a planned copy
};

/// How the chips of a machine are linked.
enum class Topology : uint8_t {
  ladder,      ///< two columns: 2i and 2i + 1 form a rung, and each has links to 2i - 2 or 2i - 1 and onwards
  torus,       ///< rows of `torus_width` chips; rows and columns are rings
  all_to_all,  ///< a link between any two chips
};
std::string_view name_of(Topology topology);

/// A figure with its source.
struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  std::string source;

  bool operator==(const Figure&) const = default;
};

struct Machine {
  std::string name;
  std::string description;
  Kind kind = Kind::host;
  uint32_t tiles = 1;
  uint32_t workers_per_tile = 1;
  double clock_hz = 1e9;

  // Memory, in bytes.
  uint64_t tile_bytes = 0;                   ///< memory of one tile; 0 on a host
  uint64_t shared_bytes = 0;                 ///< reachable by every tile; 0: none
  uint64_t interleaved_from = ~uint64_t{0};  ///< address in a tile at which its interleaved region begins

  // Tiled machines: bytes per cycle and tile, cycles, multiply-accumulates per cycle and tile.
  double load_bytes_per_cycle = 0;
  double interleaved_load_factor = 1;  ///< load rate of the interleaved region, relative to
                                       ///< load_bytes_per_cycle
  double exchange_bytes_per_cycle = 0;
  double paired_exchange_factor = 1;  ///< rate of data that tiles 2i and 2i + 1 both receive, relative to the
                                      ///< normal rate
  double gather_exchange_share = 1;   ///< fraction of the rate that gathers of scattered rows reach
  double exchange_cycles = 0;         ///< fixed cost of an exchange, without its sync
  double exchange_transfer_cycles = 0;  ///< added for each end of a transfer
  double sync_cycles = 0;               ///< sync of all tiles before an exchange
  double superstep_cycles = 0;          ///< fixed cost of a compute set
  double macs_per_cycle_f16 = 0;
  double macs_per_cycle_f32 = 0;

  // Machines of several chips. Tiles are numbered chip by chip.
  uint32_t chips = 1;       ///< chips of the whole machine
  uint32_t chip_tiles = 0;  ///< tiles of each chip, if there are several
  uint32_t first_tile = 0;  ///< for a part of a machine: the whole machine's number of its tile 0
  Topology topology = Topology::all_to_all;
  uint32_t torus_width = 2;
  double link_bytes_per_second = 0;  ///< between two linked chips, in each direction
  double link_latency_seconds = 0;   ///< latency of each link on a route
  double chip_sync_cycles = 0;       ///< sync of the tiles of several chips, before an exchange between them

  // Streaming memory, beside each chip, for all of its tiles.
  uint64_t streaming_bytes = 0;
  double streaming_bytes_per_second = 0;

  // The link between a tiled machine and each of its hosts.
  double host_link_bytes_per_second = 0;  ///< in each direction; 0: unknown
  double host_link_latency_seconds = 0;   ///< latency of each transfer
  uint32_t hosts = 1;  ///< of the whole machine: equal parts of its chips have a host each, with its own link

  HostFacts facts;      ///< hosts only
  HostFigures figures;  ///< hosts only

  std::vector<Figure> sources;  ///< every number above, in readable form

  bool operator==(const Machine&) const = default;

  uint32_t chip_of(uint32_t tile) const { return chips == 1 ? 0 : (first_tile + tile) / chip_tiles; }
  uint32_t first_chip() const { return chip_of(0); }
  /// Number of chips on which the machine, or this part of one, has tiles.
  uint32_t chip_count() const { return tiles == 0 ? 1 : chip_of(tiles - 1) - first_chip() + 1; }
  /// The tiles [first, first + count) as a machine; they keep their chips.
  Machine part(uint32_t first, uint32_t count) const;
  /// Whether the other machine is equal, or has the same tiles of another chip: plans and costs are then
  /// equal.
  bool is_like(const Machine& other) const;
  /// Cycles in which a link moves this many bytes, without its latency.
  double link_cycles(double bytes) const { return bytes / link_bytes_per_second * clock_hz; }
  double link_latency_cycles() const { return link_latency_seconds * clock_hz; }

  bool has_shared_space() const { return shared_bytes != 0; }
  bool has_interleaved_region() const { return interleaved_from < tile_bytes; }
  double interleaved_load_bytes_per_cycle() const { return load_bytes_per_cycle * interleaved_load_factor; }
  double seconds(double cycles) const { return cycles / clock_hz; }
  bool has_host_link() const { return host_link_bytes_per_second > 0; }
  /// Hosts of the chips of the machine, or of this part of one.
  uint32_t host_count() const {
    return chips == 1 ? 1 : static_cast<uint32_t>((uint64_t{hosts} * chip_count() + chips - 1) / chips);
  }
  /// Seconds of one transfer over the host link, which the machine must have; several hosts divide its bytes.
  double host_transfer_seconds(uint64_t bytes) const {
    return host_link_latency_seconds +
           static_cast<double>(bytes) / (host_count() * host_link_bytes_per_second);
  }
};

/// The host with `threads` tiles (0: default_threads), for the active instruction set. Uses rates measured by
/// `tessera machines measure` if its cache file is for this processor, otherwise built-in rates.
Machine host(unsigned threads = 0);

/// A machine from a TOML file (docs/machines.md). Throws Error naming file, key and value if a number is
/// missing, not finite, or out of range.
Machine read(const std::filesystem::path& file);

/// A machine from the text of a TOML file; `name` is for messages.
Machine parse(std::string_view content, const std::string& name);

/// Machines that the library knows by name (machines/*.toml), oldest first.
std::vector<std::string> builtin_names();

/// "host", the name of a built-in machine, or a TOML file. Throws UsageError for any other name.
Machine find(const std::string& name, unsigned threads = 0);

/// A figure of a machine to change. The key may be abbreviated if it stays unambiguous.
struct Setting {
  std::string key;
  double value = 0;

  bool operator==(const Setting&) const = default;
};

/// Changes a tiled machine. Throws UsageError naming key, value and range for an unknown key or a value out
/// of range, and for a host, whose figures are facts.
void apply(const Setting& setting, Machine& machine);

}  // namespace tessera::machine
