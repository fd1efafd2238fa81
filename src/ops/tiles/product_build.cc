#include <algorithm>

#include "ops/tiles/kinds.h"
#include "ops/tiles/product.h"
#include "sparse/pattern.h"

namespace tessera::ops {
using machine::Machine;

ProductLayouts layouts_of(const Pattern& pattern, const ProductProblem& problem, const TileProductPlan& plan,
                          const Machine& machine) {
  if (const auto* partition = std::get_if<DensePartition>(&plan.partition))
    return DenseProduct(pattern, problem).layouts(*partition);
  if (const auto* tiling = std::get_if<DynamicTiling>(&plan.partition)) {
    const DynamicShape shape = dynamic_shape(pattern, problem);
    return dynamic_layouts(shape, DynamicGrid(shape, *tiling, machine), machine.tiles);
  }
  const StaticProduct product(pattern, problem, machine, plan.values_of);
  return product.layouts(product.deal(std::get<StaticPartition>(plan.partition)));
}

BuiltProduct build(const Builder& builder, const Pattern& pattern, const ProductProblem& problem,
                   const TileProductPlan& plan, const ProductOperands& operands) {
  if (const auto* partition = std::get_if<DensePartition>(&plan.partition))
    return {DenseProduct(pattern, problem).build(builder, *partition, operands)};
  if (const auto* tiling = std::get_if<DynamicTiling>(&plan.partition)) {
    const DynamicShape shape = dynamic_shape(pattern, problem);
    return build_dynamic(builder, shape, DynamicGrid(shape, *tiling, builder.machine()), operands);
  }
  const StaticProduct product(pattern, problem, builder.machine(), plan.values_of);
  return {product.build(builder, product.deal(std::get<StaticPartition>(plan.partition)), operands)};
}

TileProductProgram build_tile_product(const Pattern& pattern, const ProductProblem& problem,
                                      const TileProductPlan& plan, const Machine& machine) {
  TileProductProgram out;
  out.layouts = layouts_of(pattern, problem, plan, machine);
  out.dense = problem.dense;
  const Builder builder(out.program, machine);
  const ProductOperands operands = add_external(builder, problem, out.layouts);
  const BuiltProduct built = build(builder, pattern, problem, plan, operands);
  out.program.set_main(built.step);
  out.variables = {operands.values.variable, operands.x.variable, operands.y.variable};
  out.block_order = out.layouts.values.blocks;
  if (const auto* tiling = std::get_if<DynamicTiling>(&plan.partition)) {
    const DynamicShape shape = dynamic_shape(pattern, problem);
    out.dynamic = DynamicWeight{
        shape, DynamicGrid(shape, *tiling, machine), {}, operands.metadata->variable, built.bucket_metadata};
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

std::vector<float> TileProductProgram::stored_x(std::span<const float> x) const { return layouts.x.store(x); }

std::vector<float> TileProductProgram::stored_y(std::span<const float> y) const { return layouts.y.store(y); }

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

void TileProductProgram::load_x(std::span<const float> stored, std::span<float> x) const {
  layouts.x.load(stored, x);
}

void TileProductProgram::load_y(std::span<const float> stored, std::span<float> y) const {
  layouts.y.load(stored, y);
}

}  // namespace tessera::ops
