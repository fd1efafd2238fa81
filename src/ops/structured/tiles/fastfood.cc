#include "ops/structured/tiles/fastfood.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <memory>
#include <numbers>

#include "compiler/compile.h"
#include "kernels/common/element.h"
#include "ops/map/elementwise.h"
#include "ops/map/gather.h"
#include "ops/map/reduce.h"
#include "ops/structured/tiles/samples.h"

namespace tessera::ops {
namespace {

using program::Role;
using program::StepId;

class FastfoodBuilder {
 public:
  FastfoodBuilder(const Builder& builder, const TileFastfoodProblem& problem,
                  const TileChainPartition& partition, const TileFastfoodOperands& operands)
      : b_(builder), p_(problem), passes_(partition.passes), o_(operands) {}

  StepId build() {
    for (const PlannedPass& planned : passes_) add_hadamard_weights(planned);
    for (size_t i = 0; i < 3; ++i) parameters_.push_back(as_column(o_.parameters[i]));
    const Operand x = samples_.padded(samples_.as_features(o_.x, p_.inputs, true), p_.stacks, p_.features());
    const Operand y = samples_.as_features(o_.y, p_.outputs, p_.gradients);
    p_.gradients ? gradients(x, samples_.padded(y, 1, p_.features())) : forward(x, y);
    return b_.sequence(std::move(steps_));
  }

 private:
  enum Parameter : size_t { s, g, b };
  Type type() const { return p_.numbers.operands; }
  Operand temporary(const char* name) const { return samples_.temporary(name, p_.features()); }

  /// What the forward product computes on its way.
  struct Forward {
    Operand permuted;  ///< Π·H·B·x
    Operand mixed;     ///< H·G·Π·H·B·x
  };
  Forward apply(const Operand& x) {
    const Operand permuted = permute(hadamard(scale(x, b)), p_.permutation, false);
    return {permuted, hadamard(scale(permuted, g))};
  }

  void forward(const Operand& x, const Operand& y) {
    const Operand all = scale(apply(x).mixed, s);
    b_.send(TileSamples::rows_of(all, 0, p_.outputs), y, steps_);
    samples_.return_samples(y, o_.y);
  }

  void gradients(const Operand& x, const Operand& dy) {
    std::optional<Forward> values;
    if (p_.parameter_gradients) values = apply(x);
    if (values) add_parameter_gradient(s, dy, values->mixed);
    const Operand dg = hadamard(scale(dy, s));
    if (values) add_parameter_gradient(g, dg, values->permuted);
    const Operand db = hadamard(permute(scale(dg, g), p_.permutation, true));
    if (values) add_parameter_gradient(b, db, x);
    if (!o_.dx) return;
    const Operand dx = samples_.as_features(*o_.dx, p_.inputs, false);
    samples_.add_stacks(scale(db, b), p_.stacks, dx);
    samples_.return_samples(dx, *o_.dx);
  }

  Operand scale(const Operand& values, Parameter by) {
    const Operand to = temporary("scaled");
    steps_.push_back(add(b_,
                         BinaryProblem{.op = kernels::Binary::mul,
                                       .type = type(),
                                       .rows = p_.features(),
                                       .cols = p_.n,
                                       .b = Broadcast::column},
                         {values, parameters_[by], to}));
    return to;
  }

  Operand permute(const Operand& values, const std::vector<uint32_t>& permutation, bool inverse) {
    GatherProblem gather{type(), p_.features(), p_.n, std::vector<uint32_t>(p_.features())};
    for (uint32_t i = 0; i < p_.features(); ++i) {
      const uint32_t from = i / p_.size() * p_.size() + permutation[i];
      inverse ? gather.rows[from] = i : gather.rows[i] = from;
    }
    const Operand to = temporary("permuted");
    const std::vector<Operand> operands = {values, to};
    steps_.push_back(ops::build(b_, gather, plan(b_, gather, operands), operands));
    return to;
  }

  Operand hadamard(const Operand& values) {
    FeatureOperand at{values, {}};
    for (size_t i = 0; i < passes_.size(); ++i) {
      const TilePass& pass = passes_[i].pass;
      const TilePassProblem problem{pass, p_.n, p_.numbers};
      FeatureOperand to{temporary("transformed"), {}};
      if (i + 1 < passes_.size())
        to = {samples_.temporary("transformed", pass.outputs(),
                                 pass_result_mapping(problem, passes_[i].forward)),
              FeatureOrder::outputs_of(pass)};
      steps_.push_back(build_tile_pass(b_, problem, passes_[i].forward,
                                       {.weight = hadamard_weights_[i], .x = at, .y = to}));
      at = to;
    }
    return at.operand;
  }

  /// 2 × 2 Hadamard matrices, normalised.
  void add_hadamard_weights(const PlannedPass& planned) {
    const uint32_t count = planned.pass.all_weights();
    const auto contents = std::shared_ptr<std::byte[]>(new std::byte[count * size_of(type())]);
    for (uint32_t i = 0; i < count; ++i)
      kernels::store_number(type(), contents.get() + i * size_of(type()),
                            i % 4 == 3 ? -std::numbers::sqrt2 / 2 : std::numbers::sqrt2 / 2);
    hadamard_weights_.push_back(
        b_.constant("hadamard", type(), 1, count, {contents, contents.get()},
                    pass_weight_mapping({planned.pass, p_.n, p_.numbers}, planned.forward)));
  }

  Operand column(const char* name) const { return b_.temporary(name, type(), p_.features(), 1); }

