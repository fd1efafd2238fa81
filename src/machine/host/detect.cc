#include "machine/host/detect.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/machine.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <system_error>

#include "base/parse_number.h"
#include "machine/host/affinity.h"

namespace tessera::machine {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kDefaultL1 = 32 << 10;
constexpr uint64_t kDefaultL2 = 256 << 10;

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<double> number_in(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data() + start, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::optional<double> number_at(const fs::path& path) {
  const auto line = first_line(path);
  return line ? number_in(*line) : std::nullopt;
}

/// "48K", "2M", "1048576".
uint64_t bytes_of(std::string_view text) {
  const double value = number_in(text).value_or(0);
  const char unit = text.empty() ? ' ' : text.back();
  const double scale = unit == 'K' ? 1024.0 : unit == 'M' ? 1048576.0 : unit == 'G' ? 1073741824.0 : 1.0;
  return value > 0 ? static_cast<uint64_t>(value * scale) : 0;
}

/// The first processor's section of proc/cpuinfo.
std::map<std::string, std::string> cpuinfo(const fs::path& root) {
  std::map<std::string, std::string> entries;
  std::ifstream file(root / "proc/cpuinfo");
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t name_end = line.find_last_not_of(" \t", colon - 1);
    const size_t value_start = line.find_first_not_of(" \t", colon + 1);
    if (name_end == std::string::npos || value_start == std::string::npos) continue;
    entries.emplace(line.substr(0, name_end + 1), line.substr(value_start));
  }
  return entries;
}

std::string name_of_cpu(const std::map<std::string, std::string>& info) {
  for (const char* key : {"model name", "Model", "Hardware", "CPU part"})
    if (const auto it = info.find(key); it != info.end()) return it->second;
  return "unknown";
}

/// The base clock: from cpufreq, otherwise from the name ("@ 2.60GHz"), otherwise from the time stamp
/// counter, which BogoMIPS counts twice on x86. "cpu MHz" is a momentary value, so not a fact.
double nominal_ghz(const fs::path& root, const std::map<std::string, std::string>& info) {
  const fs::path cpufreq = root / "sys/devices/system/cpu/cpu0/cpufreq";
  for (const char* name : {"base_frequency", "cpuinfo_max_freq"})
    if (const auto khz = number_at(cpufreq / name)) return *khz * 1e-6;
  const std::string cpu = name_of_cpu(info);
  if (const size_t at = cpu.find("@ "); at != std::string::npos)
    if (const auto ghz = number_in(std::string_view(cpu).substr(at + 2))) return *ghz;
  const auto bogomips = info.find("bogomips");
  if (bogomips != info.end() && info.count("flags") != 0)
    return number_in(bogomips->second).value_or(0) / 2000;
  return 0;
}

/// "0-3,8": a set of processors as the kernel prints it.
std::set<int> cpu_list(const std::string& text) {
  std::set<int> cpus;
  std::istringstream ranges(text);
  for (std::string range; std::getline(ranges, range, ',');) {
    int first = 0, last = 0;
    const int fields = std::sscanf(range.c_str(), "%d-%d", &first, &last);
    if (fields < 1) continue;
    for (int cpu = first; cpu <= (fields == 2 ? last : first) && cpu - first < 65536; ++cpu) cpus.insert(cpu);
  }
  return cpus;
}

struct CoreId {
  double socket, core;
  auto operator<=>(const CoreId&) const = default;
};

CoreId core_of(const fs::path& root, int cpu) {
  const fs::path topology = root / fmt::format("sys/devices/system/cpu/cpu{}/topology", cpu);
  return {number_at(topology / "physical_package_id").value_or(0),
          number_at(topology / "core_id").value_or(cpu)};
}

void detect_cores(const HostSource& source, HostFacts& facts) {
  std::set<CoreId> cores;
  std::set<double> sockets;
  for (int cpu : source.allowed_cpus) {
    cores.insert(core_of(source.root, cpu));
    sockets.insert(core_of(source.root, cpu).socket);
  }
  facts.allowed_threads = std::max<size_t>(source.allowed_cpus.size(), 1);
  facts.physical_cores = std::max<size_t>(cores.size(), 1);
  facts.sockets = std::max<size_t>(sockets.size(), 1);
}

void detect_caches(const HostSource& source, HostFacts& facts) {
  const int cpu = source.allowed_cpus.empty() ? 0 : source.allowed_cpus.front();
  for (int index = 0; index < 16; ++index) {
    const fs::path cache =
        source.root / fmt::format("sys/devices/system/cpu/cpu{}/cache/index{}", cpu, index);
    const auto level = number_at(cache / "level");
    if (!level) break;
    if (first_line(cache / "type").value_or("") == "Instruction") continue;
    const uint64_t bytes = bytes_of(first_line(cache / "size").value_or(""));
    if (*level == 1) facts.l1_bytes = bytes;
    if (*level == 2) facts.l2_bytes = bytes;
    if (*level != 3) continue;
    facts.l3_bytes = bytes;
    const std::set<int> sharing = cpu_list(first_line(cache / "shared_cpu_list").value_or(""));
    std::set<CoreId> cores;
    for (int other : source.allowed_cpus)
      if (sharing.count(other) != 0) cores.insert(core_of(source.root, other));
    facts.cores_per_l3 = std::max<size_t>(cores.size(), 1);
  }
  if (facts.l1_bytes == 0) facts.l1_bytes = kDefaultL1;
  if (facts.l2_bytes == 0) facts.l2_bytes = kDefaultL2;
}

/// The folders of this process's cgroup for one controller, from the innermost to the root of the hierarchy:
/// a limit on any of them applies. An empty controller means cgroup v2.
std::vector<fs::path> cgroup_folders(const fs::path& root, const std::string& controller) {
  const fs::path mounts = root / "sys/fs/cgroup";
  fs::path hierarchy = controller.empty() ? mounts : mounts / controller;
  if (controller.empty() && fs::exists(mounts / "unified")) hierarchy = mounts / "unified";
  if (!controller.empty() && !fs::exists(hierarchy)) hierarchy = mounts / (controller + ",cpuacct");
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string names = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    if (names.find(fmt::format(",{},", controller)) == std::string::npos) continue;
    std::vector<fs::path> folders;
    for (fs::path path = fs::path(line.substr(second + 1)).relative_path(); !path.empty();
         path = path.parent_path())
      folders.push_back(hierarchy / path);
    folders.push_back(hierarchy);
    return folders;
  }
  return {};
}

