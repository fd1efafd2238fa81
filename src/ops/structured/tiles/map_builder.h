// Common parts of builders of maps that consist of passes: samples with a feature per row, padded and
// stacked, and the passes one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/structured/tiles/structured.h"

namespace tessera::ops {

class TileMapBuilder {
 public:
  virtual ~TileMapBuilder() = default;

  /// The product or the gradients of the problem.
  program::StepId build();

 protected:
  TileMapBuilder(const Builder& builder, const StructuredProblem& problem,
                 const TileChainPartition& partition, const StructuredOperands& operands)
      : b_(builder), p_(problem), passes_(partition.passes), o_(operands) {}

  /// Add the steps that fill `result_`; gradients() also adds the steps of the parameters' gradients.
  virtual void forward() = 0;
  virtual void gradients() = 0;
  /// The weights of pass i, in its order; adds the steps that bring them.
  virtual Operand weight(size_t i, const TilePassProblem& problem) = 0;

  TilePassProblem problem_of(size_t i, TilePassProduct product) const {
    return pass_problem(p_, passes_[i].pass, product);
  }
  /// A temporary with a feature in each row.
  Operand temporary(std::string name, uint32_t features, std::vector<program::MappedBox> mapping = {}) const {
    return b_.temporary(std::move(name), p_.type, features, p_.batch, std::move(mapping));
  }
  static Operand rows_of(const Operand& operand, uint32_t row, uint32_t rows) {
    return operand.part({row, rows, 0, operand.cols()});
  }

  /// Samples with a feature in each row: the operand itself, or a temporary, which is filled if it will be
  /// read.
  Operand as_features(const Operand& samples, bool is_read);
  /// The features repeated for each stack, with zeros up to `rows` rows in total; the operand itself if it
  /// has that form.
  Operand padded(const Operand& features, uint32_t stacks, uint32_t rows);
  /// to = the sum over stacks of their first features.
  void add_stacks(const Operand& all, uint32_t stacks, const Operand& to);

  /// Runs the first passes. The result of the last goes to `y`, if there is one; others lie on the tiles that
  /// compute them. Returns x and all results.
  std::vector<FeatureOperand> run_forward(const Operand& x, size_t count, const std::optional<Operand>& y);

  const Builder& b_;
  const StructuredProblem& p_;
  const std::vector<PlannedPass>& passes_;
  const StructuredOperands& o_;
  std::optional<Operand> result_;  ///< y, or dx if it is wanted, with a feature in each row
  std::vector<program::StepId> steps_;

 private:
  OperandLayout layout_of_samples(uint32_t features) const;
};

}  // namespace tessera::ops
