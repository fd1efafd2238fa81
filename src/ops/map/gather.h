// Data movement: gathered rows, and copies of matrices between layouts.
#pragma once

#include <optional>
#include <vector>

#include "ops/map/map.h"

namespace tessera::ops {

/// out[i] = source[rows[i]], with a list of rows known when the program is built. source_rows × cols to
/// rows.size() × cols, of any type.
struct GatherProblem {
  Type type = Type::f32;
  uint32_t source_rows = 0;
  uint32_t cols = 0;
  std::vector<uint32_t> rows;
};

/// out[i] = source[rows[i]], with a list of `rows` u32 read at run time; a row that the source does not have
/// is an error of the run. source_rows × cols to rows × cols of f32, f16, bf16, u32 or i32. The source lies
/// row by row, or in panels of `panel_rows` rows (see its codelet).
struct LookupProblem {
  Type type = Type::f32;
  uint32_t source_rows = 0;
  uint32_t cols = 0;
  uint32_t rows = 0;
  uint32_t panel_rows = 1;
};

/// The adjoint of a lookup: out[rows[i]] += values[i], of f32, with out = 0 before unless it `adds` to the
/// contents; the row `skipped` is left out. Out lies row by row, or in panels as the source of a lookup.
struct ScatterAddProblem {
  uint32_t out_rows = 0;
  uint32_t cols = 0;
  uint32_t rows = 0;
  std::optional<uint32_t> skipped = {};
  uint32_t panel_rows = 1;
  bool adds = false;
};

/// Operands "rows", "source", "out"; and "rows", "values", "out". Each vertex has some of the columns, so
/// that on tiles only the list is exchanged; with a source in panels, some of the result's rows.
MapOperation operation_of(const LookupProblem& problem);
MapOperation operation_of(const ScatterAddProblem& problem);

/// out = in, rows × cols of any type; the caller's strides may differ.
struct CopyProblem {
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
};

/// Operands "in", "out".
MapOperation operation_of(const CopyProblem& problem);

/// Operands "source" and "out". On a host a codelet gathers the rows; on a tiled machine gathering is an
/// exchange between the two mappings. Throw UsageError for a row that the source does not have.
MapPlan plan(const Builder& builder, const GatherProblem& problem, const std::vector<Operand>& operands);
program::StepId build(const Builder& builder, const GatherProblem& problem, const MapPlan& plan,
                      const std::vector<Operand>& operands);

}  // namespace tessera::ops
