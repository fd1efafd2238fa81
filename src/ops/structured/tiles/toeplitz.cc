#include "ops/map/fill.h"
#include "ops/map/reduce.h"
#include "ops/structured/tiles/structured.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::Role;
using program::StepId;

/// The products that a matrix of diagonals has.
struct ToeplitzShapes {
  DenseShape forward, input_gradient, parameter_gradient;

  explicit ToeplitzShapes(const StructuredProblem& p) {
    const auto [inputs, outputs] = features_of(p.structure);
    const TiledNumbers numbers{p.type, p.type};
    forward = {outputs, inputs, p.batch, numbers};
    input_gradient = {inputs, outputs, p.batch, numbers};
    parameter_gradient = {outputs, p.batch, inputs, numbers};
  }
};

/// A matrix, and how its operand stores it.
struct StoredMatrix {
  Operand operand;
  OperandLayout layout;
};

class ToeplitzBuilder {
 public:
  ToeplitzBuilder(const Builder& builder, const StructuredProblem& problem,
                  const TileToeplitzPartition& partition, const StructuredOperands& operands)
      : b_(builder), p_(problem), partition_(partition), o_(operands) {}

  StepId build() {
    if (!p_.gradients)
      multiply(shapes_.forward, partition_.forward, matrix(false), samples(o_.x, inputs_, false),
               samples(o_.y, outputs_, false));
    if (o_.dx)
      multiply(shapes_.input_gradient, partition_.input_gradient, matrix(true),
               samples(o_.y, outputs_, false), samples(*o_.dx, inputs_, false));
    if (!o_.parameter_gradients.empty()) parameter_gradient(o_.parameter_gradients[0]);
    return b_.sequence(std::move(steps_));
  }

 private:
  Operand temporary(const char* name, uint32_t rows, uint32_t cols) const {
    return b_.temporary(name, p_.type, rows, cols, {}, program::Purpose::parameter);
  }
  static StoredMatrix plain(const Operand& operand) {
    return {operand, matrix_layout(operand.rows(), operand.cols(), {})};
  }

  uint32_t diagonals() const { return inputs_ + outputs_ - 1; }
  /// The parameter's element in diagonal k, counted from the diagonal of the last element of the first row.
  /// Each element is in at most two diagonals.
  uint32_t element_of(uint32_t k) const {
    const auto* circulant = std::get_if<Circulant>(&p_.structure);
    return circulant != nullptr ? (k + circulant->size - (inputs_ - 1)) % circulant->size : k;
  }

  /// Samples as a matrix of features × n, or of n × features.
  StoredMatrix samples(const Operand& operand, uint32_t features, bool n_rows) const {
    OperandLayout layout{p_.rows(features), p_.cols(features)};
    layout.transposed = n_rows == p_.transposed;
    return {operand, layout};
  }

  /// The matrix or its transpose: row i is a part of the diagonals in falling or rising order.
  StoredMatrix matrix(bool transposed) {
    const uint32_t rows = transposed ? inputs_ : outputs_, cols = transposed ? outputs_ : inputs_;
    const Operand row = temporary("diagonals", 1, diagonals()), all = temporary("matrix", rows, cols);
    const Operand& parameter = o_.parameters[0];
    std::vector<Box> from, to;
    for (uint32_t k = 0; k < diagonals(); ++k) {
      from.push_back({0, 1, element_of(transposed ? k : diagonals() - 1 - k), 1});
      to.push_back({0, 1, k, 1});
    }
    copy(parameter, row, std::move(from), std::move(to));
    from.clear();
    to.clear();
    for (uint32_t i = 0; i < rows; ++i) {
      from.push_back({0, 1, rows - 1 - i, cols});
      to.push_back({i, 1, 0, cols});
    }
    copy(row, all, std::move(from), std::move(to));
    return plain(all);
  }

