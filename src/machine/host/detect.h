// Properties of the host as reported by the operating system, without timing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/isa.h"

namespace tessera::machine {

/// The facts of a host that plans may depend on: identical on every run on the same computer.
struct HostFacts {
  std::string cpu;               ///< the processor's model name
  Isa isa = Isa::generic;        ///< best instruction set of this processor and build
  double nominal_ghz = 0;        ///< base clock, or the time stamp counter's; 0: unknown
  uint64_t l1_bytes = 0;         ///< data cache of one core
  uint64_t l2_bytes = 0;         ///< L2 cache of one core
  uint64_t l3_bytes = 0;         ///< L3 cache of all cores that share it; 0: none or unknown
  unsigned cores_per_l3 = 1;     ///< allowed physical cores that share an L3
  unsigned sockets = 1;          ///< sockets of the allowed processors
  unsigned physical_cores = 1;   ///< cores with at least one allowed hardware thread
  unsigned allowed_threads = 1;  ///< hardware threads in the affinity mask
  double quota = 0;              ///< processors' worth of time a cgroup allows; 0: no limit
  uint64_t memory_bytes = 0;     ///< main memory, or the cgroup's limit if lower

  bool operator==(const HostFacts&) const = default;
};

/// The source of facts: a root with proc/ and sys/ below it, and the processors in the affinity mask.
struct HostSource {
  std::filesystem::path root = "/";
  std::vector<int> allowed_cpus;
};

/// The facts of the host, for the calling thread's affinity. Unknown facts keep conservative defaults.
HostFacts detect_host();

/// The facts from another source, for tests.
HostFacts detect_host(const HostSource& source);

/// The allowed processors, one per physical core before any siblings.
std::vector<int> cpus_by_core();
std::vector<int> cpus_by_core(const HostSource& source);

/// The allowed processors of each physical core, by the first of them.
std::vector<std::vector<int>> cpus_of_cores();
std::vector<std::vector<int>> cpus_of_cores(const HostSource& source);

/// Restricts all threads of this process, and those that they start, to these processors. The default number
/// of threads follows.
void bind_process(std::span<const int> cpus);
/// Number of calls of bind_process(): what was detected before the last call may be out of date.
uint32_t process_bindings();

/// Number of threads of a run: the one given to set_default_threads(), or the environment variable
/// TESSERA_THREADS if it is set, otherwise one per physical core within the cgroup quota. At least 1. Throws
/// UsageError if TESSERA_THREADS is not a whole number from 1 to 4096.
unsigned default_threads(const HostFacts& facts);

/// Maximum number of threads; more are assumed to be a mistake.
inline constexpr unsigned kMostThreads = 4096;

/// Throws UsageError for more than kMostThreads.
void check_threads(unsigned threads);

/// One readable "name: value" line per fact.
std::string describe(const HostFacts& facts);

}  // namespace tessera::machine
