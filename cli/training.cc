#include "cli/training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/isa.h"
#include "cli/spiking_options.h"
#include "io/json_text.h"
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
  if (s.form != graph::Form::fused) text += fmt::format(", {}", name_of(s.form));
  return text;
}

std::string network_of(const SpikingTrainingSettings& s, const RecordingSplit& recordings) {
  return fmt::format("{}-{}-{}, spiking{}{}", recordings.train.units, fmt::join(s.hidden, "-"),
                     recordings.train.classes, s.recurrent ? ", recurrent" : "",
                     s.neuron.synaptic ? ", with synaptic currents" : "");
}

std::string text_of(const ordered_json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "none" : io::json_text(value);
}

const RecordingSplit* recordings_of(const TrainingData& data) {
  return std::get_if<RecordingSplit>(&data.samples);
}
const ImageSplit& images_of(const TrainingData& data) { return std::get<ImageSplit>(data.samples); }

}  // namespace

void check(const TrainRequest& one, const TrainingData& data) {
  if (const RecordingSplit* recordings = recordings_of(data))
    return train::check(spiking_settings_of(one), *recordings);
  const ImageSplit& images = images_of(data);
  train::check(one.settings);
  train::check_samples(one.settings, images.train.count(), images.test.count(), "images");
}

Trainer start(const TrainRequest& one, const TrainingData& data) {
  const auto made = [&](const auto& settings, const auto& samples) {
    return one.estimate ? Trainer::for_estimates(settings, samples, data.machine, one.threads)
                        : Trainer(settings, samples, data.machine, one.threads);
  };
  if (const RecordingSplit* recordings = recordings_of(data))
    return made(spiking_settings_of(one), *recordings);
  return made(one.settings, images_of(data));
}

TrainingReport report_of(const RunOptions& options, const std::string& network, const std::string& samples,
                         const Machine& machine, const Trainer& t) {
  const auto batches = [&](uint64_t count) {
    return (count + t.evaluation_batch() - 1) / t.evaluation_batch();
  };
  TrainingReport report;
  report.network = network;
  report.data = fmt::format("{}: {} for training, {} for validation, {} for testing", samples,
                            report::count_text(t.training_samples()),
                            report::count_text(t.validation_samples()), report::count_text(t.test_samples()));
  report.machine = report::machine_text(machine);
  report.tiles = machine.tiles();
  report.modelled = !machine.is_host();
  report.clock_hz = machine.clock_hz();
  report.parameters = t.parameters();
  report.steps_per_epoch = t.steps_per_epoch();
  report.validation_batches = batches(t.validation_samples());
  report.phases = {{.steps = t.steps(),
                    .evaluations = t.evaluations() * report.validation_batches + batches(t.test_samples()),
                    .step = t.step_cost(),
                    .evaluation = t.evaluation_cost(),
                    .operations = report::names_of_operations(t.graph())}};
  const ordered_json all = io::parse_ordered_json(t.settings_json());
  for (const auto& [name, value] : all.items()) report.settings.emplace_back(name, text_of(value));
  report.settings.emplace_back("machine", options.machine);
  report.settings.emplace_back("tiles", fmt::format("{}", report.tiles));
  report.settings.emplace_back("instruction set", name_of(active_isa()));
  return report;
}

TrainingReport report_of(const TrainRequest& one, const TrainingData& data, const Trainer& t) {
  if (const RecordingSplit* recordings = recordings_of(data))
    return report_of(one, network_of(spiking_settings_of(one), *recordings),
                     fmt::format("{}, {} steps", recordings->name, recordings->train.steps), data.machine, t);
  return report_of(one, network_of(one.settings),
                   fmt::format("{}{}", images_of(data).name, one.settings.grey ? " in grey" : ""),
                   data.machine, t);
}

}  // namespace tessera::cli
