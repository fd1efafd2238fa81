// A small common interface to every library that a benchmark compares, including Tessera.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/isa.h"

namespace tessera::bench {

/// Restrictions for every peer of a run.
struct Limits {
  Isa isa = Isa::generic;
  unsigned threads = 1;
};

/// The measured task: one of the products of training, or all three in sequence.
enum class Task : uint8_t {
  forward,         ///< Y = W·X
  input_gradient,  ///< dX = Wᵀ·dY
  sddmm,           ///< dW = dY·Xᵀ, of sparse weights at their pattern
  triple,
};
inline constexpr Task kProducts[] = {Task::forward, Task::input_gradient, Task::sddmm};

/// "forward", "input_gradient", "sddmm", "triple".
std::string_view name_of(Task task);

inline const char* name_of(Layout layout) { return layout == Layout::row_major ? "row" : "col"; }

/// A product to prepare. The weights outlive it.
struct Work {
  const SparseMatrix& weights;
  const std::vector<float>& dense;  ///< the same weights, row-major m × k; empty if no peer needs them
  uint32_t n = 1;
  Layout layout = Layout::row_major;  ///< of X, Y and their gradients, contiguous
  Type type = Type::f32;              ///< type of W; everything else is FP32
  Task task = Task::forward;

  uint32_t m() const { return weights.pattern.rows; }
  uint32_t k() const { return weights.pattern.cols; }
};

/// Operands of products: X and dX k × n, Y and dY m × n.
struct Arrays {
  const float* x = nullptr;
  const float* dy = nullptr;
  float* y = nullptr;
  float* dx = nullptr;
  float* dw = nullptr;  ///< PreparedProduct::gradient_size() elements
};

/// Seconds to change a dynamic weight's pattern.
struct PatternTimes {
  double replaced = 0;   ///< changing to another pattern with equally many blocks
  double drop_grow = 0;  ///< dropping and growing 5 % of the blocks
};

/// A prepared product.
class PreparedProduct {
 public:
  virtual ~PreparedProduct() = default;

  /// Does all the work of a call. Reads and writes the arrays of its task.
  virtual void run(const Arrays& arrays) = 0;

  /// Floats of dW in the library's own order; 0 if it computes none.
  virtual uint64_t gradient_size() const { return 0; }
  /// dW at the stored elements, in the order of SparseMatrix::values.
  virtual void get_gradient(const float* /*dw*/, std::span<float> /*stored*/) const {}

  /// Bytes of the library's form of W, including indices; 0 if unknown.
  virtual uint64_t weight_bytes() const { return 0; }

  /// The prediction of the library's own plan, and the plan in readable form; 0 and empty if it has none.
  virtual double predicted_seconds() const { return 0; }
  virtual std::string plan() const { return {}; }

  /// Changes the weight's pattern several times and back; values are lost. Zeros for static weights.
  virtual PatternTimes change_pattern() { return {}; }
};

enum class Kind { tessera, tessera_dynamic, tessera_dense, dense, sparse };

/// A library, loaded with the restrictions applied.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual std::string_view name() const = 0;
  virtual Kind kind() const = 0;

  /// Version, threading runtime and reported instruction set, for the report's header.
  virtual std::string version() const = 0;

  /// Why the library cannot do this work; empty if it can.
  virtual std::string why_not(const Work& work) const = 0;

  virtual std::unique_ptr<PreparedProduct> prepare(const Work& work) = 0;
};

/// Why a library that only has Y = W·X cannot do this work; empty if it can.
std::string forward_only(const Work& work);

/// Extracts dW at the stored elements from a dense m × k dW.
void pick_gradient(const Pattern& pattern, const float* dense, std::span<float> stored);

/// Prepares a peer for one product, or for all three in sequence.
std::unique_ptr<PreparedProduct> prepare(Peer& peer, const Work& work);

/// Peers that could be loaded, and a line for each peer that could not.
struct Peers {
  std::vector<std::unique_ptr<Peer>> loaded;
  std::vector<std::string> missing;
};

/// Loads the peers in `names` (all, if it is empty). The limits apply to the whole process: libraries read
/// them once, when they are loaded. Must be called only once.
Peers load_peers(const Limits& limits, const std::vector<std::string>& names);

}  // namespace tessera::bench
