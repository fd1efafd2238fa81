// One case, measured with all libraries, interleaved.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "peers/peer.h"
#include "spmm/pinning.h"

namespace tessera::bench {

/// The work for all libraries.
struct Case {
  std::string label;   ///< name of a file; empty for generated weights
  double density = 0;  ///< stored elements ÷ (m · k)
  double asked_density = 0;
  uint32_t block = 1;
  Type type = Type::f32;
  Layout layout = Layout::row_major;
  Task task = Task::forward;
  uint32_t m = 0, k = 0, n = 0;
  uint64_t nonzeros = 0;  ///< stored elements, including fill-in
};

/// The result of one library.
struct Timing {
  std::string peer;
  Kind kind = Kind::tessera;
  Type type = Type::f32;
  Task task = Task::forward;
  double seconds = 0;          ///< median over the rounds; 0 if it did not take part
  double fastest = 0;          ///< fastest of all calls
  double prepare_seconds = 0;  ///< time of preparing W, once
  double predicted_seconds = 0;
  uint64_t weight_bytes = 0;
  int rounds = 0;    ///< number of rounds in which it took part
  double error = 0;  ///< largest |result - reference| ÷ the sum of its terms' magnitudes, over sampled
                     ///< elements
  PatternTimes pattern = {};  ///< times of dynamic weights
  std::string absent;         ///< why it did not take part
  std::string plan;
};

struct Comparison {
  Case work;
  std::vector<Timing> timings;
  double read_gbps = 0;    ///< streaming reads of a buffer of the size of prepacked W + X + Y
  double bytes = 0;        ///< size of that buffer
  double peak_gflops = 0;  ///< peak of all threads with the instruction set

  const Timing* tessera() const { return best(Kind::tessera); }
  /// Fastest library of a kind at the task; null if none took part.
  const Timing* best(Kind kind) const { return best(kind, work.task); }
  const Timing* best(Kind kind, Task task) const;
  double gflops(const Timing& timing) const;
  /// Useful rate ÷ rate of the best dense library; 0 if there is none.
  double efficiency(const Timing& timing) const;
  /// Time ÷ (bytes ÷ bandwidth).
  double against_bandwidth(const Timing& timing) const;
};

struct Rules {
  int rounds = 7;
  bool cold = false;
  unsigned threads = 1;
  uint32_t array_offset = 0;  ///< offset of a product's arrays from a cache line, in bytes
};

/// All timings, interleaved round by round. `dense` are the weights as a dense array.
Comparison compare(const Case& work, const SparseMatrix& weights, const std::vector<float>& dense,
                   const std::vector<std::unique_ptr<Peer>>& peers, const Rules& rules, Pinning& pinning,
                   double peak_gflops);

}  // namespace tessera::bench
