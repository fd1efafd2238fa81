// Costs on hosts of batches in columns of lanes.
#pragma once

#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/lane_columns.h"

namespace tessera::kernels {

/// Cycles to add the lanes of a point.
inline constexpr double kTotalPerPoint = 5;

/// Number of vectors of a point.
inline double column_vectors(const machine::HostFigures& f) { return kColumnLanes / lanes_of(f); }

/// Cycles to move `points` points between a batch and its columns.
inline double move_cycles(double points, const program::FieldView& batch, const machine::HostFigures& f) {
  constexpr double kMovePerVector = 3;
  return kMovePerVector * points * column_vectors(f) + stream_cycles(batch, f);
}

/// Division of a batch into columns of lanes, and the remaining samples, which are processed one by one if
/// there are at most `few`.
struct ColumnParts {
  double columns, lines;

  ColumnParts(const program::FieldView& batch, bool transposed, double few) {
    const double samples = transposed ? batch.cols : batch.rows;
    const double rest = std::fmod(samples, kColumnLanes);
    lines = rest <= few ? rest : 0;
    columns = std::ceil((samples - lines) / kColumnLanes);
  }
};

}  // namespace tessera::kernels
