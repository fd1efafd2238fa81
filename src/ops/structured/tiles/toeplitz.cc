#include "ops/structured/tiles/toeplitz.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "compiler/compile.h"
#include "ops/map/fill.h"
#include "ops/map/reduce.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::Role;
using program::StepId;

DenseShape forward_shape(const TileToeplitzProblem& p) { return {p.outputs, p.inputs, p.n, p.numbers}; }
DenseShape input_gradient_shape(const TileToeplitzProblem& p) {
  return {p.inputs, p.outputs, p.n, p.numbers};
}
DenseShape parameter_gradient_shape(const TileToeplitzProblem& p) {
  return {p.outputs, p.n, p.inputs, p.numbers};
}

/// A matrix, and how its operand stores it.
struct StoredMatrix {
  Operand operand;
  OperandLayout layout;
};

class ToeplitzBuilder {
 public:
  ToeplitzBuilder(const Builder& builder, const TileToeplitzProblem& problem,
                  const TileToeplitzPartition& partition, const TileToeplitzOperands& operands)
      : b_(builder), p_(problem), partition_(partition), o_(operands) {}

  StepId build() {
    if (!p_.gradients) {
      multiply(forward_shape(p_), partition_.forward, matrix(false), samples(o_.x, p_.inputs, false),
               samples(o_.y, p_.outputs, false));
    } else {
      if (o_.dx)
        multiply(input_gradient_shape(p_), partition_.input_gradient, matrix(true),
                 samples(o_.y, p_.outputs, false), samples(*o_.dx, p_.inputs, false));
      if (o_.parameter_gradient) parameter_gradient();
    }
    return b_.sequence(std::move(steps_));
  }

 private:
  Type type() const { return p_.numbers.operands; }
  Operand temporary(const char* name, uint32_t rows, uint32_t cols) const {
    return b_.temporary(name, type(), rows, cols, {}, program::Purpose::parameter);
  }
  static StoredMatrix plain(const Operand& operand) {
    return {operand, matrix_layout(operand.rows(), operand.cols(), {})};
  }

  /// Samples as a matrix of features × n, or of n × features.
  StoredMatrix samples(const Operand& operand, uint32_t features, bool n_rows) const {
    OperandLayout layout{p_.rows(features), p_.cols(features)};
    layout.transposed = n_rows != p_.sample_rows;
    return {operand, layout};
  }

  /// The matrix or its transpose: row i is a part of the diagonals in falling or rising order.
  StoredMatrix matrix(bool transposed) {
    const uint32_t rows = transposed ? p_.inputs : p_.outputs, cols = transposed ? p_.outputs : p_.inputs;
    const uint32_t diagonals = p_.diagonals();
    const Operand row = temporary("diagonals", 1, diagonals), all = temporary("matrix", rows, cols);
    std::vector<Box> from, to;
    for (uint32_t k = 0; k < diagonals; ++k) {
      from.push_back(o_.parameter.inside({0, 1, p_.places[transposed ? k : diagonals - 1 - k], 1}));
      to.push_back({0, 1, k, 1});
    }
    copy(o_.parameter, row, std::move(from), std::move(to));
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
    const Operand y = b_.add("product", Role::temporary, type(), native.y);
    steps_.push_back(build_dense(b_, shape, partition, {.values = w, .x = x, .y = y}));
    b_.convert(y, native.y, result.operand, result.layout, steps_);
  }

  /// Sums along the diagonals of dY·Xᵀ, whose rows are shifted so that these are columns.
  void parameter_gradient() {
    const Operand dw = temporary("dmatrix", p_.outputs, p_.inputs);
    multiply(parameter_gradient_shape(p_), partition_.parameter_gradient, samples(o_.y, p_.outputs, false),
             samples(o_.x, p_.inputs, true), plain(dw));
    const uint32_t diagonals = p_.diagonals();
    const Operand shifted = zeros("shifted", p_.outputs, diagonals), sums = temporary("sums", 1, diagonals);
    std::vector<Box> from, to;
    for (uint32_t i = 0; i < p_.outputs; ++i) {
      from.push_back({i, 1, 0, p_.inputs});
      to.push_back({i, 1, p_.outputs - 1 - i, p_.inputs});
    }
    copy(dw, shifted, std::move(from), std::move(to));
    add_columns(shifted, sums);
    fold(sums);
  }

  /// Adds the sums of diagonals that are one element of the parameter.
  void fold(const Operand& sums) {
    const Operand folded = zeros("folded", 2, p_.parameters);
    std::vector<uint32_t> uses(p_.parameters);
    std::vector<Box> from, to;
    for (uint32_t k = 0; k < p_.diagonals(); ++k) {
      const uint32_t place = p_.places[p_.diagonals() - 1 - k];
      from.push_back({0, 1, k, 1});
      to.push_back({uses[place]++, 1, place, 1});
    }
    copy(sums, folded, std::move(from), std::move(to));
    add_columns(folded, *o_.parameter_gradient);
  }

  Operand zeros(const char* name, uint32_t rows, uint32_t cols) {
    const Operand all = temporary(name, rows, cols);
    steps_.push_back(add(b_, FillProblem{type(), rows, cols, 0}, {all}));
    return all;
  }

