#include "cli/spiking_options.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "cli/option_parsing.h"
#include "cli/parse.h"
#include "train/spiking/settings.h"

namespace tessera::cli {
namespace {

void add_neuron_options(CLI::App& command, SpikingTrainingSettings& s) {
  command.add_flag("--recurrent,!--feed-forward", s.recurrent,
                   "Let hidden layers also take their own spikes");
  add_real(command, "--beta", s.decay,
           "Factor by which potentials decay in a step (default: by data set, as for other options)");
  command.add_option_function<std::string>(
      "--alpha",
      [&s](const std::string& text) {
        s.current_decay = parse_real("--alpha", text);
        s.neuron.synaptic = true;
      },
      "Factor by which synaptic currents decay in a step (0: none)");
  add_real(command, "--readout-beta", s.readout_decay,
           "Factor by which potentials of the readout decay in a step");
  add_choice(command, "--reset", s.neuron.reset,
             {Reset::none, Reset::zero, Reset::subtract, Reset::late_zero, Reset::late_subtract},
             "Reset after a spike: zero (default), subtract, none, late-zero or late-subtract");
  add_choice(command, "--reset-gradient", s.neuron.reset_gradient,
             {ResetGradient::detached, ResetGradient::gated, ResetGradient::attached},
             "Gradient through the reset: detached (default), gated or attached");
  add_choice<SurrogateFamily>(
      command, "--surrogate", s.neuron.surrogate.family,
      {{"superspike", SurrogateFamily::superspike},
       {"fast-sigmoid", SurrogateFamily::fast_sigmoid},
       {"arctan", SurrogateFamily::arctan},
       {"triangle", SurrogateFamily::triangle},
       {"sigmoid", SurrogateFamily::sigmoid},
       {"boxcar", SurrogateFamily::boxcar}},
      "Surrogate gradient: superspike (default), fast-sigmoid, arctan, triangle, sigmoid or boxcar");
  add_real(command, "--slope", s.neuron.surrogate.slope, "Slope of the surrogate gradient");
  add_count(command, "--delay", s.delay, "Steps after which spikes reach the next layer (default: 0)",
            kMostCount, 0);
  command.add_flag("--learn-dynamics", s.learns_dynamics, "Learn decays and thresholds too");
}

void add_learning_options(CLI::App& command, SpikingTrainingSettings& s) {
  add(command, "--loss", s.loss, spiking_loss_named,
      "Loss of spike counts (spikes), of the last, maximum or mean potential, or of firing rates (rate)");
  add_real(command, "--firing", s.initial_firing,
           "Fraction of hidden neurons that fire in a step before training");
  add_real(
      command, "--activity-penalty", s.activity_penalty,
      "Factor of a penalty in the loss: the mean of max(0, rate - cap)^2 of hidden neurons (default: 0)");
  add_real(command, "--activity-cap", s.activity_cap, "Cap of the rate in this penalty (default: 0)");
  add_real(
      command, "--gradient-threshold", s.gradient_threshold,
      "Potential above which neurons pass gradients; the threshold begins at -100, and each epoch halves "
      "its distance to this value (default: all neurons pass gradients)");
  add_real(command, "--first-gradient-threshold", s.first_gradient_threshold,
           "Potential at which this threshold begins (default: -100); the same as --gradient-threshold: it "
           "is fixed");
  add_count(
      command, "--most-listed", s.most_listed,
      "Maximum number of neurons of a layer that are listed in a step; the limit begins with all neurons, "
      "and each epoch halves its distance to this number (default: all)");
}

void add_recording_options(CLI::App& command, RecordingSettings& s) {
  constexpr uint32_t kMostSteps = 1U << 16;
  add_count(command, "--steps", s.steps, "Time steps of a recording (default: the data set's)", kMostSteps);
  add_real(command, "--window", s.seconds,
           "Seconds of a recording that the steps divide (default: the data set's)");
  add_count(command, "--crop", s.crop,
            "Side of the central square of a sensor that is kept (default: the whole sensor)");
  add_count(command, "--downscale", s.downscale,
            "Side of the squares of a sensor's pixels that are merged into one");
  add_real(command, "--tau", s.latency.tau, "mnist-latency: time constant in steps (default: 20)");
  add_real(command, "--latency-threshold", s.latency.threshold,
           "mnist-latency: pixels up to this fraction of white do not fire (default: 0.2)");
  add_real(command, "--delta", s.delta, "braille-delta: change of a current for each event (default: 0.02)");
  add_count(command, "--samples", s.randman.samples,
            "randman: number of recordings of each class (default: 1000)");
  add_count(command, "--units", s.randman.units, "randman: number of units (default: 20)");
  add_count(command, "--dimensions", s.randman.dimensions,
            "randman: dimensions of the manifolds (default: 1)");
  add_real(command, "--smoothness", s.randman.alpha,
           "randman: smoothness alpha of the manifolds (default: 2)");
}

std::string dataset_of(const TrainRequest& r) { return r.dataset.empty() ? kDefaultRecordings : r.dataset; }

}  // namespace

void add_spiking_options(CLI::App& command, TrainRequest& request) {
  const size_t others = command.get_options().size();
  add_neuron_options(command, request.spiking);
  add_learning_options(command, request.spiking);
  add_recording_options(command, request.recordings);
  const std::vector<CLI::Option*> all = command.get_options();
  for (size_t i = others; i < all.size(); ++i) all[i]->group(kSpikingGroup);
}

void set_spiking_defaults(TrainRequest& r, const CLI::App& command) {
  const SpikingTrainingSettings& s = r.spiking;
  const auto unless = [&](const char* option, auto& value, const auto& usual) {
    if (command.count(option) == 0) value = usual;
  };
  unless("--optimizer", r.settings.optimizer, s.optimizer);
  unless("--lr", r.settings.lr, s.lr);
  unless("--lr-schedule", r.settings.lr_schedule.kind, s.lr_schedule.kind);
  unless("--clip-norm", r.settings.clip_norm, s.clip_norm);
  unless("--epochs", r.settings.epochs, s.epochs);
  unless("--batch", r.batches, std::vector{s.batch});
  r.settings.batch = r.batches.front();
}

void check_spiking(const TrainRequest& r, const CLI::App& command) {
  // Options of other kinds of layers are refused before.
  for (const char* option : {"--recipe", "--activation", "--dropout", "--micro-batches", "--images"})
    if (command.count(option) != 0)
      throw UsageError(fmt::format("{} is not for --kind spiking; leave it out", option));
  const auto sets = recording_sets();
  if (std::ranges::find(sets, dataset_of(r)) == sets.end())
    throw invalid_value("--dataset", r.dataset,
                        fmt::format("with --kind spiking, choose from {}", fmt::join(sets, ", ")));
}

RecordingSplit recordings_for(const TrainRequest& r) {
  const std::string name = dataset_of(r);
  const std::string folder = name == kDefaultRecordings ? data_folder(r.data) : data_folder_of(name, r.data);
  RecordingSettings settings = r.recordings;
  settings.seed = r.settings.seed;
  RecordingSplit split = load_recordings(name, folder, settings);
  if (!r.layers_given) return split;
  const std::vector<uint32_t>& layers = r.settings.layers;
  if (layers.size() < 3)
    throw UsageError("--layers of a spiking network takes inputs, at least one hidden layer, and classes");
  if (layers.front() != split.train.units || layers.back() != split.train.classes)
    throw UsageError(fmt::format("--layers begins with {} inputs and ends with {} classes; {} has {} and {}",
                                 layers.front(), layers.back(), split.name, split.train.units,
                                 split.train.classes));
  return split;
}

SpikingTrainingSettings spiking_settings_of(const TrainRequest& r) {
  SpikingTrainingSettings s = r.spiking;
  if (r.layers_given) s.hidden = {r.settings.layers.begin() + 1, r.settings.layers.end() - 1};
  static_cast<LearningSettings&>(s) = r.settings;
  s.validation = r.spiking.validation;
  return s;
}

}  // namespace tessera::cli
