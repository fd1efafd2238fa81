#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "engine/engine.h"
#include "engine/holders.h"
#include "engine/part_exchange.h"
#include "engine/pool.h"
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

void connect(RunState& state, std::shared_ptr<Communicator> communicator) {
  if (communicator->is_within_process())
    state.pool = std::make_unique<Pool>(Pool::Share{communicator->rank(), communicator->size()});
  state.ranks = std::make_unique<RankExchange>(std::move(communicator));
}

/// The state of a rank with whole replicas, or without others.
std::unique_ptr<RunState> state_of_replicas(const compiler::Executable& executable, Contents contents,
                                            const OwnReplicas& own,
                                            std::shared_ptr<Communicator> communicator) {
  auto state = std::make_unique<RunState>(executable, contents, own);
  if (own.count < executable.program->replicas()) connect(*state, std::move(communicator));
  return state;
}

/// The state of a rank with parts of a replica.
std::unique_ptr<RunState> state_of_parts(const compiler::Executable& executable, Contents contents,
                                         const OwnReplicas& own, std::shared_ptr<Communicator> communicator) {
  const program::Program& program = *executable.program;
  Touches touches(program);
  Holders holders(program, touches, own.ranks);
  std::vector<bool> here;
  for (VariableId v = 0; v < program.variables().size(); ++v)
    here.push_back(has(holders.home(v), own.position));
  auto state = std::make_unique<RunState>(executable, contents, own, here);
  connect(*state, std::move(communicator));
  state->parts =
      std::make_unique<PartExchange>(program, own, std::move(touches), std::move(holders), *state->ranks);
  return state;
}

std::unique_ptr<RunState> state_of_rank(const compiler::Executable& executable,
                                        std::shared_ptr<Communicator> communicator) {
  const program::Program& program = *executable.program;
  const Contents contents = executable.memory.fits() ? Contents::all : Contents::none;
  const OwnReplicas own = own_replicas(program.replicas(), program.parts(), communicator.get());
  return own.ranks == 1 ? state_of_replicas(executable, contents, own, std::move(communicator))
                        : state_of_parts(executable, contents, own, std::move(communicator));
}

}  // namespace

Session::Session(std::shared_ptr<const compiler::Executable> executable,
                 std::shared_ptr<Communicator> communicator)
    : runner_(std::make_unique<const Runner>(executable)),
      state_(state_of_rank(*executable, std::move(communicator))) {}

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
  has_failed_ = true;  // unless it ends well
  Profile profile = together(state_->ranks.get(), [&] { return runner_->run(*state_, bindings, options); });
  has_failed_ = false;
  sent_bytes_ += profile.sent_bytes;
  return profile;
}

std::vector<VariableId> Session::half_written() const {
  const std::lock_guard lock(mutex_);
  return has_failed_ ? runner_->state_in_writing(*state_) : std::vector<VariableId>{};
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
  if (state_->parts == nullptr) return read(id, to, replica);
  together(state_->ranks.get(), [&] {
    state_->ranks->note(~uint64_t{id});  // noted by no collective or decision
    read(id, to, replica);
  });
}

void Session::read(VariableId id, const FieldView& to, uint32_t replica) const {
  const RunMemory& memory = memories().at(replica);
  if (state_->parts == nullptr)
    memory.read(id, to);
  else
    state_->parts->read(id, memory, to);
}

bool Session::takes(VariableId id) { return state_->parts == nullptr || state_->parts->takes(id); }

void Session::write(std::string_view name, const FieldView& from) {
  const VariableId id = find(name, from);
  const std::lock_guard lock(mutex_);
  if (!takes(id)) return;
  for (const RunMemory& memory : memories()) memory.write(id, from);
}

void Session::write(std::string_view name, const FieldView& from, uint32_t replica) {
  const VariableId id = find(name, from);
  const std::lock_guard lock(mutex_);
  if (takes(id)) memories().at(replica).write(id, from);
}

bool Session::is_divided() const { return state_->parts != nullptr; }

void Session::share(std::string_view name) {
  const VariableId id = find(name);
  const std::lock_guard lock(mutex_);
  if (state_->parts == nullptr) return;
  together(state_->ranks.get(), [&] {
    state_->ranks->note(~uint64_t{id});
    state_->parts->share(id, memory());
  });
}

template <class Work>
void Session::each_divided(const Work& work) const {
  if (state_->parts == nullptr) return;
  const program::Program& program = *executable().program;
  for (VariableId id = 0; id < program.variables().size(); ++id)
    if (program.variable(id).role == Role::state) work(*state_->parts, id);
}

void Session::read_all(std::string_view name, std::span<std::byte> to) const {
  const VariableId id = find(name);
  const Variable& v = executable().program->variable(id);
  if (to.size() != executable().program->replicas() * v.bytes())
    throw UsageError(fmt::format("the state '{}' has {} bytes in each of {} replicas; the array has {}",
                                 v.name, v.bytes(), executable().program->replicas(), to.size()));
  const std::lock_guard lock(mutex_);
  const OwnReplicas& of_rank = state_->own;
  const std::span<std::byte> own = to.subspan(of_rank.first * v.bytes(), of_rank.count * v.bytes());
  const auto read_own = [&] {
    for (uint32_t replica = 0; replica < of_rank.count; ++replica)
      read(id, {own.data() + replica * v.bytes(), v.type, v.rows, v.cols, v.cols, 1}, replica);
  };
  if (state_->ranks == nullptr) return read_own();
  together(state_->ranks.get(), [&] {
    state_->ranks->note(~uint64_t{id});  // noted by no collective or decision
    read_own();
    const std::vector<std::byte> sent(own.begin(), own.end());
    if (of_rank.ranks == 1) return state_->ranks->all_gather(sent, to);
    // The ranks of a replica have all read the same.
    std::vector<std::byte> of_all(to.size() * of_rank.ranks);
    state_->ranks->all_gather(sent, of_all);
    for (size_t begin = 0; begin < to.size(); begin += v.bytes())
      std::copy_n(&of_all[begin * of_rank.ranks], v.bytes(), &to[begin]);
  });
}

void Session::reset() {
  const std::lock_guard lock(mutex_);
  for (const RunMemory& memory : memories()) memory.reset_state();
  each_divided([](PartExchange& parts, VariableId id) { parts.takes(id); });
}

void Session::save(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  together(state_->ranks.get(),
           [&] { each_divided([&](PartExchange& parts, VariableId id) { parts.share(id, memory()); }); });
  save_state(*executable().program, memory(), path);
}

void Session::load(const std::string& path) {
  const std::lock_guard lock(mutex_);
  load_state(*executable().program, memories(), path);
  each_divided([](PartExchange& parts, VariableId id) { parts.set_all(id); });
}

}  // namespace tessera::engine