  void add_columns(const Operand& from, const Operand& to) {
    const AxisReduceProblem sum{
        .rows = from.rows(), .cols = from.cols(), .over_rows = true, .from = type(), .to = type()};
    steps_.push_back(add(b_, sum, {from, to}));
  }

  void copy(const Operand& from, const Operand& to, std::vector<Box> sources, std::vector<Box> targets) {
    const auto count = static_cast<uint32_t>(sources.size());
    steps_.push_back(b_.copy({"copy diagonals",
                              {{from.variable,
                                to.variable,
                                count,
                                BoxSeries::table(std::move(sources)),
                                BoxSeries::table(std::move(targets)),
                                {},
                                {},
                                {}}}}));
  }

  const Builder& b_;
  const TileToeplitzProblem& p_;
  const TileToeplitzPartition& partition_;
  const TileToeplitzOperands& o_;
  std::vector<StepId> steps_;
};

void check(const TileToeplitzProblem& p, const machine::Machine& m) {
  if (m.kind != machine::Kind::tiled)
    throw UsageError(fmt::format("matrices of diagonals are dense products on tiles; '{}' has none", m.name));
  if (p.inputs == 0 || p.outputs == 0 || p.n == 0 || p.places.size() != p.diagonals() ||
      std::ranges::any_of(p.places, [&](uint32_t place) { return place >= p.parameters; }))
    throw UsageError(fmt::format("{} diagonals of {} parameters do not make a matrix of {} × {}",
                                 p.places.size(), p.parameters, p.outputs, p.inputs));
}

/// The map between matrices that are spread over all tiles.
compiler::Estimate count(const TileToeplitzProblem& p, const TileToeplitzPartition& partition,
                         const machine::Machine& m) {
  program::Program program;
  const Builder b(program, m);
  const auto samples = [&](const char* name, Role role, uint32_t features) {
    return b.external(name, role, p.numbers.operands, p.rows(features), p.cols(features));
  };
  const auto parameter = [&](const char* name, Role role, program::Purpose purpose) {
    return b.external(name, role, p.numbers.operands, 1, p.parameters, {}, purpose);
  };
  TileToeplitzOperands o{.x = samples("x", Role::input, p.inputs),
                         .y = samples("y", p.gradients ? Role::input : Role::output, p.outputs),
                         .parameter = parameter("c", Role::input, program::Purpose::parameter)};
  if (p.gradients && p.input_gradient) o.dx = samples("dx", Role::output, p.inputs);
  if (p.gradients && p.parameter_gradient)
    o.parameter_gradient = parameter("dc", Role::output, program::Purpose::gradient);
  program.set_main(build_tile_toeplitz(b, p, partition, o));
  return compiler::estimate(program, m);
}

}  // namespace

TileToeplitzProblem TileToeplitzProblem::toeplitz(uint32_t inputs, uint32_t outputs, uint32_t n) {
  TileToeplitzProblem p{.inputs = inputs, .outputs = outputs, .n = n};
  p.parameters = p.diagonals();
  for (uint32_t k = 0; k < p.parameters; ++k) p.places.push_back(k);
  return p;
}

TileToeplitzProblem TileToeplitzProblem::circulant(uint32_t size, uint32_t inputs, uint32_t outputs,
                                                   uint32_t n) {
  TileToeplitzProblem p{.inputs = inputs, .outputs = outputs, .parameters = size, .n = n};
  for (uint32_t k = 0; k < p.diagonals(); ++k) p.places.push_back((k + size - (inputs - 1)) % size);
  return p;
}

TileToeplitzPlan plan_tile_toeplitz(const TileToeplitzProblem& problem, const machine::Machine& machine) {
  check(problem, machine);
  const DensePartition one_slice{0, 0, 0, 1, 1};
  const auto fastest = [&](const DenseShape& shape) {
    return dense_partitions(shape, Planner::best, machine, one_slice).front().partition;
  };
  TileToeplitzPlan plan;
  if (!problem.gradients) plan.partition.forward = fastest(forward_shape(problem));
  if (problem.gradients && problem.input_gradient)
    plan.partition.input_gradient = fastest(input_gradient_shape(problem));
  if (problem.gradients && problem.parameter_gradient)
    plan.partition.parameter_gradient = fastest(parameter_gradient_shape(problem));
  const compiler::Estimate exact = count(problem, plan.partition, machine);
  plan.candidates = {{to_string(problem.gradients ? plan.partition.input_gradient : plan.partition.forward),
                      exact.cycles.scaled(1 / machine.clock_hz), exact.memory.max_tile_bytes,
                      exact.memory.fits() ? "" : compiler::overflow_text(exact.memory)}};
  plan.chosen = plan.candidates[choose_fastest(plan.candidates)];
  return plan;
}

StepId build_tile_toeplitz(const Builder& builder, const TileToeplitzProblem& problem,
                           const TileToeplitzPartition& partition, const TileToeplitzOperands& operands) {
  return ToeplitzBuilder(builder, problem, partition, operands).build();
}

}  // namespace tessera::ops
