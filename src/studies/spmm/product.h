// The products of `tessera spmm`, on any machine.
#pragma once

#include <tessera/sparse.h>
#include <tessera/weight.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "bound/product.h"
#include "machine/model/machine.h"
#include "studies/spmm/case.h"
#include "studies/spmm/request.h"

namespace tessera::studies::spmm {

/// The product of a case; `blocks`: the capacity of a dynamic weight.
ops::ProductProblem problem_of(const SpmmRequest& request, const SpmmCase& what,
                               const machine::Machine& machine, uint64_t blocks = 0);

/// Runs cases one after another. On a host, successive cases with the same matrix, mode and type share the
/// packed weight.
class ProductRuns {
 public:
  /// Called with each product before it runs.
  using Planned = std::function<void(const bound::BoundProduct&)>;

  explicit ProductRuns(Planned planned = {}) : planned_(std::move(planned)) {}

  SpmmResult run(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                 const machine::Machine& machine, const ops::ForcedKnobs& force);

  /// Forgets the packed weight, as the next case has another matrix.
  void forget_weight() { packed_is_of_ = std::nullopt; }

 private:
  SpmmResult plan_and_run(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                          const machine::Machine& machine, const ops::ForcedKnobs& force);
  bound::BoundProduct plan(const ops::ProductProblem& problem, const SpmmCase& what,
                           const SparseMatrix& matrix, const machine::Machine& machine,
                           const ops::ForcedKnobs& force, Layout layout);
  void pack(const ops::ProductProblem& problem, const SpmmCase& what, const SparseMatrix& matrix);

  Planned planned_;
  std::optional<SpmmCase> packed_is_of_;
  std::optional<Weight> dynamic_;
  std::shared_ptr<const ops::PackedWeight> packed_;
};

}  // namespace tessera::studies::spmm
