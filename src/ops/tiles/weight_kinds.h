// The views of products on tiles that the planner and builder of each kind of weight take.
#pragma once

#include <vector>

#include "ops/sparse/static/static_layout.h"
#include "ops/tiles/build_between.h"
#include "ops/tiles/product.h"
#include "sparse/pattern.h"

namespace tessera::ops {

/// A dense product in its own partition or mirrored: its shape, layouts and operands, as factors of a
/// left-times-right product, or by their roles in W's products.
class DenseProduct {
 public:
  DenseProduct(const Pattern& pattern, const ProductProblem& problem)
      : pattern_(pattern), problem_(problem) {}

  /// For dX the left factor is Wᵀ; for dW the left factor is dY and the right one Xᵀ. Mirrored, both are read
  /// in place.
  DenseShape shape(bool mirrored) const;
  ProductLayouts layouts(const DensePartition& partition) const;
  BuildNative builder_of(const DensePartition& partition) const;

 private:
  const Pattern& pattern_;
  const ProductProblem& problem_;
};

DynamicShape dynamic_shape(const Pattern& pattern, const ProductProblem& problem);
ProductLayouts dynamic_layouts(const DynamicShape& shape, const DynamicGrid& grid, uint32_t tiles);
BuildNative dynamic_builder(const DynamicShape& shape, const DynamicGrid& grid);

/// The program of a plan, with the storage order of its variables.
TileProductProgram bound_program(ClosedProduct closed, const Pattern& pattern, const ProductProblem& problem,
                                 const TileProductPlan& plan, const machine::Machine& machine);

/// Layout of a bias that the caller leaves to the plan.
OperandLayout bias_layout(const Pattern& pattern, const ProductProblem& problem, uint32_t tiles);

/// A static sparse product, with the layouts of its forward product, which is partitioned as `forward`.
/// Pattern, problem and machine must outlive it.
class StaticProduct {
 public:
  StaticProduct(const Pattern& pattern, const ProductProblem& problem, const machine::Machine& machine,
                const StaticPartition& forward);

  /// The partitions that a planner compares whatever it expects of them, for a weight and n that are not
  /// empty: the vendor's of Y or dX, and for gradients of the free planner the forward product's. The
  /// vendor's planner has no others; its dW takes the forward product's.
  std::vector<StaticPartition> given(Planner planner, const StaticPartition& forced) const;
  /// The partitions that the free planner finds.
  std::vector<Expected<StaticPartition>> found(const StaticPartition& forced) const;
  /// Distributes the pattern over the parts of a partition.
  PartLayout deal(const StaticPartition& partition) const;
  ProductLayouts layouts(const PartLayout& parts) const;
  BuildNative builder_of(const PartLayout& parts) const;

 private:
  bool is_sddmm() const { return problem_.product == ProductKind::sddmm; }
  StaticShape shape(bool mirrored = false) const;
  StaticSddmmShape sddmm_shape() const { return {pattern_, problem_.n, problem_.numbers(), values_}; }

  const Pattern& pattern_;
  const ProductProblem& problem_;
  const machine::Machine& machine_;
  ValueLayout values_;
  sparse::TransposedPattern transposed_;
  AliasedValues aliased_;
};

}  // namespace tessera::ops