double cgroup_quota(const fs::path& root) {
  double quota = INFINITY;
  const auto limit = [&](std::optional<double> time, std::optional<double> period) {
    if (time && period && *time > 0 && *period > 0) quota = std::min(quota, *time / *period);
  };
  for (const fs::path& folder : cgroup_folders(root, "")) {
    const auto line = first_line(folder / "cpu.max");
    if (!line || line->starts_with("max")) continue;
    const size_t space = line->find(' ');
    if (space != std::string::npos) limit(number_in(*line), number_in(line->substr(space)));
  }
  for (const fs::path& folder : cgroup_folders(root, "cpu"))
    limit(number_at(folder / "cpu.cfs_quota_us"), number_at(folder / "cpu.cfs_period_us"));
  return std::isinf(quota) ? 0 : quota;
}

uint64_t memory(const fs::path& root) {
  double bytes = INFINITY;
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemTotal:")) bytes = number_in(line.substr(9)).value_or(0) * 1024;
  for (const fs::path& folder : cgroup_folders(root, ""))
    if (const auto limit = number_at(folder / "memory.max")) bytes = std::min(bytes, *limit);
  for (const fs::path& folder : cgroup_folders(root, "memory"))
    if (const auto limit = number_at(folder / "memory.limit_in_bytes")) bytes = std::min(bytes, *limit);
  return std::isinf(bytes) ? 0 : static_cast<uint64_t>(bytes);
}

std::atomic<unsigned> chosen_threads{0};
std::atomic<uint32_t> detected_threads{0};  // 0: not yet
std::atomic<uint32_t> bindings{0};

}  // namespace

void check_threads(unsigned threads) {
  if (threads > kMostThreads)
    throw UsageError(fmt::format("{} threads; there may be at most {}", threads, kMostThreads));
}

HostFacts detect_host() { return detect_host({"/", allowed_cpus()}); }

