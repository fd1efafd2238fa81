#include <memory>

#include "ops/batch_fields.h"
#include "ops/map/elementwise.h"
#include "ops/map/reduce.h"
#include "ops/structured/host/codelets.h"
#include "ops/structured/host/host.h"

namespace tessera::ops {
namespace {

/// Adds the vertices of one product.
class StructuredBuild {
 public:
  StructuredBuild(const Builder& builder, const StructuredProblem& problem, const BatchPartition& partition,
                  const StructuredOperands& operands)
      : builder_(builder),
        problem_(problem),
        operands_(operands),
        codelet_(codelet_of(problem, partition.most_samples())),
        fields_(builder, partition, codelet_.scratch_floats) {}

  program::StepId build() {
    std::vector<program::Field> fields = {samples(operands_.x)};
    if (problem_.gradients) fields.push_back(samples(operands_.y));
    for (const Operand& parameter : operands_.parameters) fields.push_back(BatchFields::whole(parameter));
    for (const StructuredConstant& constant : codelet_.constants)
      fields.push_back(BatchFields::whole(constant_of(constant)));
    fields.push_back(samples(problem_.gradients ? operands_.dx : operands_.y));
    for (size_t i = 0; problem_.gradients && i < operands_.parameters.size(); ++i)
      fields.push_back(problem_.parameter_gradients ? gradient(operands_.parameter_gradients[i])
                                                    : fields_.none());
    fields.push_back(fields_.scratch());
    program::ComputeSet set = fields_.vertices(*codelet_.codelet, std::move(fields), codelet_.params);
    if (operands_.bias || operands_.bias_gradient) add_bias(set);
    std::vector<program::StepId> steps = {builder_.execute(std::move(set))};
    fields_.add_up(steps);
    return builder_.in_order(std::move(steps));
  }

 private:
  program::Field samples(const std::optional<Operand>& operand) const {
    return problem_.transposed ? fields_.columns(operand) : fields_.rows(operand);
  }
  program::Field gradient(const Operand& operand) { return fields_.summed("partial", operand); }

  Operand constant_of(const StructuredConstant& constant) const {
    const auto values = std::make_shared<const std::vector<uint32_t>>(*constant.values);
    return builder_.constant("permutation", Type::u32, constant.rows, constant.cols,
                             {values, reinterpret_cast<const std::byte*>(values->data())});
  }

  /// Each part's vertex takes its own samples, which are still in its core's caches.
  void add_bias(program::ComputeSet& set) {
    const MapOperation operation = bias_operation(problem_);
    std::vector<program::Field> fields = {samples(operands_.y)};
    if (problem_.gradients)
      fields.push_back(gradient(*operands_.bias_gradient));
    else
      fields.insert(fields.end(), {BatchFields::whole(*operands_.bias), samples(operands_.y)});
    set.groups.push_back(
        fields_.vertices(*operation.codelet, std::move(fields), operation.params).groups.front());
    set.ordered = true;
  }

  const Builder& builder_;
  const StructuredProblem& problem_;
  const StructuredOperands& operands_;
  const StructuredCodelet codelet_;
  BatchFields fields_;
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
