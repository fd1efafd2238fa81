#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/engine.h"
#include "engine/rank_exchange.h"
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

Session::Session(std::shared_ptr<const compiler::Executable> executable,
                 std::shared_ptr<Communicator> communicator)
    : runner_(std::make_unique<const Runner>(executable)),
      state_(std::make_unique<RunState>(
          *executable, executable->memory.fits() ? Contents::all : Contents::none,
          engine::own_replicas(executable->program->replicas(), communicator.get()))) {
  if (state_->own.count < executable->program->replicas())
    state_->ranks = std::make_unique<RankExchange>(std::move(communicator));
}

Session::~Session() = default;

const compiler::Executable& Session::executable() const { return runner_->executable(); }
uint32_t Session::first_replica() const { return state_->own.first; }
uint32_t Session::own_replicas() const { return state_->own.count; }

void Session::note(uint64_t what) {
  const std::lock_guard lock(mutex_);
  if (state_->ranks != nullptr) state_->ranks->note(what);
}

Profile Session::run(std::span<const Binding> bindings, const RunOptions& options) {
  const std::lock_guard lock(mutex_);
  if (options.dry) return runner_->dry_run(bindings, options, state_.get());
  require_fit(executable());
  Profile profile = together(state_->ranks.get(), [&] { return runner_->run(*state_, bindings, options); });
  sent_bytes_ += profile.sent_bytes;
  return profile;
}

uint64_t Session::sent_bytes() const {
  const std::lock_guard lock(mutex_);
  return sent_bytes_;
}

void Session::run_side_by_side(std::span<const std::vector<Binding>> runs, uint32_t threads) {
  const std::lock_guard lock(mutex_);
  require_fit(executable());
  assert(executable().machine.kind == machine::Kind::host && executable().machine.tiles == 1);
  while (beside_.size() + 1 < std::min<size_t>(threads, runs.size()))
    beside_.emplace_back(executable(), *state_);
  std::vector<RunState*> states = {state_.get()};
  for (RunState& each : beside_) states.push_back(&each);
  states.resize(std::min({states.size(), runs.size(), size_t{threads}}));
  runner_->run_side_by_side(states, runs);
}

const std::deque<RunMemory>& Session::memories() const {
  require_fit(executable());
  return state_->memories;
}

const RunMemory& Session::memory() const { return memories().front(); }

VariableId Session::find(std::string_view name) const {
  const program::Program& program = *executable().program;
  for (VariableId id = 0; id < program.variables().size(); ++id)
    if (program.variable(id).role == Role::state && program.variable(id).name == name) return id;
  throw UsageError(fmt::format("the program has no state '{}'; {}", name, names_of_state(program)));
}

VariableId Session::find(std::string_view name, const FieldView& array) const {
  const VariableId id = find(name);
  const Variable& v = executable().program->variable(id);
  if (array.type != v.type || array.rows != v.rows || array.cols != v.cols)
    throw UsageError(fmt::format("the state '{}' is {} {} × {}; the array is {} {} × {}", v.name,
                                 name_of(v.type), v.rows, v.cols, name_of(array.type), array.rows,
                                 array.cols));
  return id;
}

FieldView Session::memory_of(std::string_view name) const {
  const VariableId id = find(name);
  const Variable& v = executable().program->variable(id);
  const std::span<const std::byte> bytes = memory().contiguous(id);
  if (!v.is_shared() || bytes.size() != v.bytes())
    throw UsageError(fmt::format("the state '{}' lies on tiles: read it", v.name));
  return {const_cast<std::byte*>(bytes.data()), v.type, v.rows, v.cols, v.cols, 1};
}

void Session::read(std::string_view name, const FieldView& to, uint32_t replica) const {
  const VariableId id = find(name, to);
  const std::lock_guard lock(mutex_);
  memories().at(replica).read(id, to);
}

void Session::write(std::string_view name, const FieldView& from) {
  const VariableId id = find(name, from);
  const std::lock_guard lock(mutex_);
  for (const RunMemory& memory : memories()) memory.write(id, from);
}

void Session::write(std::string_view name, const FieldView& from, uint32_t replica) {
  const VariableId id = find(name, from);
  const std::lock_guard lock(mutex_);
  memories().at(replica).write(id, from);
}

void Session::read_all(std::string_view name, std::span<std::byte> to) const {
  const VariableId id = find(name);
  const Variable& v = executable().program->variable(id);
  if (to.size() != executable().program->replicas() * v.bytes())
    throw UsageError(fmt::format("the state '{}' has {} bytes in each of {} replicas; the array has {}",
                                 v.name, v.bytes(), executable().program->replicas(), to.size()));
  const std::lock_guard lock(mutex_);
  const std::span<std::byte> own = to.subspan(state_->own.first * v.bytes(), state_->own.count * v.bytes());
  for (uint32_t replica = 0; replica < state_->own.count; ++replica)
    memories().at(replica).read(id, {own.data() + replica * v.bytes(), v.type, v.rows, v.cols, v.cols, 1});
  if (state_->ranks == nullptr) return;
  together(state_->ranks.get(), [&] {
    state_->ranks->note(~uint64_t{id});  // which no collective and no decision notes
    const std::vector<std::byte> sent(own.begin(), own.end());
    state_->ranks->all_gather(sent, to);
  });
}

void Session::reset() {
  const std::lock_guard lock(mutex_);
  for (const RunMemory& memory : memories()) memory.reset_state();
}

void Session::save(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  save_state(*executable().program, memory(), path);
}

void Session::load(const std::string& path) {
  const std::lock_guard lock(mutex_);
  load_state(*executable().program, memories(), path);
}

}  // namespace tessera::engine
