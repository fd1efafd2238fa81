#include "spmm/pinning.h"

#include <algorithm>
#include <filesystem>
#include <string>

#include "machine/host/affinity.h"
#include "machine/host/detect.h"

namespace tessera::bench {
namespace {

std::set<int> threads_of_process() {
  std::set<int> threads;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    threads.insert(std::stoi(entry.path().filename().string()));
  return threads;
}

}  // namespace

Pinning::Pinning(unsigned threads) : cpus_(machine::cpus_by_core()), known_(threads_of_process()) {
  if (cpus_.size() > threads) cpus_.resize(threads);
}

void Pinning::bind_new_threads() {
  size_t worker = 0;
  for (const int thread : threads_of_process()) {
    if (!known_.insert(thread).second) continue;
    const size_t others = std::max<size_t>(cpus_.size() - 1, 1);
    const size_t index = cpus_.size() == 1 ? 0 : 1 + worker++ % others;
    machine::bind_thread(thread, {&cpus_[index], 1});
  }
}

}  // namespace tessera::bench
