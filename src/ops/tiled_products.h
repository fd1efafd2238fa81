// The products of tiles as the planner and the builder of each kind see them.
#pragma once

#include <vector>

#include "ops/tiled_spmm.h"
#include "sparse/pattern.h"

namespace tessera::ops {

/// The dense product that a problem is: of dX the left factor is Wᵀ, of dW it is dY and the right one Xᵀ.
DenseShape dense_shape(const Pattern& pattern, const TiledSpmmProblem& problem);
DynamicShape dynamic_shape(const Pattern& pattern, const TiledSpmmProblem& problem);

/// A static sparse product with what it needs of its forward product, which is cut as `forward`. Pattern,
/// problem and machine must outlive it.
class StaticProduct {
 public:
  StaticProduct(const Pattern& pattern, const TiledSpmmProblem& problem, const machine::Machine& machine,
                const StaticCut& forward);

  std::vector<Expected<StaticCut>> cuts(Planner planner, const StaticCut& forced) const;
  TiledSpmmProgram build(const StaticCut& cut) const;

 private:
  bool is_sampled() const { return problem_.product == Product::weight_gradient; }
  StaticShape shape() const;
  SampledShape sampled_shape() const { return {pattern_, problem_.n, problem_.numbers(), values_}; }

  const Pattern& pattern_;
  const TiledSpmmProblem& problem_;
  const machine::Machine& machine_;
  ValueLayout values_;
  sparse::TransposedPattern transposed_;
  LentValues lent_;
};

}  // namespace tessera::ops
