#include "ops/structured/tiles/map_builder.h"

#include <fmt/format.h>

#include <utility>

#include "ops/map/elementwise.h"
#include "ops/map/fill.h"

namespace tessera::ops {

program::StepId TileMapBuilder::build() {
  const Operand* to = &o_.y;
  if (p_.gradients) to = o_.dx ? &*o_.dx : nullptr;
  if (to != nullptr) result_ = as_features(*to, false);
  p_.gradients ? gradients() : forward();
  if (to != nullptr && !p_.transposed)
    b_.convert(*result_, matrix_layout(result_->rows(), p_.batch, {}), *to,
               layout_of_samples(result_->rows()), steps_);
  return b_.sequence(std::move(steps_));
}

OperandLayout TileMapBuilder::layout_of_samples(uint32_t features) const {
  OperandLayout layout{p_.batch, features};
  layout.transposed = true;
  return layout;
}

Operand TileMapBuilder::as_features(const Operand& samples, bool is_read) {
  if (p_.transposed) return samples;
  const uint32_t features = samples.cols();
  const Operand to = temporary(b_.variable_name(samples) + ".features", features);
  if (is_read)
    b_.convert(samples, layout_of_samples(features), to, matrix_layout(features, p_.batch, {}), steps_);
  return to;
}

Operand TileMapBuilder::padded(const Operand& features, uint32_t stacks, uint32_t rows) {
  if (features.rows() == rows) return features;
  const uint32_t size = rows / stacks, given = features.rows();
  const Operand all = temporary(b_.variable_name(features) + ".padded", rows);
  for (uint32_t s = 0; s < stacks; ++s) {
    b_.send(features, rows_of(all, s * size, given), steps_);
    if (size > given)
      steps_.push_back(add(b_, FillProblem{p_.type, size - given, p_.batch, 0},
                           {rows_of(all, s * size + given, size - given)}));
  }
  return all;
}

void TileMapBuilder::add_stacks(const Operand& all, uint32_t stacks, const Operand& to) {
  const auto part = [&](uint32_t s) { return rows_of(all, s * (all.rows() / stacks), to.rows()); };
  if (stacks == 1) return b_.send(part(0), to, steps_);
  const BinaryProblem sum{.op = kernels::Binary::add, .type = p_.type, .rows = to.rows(), .cols = p_.batch};
  for (uint32_t s = 1; s < stacks; ++s) steps_.push_back(add(b_, sum, {s == 1 ? part(0) : to, part(s), to}));
}

std::vector<FeatureOperand> TileMapBuilder::run_forward(const Operand& x, size_t count,
                                                        const std::optional<Operand>& y) {
  std::vector<FeatureOperand> values = {{x, {}}};
  for (size_t i = 0; i < count; ++i) {
    const TilePassProblem problem = problem_of(i, TilePassProduct::forward);
    const TilePassPartition& partition = passes_[i].forward;
    const bool is_given = y && i + 1 == count;
    const FeatureOperand to = is_given
                                  ? FeatureOperand{*y, {}}
                                  : FeatureOperand{temporary(fmt::format("y{}", i), problem.pass.outputs(),
                                                             pass_result_mapping(problem, partition)),
                                                   FeatureOrder::outputs_of(problem.pass)};
    steps_.push_back(
        build_tile_pass(b_, problem, partition, {.weight = weight(i, problem), .x = values.back(), .y = to}));
    values.push_back(to);
  }
  return values;
}

}  // namespace tessera::ops
