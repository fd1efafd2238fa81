// Products with a sparse or dense weight on a host: Y = W·X, dX = Wᵀ·dY, and dW = dY·Xᵀ at the weight's
// pattern (SDDMM). Planned, and built into a tile program.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernels/host/block_sparse/block_sparse.h"
#include "kernels/host/element_sparse/element_sparse.h"
#include "kernels/host/sddmm/sddmm.h"
#include "machine/model/machine.h"
#include "ops/builder.h"
#include "ops/dense/host/host_dense.h"
#include "ops/plan.h"
#include "ops/product_operands.h"
#include "ops/product_problem.h"
#include "ops/sparse/host/weight.h"
#include "program/program.h"

namespace tessera::ops {

/// How a product is partitioned over the threads of a host.
struct HostPartition {
  std::variant<kernels::BlockSchedule, kernels::ElementSchedule, kernels::BlockSddmmSchedule,
               kernels::ElementSddmmSchedule, HostDenseSchedule>
      schedule;
  std::vector<uint32_t> row_begin;  ///< first block row (blocks), chunk (elements) or unit of
                                    ///< HostDensePartition of each row part, and the end
  std::vector<uint32_t>
      col_begin;  ///< first column of Y of each column part, and the end; of W for a dense dW

  uint32_t row_parts() const { return static_cast<uint32_t>(row_begin.size() - 1); }
  uint32_t col_parts() const { return static_cast<uint32_t>(col_begin.size() - 1); }
  uint32_t tiles_used() const { return row_parts() * col_parts(); }
};

/// Layouts of the arrays that are bound to X or dX, and to Y or dY.
struct HostLayouts {
  Layout x = Layout::row_major;
  Layout y = Layout::row_major;
  /// For a forward product and an SDDMM: x is channels × positions of images, and X has the elements under
  /// the window in them.
  std::optional<kernels::Window> window = {};
};

struct HostPlan : Plan<HostPartition> {
  HostLayouts layouts;  ///< layouts for which the plan was made

  uint32_t tiles_used() const { return partition.tiles_used(); }
};

/// Whether the forward product supports X and Y in BF16 on this machine: for blocks of 16 or 32 in BF16, if
/// the machine has instructions for it.
bool takes_bf16(const PackedWeight& weight, const HostLayouts& layouts, const machine::Machine& machine);

/// Throws UsageError if no kernel supports this block size (1: single elements), or for unknown knobs.
void check_host_product(const ProductProblem& problem, uint32_t block_size, const ForcedKnobs& force);

/// Partitions the product over the machine's threads by its cost model, for arrays of these layouts. Throws
/// UsageError for knobs that do not exist or leave no partition.
HostPlan plan_host_product(const PackedWeight& weight, const ProductProblem& problem,
                           const machine::Machine& machine, const ForcedKnobs& force = {},
                           const HostLayouts& layouts = {});

/// Adds the product. `values` are W's values in packed_shape(), or dW in FP32; X, Y and their gradients are
/// FP32, or X and Y of the problem's `activations` type, and for a dense weight their transposes, n × k and
/// n × m; the bias is 1 × rows of the result. With `uses_beta`
/// the result is `inout`; otherwise it is written without being read, whatever the scalars. (Except dW of a
/// dynamic block weight, which is written where the weight has blocks, and is 0 or as before elsewhere.)
/// Throws UsageError for operands of another type or shape.
program::StepId build_host_product(const Builder& builder, WeightIndex& weight, const ProductProblem& problem,
                                   const HostPlan& plan, const ProductOperands& operands);

/// One product as a separate program, with operands bound by the caller.
struct HostProgram {
  program::Program program;
  ProductOperands operands;  ///< including scalars
  std::vector<WeightIndex::Binding> index;
};
HostProgram build_host_program(const std::shared_ptr<const PackedWeight>& weight,
                               const ProductProblem& problem, const HostPlan& plan,
                               const machine::Machine& machine);

/// "kernel=0 row_parts=2 …"
std::string to_string(const HostPlan& plan);

}  // namespace tessera::ops
