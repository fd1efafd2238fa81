#include "engine/session.h"

#include <fmt/format.h>

#include "engine/runner.h"
#include "engine/state_file.h"

namespace tessera::engine {
namespace {

using program::FieldView;
using program::Role;
using program::Variable;
using program::VariableId;

std::string names_of_state(const program::Program& program) {
  std::string names;
  for (const Variable& v : program.variables())
    if (v.role == Role::state) names += (names.empty() ? "" : ", ") + v.name;
  return names.empty() ? "it has no state" : "its state is " + names;
}

}  // namespace

Session::Session(std::shared_ptr<const compiler::Executable> executable)
    : executable_(std::move(executable)),
      memory_(std::make_unique<RunMemory>(*executable_, executable_->memory.fits())) {}

Session::~Session() = default;

Profile Session::run(std::span<const Binding> bindings, const RunOptions& options) {
  const std::lock_guard lock(mutex_);
  if (!options.dry) {
    require_fit(*executable_);
    return run_in(*executable_, *memory_, bindings, options);
  }
  RunMemory scratch(*executable_, needs_memory(*executable_, options));
  if (scratch.is_allocated() && memory_->is_allocated()) scratch.copy_integer_state(*memory_);
  return run_in(*executable_, scratch, bindings, options);
}

const RunMemory& Session::memory() const {
  require_fit(*executable_);
  return *memory_;
}

VariableId Session::find(std::string_view name, const FieldView& array) const {
  const program::Program& program = *executable_->program;
  for (VariableId id = 0; id < program.variables().size(); ++id) {
    const Variable& v = program.variable(id);
    if (v.role != Role::state || v.name != name) continue;
    if (array.type != v.type || array.rows != v.rows || array.cols != v.cols)
      throw UsageError(fmt::format("the state '{}' is {} {} × {}; the array is {} {} × {}", v.name,
                                   name_of(v.type), v.rows, v.cols, name_of(array.type), array.rows,
                                   array.cols));
    return id;
  }
  throw UsageError(fmt::format("the program has no state '{}'; {}", name, names_of_state(program)));
}

void Session::read(std::string_view name, const FieldView& to) const {
  const VariableId id = find(name, to);
  const std::lock_guard lock(mutex_);
  memory().read(id, to);
}

void Session::write(std::string_view name, const FieldView& from) {
  const VariableId id = find(name, from);
  const std::lock_guard lock(mutex_);
  memory().write(id, from);
}

void Session::reset() {
  const std::lock_guard lock(mutex_);
  memory().reset_state();
}

void Session::save(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  save_state(*executable_->program, memory(), path);
}

void Session::load(const std::string& path) {
  const std::lock_guard lock(mutex_);
  load_state(*executable_->program, memory(), path);
}

}  // namespace tessera::engine
