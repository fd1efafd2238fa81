#include "cli/training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/isa.h"
#include "cli/spiking_options.h"
#include "report/axis.h"
#include "train/settings.h"
#include "train/spiking/settings.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;
using report::TrainingReport;

std::string network_of(const TrainingSettings& s) {
  std::string text = fmt::format("{}, {}", fmt::join(s.layers, "-"), name_of(s.kind));
  if (train::is_sparse(s)) text += fmt::format(" of density {:.4g}, block size {}", s.density, s.block_size);
  if (s.kind == LayerKind::block_butterfly) text += fmt::format(" of block size {}", s.block_size);
  if (s.kind == LayerKind::pixelfly)
    text += fmt::format(" of block size {}, butterfly size {}", s.block_size, s.butterfly_size);
  if (s.kind == LayerKind::pixelfly || s.kind == LayerKind::low_rank)
    text += fmt::format(", rank {}", s.rank);
  if (train::has_recipe(s)) text += fmt::format(", recipe {}", name_of(s.recipe));
  if (s.factors != model::Factors::best) text += fmt::format(", {} factors", name_of(s.factors));
  return text;
}

std::string network_of(const SpikingTrainingSettings& s, const Recordings& recordings) {
  return fmt::format("{}-{}-{}, spiking{}{}", recordings.units, fmt::join(s.hidden, "-"), recordings.classes,
                     s.recurrent ? ", recurrent" : "", s.neuron.synaptic ? ", with synaptic currents" : "");
}

std::string text_of(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "none" : value.dump();
}

void add_settings(TrainingReport& report, const ordered_json& settings) {
  for (const auto& [name, value] : settings.items()) report.settings.emplace_back(name, text_of(value));
}

void add_place(TrainingReport& report, const std::string& machine) {
  report.settings.emplace_back("machine", machine);
  report.settings.emplace_back("tiles", fmt::format("{}", report.tiles));
  report.settings.emplace_back("instruction set", name_of(active_isa()));
}

std::string counts_text(uint64_t training, uint64_t validation, uint64_t testing) {
  return fmt::format("{} for training, {} for validation, {} for testing", report::count_text(training),
                     report::count_text(validation), report::count_text(testing));
}

std::string host_text(uint32_t tiles) { return fmt::format("host, {} tiles", report::count_text(tiles)); }

class ImageTraining final : public Training {
 public:
  ImageTraining(const TrainRequest& request, const ImageSplit& images, const Machine& machine)
      : request_(request),
        images_(images),
        machine_(machine),
        trainer_(request.settings, images, machine, request.threads) {}

  void resume(const std::string& checkpoint, bool allow_different_bits) override {
    trainer_.resume(checkpoint, allow_different_bits);
  }
  uint64_t step() const override { return trainer_.step(); }
  TrainingResult train(const TrainingRun& run) override { return trainer_.train(run); }
  ordered_json settings() const override { return train::json_of(trainer_.settings()); }

  TrainingReport report() const override {
    const TrainingSettings& s = trainer_.settings();
    const auto batches = [&](uint64_t count) {
      return (count + trainer_.evaluation_batch() - 1) / trainer_.evaluation_batch();
    };
    TrainingReport report{
        .network = network_of(s),
        .images = fmt::format(
            "{}{}: {}", images_.name, s.grey ? " in grey" : "",
            counts_text(trainer_.training_images(), trainer_.validation_images(), images_.test.count())),
        .machine = fmt::format("{}, {} tiles", machine_.is_host() ? "host" : machine_.name(),
                               report::count_text(machine_.tiles())),
        .tiles = machine_.tiles(),
        .modelled = !machine_.is_host(),
        .clock_hz = machine_.clock_hz(),
        .settings = {},
        .parameters = trainer_.parameters(),
        .steps_per_epoch = trainer_.steps_per_epoch(),
        .epochs = s.epochs,
        .validation_batches = batches(trainer_.validation_images()),
        .test_batches = batches(images_.test.count()),
        .step = trainer_.step_cost(),
        .evaluation = trainer_.evaluation_cost(),
        .operations = report::names_of_operations(trainer_.graph()),
        .result = {}};
    add_settings(report, settings());
    add_place(report, request_.machine);
    return report;
  }

 private:
  TrainRequest request_;
  const ImageSplit& images_;
  const Machine& machine_;
  Trainer trainer_;
};

class SpikingTraining final : public Training {
 public:
  SpikingTraining(const TrainRequest& request, const RecordingSplit& recordings)
      : request_(request),
        recordings_(recordings),
        trainer_(spiking_settings_of(request), recordings, request.threads) {}

  void resume(const std::string& checkpoint, bool allow_different_bits) override {
    trainer_.resume(checkpoint, allow_different_bits);
  }
  uint64_t step() const override { return trainer_.step(); }
  TrainingResult train(const TrainingRun& run) override { return trainer_.train(run); }
  ordered_json settings() const override { return train::json_of(trainer_.settings()); }
  void add_traces(TrainingReport& report) override { report.traces = trainer_.traces(0); }

  TrainingReport report() const override {
    const SpikingTrainingSettings& s = trainer_.settings();
    const auto batches = [&](uint64_t count) { return (count + s.batch - 1) / s.batch; };
    const uint32_t tiles = Machine::host(request_.threads).tiles();
    TrainingReport report{
        .network = network_of(s, recordings_.train),
        .images = fmt::format("{}, {} steps: {}", recordings_.name, recordings_.train.steps,
                              counts_text(trainer_.training_recordings(), trainer_.validation_recordings(),
                                          recordings_.test.count())),
        .machine = host_text(tiles),
        .tiles = tiles,
        .parameters = trainer_.parameters(),
        .steps_per_epoch = trainer_.steps_per_epoch(),
        .epochs = s.epochs,
        .validation_batches = batches(trainer_.validation_recordings()),
        .test_batches = batches(recordings_.test.count())};
    report.step.seconds = trainer_.predicted_step_seconds();
    report.step.bytes = {{"stash", trainer_.stash_bytes()}};
    report.step.total_bytes = trainer_.stash_bytes();
    add_settings(report, settings());
    add_place(report, "host");
    return report;
  }

 private:
  TrainRequest request_;
  const RecordingSplit& recordings_;
  SpikingTrainer trainer_;
};

}  // namespace

StartTraining of_images(const ImageSplit& images, const Machine& machine) {
  return [&images, &machine](const TrainRequest& request) {
    return std::make_unique<ImageTraining>(request, images, machine);
  };
}

StartTraining of_recordings(const RecordingSplit& recordings) {
  return [&recordings](const TrainRequest& request) {
    return std::make_unique<SpikingTraining>(request, recordings);
  };
}

}  // namespace tessera::cli
