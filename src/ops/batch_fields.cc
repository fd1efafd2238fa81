#include "ops/batch_fields.h"

#include <fmt/format.h>

#include <limits>

#include "ops/map/elementwise.h"

namespace tessera::ops {

using program::Box;
using program::BoxSeries;
using program::Field;
using program::StepId;

uint32_t whole_lines(size_t floats) {
  constexpr size_t kLineFloats = 16;
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max() / kLineFloats * kLineFloats;
  if (floats > kMost)
    throw TooLarge(
        fmt::format("each thread needs {} numbers of scratch memory, and may have {}: use fewer features",
                    floats, kMost));
  return static_cast<uint32_t>((floats + kLineFloats - 1) / kLineFloats * kLineFloats);
}

BatchFields::BatchFields(const Builder& builder, const BatchPartition& partition,
                         std::optional<size_t> scratch_floats)
    : builder_(builder), partition_(partition) {
  if (scratch_floats)
    scratch_ = builder.temporary("scratch", Type::f32, parts(), whole_lines(*scratch_floats));
}

Field BatchFields::samples(const std::optional<Operand>& operand, bool are_rows) const {
  if (!operand) return none();
  const std::vector<uint32_t>& begin = partition_.sample_begin;
  const uint32_t of_sample = (are_rows ? operand->rows() : operand->cols()) / begin.back();
  std::vector<Box> boxes;
  for (uint32_t i = 0; i < parts(); ++i) {
    const uint32_t first = begin[i] * of_sample, count = (begin[i + 1] - begin[i]) * of_sample;
    boxes.push_back(operand->inside(are_rows ? Box{first, count, 0, operand->cols()}
                                             : Box{0, operand->rows(), first, count}));
  }
  return {operand->variable, BoxSeries::table(std::move(boxes))};
}

Operand BatchFields::partials(std::string name, uint32_t rows, uint32_t cols) const {
  return builder_.temporary(std::move(name), Type::f32, parts() * rows, cols);
}

Field BatchFields::part_of(const Operand& partials) const {
  const uint32_t rows = partials.rows() / parts();
  return {partials.variable, BoxSeries::stepped({0, rows, 0, partials.cols()}, {.row = rows})};
}

Field BatchFields::summed(std::string name, const Operand& result) {
  if (parts() == 1) return whole(result);
  sums_.push_back({partials(std::move(name), result.rows(), result.cols()), result});
  return part_of(sums_.back().partials);
}

program::ComputeSet BatchFields::vertices(const program::Codelet& codelet, std::vector<Field> fields,
                                          const std::vector<int64_t>& params) const {
  program::VertexGroup group;
  group.codelet = &codelet;
  group.tiles = parts();
  group.fields = std::move(fields);
  group.params.assign(params.begin(), params.end());
  program::ComputeSet set{std::string(codelet.name), program::Phase::compute, {}};
  set.groups.push_back(std::move(group));
  return set;
}

void BatchFields::add_up(std::vector<StepId>& steps) const {
  for (const Sum& sum : sums_) add_up(sum.partials, sum.result, steps);
}

void BatchFields::add_up(const Operand& partials, const std::optional<Operand>& result,
                         std::vector<StepId>& steps) const {
  const uint32_t of_part = partials.rows() / parts();
  const auto rows = [&](uint32_t part, uint32_t count) {
    return partials.part({part * of_part, count * of_part, 0, partials.cols()});
  };
  for (uint32_t left = parts(); left > 1;) {
    const uint32_t half = left / 2;
    const BinaryProblem sum{.op = kernels::Binary::add, .rows = half * of_part, .cols = partials.cols()};
    const Operand to = result && left == 2 ? *result : rows(0, half);
    steps.push_back(add(builder_, sum, {rows(0, half), rows(left - half, half), to}));
    left -= half;
  }
}

double seconds_to_add_up(uint32_t parts, uint32_t rows, uint32_t cols, const machine::Machine& machine) {
  double seconds = 0;
  for (; parts > 1; parts = (parts + 1) / 2)
    seconds +=
        plan(BinaryProblem{.op = kernels::Binary::add, .rows = parts / 2 * rows, .cols = cols}, machine)
            .chosen.total();
  return seconds;
}

}  // namespace tessera::ops