std::vector<int> cpus_by_core(const HostSource& source) {
  std::vector<int> first_of_core, siblings;
  std::set<CoreId> cores;
  for (int cpu : source.allowed_cpus)
    (cores.insert(core_of(source.root, cpu)).second ? first_of_core : siblings).push_back(cpu);
  first_of_core.insert(first_of_core.end(), siblings.begin(), siblings.end());
  return first_of_core;
}

std::vector<int> cpus_by_core() { return cpus_by_core({"/", allowed_cpus()}); }

std::vector<std::vector<int>> cpus_of_cores(const HostSource& source) {
  std::vector<std::vector<int>> cores;
  std::map<CoreId, size_t> numbers;
  for (int cpu : source.allowed_cpus) {
    const auto [found, is_new] = numbers.emplace(core_of(source.root, cpu), cores.size());
    if (is_new) cores.emplace_back();
    cores[found->second].push_back(cpu);
  }
  return cores;
}

std::vector<std::vector<int>> cpus_of_cores() { return cpus_of_cores({"/", allowed_cpus()}); }

void bind_process(std::span<const int> cpus) {
  bind_thread(0, cpus);
  std::error_code unreadable;
  for (const fs::directory_entry& task : fs::directory_iterator("/proc/self/task", unreadable))
    if (const auto thread = number_in(task.path().filename().string()))
      bind_thread(static_cast<int>(*thread), cpus);
  detected_threads = 0;
  ++bindings;
}

uint32_t process_bindings() { return bindings; }

HostFacts detect_host(const HostSource& source) {
  HostFacts facts;
  const auto info = cpuinfo(source.root);
  facts.cpu = name_of_cpu(info);
  facts.isa = available_isas().back();
  facts.nominal_ghz = nominal_ghz(source.root, info);
  detect_cores(source, facts);
  detect_caches(source, facts);
  facts.quota = cgroup_quota(source.root);
  facts.memory_bytes = memory(source.root);
  return facts;
}

unsigned default_threads(const HostFacts& facts) {
  if (const unsigned threads = chosen_threads) return threads;
  if (const char* text = std::getenv("TESSERA_THREADS"); text != nullptr && *text != '\0') {
    const auto threads = base::parse_number<unsigned>(text);
    if (!threads || *threads < 1 || *threads > kMostThreads)
      throw UsageError(
          fmt::format("TESSERA_THREADS is '{}': give a whole number from 1 to {}", text, kMostThreads));
    return *threads;
  }
  if (facts.quota == 0) return facts.physical_cores;
  return std::clamp(static_cast<unsigned>(facts.quota), 1U, facts.physical_cores);
}

std::string describe(const HostFacts& facts) {
  std::string text;
  const auto line = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{}: {}\n", name, value);
  };
  const auto kib = [](uint64_t bytes) { return fmt::format("{} KiB", bytes >> 10); };
  line("processor", facts.cpu);
  line("instruction set", std::string(name_of(facts.isa)));
  line("nominal clock", facts.nominal_ghz > 0 ? fmt::format("{:.2f} GHz", facts.nominal_ghz) : "unknown");
  line("L1 data cache per core", kib(facts.l1_bytes));
  line("L2 cache per core", kib(facts.l2_bytes));
  line("L3 cache", fmt::format("{}, shared by {} cores", kib(facts.l3_bytes), facts.cores_per_l3));
  line("memory", fmt::format("{:.1f} GiB", static_cast<double>(facts.memory_bytes) / 1073741824.0));
  line("sockets", std::to_string(facts.sockets));
  line("allowed physical cores", std::to_string(facts.physical_cores));
  line("allowed hardware threads", std::to_string(facts.allowed_threads));
  line("cgroup quota", facts.quota > 0 ? fmt::format("{:.2f} processors", facts.quota) : "none");
  return text;
}

}  // namespace tessera::machine

namespace tessera {

uint32_t default_threads() {
  if (const unsigned threads = machine::chosen_threads) return threads;
  if (const uint32_t threads = machine::detected_threads) return threads;
  return machine::detected_threads = machine::default_threads(machine::detect_host());
}

void set_default_threads(uint32_t threads) {
  machine::check_threads(threads);
  machine::chosen_threads = threads;
}

}  // namespace tessera
