// One small interface to every library that a benchmark compares, Tessera among them.
#pragma once

#include <tessera/sparse.h>
#include <tessera/spmm.h>
#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/isa.h"

namespace tessera::bench {

/// What every peer of a run is held to.
struct Limits {
  Isa isa = Isa::generic;
  unsigned threads = 1;
};

/// Y = W·X to be prepared for. The weights outlive the product.
struct Work {
  const SparseMatrix& weights;
  const std::vector<float>& dense;  ///< the same weights, row-major m × k; empty where no peer asks
  uint32_t n = 1;
  Layout layout = Layout::row_major;  ///< of both X and Y, without gaps
  Type type = Type::f32;              ///< of W; X and Y are FP32

  uint32_t m() const { return weights.pattern.rows; }
  uint32_t k() const { return weights.pattern.cols; }
};

/// A prepared product.
class Product {
 public:
  virtual ~Product() = default;

  /// y = W · x; all that a caller waits for on each call.
  virtual void run(const float* x, float* y) = 0;

  /// Bytes of the library's form of W, indices included; 0 where it does not tell.
  virtual uint64_t weight_bytes() const { return 0; }

  /// What the library's own plan promises, and the plan for people; 0 and empty where it has none.
  virtual double predicted_seconds() const { return 0; }
  virtual std::string plan() const { return {}; }
};

enum class Kind { tessera, tessera_dense, dense, sparse };

/// A library, loaded and held to the limits.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual std::string_view name() const = 0;
  virtual Kind kind() const = 0;

  /// Version, threading runtime and what it says of its instruction set, for the report's head.
  virtual std::string version() const = 0;

  /// Why it cannot do this work; empty where it can.
  virtual std::string why_not(const Work& work) const = 0;

  virtual std::unique_ptr<Product> prepare(const Work& work) = 0;
};

/// Peers that could be loaded, and a line for each that could not.
struct Peers {
  std::vector<std::unique_ptr<Peer>> loaded;
  std::vector<std::string> missing;
};

/// Loads the peers whose name is in `names` (all, where it is empty). The limits hold for the
/// whole process: libraries read them once, when they are loaded. To be called once.
Peers load_peers(const Limits& limits, const std::vector<std::string>& names);

}  // namespace tessera::bench
