#include "ops/tiles/weight_kinds.h"

#include "ops/sparse/static/vendor_layout.h"
#include "ops/sparse/static/vendor_partition.h"

namespace tessera::ops {

DenseShape DenseProduct::shape(bool mirrored) const {
  const TiledNumbers numbers = problem_.numbers();
  const Pattern& p = pattern_;
  if (!mirrored && problem_.product == ProductKind::input_gradient)
    return {p.cols, p.rows, problem_.n, numbers};
  if (!mirrored && problem_.product == ProductKind::sddmm) return {p.rows, problem_.n, p.cols, numbers};
  return {p.rows, p.cols, problem_.n, numbers, problem_.product};
}

ProductLayouts DenseProduct::layouts(const DensePartition& partition) const {
  ProductLayouts roles = dense_layouts(shape(partition.mirrored), partition);
  auto& [left, right, result, metadata, bias] = roles;
  if (partition.mirrored || problem_.product == ProductKind::forward) return roles;
  if (problem_.product == ProductKind::input_gradient) {
    left.transposed = true;
    return {left, result, right};
  }
  right.transposed = true;
  return {result, right, left};
}

BuildNative DenseProduct::builder_of(const DensePartition& partition) const {
  return [this, partition](const Builder& builder, const ProductOperands& operands) -> BuiltProduct {
    ProductOperands by_role = operands;
    if (!partition.mirrored && problem_.product == ProductKind::input_gradient)
      std::swap(by_role.x, by_role.y);
    else if (!partition.mirrored && problem_.product == ProductKind::sddmm)
      std::swap(by_role.values, by_role.y);
    return {build_dense(builder, shape(partition.mirrored), partition, by_role)};
  };
}

DynamicShape dynamic_shape(const Pattern& p, const ProductProblem& problem) {
  return {p.rows, p.cols, problem.n, p.block_size, *problem.capacity, problem.numbers(), problem.product};
}

ProductLayouts dynamic_layouts(const DynamicShape& shape, const DynamicGrid& grid, uint32_t tiles) {
  const uint32_t buckets = grid.tiling.partitions();
  return {
      {buckets * grid.tiling.bucket_blocks, shape.block_size * shape.block_size, bucket_value_mapping(grid)},
      matrix_layout(shape.k, shape.n, program::map_linearly(shape.k, shape.n, tiles)),
      matrix_layout(shape.m, shape.n, program::map_linearly(shape.m, shape.n, tiles)),
      {buckets, grid.bucket_words, bucket_metadata_mapping(grid)}};
}

BuildNative dynamic_builder(const DynamicShape& shape, const DynamicGrid& grid) {
  return [&](const Builder& builder, const ProductOperands& operands) {
    return build_dynamic(builder, shape, grid, operands);
  };
}

StaticProduct::StaticProduct(const Pattern& pattern, const ProductProblem& problem, const machine::Machine& m,
                             const StaticPartition& forward)
    : pattern_(pattern), problem_(problem), machine_(m) {
  if (problem.product == ProductKind::forward) return;
  values_ = value_layout(pattern, forward, m.tiles);
  if (problem.product == ProductKind::sddmm) return;
  transposed_ = sparse::transpose(pattern);
  aliased_ = alias_values(values_, transposed_);
}

std::vector<StaticPartition> StaticProduct::given(Planner planner, const StaticPartition& forced) const {
  const bool is_free = forced == StaticPartition{0, 0, 0};
  if (planner == Planner::best && !is_free) return {};
  std::vector<StaticPartition> all;
  if (problem_.product == ProductKind::input_gradient && planner == Planner::best) {
    all.push_back(values_.partition);
    all.back().mirrored = true;
  }
  if (is_sddmm())
    all.push_back(values_.partition);
  else if (const auto vendors = vendor_partition(shape(), machine_, forced))
    all.push_back(*vendors);
  return all;
}

std::vector<Expected<StaticPartition>> StaticProduct::found(const StaticPartition& forced) const {
  return is_sddmm() ? sddmm_partitions(sddmm_shape(), machine_, forced)
                    : static_partitions(shape(), machine_, forced);
}

PartLayout StaticProduct::deal(const StaticPartition& partition) const {
  if (!partition.mirrored) return {is_sddmm() ? pattern_ : shape().pattern, partition, problem_.n};
  StaticPartition gathering = partition;
  gathering.whole_bands = false;
  return {pattern_, gathering, problem_.n};
}

ProductLayouts StaticProduct::layouts(const PartLayout& parts) const {
  const StaticPartition& partition = parts.partition();
  const uint32_t b = pattern_.block_size, grain = partition.col_grain * (b > 1 ? partition.col_grain : 1);
  // Products of one layer that are planned freely share X and Y, whichever partitions they have.
  const bool by_blocks = partition.is_vendors() && problem_.planner == Planner::vendor;
  const auto matrix = [&](uint32_t rows) {
    return matrix_layout(rows, problem_.n,
                         by_blocks ? map_by_blocks(rows, problem_.n, b, grain, machine_.tiles)
                                   : program::map_linearly(rows, problem_.n, machine_.tiles));
  };
  const bool own = problem_.product == ProductKind::forward;
  OperandLayout values{static_cast<uint32_t>(pattern_.blocks()), b * b,
                       own ? parts.value_mapping(b, machine_.tiles) : values_.mapping};
  values.blocks = own ? parts.parts().order : values_.order;
  return {std::move(values), matrix(pattern_.cols), matrix(pattern_.rows)};
}

BuildNative StaticProduct::builder_of(const PartLayout& parts) const {
  return [this, &parts](const Builder& builder, const ProductOperands& operands) -> BuiltProduct {
    return {is_sddmm() ? build_static_sddmm(builder, sddmm_shape(), parts, operands)
                       : build_static(builder, shape(parts.partition().mirrored), parts, operands)};
  };
}

StaticShape StaticProduct::shape(bool mirrored) const {
  if (mirrored) return {pattern_, problem_.n, problem_.numbers(), nullptr, true};
  if (problem_.product == ProductKind::forward) return {pattern_, problem_.n, problem_.numbers()};
  return {transposed_.pattern, problem_.n, problem_.numbers(), &aliased_};
}

OperandLayout bias_layout(const Pattern& pattern, const ProductProblem& problem, uint32_t tiles) {
  const uint32_t rows = problem.product == ProductKind::input_gradient ? pattern.cols : pattern.rows;
  return matrix_layout(rows, 1, program::map_linearly(rows, 1, tiles));
}

}  // namespace tessera::ops
