// One product with a weight on any machine: planned, built, compiled; run or estimated, and read out. The
// public API, the tool, benchmarks and tests all run products through this class.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "bound/bound_program.h"
#include "machine/model/machine.h"
#include "ops/plan.h"
#include "ops/product_problem.h"
#include "ops/sparse/host/spmm.h"
#include "ops/tiles/product.h"

namespace tessera::bound {

/// Layouts of operands: on a host, of the arrays that callers bind; on tiles, the layouts from which plans
/// choose.
struct Layouts {
  ops::HostLayouts host = {};
  ops::LayoutChoices tiles = {};
};

/// Throws UsageError for products that the machine does not support: block sizes, types, layouts and knobs.
void check(const ops::ProductProblem& problem, uint32_t block_size, const machine::Machine& machine,
           const ops::ForcedKnobs& force, const ops::HostLayouts& layouts = {});

/// Throws UsageError if there is a bias and the problem has none, or the reverse.
void require_bias(const ops::ProductProblem& problem, const float* bias);

/// Prepacks a matrix for a host's products; as a dynamic weight if the problem has a capacity.
std::shared_ptr<ops::PackedWeight> pack(const SparseMatrix& matrix, const ops::ProductProblem& problem);

/// The operands of one call on a host, in place. Each product reads two of W, X and Y and writes the third.
struct HostCall {
  MatrixView<float> x;          ///< X or dX: k × n
  MatrixView<float> y;          ///< Y or dY: m × n
  float* dw = nullptr;          ///< result of an SDDMM, in packed order
  const float* bias = nullptr;  ///< with ProductProblem::bias
  float alpha = 1;
  float beta = 0;                ///< read with ProductProblem::uses_beta
  const void* values = nullptr;  ///< values of W, in packed order; null: the weight's own values
};

/// A product with its plan and its executable.
class BoundProduct {
 public:
  /// A product on a host, with a packed weight that may be shared.
  BoundProduct(std::shared_ptr<const ops::PackedWeight> weight, const ops::ProductProblem& problem,
               const machine::Machine& host, const ops::ForcedKnobs& force = {},
               const ops::HostLayouts& layouts = {});
  /// A product on any machine. On a tiled machine, gradients have the layouts of `forward`, or of a forward
  /// plan that is made for them, and operands may have several layouts to choose from.
  BoundProduct(const SparseMatrix& matrix, const ops::ProductProblem& problem,
               const machine::Machine& machine, const ops::ForcedKnobs& force = {},
               const ops::TileProductPlan* forward = nullptr, const Layouts& layouts = {});

  const ops::ProductProblem& problem() const { return problem_; }
  const compiler::Executable& executable() const { return program_->executable(); }
  const machine::Machine& machine() const { return program_->machine(); }
  bool is_on_host() const { return std::holds_alternative<OnHost>(side_); }

  const ops::PlanCandidate& chosen() const;
  const std::vector<ops::PlanCandidate>& candidates() const;
  double predicted_seconds() const { return chosen().total(); }
  uint32_t tiles_used() const;
  /// Layouts of the arrays that run() and call() take; on tiles, arrays may have any layout.
  ops::HostLayouts layouts() const {
    return is_on_host() ? std::get<OnHost>(side_).plan.layouts : ops::HostLayouts{};
  }
  /// The plan in one readable line.
  std::string plan() const;
  /// On tiles: the plan, and how operands are stored.
  const ops::TileProductPlan& tile_plan() const { return std::get<OnTiles>(side_).plan; }
  const ops::TileProductProgram& tile_program() const { return std::get<OnTiles>(side_).built; }

  /// Whether every tile's memory suffices. memory() has the bytes by tile, use and purpose.
  bool fits() const { return memory().fits() && chosen().rejected.empty(); }
  const compiler::MemoryReport& memory() const { return program_->memory(); }

  /// The profile of a run by its costs, without floating-point work.
  engine::Profile estimate(std::vector<engine::TraceEvent>* trace = nullptr) const {
    return program_->estimate(trace);
  }

  /// Multiplies with the weight's present values. X and Y have any strides; on tiles they are rounded to the
  /// problem's type. Throws Error if the product does not fit, and UsageError for null arrays, strides by
  /// which elements coincide, and if there is a bias and the problem has none, or the reverse.
  engine::Profile run(const MatrixView<float>& x, const MatrixView<float>& y,
                      const engine::RunOptions& options = {}, const float* bias = nullptr);
  /// The result of run() for an SDDMM, in the order of SparseMatrix::values. Throws UsageError for other
  /// products and before the first run.
  std::vector<float> gradient() const;

  /// On a host: views of the arrays of a call in the layouts that were planned, as view_of() makes them.
  MatrixView<float> view_of_x(const float* data, std::string_view name, int64_t leading) const;
  MatrixView<float> view_of_y(const float* data, std::string_view name, int64_t leading) const;
  /// On a host: multiplies in place, without allocations.
  engine::Profile call(const HostCall& call, const engine::RunOptions& options) const;

  /// Set another matrix of a dynamic weight, or another pattern with values of 0; the program does not
  /// change. Throw UsageError for a static or a shared weight, and for more blocks than the capacity.
  void set_matrix(const SparseMatrix& matrix);
  void set_pattern(const Pattern& pattern);
  /// For a dynamic weight on tiles, with its present pattern: propagation steps.
  uint32_t steps() const;
  /// The most roundings of a partial sum on tiles; for a dynamic weight, with its present pattern.
  uint32_t roundings() const;

 private:
  struct OnHost {
    std::shared_ptr<const ops::PackedWeight> weight;
    std::shared_ptr<ops::PackedWeight> own;  ///< the weight, if this product may change it
    ops::HostPlan plan;
  };
  struct OnTiles {
    ops::TileProductPlan plan;
    ops::TileProductProgram built;
    uint32_t replicas = 1;          ///< number of replicas, each with the next columns
    std::vector<float> w;           ///< values of W in the pattern's order
    std::vector<std::byte> values;  ///< values of W, or dW, in the program's storage order; empty before the
                                    ///< first run
  };

  void compile_for(const machine::Machine& host, const ops::ForcedKnobs& force,
                   const ops::HostLayouts& layouts);
  /// Binds the pattern of a dynamic weight on tiles.
  void bind_pattern(const OnTiles& tiles);
  engine::Profile run_on_tiles(OnTiles& tiles, const MatrixView<float>& x, const MatrixView<float>& y,
                               const engine::RunOptions& options, const float* bias) const;

  ops::ProductProblem problem_;
  Pattern pattern_;  ///< without blocks for a shared weight on a host
  std::variant<OnHost, OnTiles> side_;
  std::optional<BoundProgram> program_;
  std::vector<float> dw_;  ///< result of run() on a host, in packed order
  bool has_run_ = false;   ///< whether it has run with the present pattern
};

}  // namespace tessera::bound
