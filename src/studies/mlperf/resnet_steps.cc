#include "studies/mlperf/resnet_steps.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/machine.h>
#include <tessera/run_cost.h>

#include <algorithm>

#include "machine/model/machine.h"
#include "train/resnet/network.h"

namespace tessera::studies::mlperf {
namespace {

/// Numbers of micro-batches of the estimated steps, from which steps with other numbers follow.
constexpr uint32_t kFewMicroBatches = 2, kMoreMicroBatches = 6;

std::string key_of_resnet(const ResnetSetup& setup) {
  return fmt::format("{} on {} chips, {} images, {} micro-batches{}", setup.machine, setup.chips,
                     setup.local_batch, setup.accumulation, setup.recomputes ? ", recomputed" : "");
}

Cell cell_of_resnet(const ResnetSetup& setup) {
  return {key_of_resnet(setup), 30,
          [=](const Setting&) { return estimate_resnet_step(setup, settings_of(setup), imagenet_format()); }};
}

const Result* find_resnet(const Study& study, const ResnetSetup& setup) {
  const Part* part = study.modelled();
  return part == nullptr ? nullptr : part->find(kResnet, key_of_resnet(setup));
}

std::optional<ResnetStep> whole_step(const Study& study, const ResnetSetup& setup) {
  const Result* result = find_resnet(study, setup);
  const std::optional<double> seconds = result == nullptr ? std::nullopt : result->value("seconds");
  if (!seconds) return {};
  return ResnetStep{.seconds = *seconds,
                    .fullest_tile_bytes = static_cast<uint64_t>(result->value("tile_bytes").value_or(0)),
                    .fits = result->fits,
                    .is_whole = true,
                    .reason = result->reason};
}

/// A step on GC200 chips that is estimated as a whole: on 16 chips, or on 64 if more chips are asked for.
ResnetSetup estimated(uint32_t chips, uint32_t accumulation) {
  const bool is_small = chips <= 16;
  return {
      .machine = is_small ? "pod16" : "pod64", .chips = is_small ? 16U : 64U, .accumulation = accumulation};
}

double clock_of(const std::string& machine) { return machine::find(machine).clock_hz; }

}  // namespace

const std::vector<ResnetSetup>& resnet_setups() {
  static const std::vector<ResnetSetup> all = {
      {"v1.0", "pod16", 16, 20, 6, 44},       {"v1.0", "pod64", 64, 20, 2, 45},
      {"v1.1", "pod16", 16, 20, 10, 38},      {"v1.1", "pod64", 64, 20, 3, 38},
      {"v1.1", "pod128", 128, 20, 2, 41},     {"v1.1", "pod256", 256, 20, 2, 45},
      {"v2.0", "bow_pod16", 16, 22, 10, 38},  {"v2.0", "bow_pod64", 64, 20, 4, 40},
      {"v2.0", "bow_pod128", 128, 20, 2, 41}, {"v2.0", "bow_pod256", 256, 20, 2, 45}};
  return all;
}

const ResnetSetup* resnet_setup_of(std::string_view round, uint32_t chips) {
  const auto found = std::ranges::find_if(resnet_setups(), [&](const ResnetSetup& setup) {
    return setup.round == round && setup.chips == chips;
  });
  return found == resnet_setups().end() ? nullptr : &*found;
}

ResnetTrainingSettings settings_of(const ResnetSetup& setup) {
  ResnetTrainingSettings s;
  s.depth = 50;
  s.numbers = "mlperf-v2";
  s.optimizer = OptimizerKind::lars;
  s.label_smoothing = 0.1;
  s.batch = setup.images();
  s.micro_batches = setup.accumulation;
  s.replicas = setup.chips;
  s.norm_replicas = setup.group;
  s.recompute = setup.recomputes;
  return s;
}

train::ImageFormat imagenet_format() {
  return train::outlined_images({"ImageNet", 1'281'167, 50'000, {224, 224, 1000, 3}}).format;
}

Result estimate_resnet_step(const ResnetSetup& setup, const ResnetTrainingSettings& settings,
                            const train::ImageFormat& images) {
  const Machine machine = Machine::find(setup.machine);
  Result result;
  try {
    const graph::RunCost cost = graph::estimate(train::resnet_training_graph(settings, images, {}), machine);
    result.fits = cost.overflow.empty();
    result.reason = cost.overflow;
    result.values = {{"seconds", cost.seconds},
                     {"tile_bytes", static_cast<double>(cost.fullest_tile_bytes)},
                     {"total_bytes", static_cast<double>(cost.total_bytes)}};
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {  // an operation alone does not fit
    result.fits = false;
    const std::string why = error.what();  // a list of everything that was tried follows
    result.reason = why.substr(0, why.find('\n'));
  }
  return result;
}

std::vector<Cell> resnet_cells(const machine::Machine& machine, const Request& request) {
  std::vector<Cell> all;
  if (machine.kind == machine::Kind::host) return all;
  for (const ResnetSetup& setup :
       {estimated(16, kMoreMicroBatches), estimated(16, kFewMicroBatches), estimated(64, kFewMicroBatches)})
    all.push_back(cell_of_resnet(setup));
  ResnetSetup kept = estimated(16, kMoreMicroBatches);
  kept.recomputes = false;
  kept.local_batch = 16;
  all.push_back(cell_of_resnet(kept));
  if (!request.full) return all;
  kept.local_batch = 20;
  all.push_back(cell_of_resnet(kept));
  kept.local_batch = 16;
  kept.recomputes = true;
  all.push_back(cell_of_resnet(kept));
  return all;
}

std::optional<ResnetStep> modelled_resnet_step(const Study& study, const ResnetSetup& setup) {
  if (std::optional<ResnetStep> whole = whole_step(study, setup)) return whole;
  if (!setup.recomputes || setup.group != 2) return {};
  const auto few = whole_step(study, estimated(16, kFewMicroBatches)),
             more = whole_step(study, estimated(16, kMoreMicroBatches)),
             base = whole_step(study, estimated(setup.chips, kFewMicroBatches));
  if (!few || !more || !base) return {};
  const double pass = (more->seconds - few->seconds) / (kMoreMicroBatches - kFewMicroBatches),
               once = base->seconds - kFewMicroBatches * pass;
  const double images = setup.local_batch / 20.0;
  ResnetStep step = *base;
  step.is_whole = false;
  step.seconds = (once + setup.accumulation * pass * images) * clock_of("pod16") / clock_of(setup.machine);
  return step;
}

std::string why_no_resnet(const Study& study) {
  const Result* result = find_resnet(study, estimated(16, kMoreMicroBatches));
  if (result == nullptr) return "not run here";
  return result->reason.empty() ? "not run here"
                                : fmt::format("an operation alone does not fit: {}", result->reason);
}

}  // namespace tessera::studies::mlperf
