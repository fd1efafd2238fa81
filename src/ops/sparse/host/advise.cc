#include "ops/sparse/host/advise.h"

#include <algorithm>

#include "ops/sparse/host/spmm.h"
#include "sparse/pattern.h"

namespace tessera::ops {
namespace {

PackedWeight prepack(const Pattern& pattern, Type type) {
  if (pattern.block_size != 1) return {sparse::PackedBlocks(pattern, type), false};
  return prepack_weight({pattern, std::vector<float>(pattern.blocks())}, type);
}

}  // namespace

std::vector<Advice> advise(const Pattern& pattern, Type type, uint32_t n, const machine::Machine& host) {
  const ProductProblem problem{.n = n};
  std::vector<Advice> advice;
  for (uint32_t block_size : {1U, 4U, 8U, 16U, 32U}) {
    const PackedWeight weight = prepack(block_size == 1 ? pattern : sparse::cover(pattern, block_size), type);
    advice.push_back({false, block_size, plan_host_product(weight, problem, host).chosen.total()});
  }
  const PackedWeight dense{
      sparse::PackedBlocks(sparse::full_pattern(pattern.rows, pattern.cols, sparse::kDenseBlockSize), type),
      true};
  advice.push_back({true, sparse::kDenseBlockSize, plan_host_product(dense, problem, host).chosen.total()});
  std::stable_sort(advice.begin(), advice.end(),
                   [](const Advice& a, const Advice& b) { return a.seconds < b.seconds; });
  return advice;
}

}  // namespace tessera::ops
