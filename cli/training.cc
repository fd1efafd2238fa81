#include "cli/training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <type_traits>

#include "base/isa.h"
#include "cli/spiking_options.h"
#include "report/axis.h"
#include "train/settings.h"
#include "train/spiking/settings.h"

namespace tessera::cli {
namespace {

using nlohmann::ordered_json;
using report::TrainingReport;

std::string network_of(const TrainingSettings& s, const ImageSplit& /*images*/) {
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

std::string network_of(const SpikingTrainingSettings& s, const RecordingSplit& recordings) {
  return fmt::format("{}-{}-{}, spiking{}{}", recordings.train.units, fmt::join(s.hidden, "-"),
                     recordings.train.classes, s.recurrent ? ", recurrent" : "",
                     s.neuron.synaptic ? ", with synaptic currents" : "");
}

std::string text_of(const nlohmann::ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "none" : value.dump();
}

std::string counts_text(uint64_t training, uint64_t validation, uint64_t testing) {
  return fmt::format("{} for training, {} for validation, {} for testing", report::count_text(training),
                     report::count_text(validation), report::count_text(testing));
}

uint64_t validation_of(const Trainer& t) { return t.validation_images(); }
uint64_t validation_of(const SpikingTrainer& t) { return t.validation_recordings(); }

std::string text_of(const ImageSplit& images, const Trainer& t) {
  return fmt::format("{}{}: {}", images.name, t.settings().grey ? " in grey" : "",
                     counts_text(t.training_images(), t.validation_images(), images.test.count()));
}

std::string text_of(const RecordingSplit& recordings, const SpikingTrainer& t) {
  return fmt::format(
      "{}, {} steps: {}", recordings.name, recordings.train.steps,
      counts_text(t.training_recordings(), t.validation_recordings(), recordings.test.count()));
}

template <class Data, class TrainerOfData>
class TrainingOf final : public Training {
 public:
  template <class Settings>
  TrainingOf(const TrainRequest& request, const Settings& settings, const Data& data, const Machine& machine)
      : request_(request),
        data_(data),
        machine_(machine),
        trainer_(settings, data, machine, request.threads) {}

  void resume(const std::string& checkpoint, bool allow_different_bits) override {
    trainer_.resume(checkpoint, allow_different_bits);
  }
  uint64_t step() const override { return trainer_.step(); }
  TrainingResult train(const TrainingRun& run) override { return trainer_.train(run); }
  ordered_json settings() const override { return train::json_of(trainer_.settings()); }
  void add_traces(TrainingReport& report) override {
    if constexpr (std::is_same_v<Data, RecordingSplit>) report.traces = trainer_.traces(0);
  }

  TrainingReport report() const override {
    const auto& s = trainer_.settings();
    const auto batches = [&](uint64_t count) {
      return (count + trainer_.evaluation_batch() - 1) / trainer_.evaluation_batch();
    };
    TrainingReport report{
        .network = network_of(s, data_),
        .images = text_of(data_, trainer_),
        .machine = fmt::format("{}, {} tiles", machine_.is_host() ? "host" : machine_.name(),
                               report::count_text(machine_.tiles())),
        .tiles = machine_.tiles(),
        .modelled = !machine_.is_host(),
        .clock_hz = machine_.clock_hz(),
        .settings = {},
        .parameters = trainer_.parameters(),
        .steps_per_epoch = trainer_.steps_per_epoch(),
        .epochs = s.epochs,
        .validation_batches = batches(validation_of(trainer_)),
        .test_batches = batches(data_.test.count()),
        .step = trainer_.step_cost(),
        .evaluation = trainer_.evaluation_cost(),
        .operations = report::names_of_operations(trainer_.graph()),
        .result = {}};
    const ordered_json all = settings();
    for (const auto& [name, value] : all.items()) report.settings.emplace_back(name, text_of(value));
    report.settings.emplace_back("machine", request_.machine);
    report.settings.emplace_back("tiles", fmt::format("{}", report.tiles));
    report.settings.emplace_back("instruction set", name_of(active_isa()));
    return report;
  }

 private:
  TrainRequest request_;
  const Data& data_;
  const Machine& machine_;
  TrainerOfData trainer_;
};

}  // namespace

StartTraining of_images(const ImageSplit& images, const Machine& machine) {
  return [&images, &machine](const TrainRequest& request) {
    return std::make_unique<TrainingOf<ImageSplit, Trainer>>(request, request.settings, images, machine);
  };
}

StartTraining of_recordings(const RecordingSplit& recordings, const Machine& machine) {
  return [&recordings, &machine](const TrainRequest& request) {
    return std::make_unique<TrainingOf<RecordingSplit, SpikingTrainer>>(request, spiking_settings_of(request),
                                                                        recordings, machine);
  };
}

}  // namespace tessera::cli
