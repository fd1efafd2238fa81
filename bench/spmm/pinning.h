// Thread affinity of all libraries.
#pragma once

#include <set>
#include <vector>

namespace tessera::bench {

/// Pins thread i of every library's pool to core i. Otherwise, on a busy host, a woken worker often starts on
/// the core of its caller.
class Pinning {
 public:
  explicit Pinning(unsigned threads);

  /// Pins the threads that this process has started since the last call: a pool's workers.
  void bind_new_threads();

  /// The core of the calling thread, thread 0 of every pool.
  int first_cpu() const { return cpus_.front(); }

 private:
  std::vector<int> cpus_;  ///< cores of the threads, in order
  std::set<int> known_;    ///< kernel ids of threads seen so far
};

}  // namespace tessera::bench
