// Dense and sparse products as cells.
#pragma once

#include <cstdint>

#include "ops/product_problem.h"
#include "studies/butterfly/study.h"

namespace tessera::studies::butterfly {

/// Y = W·X in FP32: W of m × k with uniformly random non-zeros, X of k × n.
struct ProductCase {
  uint32_t m = 0;
  uint32_t k = 0;
  uint32_t n = 0;
  double density = 1;                              ///< 1: dense
  ops::Planner planner = ops::Planner::published;  ///< on tiles

  /// Operations of the dense product.
  double flops() const { return 2.0 * m * k * n; }
};

/// Plans, builds, compiles and accounts the product, or on a host measures it. Enters "seconds", "gflops" (of
/// the dense product's operations), on tiles "cycles" and the program's size. A product of at most some 10^8
/// operations is executed and compared with float64 if the setting asks for it; on a host every one.
Result run_product(const ProductCase& what, const Setting& setting);

/// Enters "gflops" from "seconds".
void enter_rate(double flops, Result& result);

}  // namespace tessera::studies::butterfly
