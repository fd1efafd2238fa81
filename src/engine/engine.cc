#include "engine/engine.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <atomic>
#include <mutex>
#include <vector>

#include "engine/runner.h"

namespace tessera::engine {

/// The runner, and the states that no call uses at the moment: one in a slot without a lock, which suffices
/// for callers of one thread, and the states of concurrent calls in a list.
struct Engine::Idle {
  explicit Idle(std::shared_ptr<const compiler::Executable> executable) : runner(std::move(executable)) {}
  ~Idle() { delete slot.load(); }

  std::unique_ptr<RunState> acquire() {
    if (RunState* state = slot.exchange(nullptr, std::memory_order_acquire))
      return std::unique_ptr<RunState>(state);
    {
      const std::lock_guard lock(mutex);
      if (!others.empty()) {
        std::unique_ptr<RunState> state = std::move(others.back());
        others.pop_back();
        return state;
      }
    }
    return std::make_unique<RunState>(runner.executable(), Contents::all);
  }

  void give_back(std::unique_ptr<RunState> state) {
    RunState* none = nullptr;
    if (slot.compare_exchange_strong(none, state.get(), std::memory_order_release,
                                     std::memory_order_relaxed)) {
      state.release();
      return;
    }
    const std::lock_guard lock(mutex);
    others.push_back(std::move(state));
  }

  const Runner runner;
  std::atomic<RunState*> slot{nullptr};
  std::mutex mutex;
  std::vector<std::unique_ptr<RunState>> others;
};

Engine::Engine(std::shared_ptr<const compiler::Executable> executable)
    : idle_(std::make_unique<Idle>(std::move(executable))) {}

Engine::~Engine() = default;

const compiler::Executable& Engine::executable() const { return idle_->runner.executable(); }

void require_fit(const compiler::Executable& executable) {
  if (!executable.memory.fits())
    throw Error(
        fmt::format("the program does not fit {}: {}; use smaller operands, or a machine with more tiles or "
                    "memory",
                    executable.machine.name, overflow_text(executable.memory)));
}

Profile dry_run(const std::shared_ptr<const compiler::Executable>& executable,
                std::span<const Binding> bindings, compiler::StepWatch* watch) {
  if (!has_to_follow(*executable, bindings)) return counted(*executable, bindings, watch);
  return Engine(executable).run(bindings, {.dry = true, .watch = watch});
}

Profile Engine::run(std::span<const Binding> bindings, const RunOptions& options) const {
  const Runner& runner = idle_->runner;
  if (options.dry) return runner.dry_run(bindings, options);
  require_fit(runner.executable());
  std::unique_ptr<RunState> state = idle_->acquire();
  for (const RunMemory& memory : state->memories) memory.reset_state();
  Profile profile = runner.run(*state, bindings, options);
  idle_->give_back(std::move(state));
  return profile;
}

}  // namespace tessera::engine
