#include "train/step_runs.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <chrono>
#include <cmath>
#include <string_view>

namespace tessera::train {
namespace {

constexpr uint64_t kStepsPerMeasurement = 32;
constexpr uint64_t kFirstMeasurement = 4;

void add(const model::RunCost& cost, std::vector<double>& seconds) {
  seconds.resize(cost.operations.size());
  for (size_t i = 0; i < seconds.size(); ++i) seconds[i] += cost.operations[i].seconds;
}

}  // namespace

std::span<const uint32_t> BatchOrder::of_step(uint64_t step) {
  const uint64_t epoch = step / steps_per_epoch(), within = step % steps_per_epoch();
  if (epoch_ != epoch) {
    order_ = shuffled(training_, seed_, static_cast<uint32_t>(epoch));
    epoch_ = epoch;
  }
  return std::span(order_).subspan(within * batch_, batch_);
}

uint64_t StepRuns::cycles_of(double seconds) const {
  return machine_.is_host() ? 0 : static_cast<uint64_t>(std::llround(seconds * machine_.clock_hz()));
}

double StepRuns::run(std::span<const model::Tensor> arrays) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double seconds = 0;
  if (machine_.is_host() && taken_.steps % kStepsPerMeasurement == kFirstMeasurement) {
    add(session_.measure(arrays), taken_.measured);
    ++taken_.measurements;
  } else {
    seconds = session_.run(arrays);
  }
  ++taken_.steps;
  if (machine_.is_host()) seconds = std::chrono::duration<double>(Clock::now() - start).count();
  taken_.step_cycles = cycles_of(seconds);
  taken_.cycles += taken_.step_cycles;
  return seconds;
}

void StepRuns::enter(double evaluation_seconds, TrainingResult& result) const {
  result.measured = taken_.measured;
  for (double& seconds : result.measured) seconds /= static_cast<double>(taken_.measurements);
  result.cycles = taken_.cycles;
  result.step_cycles = taken_.step_cycles;
  result.evaluation_cycles = cycles_of(evaluation_seconds);
}

void make_for(const Machine& machine, const std::function<void()>& make) {
  try {
    make();
  } catch (const UsageError&) {
    throw;
  } catch (const Error& e) {
    if (machine.is_host()) throw;
    std::string_view why = e.what();  // then a list of all that was tried
    why = why.substr(0, why.find_first_of(":\n"));
    throw Error(
        fmt::format("{} has too little memory for this network: {}; a smaller batch, sparser or smaller "
                    "layers, or a machine with more tiles would need less",
                    machine.name(), why));
  }
}

void require_fit(std::initializer_list<model::RunCost> costs) {
  for (const model::RunCost& cost : costs)
    if (!cost.overflow.empty()) throw Error(cost.overflow);
}

}  // namespace tessera::train
