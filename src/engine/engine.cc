#include "engine/engine.h"

#include "engine/runner.h"

namespace tessera::engine {

Engine::Engine(std::shared_ptr<const compiler::Executable> executable) : executable_(std::move(executable)) {}

Engine::~Engine() = default;

std::unique_ptr<RunMemory> Engine::take_memory(bool allocate) const {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty() && idle_.back()->is_allocated() >= allocate) {
      std::unique_ptr<RunMemory> memory = std::move(idle_.back());
      idle_.pop_back();
      return memory;
    }
  }
  return std::make_unique<RunMemory>(*executable_, allocate);
}

void Engine::give_back(std::unique_ptr<RunMemory> memory) const {
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(memory));
}

Profile Engine::run(std::span<const Binding> bindings, const RunOptions& options) const {
  if (!options.dry) require_fit(*executable_);
  std::unique_ptr<RunMemory> memory = take_memory(needs_memory(*executable_, options));
  memory->reset_state();
  Profile profile = run_in(*executable_, *memory, bindings, options);
  give_back(std::move(memory));
  return profile;
}

}  // namespace tessera::engine
