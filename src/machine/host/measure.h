// What this computer really does: peak rates, bandwidths, the cost of a barrier. Nothing is ever
// measured on the side: only `tessera machines measure` and the benchmarks call this.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/isa.h"
#include "machine/host/detect.h"
#include "machine/model/figures.h"

namespace tessera::machine {

/// A rate of one thread alone, and of all threads together.
struct Rate {
  double one = 0;
  double all = 0;
};

/// FP32 operations of multiply-adds in registers, 10^9 a second.
struct PeakRate {
  Isa isa = Isa::generic;
  Rate gflops;
  double ghz = 0;  ///< clock of a core right after this load, all threads loaded
};

/// Streaming reads of a working set, 10^9 bytes a second.
struct LevelRate {
  std::string level;          ///< "L1", "L2", "L3", "memory"
  uint64_t thread_bytes = 0;  ///< working set of each thread
  Rate read;
};

struct HostMeasurement {
  std::string cpu;  ///< as in HostFacts
  unsigned threads = 1;
  std::vector<PeakRate> peaks;    ///< one an instruction set, best last
  std::vector<LevelRate> levels;  ///< nearest first; without L3 where there is none
  Rate memory_write;              ///< ordinary stores, 10^9 bytes stored a second
  Rate memory_copy;               ///< 10^9 bytes a second, read and stored ones together
  double barrier_seconds = 0;     ///< of all threads; 0 for one
};

/// Called before each part with what comes next and the share done, 0 to 1.
using Progress = std::function<void(std::string_view what, double done)>;

/// Measures everything on `threads` threads; a few seconds. Changes the active instruction set
/// while it runs: no kernel may run beside it.
HostMeasurement measure_host(const HostFacts& facts, unsigned threads, const Progress& progress);

/// Peak rate of the active instruction set, 10^9 FP32 operations a second of all threads, best of
/// ten.
double measure_peak_gflops(unsigned threads);

/// Streaming reads of one buffer of `bytes`, shared out over the threads: 10^9 bytes a second,
/// best of ten.
double measure_read_gbps(uint64_t bytes, unsigned threads);

/// The measurement as JSON, and back. `source` is named in errors. Throws Error where a key is
/// missing or a number is not one that a computer can have.
std::string to_json(const HostMeasurement& measurement);
HostMeasurement measurement_from_json(std::string_view text, const std::string& source);

/// Where the measurement of a processor is kept: in the folder TESSERA_CACHE, else in tessera/
/// under XDG_CACHE_HOME or ~/.cache. Throws Error where none of them is set.
std::filesystem::path measurement_file(const HostFacts& facts);

/// Throws Error where the file cannot be written, which is better known before measuring than after.
/// Makes its folder.
void require_writable(const std::filesystem::path& file);

/// Writes the file, whole or not at all; makes its folder.
void save_measurement(const HostMeasurement& measurement, const std::filesystem::path& file);

/// The measurement of this processor; nothing where there is none or no folder for it.
std::optional<HostMeasurement> load_measurement(const HostFacts& facts);

/// Figures for cost models: the measured rates where there are any, the built-in ones for the
/// rest. What a core does a cycle out of registers and L1 is a fact of its instruction set and stays
/// built in; the clock is the one at which that gives the measured peak.
HostFigures measured_figures(const HostMeasurement& measurement, const HostFacts& facts, Isa isa,
                             unsigned threads);

}  // namespace tessera::machine
