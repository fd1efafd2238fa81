#include "machine/host/detect.h"

#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/machine.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "io/files.h"
#include "machine/host/affinity.h"
#include "machine/model/machine.h"

namespace tessera::machine {
namespace {

namespace fs = std::filesystem;

/// A synthetic computer: two sockets with two cores each, two hardware threads per core.
class Detect : public testing::Test {
 protected:
  void SetUp() override {
    write("proc/cpuinfo",
          "processor\t: 0\nmodel name\t: Some CPU @ 2.50GHz\nflags\t\t: fpu\nbogomips\t: 4800.00\n\n"
          "processor\t: 1\nmodel name\t: Another\n");
    write("proc/meminfo", "MemTotal:       1024 kB\n");
    for (int cpu = 0; cpu < 8; ++cpu) {
      const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu);
      write(folder + "/topology/physical_package_id", std::to_string(cpu / 4));
      write(folder + "/topology/core_id", std::to_string(cpu % 4 / 2));
      cache(folder, 0, "1", "Data", "48K", "0-1");
      cache(folder, 1, "1", "Instruction", "64K", "0-1");
      cache(folder, 2, "2", "Unified", "2048K", "0-1");
      cache(folder, 3, "3", "Unified", "30M", cpu < 4 ? "0-3" : "4-7");
    }
  }

  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void cache(const std::string& cpu, int index, const char* level, const char* type, const char* size,
             const char* shared) {
    const std::string folder = cpu + "/cache/index" + std::to_string(index) + "/";
    write(folder + "level", level);
    write(folder + "type", type);
    write(folder + "size", size);
    write(folder + "shared_cpu_list", shared);
  }
  HostFacts facts(std::vector<int> cpus) { return detect_host({root_, std::move(cpus)}); }

