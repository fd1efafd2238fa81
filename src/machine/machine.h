// What a machine is: tiles with their memories, and what computing and exchanging costs on them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "machine/figures.h"

namespace tessera::machine {

enum class Kind : uint8_t {
  host,   ///< this computer: tiles are threads, variables lie in the shared space
  tiled,  ///< modelled: every tile has a memory of its own, and exchange is a planned copy
};

/// A machine with one number in the wrong place is a wrong machine, so each keeps its source.
struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  std::string source;
};

struct Machine {
  std::string name;
  std::string description;
  Kind kind = Kind::host;
  uint32_t tiles = 1;
  uint32_t workers_per_tile = 1;
  double clock_hz = 1e9;

  // Memory, in bytes.
  uint64_t tile_bytes = 0;    ///< of one tile; 0 on a host
  uint64_t shared_bytes = 0;  ///< that every tile reaches; 0 where there is none

  // Tiled machines: bytes per cycle and tile, cycles, multiply-accumulates per cycle and tile.
  double load_bytes_per_cycle = 0;
  double exchange_bytes_per_cycle = 0;
  double exchange_cycles = 0;  ///< fixed cost of an exchange
  double sync_cycles = 0;      ///< of one superstep
  double macs_per_cycle_f16 = 0;
  double macs_per_cycle_f32 = 0;

  HostFacts facts;      ///< hosts only
  HostFigures figures;  ///< hosts only

  std::vector<Figure> sources;  ///< every number above, for people

  bool has_shared_space() const { return shared_bytes != 0; }
  double seconds(double cycles) const { return cycles / clock_hz; }
};

/// This computer with `threads` tiles (0: default_threads), for the active instruction set.
/// Rates measured by `tessera machines measure` are used where its cache file has this processor,
/// else built-in ones.
Machine host(unsigned threads = 0);

/// A machine from a TOML file (docs/machines.md). Throws Error naming file, key and value where a
/// number is missing, not finite, or out of the range that a machine can have.
Machine read(const std::filesystem::path& file);

/// "host", or a TOML file.
Machine find(const std::string& name, unsigned threads = 0);

}  // namespace tessera::machine
