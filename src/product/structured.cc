#include "ops/structured/structured.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/structured.h>

#include <mutex>
#include <optional>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "machine/model/machine.h"
#include "product/bind.h"

namespace tessera {
namespace {

/// One product as a program of its own.
class ClosedProduct {
 public:
  ClosedProduct(const ops::StructuredProblem& problem, const machine::Machine& machine)
      : plan_(ops::plan_structured(problem, machine)) {
    program::Program program;
    const ops::Builder builder(program, machine);
    const auto samples = [&](std::string name, program::Role role, uint32_t features) {
      return builder.external(std::move(name), role, Type::f32, problem.rows(features),
                              problem.cols(features));
    };
    using enum program::Role;
    using program::Purpose;
    const auto [inputs, outputs] = ops::features_of(problem.structure);
    operands_.x = samples("x", input, inputs);
    operands_.y = samples("y", problem.gradients ? input : output, outputs);
    if (problem.gradients && problem.input_gradient) operands_.dx = samples("dx", output, inputs);
    for (const ops::ParameterMatrix& matrix : ops::parameter_matrices(problem.structure)) {
      operands_.parameters.push_back(builder.external(fmt::format("parameter{}", operands_.parameters.size()),
                                                      input, Type::f32, matrix.rows, matrix.cols, {},
                                                      Purpose::parameter));
      if (problem.gradients && problem.parameter_gradients)
        operands_.parameter_gradients.push_back(
            builder.external(fmt::format("gradient{}", operands_.parameter_gradients.size()), output,
                             Type::f32, matrix.rows, matrix.cols, {}, Purpose::gradient));
    }
    const ops::ParameterMatrix bias = ops::bias_matrix(problem);
    if (problem.bias && !problem.gradients)
      operands_.bias =
          builder.external("bias", input, Type::f32, bias.rows, bias.cols, {}, Purpose::parameter);
    if (problem.bias && problem.gradients && problem.parameter_gradients)
      operands_.bias_gradient =
          builder.external("bias_gradient", output, Type::f32, bias.rows, bias.cols, {}, Purpose::gradient);
    program.set_main(ops::build_structured(builder, problem, plan_, operands_));
    engine_.emplace(compiler::compile(std::move(program), machine));
  }

  const ops::StructuredPlan& plan() const { return plan_; }

  void run(const float* x, const float* y, std::span<const float* const> parameters, float* dx,
           std::span<float* const> gradients) const {
    CallBindings bindings = {binding(operands_.x, x), binding(operands_.y, y)};
    if (operands_.dx) bindings.push_back(binding(*operands_.dx, dx));
    for (size_t i = 0; i < operands_.parameters.size(); ++i)
      bindings.push_back(binding(operands_.parameters[i], parameters[i]));
    if (operands_.bias) bindings.push_back(binding(*operands_.bias, parameters.back()));
    for (size_t i = 0; i < operands_.parameter_gradients.size(); ++i)
      bindings.push_back(binding(operands_.parameter_gradients[i], gradients[i]));
    if (operands_.bias_gradient) bindings.push_back(binding(*operands_.bias_gradient, gradients.back()));
    engine_->run(bindings.all(), {.profile = false});
  }

 private:
  static engine::Binding binding(const ops::Operand& operand, const float* data) {
    return {operand.variable, const_cast<float*>(data), operand.cols(), 1};
  }

  ops::StructuredPlan plan_;
  ops::StructuredOperands operands_;
  std::optional<engine::Engine> engine_;
};

StructuredParameter bias_of(const Structure& structure) {
  const uint32_t outputs = outputs_of(structure);
  const auto* butterfly = std::get_if<Butterfly>(&structure);
  if (butterfly != nullptr && butterfly->complex) return {"bias", {outputs / 2, 2}};
  return {"bias", {outputs}};
}

void require_array(const float* array, std::string_view name) {
  if (array == nullptr) throw UsageError(fmt::format("{} is null; it must be an array", name));
}

}  // namespace

struct StructuredProduct::Compiled {
  Compiled(const Structure& of, uint32_t samples, const StructuredOptions& options)
      : problem{.structure = of, .batch = samples, .transposed = options.transposed, .bias = options.bias},
        machine(machine::host(options.threads)),
        parameters(parameters_of(of)),
        forward(problem, machine) {
    if (options.bias) parameters.push_back(bias_of(of));
  }

  /// Made when it is called first.
  const ClosedProduct& gradients(bool input, bool of_parameters) {
    const std::scoped_lock lock(mutex);
    std::optional<ClosedProduct>& product = backward[(input ? 1 : 0) + (of_parameters ? 2 : 0)];
    if (!product) {
      ops::StructuredProblem gradient = problem;
      gradient.gradients = true;
      gradient.input_gradient = input;
      gradient.parameter_gradients = of_parameters;
      product.emplace(gradient, machine);
    }
    return *product;
  }

  template <class Array>
  void require_parameters(std::span<Array const> given, std::string_view what, size_t optional = 0) const {
    if (given.size() != parameters.size())
      throw UsageError(fmt::format("a {} has {} parameters; given are {} {}", name_of(problem.structure),
                                   parameters.size(), given.size(), what));
    for (size_t i = 0; i + optional < given.size(); ++i) require_array(given[i], parameters[i].name);
  }

  ops::StructuredProblem problem;
  machine::Machine machine;
  std::vector<StructuredParameter> parameters;
  ClosedProduct forward;
  std::mutex mutex;
  std::optional<ClosedProduct> backward[4];
};

StructuredProduct::StructuredProduct(const Structure& structure, uint32_t batch,
                                     const StructuredOptions& options)
    : compiled_(std::make_unique<Compiled>(structure, batch, options)) {}
StructuredProduct::~StructuredProduct() = default;
StructuredProduct::StructuredProduct(StructuredProduct&&) noexcept = default;
StructuredProduct& StructuredProduct::operator=(StructuredProduct&&) noexcept = default;

void StructuredProduct::operator()(const float* x, std::span<const float* const> parameters, float* y) const {
  require_array(x, "x");
  require_array(y, "y");
  compiled_->require_parameters(parameters, "parameters");
  compiled_->forward.run(x, y, parameters, nullptr, {});
}

void StructuredProduct::gradients(const float* x, const float* dy, std::span<const float* const> parameters,
                                  float* dx, std::span<float* const> parameter_gradients) const {
  require_array(x, "x");
  require_array(dy, "dy");
  compiled_->require_parameters(parameters, "parameters", compiled_->problem.bias ? 1 : 0);
  if (!parameter_gradients.empty()) compiled_->require_parameters(parameter_gradients, "parameter gradients");
  if (dx == nullptr && parameter_gradients.empty()) return;
  compiled_->gradients(dx != nullptr, !parameter_gradients.empty())
      .run(x, dy, parameters, dx, parameter_gradients);
}

const Structure& StructuredProduct::structure() const { return compiled_->problem.structure; }
uint32_t StructuredProduct::batch() const { return compiled_->problem.batch; }
const std::vector<StructuredParameter>& StructuredProduct::parameters() const {
  return compiled_->parameters;
}
std::string StructuredProduct::plan() const { return to_string(compiled_->forward.plan()); }
double StructuredProduct::predicted_seconds() const { return compiled_->forward.plan().chosen.total(); }

}  // namespace tessera