  /// result = left · right
  void multiply(const DenseShape& shape, const DensePartition& partition, const StoredMatrix& left,
                const StoredMatrix& right, const StoredMatrix& result) {
    const ProductLayouts native = dense_layouts(shape, partition);
    const Operand w = b_.bring(left.operand, left.layout, native.values, steps_);
    const Operand x = b_.bring(right.operand, right.layout, native.x, steps_);
    const Operand y = b_.add("product", Role::temporary, p_.type, native.y);
    steps_.push_back(build_dense(b_, shape, partition, {.values = w, .x = x, .y = y}));
    b_.convert(y, native.y, result.operand, result.layout, steps_);
  }

  /// Sums along the diagonals of dY·Xᵀ, whose rows are shifted so that these are columns.
  void parameter_gradient(const Operand& to) {
    const Operand dw = temporary("dmatrix", outputs_, inputs_);
    multiply(shapes_.parameter_gradient, partition_.parameter_gradient, samples(o_.y, outputs_, false),
             samples(o_.x, inputs_, true), plain(dw));
    const Operand shifted = zeros("shifted", outputs_, diagonals()), sums = temporary("sums", 1, diagonals());
    std::vector<Box> rows, places;
    for (uint32_t i = 0; i < outputs_; ++i) {
      rows.push_back({i, 1, 0, inputs_});
      places.push_back({i, 1, outputs_ - 1 - i, inputs_});
    }
    copy(dw, shifted, std::move(rows), std::move(places));
    add_columns(shifted, sums);
    fold(sums, to);
  }

  /// Adds the sums of diagonals that are one element of the parameter.
  void fold(const Operand& sums, const Operand& gradient) {
    const Operand folded = zeros("folded", 2, gradient.cols());
    std::vector<uint32_t> uses(gradient.cols());
    std::vector<Box> from, to;
    for (uint32_t k = 0; k < diagonals(); ++k) {
      const uint32_t place = element_of(diagonals() - 1 - k);
      from.push_back({0, 1, k, 1});
      to.push_back({uses[place]++, 1, place, 1});
    }
    copy(sums, folded, std::move(from), std::move(to));
    add_columns(folded, gradient);
  }

  Operand zeros(const char* name, uint32_t rows, uint32_t cols) {
    const Operand all = temporary(name, rows, cols);
    steps_.push_back(add(b_, FillProblem{p_.type, rows, cols, 0}, {all}));
    return all;
  }

  void add_columns(const Operand& from, const Operand& to) {
    const AxisReduceProblem sum{
        .rows = from.rows(), .cols = from.cols(), .over_rows = true, .from = p_.type, .to = p_.type};
    steps_.push_back(add(b_, sum, {from, to}));
  }

  void copy(const Operand& from, const Operand& to, std::vector<Box> sources, std::vector<Box> targets) {
    steps_.push_back(
        b_.copy({"copy diagonals", {copy_boxes(from, std::move(sources), to, std::move(targets))}}));
  }

  const Builder& b_;
  const StructuredProblem& p_;
  const TileToeplitzPartition& partition_;
  const StructuredOperands& o_;
  const ToeplitzShapes shapes_{p_};
  const uint32_t inputs_ = shapes_.forward.k, outputs_ = shapes_.forward.m;
  std::vector<StepId> steps_;
};

}  // namespace

StructuredPlan plan_tile_toeplitz(const StructuredProblem& problem, const machine::Machine& machine) {
  const ToeplitzShapes shapes(problem);
  const DensePartition one_slice{0, 0, 0, 1, 1};
  const auto fastest = [&](const DenseShape& shape) {
    return dense_partitions(shape, Planner::best, machine, one_slice).front().partition;
  };
  TileToeplitzPartition partition;
  if (!problem.gradients) partition.forward = fastest(shapes.forward);
  if (problem.gradients && problem.input_gradient) partition.input_gradient = fastest(shapes.input_gradient);
  if (problem.gradients && problem.parameter_gradients)
    partition.parameter_gradient = fastest(shapes.parameter_gradient);
  return fastest_on_tiles(problem, {partition}, machine);
}

StepId build_tile_toeplitz(const Builder& builder, const StructuredProblem& problem,
                           const TileToeplitzPartition& partition, const StructuredOperands& operands) {
  return ToeplitzBuilder(builder, problem, partition, operands).build();
}

}  // namespace tessera::ops
