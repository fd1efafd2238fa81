// Processor affinity. Measurements pin their threads: beside other work a scheduler may wake two threads of a
// team on one processor and leave them there for milliseconds.
#pragma once

#include <functional>
#include <span>
#include <vector>

namespace tessera::machine {

/// Processors that the calling thread may run on, ascending.
std::vector<int> allowed_cpus();

/// Fills a set of processors, a bit for each, as sched_getaffinity() does: returns false, with EINVAL in
/// errno, if the computer may have more processors than the set has bits.
using FillCpus = std::function<bool(std::span<unsigned long>)>;

/// The processors that `fill` reports, for tests; the first processor if it reports none.
std::vector<int> allowed_cpus(const FillCpus& fill);

/// Restricts a thread (by kernel id; 0: the calling one) to these processors. Returns false if the system
/// refuses, which only makes measurements noisier.
bool bind_thread(int thread, std::span<const int> cpus);

/// Pins the calling thread to one processor during its lifetime.
class BoundHere {
 public:
  explicit BoundHere(int cpu) : before_(allowed_cpus()) { bind_thread(0, {&cpu, 1}); }
  ~BoundHere() { bind_thread(0, before_); }
  BoundHere(const BoundHere&) = delete;
  BoundHere& operator=(const BoundHere&) = delete;

 private:
  std::vector<int> before_;
};

}  // namespace tessera::machine
