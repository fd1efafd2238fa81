#include "machine/host/affinity.h"

#include <sched.h>

#include <cerrno>
#include <cstddef>

namespace tessera::machine {
namespace {

using CpuWord = unsigned long;  // an element of the system's CPU sets

constexpr size_t kCpusOfWord = 8 * sizeof(CpuWord);
constexpr size_t kFirstWords = CPU_SETSIZE / kCpusOfWord;
constexpr int kMostCpus = 1 << 20;

std::vector<int> cpus_in(std::span<const CpuWord> set) {
  std::vector<int> cpus;
  for (size_t cpu = 0; cpu < set.size() * kCpusOfWord; ++cpu)
    if (((set[cpu / kCpusOfWord] >> (cpu % kCpusOfWord)) & 1) != 0) cpus.push_back(static_cast<int>(cpu));
  return cpus;
}

}  // namespace

std::vector<int> allowed_cpus() {
  return allowed_cpus([](std::span<CpuWord> set) {
    return sched_getaffinity(0, set.size_bytes(), reinterpret_cast<cpu_set_t*>(set.data())) == 0;
  });
}

std::vector<int> allowed_cpus(const FillCpus& fill) {
  for (size_t words = kFirstWords; words <= kMostCpus / kCpusOfWord; words *= 2) {
    std::vector<CpuWord> set(words);
    if (fill(set)) return cpus_in(set);
    if (errno != EINVAL) break;
  }
  return {0};  // the allowed processors are unknown
}

bool bind_thread(int thread, std::span<const int> cpus) {
  std::vector<CpuWord> set(kFirstWords);
  for (const int cpu : cpus) {
    if (cpu < 0 || cpu >= kMostCpus) continue;
    const size_t word = static_cast<size_t>(cpu) / kCpusOfWord, bit = static_cast<size_t>(cpu) % kCpusOfWord;
    if (word >= set.size()) set.resize(word + 1);
    set[word] |= CpuWord{1} << bit;
  }
  return sched_setaffinity(thread, set.size() * sizeof(CpuWord),
                           reinterpret_cast<const cpu_set_t*>(set.data())) == 0;
}

}  // namespace tessera::machine
