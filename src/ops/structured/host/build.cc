#include <algorithm>
#include <memory>

#include "ops/map/elementwise.h"
#include "ops/map/reduce.h"
#include "ops/structured/host/codelets.h"
#include "ops/structured/host/host.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;

program::Field whole(const Operand& operand) { return {operand.variable, BoxSeries::same(operand.box)}; }

/// Adds the vertices of one product.
class StructuredBuild {
 public:
  StructuredBuild(const Builder& builder, const StructuredProblem& problem, const BatchPartition& partition,
                  const StructuredOperands& operands)
      : builder_(builder), problem_(problem), partition_(partition), operands_(operands) {}

  program::StepId build() {
    uint32_t samples = 0;
    for (uint32_t i = 0; i < parts(); ++i) samples = std::max(samples, samples_of(i));
    const StructuredCodelet codelet = codelet_of(problem_, samples);
    const Operand scratch =
        builder_.temporary("scratch", Type::f32, parts(), round_up(codelet.scratch_floats));
    program::VertexGroup group;
    group.codelet = codelet.codelet;
    group.tiles = parts();
    group.fields.push_back(samples_field(operands_.x));
    if (problem_.gradients) group.fields.push_back(samples_field(operands_.y));
    for (const Operand& parameter : operands_.parameters) group.fields.push_back(whole(parameter));
    for (const StructuredConstant& constant : codelet.constants)
      group.fields.push_back(whole(constant_of(constant)));
    if (!problem_.gradients) group.fields.push_back(samples_field(operands_.y));
    if (problem_.gradients) {
      group.fields.push_back(operands_.dx ? samples_field(*operands_.dx) : none(scratch));
      for (size_t i = 0; i < operands_.parameters.size(); ++i)
        group.fields.push_back(problem_.parameter_gradients ? gradient_field(operands_.parameter_gradients[i])
                                                            : none(scratch));
    }
    group.fields.push_back({scratch.variable, BoxSeries::stepped({0, 1, 0, scratch.cols()}, {.row = 1})});
    group.params.assign(codelet.params.begin(), codelet.params.end());
    program::ComputeSet set{std::string(codelet.codelet->name), program::Phase::compute, {}};
    set.groups.push_back(std::move(group));
    if (operands_.bias || operands_.bias_gradient) add_bias(set);
    std::vector<program::StepId> steps = {builder_.execute(std::move(set))};
    for (const Sum& sum : sums_) add_up(sum.partials, sum.result, steps);
    return steps.size() == 1 ? steps[0] : builder_.sequence(std::move(steps));
  }

 private:
  /// Partial results one below the other, which are added up.
  struct Sum {
    Operand partials;
    Operand result;
  };

  static uint32_t round_up(size_t floats) { return static_cast<uint32_t>((floats + 15) / 16 * 16); }
  static program::Field none(const Operand& any) { return {any.variable, BoxSeries::same(Box{})}; }

  uint32_t parts() const { return partition_.parts(); }
  uint32_t samples_of(uint32_t part) const {
    return partition_.sample_begin[part + 1] - partition_.sample_begin[part];
  }

  program::Field samples_field(const Operand& operand) const {
    std::vector<Box> boxes;
    for (uint32_t i = 0; i < parts(); ++i) {
      const uint32_t begin = partition_.sample_begin[i], count = samples_of(i);
      boxes.push_back(operand.inside(problem_.transposed ? Box{0, operand.rows(), begin, count}
                                                         : Box{begin, count, 0, operand.cols()}));
    }
    return {operand.variable, BoxSeries::table(std::move(boxes))};
  }

  Operand constant_of(const StructuredConstant& constant) const {
    const auto values = std::make_shared<const std::vector<uint32_t>>(*constant.values);
    return builder_.constant("permutation", Type::u32, constant.rows, constant.cols,
                             {values, reinterpret_cast<const std::byte*>(values->data())});
  }

  /// Each part's vertex takes its own samples, which are still in its core's caches.
  void add_bias(program::ComputeSet& set) {
    const MapOperation operation = bias_operation(problem_);
    program::VertexGroup group;
    group.codelet = operation.codelet;
    group.tiles = parts();
    group.params.assign(operation.params.begin(), operation.params.end());
    if (problem_.gradients)
      group.fields = {samples_field(operands_.y), gradient_field(*operands_.bias_gradient)};
    else
      group.fields = {samples_field(operands_.y), whole(*operands_.bias), samples_field(operands_.y)};
    set.groups.push_back(std::move(group));
    set.ordered = true;
  }

  /// The gradient itself if one part writes it; otherwise the parts write one below the other.
  program::Field gradient_field(const Operand& gradient) {
    if (parts() == 1) return whole(gradient);
    sums_.push_back(
        {builder_.temporary("partial", Type::f32, parts() * gradient.rows(), gradient.cols()), gradient});
    return {sums_.back().partials.variable,
            BoxSeries::stepped({0, gradient.rows(), 0, gradient.cols()}, {.row = gradient.rows()})};
  }

  /// In a tree, so that its depth grows with the logarithm of the parts.
  void add_up(const Operand& partials, const Operand& out, std::vector<program::StepId>& steps) const {
    const auto rows = [&](uint32_t part, uint32_t count) {
      return Operand{partials.variable,
                     partials.inside(Box{part * out.rows(), count * out.rows(), 0, out.cols()})};
    };
    for (uint32_t left = parts(); left > 1;) {
      const uint32_t half = left / 2;
      const BinaryProblem add_halves{
          .op = kernels::Binary::add, .rows = half * out.rows(), .cols = out.cols()};
      const Operand to = left == 2 ? out : rows(0, half);
      steps.push_back(add(builder_, add_halves, {rows(0, half), rows(left - half, half), to}));
      left -= half;
    }
  }

  const Builder& builder_;
  const StructuredProblem& problem_;
  const BatchPartition& partition_;
  const StructuredOperands& operands_;
  std::vector<Sum> sums_;
};

}  // namespace

MapOperation bias_operation(const StructuredProblem& problem) {
  const uint32_t outputs = features_of(problem.structure).outputs;
  const uint32_t rows = problem.rows(outputs), cols = problem.cols(outputs);
  if (problem.gradients)
    return operation_of(AxisReduceProblem{.rows = rows, .cols = cols, .over_rows = !problem.transposed});
  const Broadcast broadcast = problem.transposed ? Broadcast::column : Broadcast::row;
  return operation_of(BinaryProblem{.rows = rows, .cols = cols, .b = broadcast});
}

program::StepId build_on_host(const Builder& builder, const StructuredProblem& problem,
                              const BatchPartition& partition, const StructuredOperands& operands) {
  return StructuredBuild(builder, problem, partition, operands).build();
}

}  // namespace tessera::ops
