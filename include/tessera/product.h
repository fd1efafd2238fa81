// One product with a weight on any machine: planned and run, or estimated, with its time and memory. On the
// host, Spmm and Sddmm have less overhead per call, and share weights.
#pragma once

#include <tessera/machine.h>
#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

struct ProductOptions {
  ProductKind kind = ProductKind::forward;
  Type type = Type::f32;              ///< type of W; on a tiled machine, f32 or f16, also the type of X and Y
  std::optional<Type> partials = {};  ///< on a tiled machine, type of the partial sums sent between tiles;
                                      ///< none: `type`
  /// Maximum number of blocks of a weight whose pattern may change; none: fixed.
  std::optional<uint64_t> capacity = {};
  bool dense = false;                   ///< plan for a full pattern, whatever the weight's pattern is
  Planner planner = Planner::best;      ///< on a tiled machine
  Layout x_layout = Layout::row_major;  ///< on a host, layout of the arrays passed to run()
  Layout y_layout = Layout::row_major;
  Activation activation = Activation::none;   ///< applied to Y or dX, after the bias
  bool bias = false;                          ///< whether run() takes a bias: a number per row of Y or dX
  std::map<std::string, int64_t> force = {};  ///< forced knobs of the plan, by name
};

/// Times by phase: "rearrange", "compute", "reduce", "exchange", "sync", "control".
using Phases = std::map<std::string, double>;

/// Times of a run. On a host seconds are measured, or predicted in an estimate; on a tiled machine they are
/// the model's.
struct ProductProfile {
  double seconds = 0;
  Phases phases;  ///< seconds
  Phases cycles;  ///< cycles of a tiled machine, from the plan's cost estimate
};

/// Bytes of one tile's memory. All members count temporaries at the step at which these take the most bytes.
struct TileBytes {
  uint64_t total = 0;
  std::map<std::string, uint64_t> by_use;      ///< "inputs", "temporaries", "exchange code", …
  std::map<std::string, uint64_t> by_purpose;  ///< data: "parameter", "gradient", "activation", …
};

/// A product with one weight, planned and compiled for a machine.
class Product {
 public:
  /// Plans for dense operands of n columns. Throws UsageError for products that the machine does not support.
  Product(const SparseMatrix& weight, uint32_t n, const Machine& machine, const ProductOptions& options = {});
  ~Product();
  Product(Product&&) noexcept;
  Product& operator=(Product&&) noexcept;

  /// The plan and its predictions, in readable form.
  std::string plan() const;
  double predicted_seconds() const;

  /// Whether every tile's memory suffices. A product that does not fit cannot be run.
  bool fits() const;
  uint32_t fullest_tile() const;          ///< on a tiled machine
  TileBytes memory(uint32_t tile) const;  ///< memory(0) of a host is its shared memory
  uint32_t tiles() const;

  /// The profile of a run, without floating-point work.
  ProductProfile estimate() const;

  /// Multiplies: reads two of W, X and Y and writes the third. X and Y must not overlap. Throws Error if the
  /// product does not fit, and UsageError for null arrays, strides with which elements overlap, and a bias
  /// that is given to a product planned without one, or is missing from a product planned with one.
  ProductProfile run(MatrixView<float> x, MatrixView<float> y, const float* bias = nullptr);
  /// The result of run() for an SDDMM, in the order of SparseMatrix::values. Throws UsageError for other
  /// products and before the first run.
  std::vector<float> gradient() const;

  /// Replaces the matrix of a weight with a capacity; the plan does not change. Throws UsageError, and
  /// changes nothing, for a weight without a capacity, for more blocks than the capacity, for another shape
  /// or block size, and for a malformed matrix.
  void set_matrix(const SparseMatrix& weight);

 private:
  struct Planned;
  std::unique_ptr<Planned> planned_;
};

}  // namespace tessera
