// Cases of `tessera spmm` on this computer.
#pragma once

#include <tessera/sparse.h>

#include <memory>
#include <optional>

#include "cli/spmm_case.h"
#include "cli/spmm_request.h"
#include "machine/model/machine.h"
#include "ops/sparse/host/spmm.h"

namespace tessera::cli {

/// Runs cases on this computer. Successive cases with the same matrix, mode and type share the packed weight.
class HostRuns {
 public:
  SpmmResult run(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                 const machine::Machine& machine, const ops::ForcedKnobs& force);

  /// The next case has another matrix.
  void forget_weight() { packed_is_of_ = std::nullopt; }

 private:
  void pack(const SpmmCase& what, const SparseMatrix& matrix);
  SpmmResult run_product(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                         const machine::Machine& machine, const ops::ForcedKnobs& force) const;

  std::optional<SpmmCase> packed_is_of_;
  std::optional<Weight> dynamic_;
  std::shared_ptr<const ops::PackedWeight> packed_;
};

}  // namespace tessera::cli
