// On which processors threads run. Measurements bind theirs: beside other work a scheduler may
// wake two threads of one team on one processor and leave them there for milliseconds.
#pragma once

#include <vector>

namespace tessera::machine {

/// Processors that the calling thread may run on, ascending.
std::vector<int> allowed_cpus();

/// Lets a thread (its kernel id; 0: the calling one) run on these processors only. False where the
/// system refuses, which is no harm beyond noise.
bool bind_thread(int thread, const std::vector<int>& cpus);

/// Binds the calling thread to one processor while it lives.
class BoundHere {
 public:
  explicit BoundHere(int cpu) : before_(allowed_cpus()) { bind_thread(0, {cpu}); }
  ~BoundHere() { bind_thread(0, before_); }
  BoundHere(const BoundHere&) = delete;
  BoundHere& operator=(const BoundHere&) = delete;

 private:
  std::vector<int> before_;
};

}  // namespace tessera::machine
