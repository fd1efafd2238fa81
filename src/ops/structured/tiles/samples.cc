#include "ops/structured/tiles/samples.h"

#include "ops/map/elementwise.h"
#include "ops/map/fill.h"

namespace tessera::ops {

OperandLayout TileSamples::layout_of_samples(uint32_t features) const {
  OperandLayout layout{n_, features};
  layout.transposed = true;
  return layout;
}

Operand TileSamples::as_features(const Operand& operand, uint32_t features, bool is_read) const {
  if (!sample_rows_) return operand;
  const Operand to = temporary(b_.variable_name(operand) + ".features", features);
  if (is_read) b_.convert(operand, layout_of_samples(features), to, matrix_layout(features, n_, {}), steps_);
  return to;
}

void TileSamples::return_samples(const Operand& features, const Operand& to) const {
  if (!sample_rows_) return;
  const uint32_t rows = features.rows();
  b_.convert(features, matrix_layout(rows, n_, {}), to, layout_of_samples(rows), steps_);
}

Operand TileSamples::padded(const Operand& features, uint32_t stacks, uint32_t rows) const {
  if (features.rows() == rows) return features;
  const uint32_t size = rows / stacks, given = features.rows();
  const Operand all = temporary(b_.variable_name(features) + ".padded", rows);
  for (uint32_t s = 0; s < stacks; ++s) {
    b_.send(features, rows_of(all, s * size, given), steps_);
    if (size > given)
      steps_.push_back(
          add(b_, FillProblem{type_, size - given, n_, 0}, {rows_of(all, s * size + given, size - given)}));
  }
  return all;
}

void TileSamples::add_stacks(const Operand& all, uint32_t stacks, const Operand& to) const {
  const auto part = [&](uint32_t s) { return rows_of(all, s * (all.rows() / stacks), to.rows()); };
  if (stacks == 1) return b_.send(part(0), to, steps_);
  const BinaryProblem sum{.op = kernels::Binary::add, .type = type_, .rows = to.rows(), .cols = n_};
  for (uint32_t s = 1; s < stacks; ++s) steps_.push_back(add(b_, sum, {s == 1 ? part(0) : to, part(s), to}));
}

}  // namespace tessera::ops
