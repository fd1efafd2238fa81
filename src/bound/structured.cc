#include "ops/structured/structured.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/structured.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/on_demand.h"
#include "bound/bound_program.h"
#include "bound/views.h"
#include "machine/model/machine.h"

namespace tessera {
namespace {

using ops::Operand;
using program::Purpose;
using program::Role;

StructuredParameter bias_of(const Structure& structure) {
  const uint32_t outputs = outputs_of(structure);
  const auto* butterfly = std::get_if<Butterfly>(&structure);
  if (butterfly != nullptr && butterfly->complex) return {"bias", {outputs / 2, 2}};
  return {"bias", {outputs}};
}

/// The gradients that a program computes: of x, of the parameters, both or none. With any, it recomputes what
/// lies between the maps.
struct Wanted {
  bool input = false;
  bool parameters = false;

  bool any() const { return input || parameters; }
  uint64_t key() const { return (input ? 1U : 0U) + (parameters ? 2U : 0U); }
};

/// Maps one after the other as one program.
class MapsProgram {
 public:
  MapsProgram(const std::vector<ops::StructuredProblem>& maps, const machine::Machine& machine, Wanted wanted)
      : maps_(maps), machine_(machine), wanted_(wanted), builder_(program_, machine) {}

  bound::BoundProgram compile(const std::vector<ops::StructuredPlan>& forward_plans) {
    add_samples();
    add_parameters();
    std::vector<program::StepId> steps;
    for (size_t i = 0; i < maps_.size() - (wanted_.any() ? 1 : 0); ++i)
      steps.push_back(ops::build_structured(builder_, maps_[i], forward_plans[i], forward_operands(i)));
    for (size_t i = maps_.size(); wanted_.any() && i-- > 0;) {
      ops::StructuredProblem problem = maps_[i];
      problem.gradients = true;
      problem.input_gradient = i > 0 || wanted_.input;
      problem.parameter_gradients = wanted_.parameters;
      steps.push_back(ops::build_structured(builder_, problem, ops::plan_structured(problem, machine_),
                                            gradient_operands(i, problem.input_gradient)));
    }
    program_.set_main(builder_.in_order(std::move(steps)));
    return {std::move(program_), machine_};
  }

 private:
  void add_samples() {
    const size_t last = maps_.size();
    samples_.resize(last + 1);
    gradients_.resize(last + 1);
    samples_[0] = samples("x", 0, Role::input);
    if (wanted_.any())
      gradients_[last] = samples("dy", last, Role::input);
    else
      samples_[last] = samples("y", last, Role::output);
    if (wanted_.input) gradients_[0] = samples("dx", 0, Role::output);
    for (size_t i = 1; i < last; ++i) {
      samples_[i] = samples(fmt::format("between{}", i), i);
      if (wanted_.any()) gradients_[i] = samples(fmt::format("dbetween{}", i), i);
    }
  }

  /// The result of the first `maps` maps, or its gradient.
  Operand samples(std::string name, size_t maps, std::optional<Role> role = {}) const {
    const uint32_t features = maps == 0 ? ops::features_of(maps_[0].structure).inputs
                                        : ops::features_of(maps_[maps - 1].structure).outputs;
    const uint32_t rows = maps_[0].rows(features), cols = maps_[0].cols(features);
    if (role) return builder_.external(std::move(name), *role, Type::f32, rows, cols);
    return builder_.temporary(std::move(name), Type::f32, rows, cols);
  }

  void add_parameters() {
    const ops::ParameterMatrix bias = ops::bias_matrix(maps_.back());
    parameters_ = matrices("parameter", Role::input);
    if (maps_.back().bias && !wanted_.any()) bias_ = matrix("bias", Role::input, bias);
    if (!wanted_.parameters) return;
    parameter_gradients_ = matrices("gradient", Role::output);
    if (maps_.back().bias) bias_gradient_ = matrix("bias_gradient", Role::output, bias);
  }

  std::vector<std::vector<Operand>> matrices(const char* name, Role role) const {
    std::vector<std::vector<Operand>> by_map;
    size_t count = 0;
    for (const ops::StructuredProblem& map : maps_) {
      by_map.emplace_back();
      for (const ops::ParameterMatrix& of_map : ops::parameter_matrices(map.structure))
        by_map.back().push_back(matrix(fmt::format("{}{}", name, count++), role, of_map));
    }
    return by_map;
  }
  /// Parameters are read, their gradients written.
  Operand matrix(std::string name, Role role, const ops::ParameterMatrix& of) const {
    return builder_.external(std::move(name), role, Type::f32, of.rows, of.cols, {},
                             role == Role::input ? Purpose::parameter : Purpose::gradient);
  }

  ops::StructuredOperands forward_operands(size_t i) const {
    ops::StructuredOperands operands{samples_[i], samples_[i + 1], parameters_[i]};
    if (i + 1 == maps_.size()) operands.bias = bias_;
    return operands;
  }
  ops::StructuredOperands gradient_operands(size_t i, bool input_gradient) const {
    ops::StructuredOperands operands{samples_[i], gradients_[i + 1], parameters_[i]};
    if (input_gradient) operands.dx = gradients_[i];
    if (wanted_.parameters) operands.parameter_gradients = parameter_gradients_[i];
    if (i + 1 == maps_.size()) operands.bias_gradient = bias_gradient_;
    return operands;
  }

