// Dynamic products on tiled machines, run by tests with one pattern after another.
#pragma once

#include <algorithm>
#include <string_view>

#include "ops/run_on_tiles.h"
#include "sparse/generate.h"

namespace tessera::ops {

/// All blocks in the first rows and columns, as a square nearly full: one partition's bucket, and many steps.
inline SparseMatrix cornered_matrix(uint32_t m, uint32_t k, uint32_t block_size, uint64_t blocks) {
  Pattern p{m, k, block_size, {0}, {}};
  uint32_t side = 1;
  while (uint64_t{side} * side < blocks) ++side;
  for (uint32_t r = 0; r < p.block_rows(); ++r) {
    for (uint32_t c = 0; r < side && c < std::min(side, p.block_cols()) && p.columns.size() < blocks; ++c)
      p.columns.push_back(c);
    p.row_begin.push_back(p.columns.size());
  }
  return {p, sparse::random_values(p, 5)};
}

/// Sets the matrix, runs, and compares with float64 and with the exact cost of the pattern.
inline void expect_right(bound::Product& product, const SparseMatrix& matrix, uint64_t seed = 3) {
  product.set_matrix(matrix);
  ProductRun run(matrix, product.problem(), seed);
  const check::Verification v = run.run(product);
  EXPECT_TRUE(v.verified) << v.max_rel_error << " of " << v.tolerance;
  const DynamicWeight& dynamic = *product.tile_program().dynamic;
  const compiler::Estimate exact = dynamic.estimate(*product.executable().program, product.machine());
  const PlanCandidate of_pattern{"", exact.cycles.scaled(1 / product.machine().clock_hz),
                                 exact.memory.max_tile_bytes, ""};
  expect_kept(of_pattern, product.executable(), run.profile().cycles);
  EXPECT_EQ(exact.memory.max_tile_bytes, product.chosen().max_tile_bytes);
  for (const engine::StepProfile& step : run.profile().sets) {
    if (step.name == "propagation") {
      EXPECT_EQ(step.times, dynamic.encoding.steps);
    }
  }
}

}  // namespace tessera::ops
