// Y = W·X, W sparse or dense: planned, and built as a tile program.
#pragma once

#include <tessera/spmm.h>
#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "base/parallel.h"
#include "kernels/host/block_sparse/block_sparse.h"
#include "kernels/host/element_sparse/element_sparse.h"
#include "machine/model/machine.h"
#include "ops/plan.h"
#include "ops/product_problem.h"
#include "program/program.h"
#include "sparse/blocks/packed_blocks.h"
#include "sparse/elements/packed_elements.h"

namespace tessera::ops {

/// A weight in the order in which the kernels read it. Dense is a pattern like any other: full.
struct PackedWeight {
  std::variant<sparse::PackedBlocks, sparse::PackedElements> form;
  bool is_dense = false;

  /// The packed values, which a program takes as its input.
  const std::byte* values() const;
};

/// Packs a matrix so that `threads` threads can share out its rows. More threads than that share
/// out the columns of Y too.
PackedWeight prepack_weight(const SparseMatrix& matrix, Type type, uint32_t threads);

/// A product, but for its weight.
struct SpmmProblem {
  uint32_t n = 0;
  Layout x_layout = Layout::row_major;
  Layout y_layout = Layout::row_major;
  Activation activation = Activation::none;
  bool bias = false;
  bool transpose = false;  ///< Wᵀ·X instead: X is m × n, Y k × n, a bias has k elements
};

/// How a product is cut over the tiles of a machine, and what that is predicted to cost.
struct SpmmPlan {
  std::variant<kernels::BlockSchedule, kernels::ElementSchedule> schedule;
  std::vector<uint32_t> row_begin;  ///< first block row (blocks) or chunk (elements) of each row part
  std::vector<uint32_t> col_begin;  ///< first column of Y of each column part
  PlanCandidate chosen;
  std::vector<PlanCandidate> candidates;

  uint32_t tiles_used() const {
    return static_cast<uint32_t>((row_begin.size() - 1) * (col_begin.size() - 1));
  }
};

/// Throws UsageError where no kernel takes blocks of this size (1: single elements), or its plans
/// have no such knobs.
void check_spmm(uint32_t block_size, const ForcedKnobs& force);

/// Cuts the product over the machine's tiles as its cost model finds best. Throws UsageError for
/// knobs that do not exist or leave no cut.
SpmmPlan plan_spmm(const PackedWeight& weight, const SpmmProblem& problem, const machine::Machine& machine,
                   const ForcedKnobs& force = {});

/// The variables of a product's program that the caller binds.
struct SpmmVariables {
  program::VariableId values = 0;   ///< the packed weight's values
  program::VariableId x = 0;        ///< k × n
  program::VariableId y = 0;        ///< m × n
  program::VariableId scalars = 0;  ///< alpha, beta
  program::VariableId bias = 0;     ///< m, or no elements
  /// Arrays of a dynamic weight's index. They stay where they are; what they hold is the weight's
  /// present pattern, once update_index() has seen to it.
  struct Index {
    program::VariableId variable = 0;
    const void* data = nullptr;
    int64_t row_stride = 0;
  };
  std::vector<Index> index = {};
};

struct SpmmProgram {
  program::Program program;
  SpmmVariables variables;
};

/// Builds the plan's program. It refers to the weight's index, which must stay alive: as constants,
/// or of a dynamic weight as inputs, so that the program serves every pattern.
SpmmProgram build_spmm(const std::shared_ptr<const PackedWeight>& weight, const SpmmProblem& problem,
                       const SpmmPlan& plan, const machine::Machine& machine);

/// Brings up to date what the problem's program reads of a weight beside its values: to be called
/// before each run, at no cost where nothing has changed.
void update_index(const PackedWeight& weight, const SpmmProblem& problem,
                  const base::ParallelFor& parallel = base::serial_for);

/// "kernel=0 row_parts=2 …"
std::string to_string(const SpmmPlan& plan);

}  // namespace tessera::ops