  const std::vector<ops::StructuredProblem>& maps_;
  const machine::Machine& machine_;
  Wanted wanted_;
  program::Program program_;
  ops::Builder builder_;
  std::vector<Operand> samples_, gradients_;  ///< x, what lies between the maps, y; and their gradients
  std::vector<std::vector<Operand>> parameters_, parameter_gradients_;  ///< by map
  std::optional<Operand> bias_, bias_gradient_;
};

}  // namespace

struct StructuredProduct::Compiled {
  Compiled(std::span<const Structure> of, uint32_t batch, const StructuredOptions& options)
      : machine(machine::host(options.threads)), maps(of.begin(), of.end()) {
    if (maps.empty()) throw UsageError("a product of no maps; give at least one");
    for (size_t i = 0; i < maps.size(); ++i) {
      problems.push_back({.structure = maps[i],
                          .batch = batch,
                          .transposed = options.transposed,
                          .bias = options.bias && i + 1 == maps.size()});
      plans.push_back(ops::plan_structured(problems.back(), machine));
      if (i > 0) require_meeting(i);
      std::ranges::copy(parameters_of(maps[i]), std::back_inserter(parameters));
    }
    if (options.bias) parameters.push_back(bias_of(maps.back()));
    (void)program_for({});
  }

  const bound::BoundProgram& program_for(Wanted wanted) const {
    return programs.at(wanted.key(), [&] { return MapsProgram(problems, machine, wanted).compile(plans); });
  }

  void require_meeting(size_t i) const {
    const uint32_t inputs = ops::features_of(maps[i]).inputs, outputs = ops::features_of(maps[i - 1]).outputs;
    if (inputs != outputs)
      throw UsageError(fmt::format("map {}, a {}, has {} inputs; the one before has {} outputs", i,
                                   name_of(maps[i]), inputs, outputs));
  }

  template <class Array>
  void require_parameters(std::span<Array const> given, std::string_view what, size_t optional = 0) const {
    if (given.size() != parameters.size())
      throw UsageError(
          fmt::format("{} {} parameters; given are {} {}",
                      maps.size() == 1 ? fmt::format("a {} has", name_of(maps[0])) : "the maps have",
                      parameters.size(), given.size(), what));
    for (size_t i = 0; i + optional < given.size(); ++i) require_array(given[i], parameters[i].name);
  }

  machine::Machine machine;
  std::vector<Structure> maps;
  std::vector<ops::StructuredProblem> problems;
  std::vector<ops::StructuredPlan> plans;
  std::vector<StructuredParameter> parameters;
  base::OnDemand<bound::BoundProgram> programs;
};

StructuredProduct::StructuredProduct(const Structure& structure, uint32_t batch,
                                     const StructuredOptions& options)
    : StructuredProduct(std::span(&structure, 1), batch, options) {}

StructuredProduct::StructuredProduct(std::span<const Structure> maps, uint32_t batch,
                                     const StructuredOptions& options)
    : compiled_(std::make_shared<Compiled>(maps, batch, options)) {}

void StructuredProduct::operator()(const float* x, std::span<const float* const> parameters, float* y) const {
  require_array(x, "x");
  require_array(y, "y");
  compiled_->require_parameters(parameters, "parameters");
  const bound::BoundProgram& program = compiled_->program_for({});
  bound::Arrays arrays(program);
  arrays.add(x).add(y);
  for (const float* parameter : parameters) arrays.add(parameter);
  program.run(arrays);
}

void StructuredProduct::gradients(const float* x, const float* dy, std::span<const float* const> parameters,
                                  float* dx, std::span<float* const> parameter_gradients) const {
  require_array(x, "x");
  require_array(dy, "dy");
  const size_t biases = compiled_->problems.back().bias ? 1 : 0;
  compiled_->require_parameters(parameters, "parameters", biases);
  if (!parameter_gradients.empty()) compiled_->require_parameters(parameter_gradients, "parameter gradients");
  const Wanted wanted{dx != nullptr, !parameter_gradients.empty()};
  if (!wanted.any()) return;
  const bound::BoundProgram& program = compiled_->program_for(wanted);
  bound::Arrays arrays(program);
  arrays.add(x).add(dy);
  if (wanted.input) arrays.add(dx);
  for (const float* parameter : parameters.first(parameters.size() - biases)) arrays.add(parameter);
  for (const float* gradient : parameter_gradients) arrays.add(gradient);
  program.run(arrays);
}

const std::vector<Structure>& StructuredProduct::maps() const { return compiled_->maps; }
uint32_t StructuredProduct::batch() const { return compiled_->problems[0].batch; }
bool StructuredProduct::transposed() const { return compiled_->problems[0].transposed; }
const std::vector<StructuredParameter>& StructuredProduct::parameters() const {
  return compiled_->parameters;
}

std::string StructuredProduct::plan() const {
  std::string lines;
  for (const ops::StructuredPlan& plan : compiled_->plans)
    lines.append(lines.empty() ? "" : "\n").append(to_string(plan));
  return lines;
}

double StructuredProduct::predicted_seconds() const {
  double seconds = 0;
  for (const ops::StructuredPlan& plan : compiled_->plans) seconds += plan.chosen.total();
  return seconds;
}

}  // namespace tessera
