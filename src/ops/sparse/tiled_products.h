// The products of tiles as the planner and the builder of each kind see them.
#pragma once

#include <vector>

#include "ops/sparse/tiled_spmm.h"
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
                const StaticPartition& forward);

  std::vector<Expected<StaticPartition>> partitions(Planner planner, const StaticPartition& forced) const;
  TiledSpmmProgram build(const StaticPartition& partition) const;

 private:
  bool is_sddmm() const { return problem_.product == Product::sddmm; }
  StaticShape shape() const;
  StaticSddmmShape sddmm_shape() const { return {pattern_, problem_.n, problem_.numbers(), values_}; }

  const Pattern& pattern_;
  const TiledSpmmProblem& problem_;
  const machine::Machine& machine_;
  ValueLayout values_;
  sparse::TransposedPattern transposed_;
  AliasedValues aliased_;
};

}  // namespace tessera::ops
