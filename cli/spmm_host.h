// Cases of `tessera spmm` on this computer.
#pragma once

#include <tessera/sparse.h>

#include <memory>

#include "cli/spmm_case.h"
#include "cli/spmm_request.h"
#include "machine/machine.h"
#include "ops/spmm.h"

namespace tessera::cli {

/// Runs cases on this computer. The packed weight stays for neighbours of one matrix and type.
class HostRuns {
 public:
  SpmmResult run(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                 const machine::Machine& machine, const ops::ForcedKnobs& force);

  /// The next case is of another matrix.
  void forget_weight() { packed_ = nullptr; }

 private:
  std::shared_ptr<const ops::PackedWeight> packed_;
  Type packed_type_ = Type::f32;
};

}  // namespace tessera::cli
