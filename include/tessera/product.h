// One product with a weight on any machine: planned and run, or estimated, with what it takes in time and
// memory. On this computer Spmm and Sddmm call with less overhead, and share weights.
#pragma once

#include <tessera/machine.h>
#include <tessera/sparse.h>
#include <tessera/spmm.h>
#include <tessera/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera {

/// The products of training with a weight W of m × k: Y = W·X, dX = Wᵀ·dY, and dW = dY·Xᵀ at W's pattern.
/// X and dX are k × n, Y and dY m × n.
enum class ProductKind : uint8_t { forward, input_gradient, sddmm };

struct ProductOptions {
  ProductKind kind = ProductKind::forward;
  Type type = Type::f32;              ///< of W; on a tiled machine f32 or f16, and of X and Y too
  std::optional<Type> partials = {};  ///< on tiles, of sums that leave a tile; none: `type`
  std::optional<uint64_t> capacity =
      {};                               ///< most blocks of a weight whose pattern may change; none: it stays
  bool dense = false;                   ///< plan for a full pattern, whatever the weight's is
  bool published_planner = false;       ///< on tiles, plan as the vendor's libraries are known to
  Layout x_layout = Layout::row_major;  ///< on a host, of the arrays that will come
  Layout y_layout = Layout::row_major;
  std::map<std::string, int64_t> force = {};  ///< knobs of the plan, by name
};

/// Times by phase: "rearrange", "compute", "reduce", "exchange", "sync", "control".
using Phases = std::map<std::string, double>;

/// What a run took. On a host seconds are measured, or predicted in an estimate; on a tiled machine they are
/// the model's.
struct ProductProfile {
  double seconds = 0;
  Phases phases;  ///< seconds
  Phases cycles;  ///< of the machine, as the plan accounts for them
};

/// Bytes of one tile's memory.
struct TileBytes {
  uint64_t total = 0;
  std::map<std::string, uint64_t> by_use;      ///< "inputs", "temporaries", "exchange code", …
  std::map<std::string, uint64_t> by_purpose;  ///< data: "parameter", "gradient", "activation", …
};

class Product {
 public:
  /// Plans for dense operands of n columns. Throws UsageError for what the machine has no product for.
  Product(const SparseMatrix& weight, uint32_t n, const Machine& machine, const ProductOptions& options = {});
  ~Product();
  Product(Product&&) noexcept;
  Product& operator=(Product&&) noexcept;

  /// The plan for people, and what it promises.
  std::string plan() const;
  double predicted_seconds() const;

  /// Whether every tile holds its part. What does not fit is not run.
  bool fits() const;
  uint32_t fullest_tile() const;          ///< of a tiled machine
  TileBytes memory(uint32_t tile) const;  ///< of a host, memory(0): its shared memory
  uint32_t tiles() const;

  /// What a run takes, without floating-point work.
  ProductProfile estimate() const;

  /// Multiplies: reads two of W, X and Y and writes the third. Throws Error if it does not fit.
  ProductProfile run(MatrixView<float> x, MatrixView<float> y);
  /// What run() gave of an SDDMM, in the order of SparseMatrix::values.
  std::vector<float> gradient() const;

  /// Another matrix of a weight with a capacity; the plan stays. Throws UsageError for a weight without one
  /// and for more blocks than it.
  void set_matrix(const SparseMatrix& weight);

 private:
  struct Planned;
  std::unique_ptr<Planned> planned_;
};

}  // namespace tessera
