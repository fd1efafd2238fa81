// Processor affinity. Measurements pin their threads: beside other work a scheduler may wake two threads of a
// team on one processor and leave them there for milliseconds.
#pragma once

#include <span>
#include <vector>

namespace tessera::machine {

/// Processors that the calling thread may run on, ascending.
std::vector<int> allowed_cpus();

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
