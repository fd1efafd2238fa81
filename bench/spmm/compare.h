// One piece of work, done by everybody in turn.
#pragma once

#include <tessera/sparse.h>
#include <tessera/spmm.h>
#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "peers/peer.h"
#include "spmm/pinning.h"

namespace tessera::bench {

/// What is asked of everybody.
struct Case {
  std::string label;   ///< of a file; empty where the weights are generated
  double density = 0;  ///< stored elements ÷ (m · k)
  double asked_density = 0;
  uint32_t block = 1;
  Type type = Type::f32;
  Layout layout = Layout::row_major;
  Task task = Task::forward;
  uint32_t m = 0, k = 0, n = 0;
  uint64_t nonzeros = 0;  ///< stored elements, fill-in included
};

/// How somebody did.
struct Timing {
  std::string peer;
  Kind kind = Kind::tessera;
  Type type = Type::f32;
  Task task = Task::forward;
  double seconds = 0;          ///< median over the rounds; 0 where it took no part
  double fastest = 0;          ///< of all calls
  double prepare_seconds = 0;  ///< of W, once
  double predicted_seconds = 0;
  uint64_t weight_bytes = 0;
  int rounds = 0;    ///< that it took part in
  double error = 0;  ///< largest |result - reference| ÷ the sum of its terms' sizes, over sampled elements
  PatternTimes pattern = {};  ///< of dynamic weights
  std::string absent;         ///< why it took no part
  std::string plan;
};

struct Comparison {
  Case work;
  std::vector<Timing> timings;
  double read_gbps = 0;    ///< streaming reads of a buffer of W's packed form + X + Y
  double bytes = 0;        ///< of that buffer
  double peak_gflops = 0;  ///< of all threads with the instruction set

  const Timing* tessera() const { return best(Kind::tessera); }
  /// Quickest of a kind at the task; null where none took part.
  const Timing* best(Kind kind) const { return best(kind, work.task); }
  const Timing* best(Kind kind, Task task) const;
  double gflops(const Timing& timing) const;
  /// Useful rate ÷ rate of the best dense library; 0 where there is none.
  double efficiency(const Timing& timing) const;
  /// Time ÷ (bytes ÷ bandwidth).
  double against_bandwidth(const Timing& timing) const;
};

struct Rules {
  int rounds = 7;
  bool cold = false;
  unsigned threads = 1;
  uint32_t array_offset = 0;  ///< bytes from a cache line to where the arrays of a product begin
};

/// Everybody's timings, interleaved round by round. `dense` are the weights as a dense array.
Comparison compare(const Case& work, const SparseMatrix& weights, const std::vector<float>& dense,
                   const std::vector<std::unique_ptr<Peer>>& peers, const Rules& rules, Pinning& pinning,
                   double peak_gflops);

}  // namespace tessera::bench
