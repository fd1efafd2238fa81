// Fields of the vertices of an operation whose batch is split over the threads of a host: one vertex for each
// part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ops/batch_partition.h"
#include "ops/builder.h"

namespace tessera::ops {

class BatchFields {
 public:
  /// With so much scratch memory for each part; without, there is no field of none.
  BatchFields(const Builder& builder, const BatchPartition& partition,
              std::optional<size_t> scratch_floats = {});

  uint32_t parts() const { return partition_.parts(); }

  static program::Field whole(const Operand& operand) {
    return {operand.variable, program::BoxSeries::same(operand.box)};
  }
  /// Columns or rows of each part's samples, of which each has as many; nothing of no operand.
  program::Field columns(const std::optional<Operand>& operand) const { return samples(operand, false); }
  program::Field rows(const std::optional<Operand>& operand) const { return samples(operand, true); }
  program::Field none() const { return {scratch_.variable, program::BoxSeries::same({})}; }
  program::Field scratch() const { return part_of(scratch_); }

  /// A result of each part, one below the other.
  Operand partials(std::string name, uint32_t rows, uint32_t cols) const;
  program::Field part_of(const Operand& partials) const;
  /// A result that is the sum of those of the parts: itself if there is one part, otherwise partial results
  /// that are added later.
  program::Field summed(std::string name, const Operand& result);

  /// A compute set of one vertex for each part.
  program::ComputeSet vertices(const program::Codelet& codelet, std::vector<program::Field> fields,
                               const std::vector<int64_t>& params) const;

  /// Adds the results that are sums.
  void add_up(std::vector<program::StepId>& steps) const;
  /// Adds partial results in a tree, so that its depth grows with the logarithm of the parts; without a
  /// result to the first of them.
  void add_up(const Operand& partials, const std::optional<Operand>& result,
              std::vector<program::StepId>& steps) const;

 private:
  program::Field samples(const std::optional<Operand>& operand, bool are_rows) const;

  struct Sum {
    Operand partials, result;
  };

  const Builder& builder_;
  const BatchPartition& partition_;
  Operand scratch_;
  std::vector<Sum> sums_;
};

/// Seconds in which results of `rows` × `cols` elements are added, one of each part.
double seconds_to_add_up(uint32_t parts, uint32_t rows, uint32_t cols, const machine::Machine& machine);

/// A field of a vertex, for its cost.
inline program::FieldView field_of(uint32_t rows, uint32_t cols, Type type = Type::f32) {
  return {nullptr, type, rows, cols, cols, 1};
}

}  // namespace tessera::ops
