// Fields of the vertices of an operation whose batch is split over the threads of a host, with one vertex per
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

/// Floats of a vertex's scratch in whole cache lines. Throws TooLarge for more than a variable can have.
uint32_t whole_lines(size_t floats);

class BatchFields {
 public:
  /// `scratch_floats`: scratch memory of each part; without it, none() and scratch() must not be used.
  BatchFields(const Builder& builder, const BatchPartition& partition,
              std::optional<size_t> scratch_floats = {});

  uint32_t parts() const { return partition_.parts(); }

  static program::Field whole(const Operand& operand) {
    return {operand.variable, program::BoxSeries::same(operand.box)};
  }
  /// The columns or rows of an operand that hold each part's samples, equally many per sample; an empty field
  /// without an operand.
  program::Field columns(const std::optional<Operand>& operand) const { return samples(operand, false); }
  program::Field rows(const std::optional<Operand>& operand) const { return samples(operand, true); }
  program::Field none() const { return {scratch_.variable, program::BoxSeries::same({})}; }
  program::Field scratch() const { return part_of(scratch_); }

  /// A temporary with a result of rows × cols per part, one below the other; and its field.
  Operand partials(std::string name, uint32_t rows, uint32_t cols) const;
  program::Field part_of(const Operand& partials) const;
  /// A field for a result that is summed over the parts: the result itself if there is one part, otherwise
  /// partial results, which add_up() adds later.
  program::Field summed(std::string name, const Operand& result);

  /// A compute set with one vertex per part.
  program::ComputeSet vertices(const program::Codelet& codelet, std::vector<program::Field> fields,
                               const std::vector<int64_t>& params) const;

  /// Adds the partial results of all summed() fields.
  void add_up(std::vector<program::StepId>& steps) const;
  /// Adds partial results in a tree, whose depth grows with the logarithm of the number of parts; without a
  /// result, the sum replaces the first partial result.
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

/// Predicted seconds for adding the parts' results of `rows` × `cols` elements.
double seconds_to_add_up(uint32_t parts, uint32_t rows, uint32_t cols, const machine::Machine& machine);

/// A field of a vertex, as its cost function takes it.
inline program::FieldView field_of(uint32_t rows, uint32_t cols, Type type = Type::f32) {
  return {nullptr, type, rows, cols, cols, 1};
}

}  // namespace tessera::ops
