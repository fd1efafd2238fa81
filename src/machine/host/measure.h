// Measured properties of the host: peak rates, bandwidths, the cost of a superstep. Nothing is measured
// implicitly: only `tessera machines measure` and the benchmarks call this.
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

/// FP32 operations of multiply-adds from registers, 10^9 per second.
struct PeakRate {
  Isa isa = Isa::generic;
  Rate gflops;
  double ghz = 0;  ///< clock of a core right after this load on all threads
};

/// Streaming reads of a working set, 10^9 bytes per second.
struct LevelRate {
  std::string level;          ///< "L1", "L2", "L3", "memory"
  uint64_t thread_bytes = 0;  ///< working set of each thread
  Rate read;
};

struct HostMeasurement {
  std::string cpu;  ///< as in HostFacts
  unsigned threads = 1;
  std::vector<PeakRate> peaks;    ///< one per instruction set, best last
  std::vector<LevelRate> levels;  ///< nearest first; without L3 if there is none
  Rate memory_write;              ///< ordinary stores, 10^9 bytes stored per second
  Rate memory_copy;               ///< 10^9 bytes per second, reads and writes together
  double superstep_seconds = 0;   ///< of a superstep of all threads without work; 0 for one thread
};

/// Called before each part with its name and the fraction done, 0 to 1.
using Progress = std::function<void(std::string_view what, double done)>;

/// Measures everything on `threads` threads in a few seconds. Changes the active instruction set meanwhile:
/// no kernel may run at the same time.
HostMeasurement measure_host(const HostFacts& facts, unsigned threads, const Progress& progress);

/// Peak rate of the active instruction set, 10^9 FP32 operations per second of all threads, best of ten.
double measure_peak_gflops(unsigned threads);

/// Streaming reads of one buffer of `bytes`, distributed over the threads: 10^9 bytes per second, best of
/// ten.
double measure_read_gbps(uint64_t bytes, unsigned threads);

/// Converts the measurement to JSON and back. `source` is named in errors. Throws Error if a key is missing
/// or a number is impossible.
std::string to_json(const HostMeasurement& measurement);
HostMeasurement measurement_from_json(std::string_view text, const std::string& source);

/// The cache file of a processor's measurement: in the folder TESSERA_CACHE, otherwise in tessera/ under
/// XDG_CACHE_HOME or ~/.cache. Throws Error if none of these is set.
std::filesystem::path measurement_file(const HostFacts& facts);

/// Throws Error if the file cannot be written, so that this is known before measuring. Creates its folder.
void require_writable(const std::filesystem::path& file);

/// Writes the file, completely or not at all; creates its folder.
void save_measurement(const HostMeasurement& measurement, const std::filesystem::path& file);

/// The measurement of this processor, if there is one.
std::optional<HostMeasurement> load_measurement(const HostFacts& facts);

/// Figures for cost models: measured rates where available, built-in rates otherwise. A core's operations per
/// cycle from registers and L1 are a fact of its instruction set and stay built in; the clock is chosen such
/// that they give the measured peak.
HostFigures measured_figures(const HostMeasurement& measurement, const HostFacts& facts, Isa isa,
                             unsigned threads);

}  // namespace tessera::machine
