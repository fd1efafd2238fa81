// Rows of a sparse weight on a host that a list names at run time, and sums of rows at its pattern.
#pragma once

#include <cstdint>
#include <optional>

#include "ops/builder.h"
#include "ops/sparse/host/weight.h"
#include "program/program.h"

namespace tessera::ops {

/// The operands: a list of u32, count × 1; values in packed_shape(); and rows, count × columns of the weight.
struct ListedRows {
  Operand list = {};
  Operand values = {};
  Operand rows = {};
};

/// rows[i] = W[list[i]], of the type of W's values. A row that W does not have is an error of the run.
program::StepId take_rows(const Builder& builder, WeightIndex& index, const ListedRows& operands);

/// dW[list[i]] += rows[i] where W has elements, in FP32, with dW = 0 before; the row `skipped` is left out.
program::StepId sum_rows(const Builder& builder, WeightIndex& index, const ListedRows& operands,
                         std::optional<uint32_t> skipped);

}  // namespace tessera::ops
