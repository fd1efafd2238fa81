// Conversions of samples to and from matrices with a feature per row: padded and stacked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ops/builder.h"

namespace tessera::ops {

/// Adds steps for operands of n samples, [features, n] or, with sample_rows, [n, features].
class TileSamples {
 public:
  TileSamples(const Builder& builder, Type type, uint32_t n, bool sample_rows,
              std::vector<program::StepId>& steps)
      : b_(builder), type_(type), n_(n), sample_rows_(sample_rows), steps_(steps) {}

  /// A temporary with a feature in each row.
  Operand temporary(std::string name, uint32_t features, std::vector<program::MappedBox> mapping = {}) const {
    return b_.temporary(std::move(name), type_, features, n_, std::move(mapping));
  }
  static Operand rows_of(const Operand& operand, uint32_t row, uint32_t rows) {
    return operand.part({row, rows, 0, operand.cols()});
  }

  /// An operand with a feature in each row: the operand itself, or a temporary, which is filled if it will be
  /// read.
  Operand as_features(const Operand& operand, uint32_t features, bool is_read) const;
  /// Copies the result of as_features() back to the operand, if it was a temporary.
  void return_samples(const Operand& features, const Operand& to) const;

  /// The features repeated for each stack, with zeros up to `rows` rows in total; the operand itself if it
  /// has that form.
  Operand padded(const Operand& features, uint32_t stacks, uint32_t rows) const;
  /// to = the sum over stacks of their first features.
  void add_stacks(const Operand& all, uint32_t stacks, const Operand& to) const;

 private:
  OperandLayout layout_of_samples(uint32_t features) const;

  const Builder& b_;
  Type type_;
  uint32_t n_;
  bool sample_rows_;
  std::vector<program::StepId>& steps_;
};

}  // namespace tessera::ops