  test::TemporaryFolder folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(Detect, ReadsTheWholeComputer) {
  const HostFacts all = facts({0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(all.cpu, "Some CPU @ 2.50GHz");
  EXPECT_DOUBLE_EQ(all.nominal_ghz, 2.5);
  EXPECT_EQ(all.l1_bytes, 48u << 10);
  EXPECT_EQ(all.l2_bytes, 2u << 20);
  EXPECT_EQ(all.l3_bytes, 30u << 20);
  EXPECT_EQ(all.cores_per_l3, 2u);
  EXPECT_EQ(all.sockets, 2u);
  EXPECT_EQ(all.physical_cores, 4u);
  EXPECT_EQ(all.allowed_threads, 8u);
  EXPECT_EQ(all.quota, 0);
  EXPECT_EQ(all.memory_bytes, 1u << 20);
}

TEST_F(Detect, CountsOnlyAllowedProcessors) {
  const HostFacts some = facts({1, 4, 5});
  EXPECT_EQ(some.physical_cores, 2u);
  EXPECT_EQ(some.sockets, 2u);
  EXPECT_EQ(some.allowed_threads, 3u);
  EXPECT_EQ(some.cores_per_l3, 1u);
}

TEST_F(Detect, ProcessorsOfDifferentCoresComeFirst) {
  EXPECT_EQ(cpus_by_core({root_, {0, 1, 2, 3, 4, 5}}), (std::vector<int>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(cpus_by_core({root_, {3, 6, 7}}), (std::vector<int>{3, 6, 7}));
}

TEST_F(Detect, ProcessorsOfACoreStandTogether) {
  EXPECT_EQ(cpus_of_cores({root_, {0, 1, 3, 6}}), (std::vector<std::vector<int>>{{0, 1}, {3}, {6}}));
}

TEST_F(Detect, ClockFallsBackToTheTimeStampCounter) {
  write("proc/cpuinfo", "model name\t: Nameless\nflags\t: fpu\nbogomips\t: 5200.00\n");
  EXPECT_DOUBLE_EQ(facts({0}).nominal_ghz, 2.6);
  write("sys/devices/system/cpu/cpu0/cpufreq/base_frequency", "3100000");
  EXPECT_DOUBLE_EQ(facts({0}).nominal_ghz, 3.1);
}

TEST_F(Detect, TightestQuotaOfTheCgroupsHolds) {
  write("proc/self/cgroup", "0::/outer/inner");
  write("sys/fs/cgroup/outer/inner/cpu.max", "400000 100000");
  write("sys/fs/cgroup/outer/cpu.max", "250000 100000");
  write("sys/fs/cgroup/cpu.max", "max 100000");
  write("sys/fs/cgroup/outer/memory.max", "4096");
  const HostFacts limited = facts({0, 2, 4, 6});
  EXPECT_DOUBLE_EQ(limited.quota, 2.5);
  EXPECT_EQ(limited.memory_bytes, 4096u);
  unsetenv("TESSERA_THREADS");
  EXPECT_EQ(default_threads(limited), 2u);
}

TEST_F(Detect, QuotaOfCgroupVersion1) {
  write("proc/self/cgroup", "4:memory:/a\n3:cpu,cpuacct:/job\n0::/");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "50000");
  write("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1");
  write("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000");
  const HostFacts limited = facts({0, 2});
  EXPECT_DOUBLE_EQ(limited.quota, 0.5);
  unsetenv("TESSERA_THREADS");
  EXPECT_EQ(default_threads(limited), 1u);
}

TEST_F(Detect, NothingReadableStillGivesAComputer) {
  fs::remove_all(root_);
  const HostFacts empty = facts({});
  EXPECT_EQ(empty.cpu, "unknown");
  EXPECT_EQ(empty.physical_cores, 1u);
  EXPECT_GT(empty.l1_bytes, 0u);
  EXPECT_GT(empty.l2_bytes, 0u);
}

TEST(DefaultThreads, CanBeSet) {
  const HostFacts facts;
  const uint32_t before = tessera::default_threads();
  set_default_threads(5);
  EXPECT_EQ(tessera::default_threads(), 5u);
  EXPECT_EQ(default_threads(facts), 5u);
  EXPECT_EQ(host().tiles, 5u);
  EXPECT_THROW(set_default_threads(4097), UsageError);
  set_default_threads(0);
  EXPECT_EQ(tessera::default_threads(), before);
}

TEST(DefaultThreads, EnvironmentOverrulesAndIsChecked) {
  const HostFacts facts;
  setenv("TESSERA_THREADS", "3", 1);
  EXPECT_EQ(default_threads(facts), 3u);
  for (const char* bad : {"0", "-1", "two", "2.5", "3 ", "99999"}) {
    setenv("TESSERA_THREADS", bad, 1);
    EXPECT_THROW(default_threads(facts), UsageError) << bad;
  }
  unsetenv("TESSERA_THREADS");
  EXPECT_EQ(default_threads(facts), 1u);
}

TEST(Affinity, BindingHoldsWhileItLives) {
  const std::vector<int> before = allowed_cpus();
  {
    const BoundHere bound(before.back());
    EXPECT_EQ(allowed_cpus(), std::vector<int>{before.back()});
  }
  EXPECT_EQ(allowed_cpus(), before);
  EXPECT_FALSE(bind_thread(0, {}));
}

TEST(Affinity, ComputersMayHaveMoreThan1024Processors) {
  constexpr size_t kBits = 8 * sizeof(unsigned long);
  const auto of_4096 = [](std::span<unsigned long> set) {
    errno = EINVAL;
    if (set.size() * kBits < 4096) return false;
    set[0] = 2;
    set[2000 / kBits] = 1UL << (2000 % kBits);
    return true;
  };
  EXPECT_EQ(allowed_cpus(of_4096), (std::vector<int>{1, 2000}));
  const auto forbidden = [](std::span<unsigned long>) {
    errno = EPERM;
    return false;
  };
  EXPECT_EQ(allowed_cpus(forbidden), std::vector<int>{0});
  const std::vector<int> before = allowed_cpus();
  const int beyond = 500'000;
  EXPECT_FALSE(bind_thread(0, {&beyond, 1}));
  EXPECT_EQ(allowed_cpus(), before);
}

TEST(Affinity, AllThreadsOfAProcessAreBound) {
  const char* given = std::getenv("TESSERA_THREADS");
  const std::optional<std::string> threads =
      given == nullptr ? std::nullopt : std::optional<std::string>(given);
  unsetenv("TESSERA_THREADS");
  const std::vector<int> before = allowed_cpus();
  const uint32_t bindings = process_bindings();
  std::promise<void> is_bound;
  std::vector<int> of_other;
  std::thread other([&, bound = is_bound.get_future()]() mutable {
    bound.wait();
    of_other = allowed_cpus();
  });
  bind_process({&before.back(), 1});
  is_bound.set_value();
  other.join();
  EXPECT_EQ(allowed_cpus(), std::vector<int>{before.back()});
  EXPECT_EQ(of_other, std::vector<int>{before.back()});
  EXPECT_EQ(process_bindings(), bindings + 1);
  EXPECT_EQ(tessera::default_threads(), 1U);
  if (threads) setenv("TESSERA_THREADS", threads->c_str(), 1);
  bind_process(before);
  EXPECT_EQ(allowed_cpus(), before);
}

TEST(DetectHost, ThisComputerIsPlausible) {
  const HostFacts facts = detect_host();
  EXPECT_FALSE(facts.cpu.empty());
  EXPECT_GE(facts.allowed_threads, facts.physical_cores);
  EXPECT_GE(facts.l1_bytes, 8u << 10);
  EXPECT_GE(facts.l2_bytes, facts.l1_bytes);
  EXPECT_NE(describe(facts).find(facts.cpu), std::string::npos);
}

}  // namespace
}  // namespace tessera::machine
