#include "ops/sparse/tiled_spmm.h"

#include <algorithm>

#include "ops/sparse/tiled_products.h"
#include "sparse/pattern.h"

namespace tessera::ops {
namespace {

using machine::Machine;

TiledSpmmProgram build_dynamic_product(const Pattern& pattern, const DynamicShape& shape,
                                       const DynamicTiling& partition, const Machine& m) {
  const DynamicGrid grid(shape, partition, m);
  DynamicProgram built = build_dynamic(shape, grid, m);
  TiledSpmmProgram out;
  out.program = std::move(built.program);
  out.variables = {built.values, built.x, built.y, 0, 0};
  out.dynamic = DynamicWeight{shape, grid, {}, built.metadata, built.bucket_metadata};
  out.set_pattern(pattern);
  return out;
}

TiledSpmmProgram build_dense_product(const DenseShape& shape, Product product,
                                     const DensePartition& partition) {
  DenseProgram built = build_dense(shape, partition);
  const auto [left, right, result] = dense_layouts(shape, partition);
  TiledSpmmProgram out;
  out.dense = true;
  out.program = std::move(built.program);
  switch (product) {
    case Product::forward:
      out.variables = {built.w, built.x, built.y, 0, 0};
      out.w = {left}, out.x = {right}, out.y = {result};
      break;
    case Product::input_gradient:
      out.variables = {built.w, built.y, built.x, 0, 0};
      out.w = {left, true}, out.x = {result}, out.y = {right};
      break;
    case Product::sddmm:
      out.variables = {built.y, built.x, built.w, 0, 0};
      out.w = {result}, out.x = {right, true}, out.y = {left};
      break;
  }
  return out;
}

/// A row-major matrix of rows × cols, as its transpose.
std::vector<float> transposed_copy(std::span<const float> matrix, uint64_t rows, uint64_t cols) {
  std::vector<float> transposed(matrix.size());
  for (uint64_t r = 0; r < rows; ++r)
    for (uint64_t c = 0; c < cols; ++c) transposed[c * rows + r] = matrix[r * cols + c];
  return transposed;
}

}  // namespace

TiledSpmmProgram build_tiled_spmm(const Pattern& pattern, const TiledSpmmProblem& problem,
                                  const TiledSpmmPlan& plan, const Machine& machine) {
  if (const auto* partition = std::get_if<DensePartition>(&plan.partition))
    return build_dense_product(dense_shape(pattern, problem), problem.product, *partition);
  if (const auto* partition = std::get_if<DynamicTiling>(&plan.partition))
    return build_dynamic_product(pattern, dynamic_shape(pattern, problem), *partition, machine);
  return StaticProduct(pattern, problem, machine, plan.values_of)
      .build(std::get<StaticPartition>(plan.partition));
}

std::vector<float> StoredMatrix::store(std::span<const float> matrix) const {
  return transposed ? layout.store(transposed_copy(matrix, layout.cols(), layout.rows()))
                    : layout.store(matrix);
}

void StoredMatrix::load(std::span<const float> stored, std::span<float> matrix) const {
  if (!transposed) return layout.load(stored, matrix);
  std::vector<float> transposed(matrix.size());
  layout.load(stored, transposed);
  std::ranges::copy(transposed_copy(transposed, layout.rows(), layout.cols()), matrix.begin());
}

Tally DynamicWeight::tally(const program::Program& program, const Machine& machine) const {
  return ops::tally(program, bucket_metadata, grid, encoding, machine);
}

void TiledSpmmProgram::set_pattern(const Pattern& pattern) {
  dynamic->encoding = encode(pattern, dynamic->shape, dynamic->grid);
  block_order = dynamic->encoding.block_order;
}

std::vector<float> TiledSpmmProgram::stored_weight(const SparseMatrix& matrix) const {
  if (dense) return w.store(sparse::to_dense(matrix));
  const uint64_t block = uint64_t{matrix.pattern.block_size} * matrix.pattern.block_size;
  std::vector<float> stored(block_order.size() * block);
  for (uint64_t i = 0; i < block_order.size(); ++i)
    if (block_order[i] != DynamicEncoding::kNoBlock)
      std::copy_n(matrix.values.begin() + static_cast<int64_t>(block_order[i] * block), block,
                  stored.begin() + static_cast<int64_t>(i * block));
  return stored;
}

std::vector<float> TiledSpmmProgram::stored_x(std::span<const float> given) const {
  return dense ? x.store(given) : std::vector<float>(given.begin(), given.end());
}

std::vector<float> TiledSpmmProgram::stored_y(std::span<const float> given) const {
  return dense ? y.store(given) : std::vector<float>(given.begin(), given.end());
}

void TiledSpmmProgram::load_weight(std::span<const float> stored, SparseMatrix& matrix) const {
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
  w.load(stored, full);
  matrix.values = sparse::values_at(p, full);
}

void TiledSpmmProgram::load_x(std::span<const float> stored, std::span<float> result) const {
  if (dense) return x.load(stored, result);
  std::copy(stored.begin(), stored.end(), result.begin());
}

void TiledSpmmProgram::load_y(std::span<const float> stored, std::span<float> result) const {
  if (dense) return y.load(stored, result);
  std::copy(stored.begin(), stored.end(), result.begin());
}

}  // namespace tessera::ops
