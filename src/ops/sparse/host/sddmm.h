// dW = dY·Xᵀ at the pattern of a weight, planned for the host and built as a tile program.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "kernels/host/sddmm/sddmm.h"
#include "ops/plan.h"
#include "ops/sparse/host/spmm.h"

namespace tessera::ops {

/// A weight's gradient, but for the weight: dY is m × n, X k × n.
struct SddmmProblem {
  uint32_t n = 0;
  Layout dy_layout = Layout::row_major;
  Layout x_layout = Layout::row_major;
};

/// How a gradient is cut over the tiles of a machine, and what that is predicted to cost.
struct SddmmPlan {
  std::variant<kernels::BlockSddmmSchedule, kernels::ElementSddmmSchedule> schedule;
  std::vector<uint32_t>
      row_begin;  ///< first block row (blocks) or chunk (elements) of each part, and the end
  PlanCandidate chosen;
  std::vector<PlanCandidate> candidates;

  uint32_t tiles_used() const { return static_cast<uint32_t>(row_begin.size() - 1); }
};

/// Elements of the packed order: of the weight's array of values, of dW, of an optimizer's state.
uint64_t packed_elements(const PackedWeight& weight);

/// Clears what no vertex of a gradient's program writes of dW: the slots that no block of a dynamic weight
/// has.
void clear_free_places(const PackedWeight& weight, float* packed);

/// Throws UsageError where no kernel takes blocks of this size (1: single elements), or its plans
/// have no such knobs.
void check_sddmm(uint32_t block_size, const ForcedKnobs& force);

/// Cuts the gradient over the machine's tiles as its cost model finds best. Throws UsageError for
/// knobs that do not exist or leave no cut.
SddmmPlan plan_sddmm(const PackedWeight& weight, const SddmmProblem& problem, const machine::Machine& machine,
                     const ForcedKnobs& force = {});

/// The variables of a gradient's program that the caller binds.
struct SddmmVariables {
  program::VariableId dw = 0;       ///< in the packed order: blocks × values of one, or steps × sixteen
  program::VariableId dy = 0;       ///< m × n
  program::VariableId x = 0;        ///< k × n
  program::VariableId scalars = 0;  ///< alpha, beta
  std::vector<SpmmVariables::Index> index = {};  ///< of a dynamic weight, as in a product
};

struct SddmmProgram {
  program::Program program;
  SddmmVariables variables;
};

/// Builds the plan's program. It refers to the weight's index as that of a product does.
SddmmProgram build_sddmm(const std::shared_ptr<const PackedWeight>& weight, const SddmmProblem& problem,
                         const SddmmPlan& plan);

/// The cut, tiles used and the predicted time, for people.
std::string to_string(const SddmmPlan& plan);

}  // namespace tessera::ops
