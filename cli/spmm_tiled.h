// Cases of `tessera spmm` on modelled machines.
#pragma once

#include <tessera/sparse.h>

#include "cli/spmm_case.h"
#include "cli/spmm_request.h"
#include "machine/model/machine.h"
#include "ops/sparse/host/spmm.h"
#include "ops/tiles/product.h"

namespace tessera::cli {

/// `blocks`: the most that a dynamic weight may have.
ops::ProductProblem tiled_problem(const SpmmRequest& request, const SpmmCase& what, uint64_t blocks = 0);

SpmmResult run_on_tiles(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                        const machine::Machine& machine, const ops::ForcedKnobs& force);

}  // namespace tessera::cli