  /// A parameter's row of a stack, and its rows of a column.
  template <class Visit>
  void each_stack(const Operand& parameter, const Operand& as_column, const Visit& visit) {
    const OperandLayout column_layout = matrix_layout(p_.size(), 1, {});
    OperandLayout row_layout{1, p_.size()};
    row_layout.transposed = true;
    for (uint32_t i = 0; i < p_.stacks; ++i)
      visit(TileSamples::rows_of(parameter, i, 1), row_layout,
            TileSamples::rows_of(as_column, i * p_.size(), p_.size()), column_layout);
  }

  Operand as_column(const Operand& parameter) {
    const Operand to = column("parameter.column");
    each_stack(parameter, to,
               [&](const Operand& row, const OperandLayout& row_layout, const Operand& part,
                   const OperandLayout& layout) { b_.convert(row, row_layout, part, layout, steps_); });
    return to;
  }

  /// The gradient of a diagonal: the sum of dy ∘ x over the samples.
  void add_parameter_gradient(Parameter parameter, const Operand& dy, const Operand& x) {
    const Operand products = temporary("products"), sums = column("sums");
    const BinaryProblem multiply{
        .op = kernels::Binary::mul, .type = type(), .rows = p_.features(), .cols = p_.n};
    steps_.push_back(add(b_, multiply, {dy, x, products}));
    const AxisReduceProblem sum{
        .rows = p_.features(), .cols = p_.n, .over_rows = false, .from = type(), .to = type()};
    steps_.push_back(add(b_, sum, {products, sums}));
    each_stack(o_.parameter_gradients[parameter], sums,
               [&](const Operand& row, const OperandLayout& row_layout, const Operand& part,
                   const OperandLayout& layout) { b_.convert(part, layout, row, row_layout, steps_); });
  }

  const Builder& b_;
  const TileFastfoodProblem& p_;
  const std::vector<PlannedPass>& passes_;
  const TileFastfoodOperands& o_;
  std::vector<Operand> parameters_, hadamard_weights_;
  std::vector<StepId> steps_;
  TileSamples samples_{b_, p_.numbers.operands, p_.n, p_.sample_rows, steps_};
};

void check(const TileFastfoodProblem& p) {
  if (p.levels == 0 || p.levels > 20 || p.stacks == 0 || p.n == 0 || p.inputs == 0 || p.inputs > p.size() ||
      p.outputs == 0 || p.outputs > p.features() || p.permutation.size() != p.features())
    throw UsageError(
        fmt::format("fastfood of {} to {} features, {} levels, {} stacks, {} samples and a "
                    "permutation of {} is not possible",
                    p.inputs, p.outputs, p.levels, p.stacks, p.n, p.permutation.size()));
}

/// The map between matrices that are spread over all tiles.
compiler::Estimate count(const TileFastfoodProblem& p, const TileChainPartition& partition,
                         const machine::Machine& m) {
  program::Program program;
  const Builder b(program, m);
  const auto samples = [&](const char* name, Role role, uint32_t features) {
    return b.external(name, role, p.numbers.operands, p.rows(features), p.cols(features));
  };
  const auto parameter = [&](const char* name, Role role, program::Purpose purpose) {
    return b.external(name, role, p.numbers.operands, p.stacks, p.size(), {}, purpose);
  };
  TileFastfoodOperands o{.x = samples("x", Role::input, p.inputs),
                         .y = samples("y", p.gradients ? Role::input : Role::output, p.outputs),
                         .parameters = {}};
  for (const char* name : {"s", "g", "b"})
    o.parameters.push_back(parameter(name, Role::input, program::Purpose::parameter));
  if (p.gradients && p.input_gradient) o.dx = samples("dx", Role::output, p.inputs);
  for (const char* name : {"ds", "dg", "db"})
    if (p.gradients && p.parameter_gradients)
      o.parameter_gradients.push_back(parameter(name, Role::output, program::Purpose::gradient));
  program.set_main(build_tile_fastfood(b, p, partition, o));
  return compiler::estimate(program, m);
}

}  // namespace

TileFastfoodPlan plan_tile_fastfood(const TileFastfoodProblem& problem, const machine::Machine& machine) {
  check(problem);
  const TileChainPlan hadamard = plan_tile_chain({.butterfly = TileButterfly{.levels = problem.levels},
                                                  .inputs = problem.size(),
                                                  .outputs = problem.size(),
                                                  .n = problem.n,
                                                  .numbers = problem.numbers},
                                                 machine);
  TileFastfoodPlan plan{hadamard.partition, {}, {}};
  for (PlannedPass& planned : plan.partition.passes) {
    planned.pass = TilePass::butterfly(problem.features(), planned.pass.d, planned.pass.levels);
    planned.forward = plan_tile_pass({planned.pass, problem.n, problem.numbers}, machine).partition;
  }
  const compiler::Estimate exact = count(problem, plan.partition, machine);
  plan.candidates = {{to_string(plan.partition), exact.cycles.scaled(1 / machine.clock_hz),
                      exact.memory.max_tile_bytes,
                      exact.memory.fits() ? "" : compiler::overflow_text(exact.memory)}};
  plan.chosen = plan.candidates[choose_fastest(plan.candidates)];
  return plan;
}

StepId build_tile_fastfood(const Builder& builder, const TileFastfoodProblem& problem,
                           const TileChainPartition& partition, const TileFastfoodOperands& operands) {
  return FastfoodBuilder(builder, problem, partition, operands).build();
}

}  // namespace tessera::ops
