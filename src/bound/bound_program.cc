#include "bound/bound_program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/integer_types.h"
#include "compiler/compile.h"
#include "compiler/executable_file.h"
#include "kernels/list.h"

namespace tessera::bound {

BoundProgram::BoundProgram(program::Program program, const machine::Machine& machine)
    : BoundProgram(compiler::compile(std::move(program), machine)) {}

BoundProgram::BoundProgram(std::shared_ptr<const program::Program> program, const machine::Machine& machine,
                           Runs runs, std::shared_ptr<Communicator> communicator)
    : BoundProgram(runs == Runs::none ? compiler::compile_for_costs(std::move(program), machine)
                                      : compiler::compile(std::move(program), machine),
                   runs, std::move(communicator)) {}

BoundProgram::BoundProgram(std::shared_ptr<const compiler::Executable> executable, Runs runs,
                           std::shared_ptr<Communicator> communicator)
    : executable_(std::move(executable)) {
  if (runs == Runs::fresh) engine_ = std::make_unique<engine::Engine>(executable_);
  if (runs == Runs::resumed)
    session_ = std::make_unique<engine::Session>(executable_, std::move(communicator));
  const auto& variables = this->executable().program->variables();
  for (program::VariableId id = 0; id < variables.size(); ++id) {
    const program::Variable& v = variables[id];
    if (!v.is_external()) continue;
    free_.push_back(operands_.size());
    bound_.push_back({id, nullptr, v.cols});
    operands_.push_back({v.name, id, v.type, v.rows, v.cols, v.role, purpose_of(v)});
  }
}

void BoundProgram::save(const std::string& file) const { compiler::save(executable(), file); }

BoundProgram BoundProgram::load(const std::string& file, const machine::Machine& machine) {
  return BoundProgram(compiler::load(file, machine, kernels::find_codelet));
}

size_t BoundProgram::position_of(std::string_view name) const {
  const auto found = std::ranges::find(operands_, name, &NamedOperand::name);
  if (found != operands_.end()) return static_cast<size_t>(found - operands_.begin());
  std::vector<std::string_view> names;
  for (const NamedOperand& operand : operands_) names.push_back(operand.name);
  throw UsageError(fmt::format("the program has no operand '{}'; it has {}", name, fmt::join(names, ", ")));
}

size_t BoundProgram::position_of(program::VariableId variable) const {
  const auto found = std::ranges::lower_bound(operands_, variable, {}, &NamedOperand::variable);
  if (found == operands_.end() || found->variable != variable)
    throw UsageError(fmt::format("variable {} is not an operand of the program", variable));
  return static_cast<size_t>(found - operands_.begin());
}

void BoundProgram::bind(size_t operand, const void* data) {
  const engine::Binding& former = bound_.at(operand);
  bind({former.variable, const_cast<void*>(data), operands_[operand].cols});
}

void BoundProgram::bind(const engine::Binding& array) {
  const size_t operand = position_of(array.variable);
  bound_[operand] = array;
  std::erase(free_, operand);
}

engine::Profile BoundProgram::run(const Arrays& arrays, const engine::RunOptions& options) const {
  assert(engine_ != nullptr || session_ != nullptr);
  return session_ ? session_->run(arrays.all(), options) : engine_->run(arrays.all(), options);
}

engine::Profile BoundProgram::estimate(std::vector<engine::TraceEvent>* trace) const {
  return estimate(Arrays(*this), trace);
}

engine::Profile BoundProgram::estimate(const Arrays& known, std::vector<engine::TraceEvent>* trace,
                                       compiler::StepWatch* watch) const {
  std::vector<engine::Binding> bindings;
  for (size_t i = 0; i < operands_.size(); ++i)
    if (known.all()[i].data != nullptr && is_integer(operands_[i].type)) bindings.push_back(known.all()[i]);
  const engine::RunOptions options{.dry = true, .trace = trace, .watch = watch};
  if (session_) return session_->run(bindings, options);
  return engine_ ? engine_->run(bindings, options) : engine::dry_run(executable_, bindings, watch);
}

Arrays::Arrays(const BoundProgram& program) : program_(program) {
  const std::vector<engine::Binding>& bound = program.bound_;
  std::byte* room = few_;
  if (bound.size() > kFew) {
    many_ = std::make_unique_for_overwrite<std::byte[]>(bound.size() * sizeof(engine::Binding));
    room = many_.get();
  }
  bindings_ = reinterpret_cast<engine::Binding*>(room);
  std::uninitialized_copy(bound.begin(), bound.end(), bindings_);
}

}  // namespace tessera::bound
