// The codelet of a structured map on a host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/structured/structured.h"

namespace tessera::ops {

/// A matrix of indices that a codelet reads, owned by the problem.
struct StructuredConstant {
  const std::vector<uint32_t>* values = nullptr;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

/// A codelet with its constants. Its fields are x, dy (for gradients), the parameters, constants, then the
/// results, y or dx and the gradients of the parameters, and scratch.
struct StructuredCodelet {
  const program::Codelet* codelet = nullptr;
  std::vector<int64_t> params = {};
  std::vector<StructuredConstant> constants = {};
  size_t scratch_floats = 0;
};

/// The codelet of a vertex with `samples` samples.
StructuredCodelet codelet_of(const StructuredProblem& problem, uint32_t samples);

}  // namespace tessera::ops
