#include <algorithm>

#include "ops/tiles/product.h"
#include "ops/tiles/weight_kinds.h"
#include "sparse/pattern.h"

namespace tessera::ops {
using machine::Machine;

BuiltProduct build(const Builder& builder, const Pattern& pattern, const ProductProblem& problem,
                   const TileProductPlan& plan, const ProductOperands& operands) {
  if (operands.bias)
    builder.require(*operands.bias, "bias", Type::f32,
                    problem.product == ProductKind::forward ? pattern.rows : pattern.cols, 1);
  const auto between = [&](const ProductLayouts& native, const BuildNative& build_native) {
    return build_between(builder, problem, plan.layouts, native, operands, build_native);
  };
  const Machine& machine = builder.machine();
  if (const auto* partition = std::get_if<DensePartition>(&plan.partition)) {
    const DenseProduct product(pattern, problem);
    return between(product.layouts(*partition), product.builder_of(*partition));
  }
  if (const auto* tiling = std::get_if<DynamicTiling>(&plan.partition)) {
    const DynamicShape shape = dynamic_shape(pattern, problem);
    const DynamicGrid grid(shape, *tiling, machine);
    return between(dynamic_layouts(shape, grid, machine.tiles), dynamic_builder(shape, grid));
  }
  const StaticProduct product(pattern, problem, machine, plan.values_of);
  const PartLayout parts = product.deal(std::get<StaticPartition>(plan.partition));
  return between(product.layouts(parts), product.builder_of(parts));
}

TileProductProgram bound_program(ClosedProduct closed, const Pattern& pattern, const ProductProblem& problem,
                                 const TileProductPlan& plan, const Machine& machine) {
  TileProductProgram out;
  out.program = std::move(closed.program);
  out.layouts = plan.layouts;
  out.dense = problem.dense;
  out.operands = closed.operands;
  out.block_order = out.layouts.values.blocks;
  if (const auto* tiling = std::get_if<DynamicTiling>(&plan.partition)) {
    const DynamicShape shape = dynamic_shape(pattern, problem);
    out.dynamic = DynamicWeight{shape, DynamicGrid(shape, *tiling, machine), {}, closed.bucket_metadata};
    out.set_pattern(pattern);
  }
  return out;
}

compiler::Estimate DynamicWeight::estimate(const program::Program& program, const Machine& machine) const {
  return ops::estimate(program, bucket_metadata, grid, encoding, machine);
}

void TileProductProgram::set_pattern(const Pattern& pattern) {
  dynamic->encoding = encode(pattern, dynamic->shape, dynamic->grid);
  block_order = dynamic->encoding.block_order;
}

std::vector<float> TileProductProgram::stored_weight(const SparseMatrix& matrix) const {
  if (dense) return layouts.values.store(sparse::to_dense(matrix));
  const uint64_t block = uint64_t{matrix.pattern.block_size} * matrix.pattern.block_size;
  std::vector<float> stored(block_order.size() * block);
  for (uint64_t i = 0; i < block_order.size(); ++i)
    if (block_order[i] != DynamicEncoding::kNoBlock)
      std::copy_n(matrix.values.begin() + static_cast<int64_t>(block_order[i] * block), block,
                  stored.begin() + static_cast<int64_t>(i * block));
  return stored;
}

void TileProductProgram::load_weight(std::span<const float> stored, SparseMatrix& matrix) const {
  const Pattern& p = matrix.pattern;
  const uint64_t block = uint64_t{p.block_size} * p.block_size;
  if (!dense) {
    matrix.values.resize(p.blocks() * block);
    for (uint64_t i = 0; i < block_order.size(); ++i)
      if (block_order[i] != DynamicEncoding::kNoBlock)
        std::copy_n(stored.begin() + static_cast<int64_t>(i * block), block,
                    matrix.values.begin() + static_cast<int64_t>(block_order[i] * block));
    return;
  }
  std::vector<float> full(uint64_t{p.rows} * p.cols);
  layouts.values.load(stored, full);
  matrix.values = sparse::values_at(p, full);
}

}  // namespace tessera::ops
