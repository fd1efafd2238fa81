#include "base/memory.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace tessera::base {
namespace {

constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

uint64_t system_available() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  while (file >> name) {
    uint64_t kib = 0;
    if (name == "MemAvailable:" && file >> kib) return kib * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return kUnknown;
}

// Inside a container, the root of the cgroup tree is the container's own group.
uint64_t container_limit() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  uint64_t bytes = 0;
  return file >> bytes ? bytes : kUnknown;  // "max", or no such file
}

}  // namespace

uint64_t available_memory() { return std::min(system_available(), container_limit()); }

std::string bytes_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  if (bytes < 1000) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(kUnits); ++unit) value /= 1000;
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

void require_memory(uint64_t bytes, const std::string& what) {
  // Checking small requests is not worth asking the system.
  constexpr uint64_t kAlwaysFits = 16 << 20;
  if (bytes <= kAlwaysFits) return;
  const uint64_t available = available_memory();
  if (bytes <= available) return;
  throw Error(fmt::format(
      "{} needs {} of memory and {} are available; use a smaller or sparser matrix, or a computer "
      "with more memory",
      what, bytes_text(bytes), bytes_text(available)));
}

}  // namespace tessera::base
