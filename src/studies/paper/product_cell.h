// Dense and sparse products as cells.
#pragma once

#include <cstdint>

#include "ops/product_problem.h"
#include "studies/paper/study.h"
#include "studies/spmm/case.h"

namespace tessera::studies {

/// Y = W·X in FP32: W of m × k with uniformly random non-zeros, X of k × n.
struct ProductCase {
  uint32_t m = 0;
  uint32_t k = 0;
  uint32_t n = 0;
  double density = 1;                           ///< 1: dense
  ops::Planner planner = ops::Planner::vendor;  ///< on tiles

  /// Operations of the dense product.
  double flops() const { return 2.0 * m * k * n; }
};

/// Plans, builds, compiles and estimates the product, or on a host measures it. Enters "seconds", "gflops"
/// (of the dense product's operations), on tiles "cycles", the program's size, and the times with both
/// operands sent from the host and the result fetched. A product of at most some 10^8 operations is executed
/// and compared with float64 if the setting asks for it; on a host every product is.
Result run_product(const ProductCase& what, const Setting& setting);

/// A result with "seconds", and on tiles "cycles".
Result result_of(const spmm::SpmmResult& found);

/// Enters "gflops" from "seconds", and "gflops_with_transfers" from "seconds_with_transfers" if there are
/// any.
void enter_rate(double flops, Result& result);

/// Enters "transfer_seconds", for sending `bytes_in` bytes to a modelled machine and then fetching
/// `bytes_out` bytes from it, and "seconds_with_transfers", the sum with "seconds". Enters nothing if the
/// machine has no host link.
void enter_transfers(const machine::Machine& machine, uint64_t bytes_in, uint64_t bytes_out, Result& result);

}  // namespace tessera::studies
