// What this computer is, as the operating system tells it. Nothing here is timed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/isa.h"

namespace tessera::machine {

/// The facts of a host that plans may depend on: the same on every run on the same computer.
struct HostFacts {
  std::string cpu;               ///< the processor's own name for itself
  Isa isa = Isa::generic;        ///< best instruction set of this processor and build
  double nominal_ghz = 0;        ///< base clock, or the time stamp counter's; 0: unknown
  uint64_t l1_bytes = 0;         ///< data cache of a core
  uint64_t l2_bytes = 0;         ///< of a core
  uint64_t l3_bytes = 0;         ///< of all cores that share one; 0: none or unknown
  unsigned cores_per_l3 = 1;     ///< allowed physical cores that share an L3
  unsigned sockets = 1;          ///< that the allowed processors lie on
  unsigned physical_cores = 1;   ///< with at least one allowed hardware thread
  unsigned allowed_threads = 1;  ///< hardware threads in the affinity mask
  double quota = 0;              ///< processors' worth of time a cgroup allows; 0: no limit
  uint64_t memory_bytes = 0;     ///< main memory, or less where a cgroup allows less
};

/// Where the facts are read: a root with proc/ and sys/ below it, and the processors that the
/// affinity mask allows.
struct HostSource {
  std::filesystem::path root = "/";
  std::vector<int> allowed_cpus;
};

/// The facts of this computer, for the calling thread's affinity. What cannot be found out keeps
/// a conservative default.
HostFacts detect_host();

/// The same from another source, as tests have it.
HostFacts detect_host(const HostSource& source);

/// The allowed processors, one of each physical core before the siblings of any.
std::vector<int> cpus_by_core();
std::vector<int> cpus_by_core(const HostSource& source);

/// Threads that a run uses: the environment variable TESSERA_THREADS where it is set, else one a
/// physical core, and no more than the quota pays for. At least 1. Throws UsageError where
/// TESSERA_THREADS is not a whole number from 1 to 4096.
unsigned default_threads(const HostFacts& facts);

/// One "name: value" line a fact, for people.
std::string describe(const HostFacts& facts);

}  // namespace tessera::machine
