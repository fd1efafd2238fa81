#include "cli/spiking_options.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "cli/option_parsing.h"

namespace tessera::cli {
namespace {

constexpr const char* kDefaultSet = "randman";

template <class Kind, size_t n>
Kind parse_kind(const std::string& option, const std::array<std::string_view, n>& names,
                const std::string& text) {
  const auto found = std::ranges::find(names, text);
  if (found == names.end())
    throw UsageError(fmt::format("{} '{}' is unknown; there are {}", option, text, fmt::join(names, ", ")));
  return static_cast<Kind>(found - names.begin());
}

Reset parse_reset(const std::string& text) {
  constexpr std::array<std::string_view, 5> kNames = {"none", "zero", "subtract", "late-zero",
                                                      "late-subtract"};
  return parse_kind<Reset>("--reset", kNames, text);
}

ResetGradient parse_reset_gradient(const std::string& text) {
  constexpr std::array<std::string_view, 3> kNames = {"detached", "gated", "attached"};
  return parse_kind<ResetGradient>("--reset-gradient", kNames, text);
}

SurrogateFamily parse_surrogate(const std::string& text) {
  constexpr std::array<std::string_view, 6> kNames = {"superspike", "fast-sigmoid", "arctan",
                                                      "triangle",   "sigmoid",      "boxcar"};
  return parse_kind<SurrogateFamily>("--surrogate", kNames, text);
}

void add_neuron_options(CLI::App& command, SpikingTrainingSettings& s) {
  command.add_flag("--recurrent,!--feed-forward", s.recurrent,
                   "Spiking: hidden layers take their own spikes");
  add_real(command, "--beta", s.decay,
           "Spiking: decay of potentials in a step (default of this and others: what suits the data set)");
  command.add_option_function<std::string>(
      "--alpha",
      [&s](const std::string& text) {
        s.current_decay = parse_real("--alpha", text);
        s.neuron.synaptic = true;
      },
      "Spiking: decay of synaptic currents (0: none)");
  add_real(command, "--readout-beta", s.readout_decay, "Spiking: decay of the readout's potentials");
  add(command, "--reset", s.neuron.reset, parse_reset,
      "Spiking: zero (default), subtract, none, late-zero or late-subtract");
  add(command, "--reset-gradient", s.neuron.reset_gradient, parse_reset_gradient,
      "Spiking: detached (default), gated or attached");
  add(command, "--surrogate", s.neuron.surrogate.family, parse_surrogate,
      "Spiking: superspike (default), fast-sigmoid, arctan, triangle, sigmoid or boxcar");
  add_real(command, "--slope", s.neuron.surrogate.slope, "Spiking: slope of the surrogate");
  add(
      command, "--delay", s.delay, [](const std::string& text) { return parse_count("--delay", text); },
      "Spiking: steps after which spikes reach the next layer (default: 0)");
  command.add_flag("--learn-dynamics", s.learns_dynamics, "Spiking: learn decays and thresholds too");
}

void add_learning_options(CLI::App& command, SpikingTrainingSettings& s) {
  add(command, "--loss", s.loss, spiking_loss_named,
      "Spiking: of the numbers of spikes (spikes), of the last, maximum or mean potential, or of "
      "rates "
      "(rate)");
  add_real(command, "--firing", s.initial_firing,
           "Spiking: fraction of hidden neurons that fire in a step before training");
  add_real(
      command, "--activity-penalty", s.activity_penalty,
      "Spiking: added to the loss, times the mean of max(0, rate - cap)^2 of hidden neurons (default: 0)");
  add_real(command, "--activity-cap", s.activity_cap, "Spiking: the cap of that penalty (default: 0)");
  add_real(command, "--gradient-threshold", s.gradient_threshold,
           "Spiking: potential above which neurons pass gradients; begins at -100, and each epoch halves the "
           "distance (default: all pass)");
  add_real(command, "--first-gradient-threshold", s.first_gradient_threshold,
           "Spiking: where it begins instead; the same as --gradient-threshold: it stays there");
  add_count(
      command, "--most-listed", s.most_listed,
      "Spiking: neurons of a layer that are listed at most in a step; begins with all, and each epoch halves "
      "the distance (default: all)");
  command.add_flag("--cosine,!--constant-rate", s.cosine,
                   "Spiking: let the learning rate fall to 0 as a cosine");
}

void add_data_options(CLI::App& command, RecordingSettings& s) {
  constexpr uint32_t kMostSteps = 1U << 16;
  add_count(command, "--steps", s.steps, "Spiking: time steps of a recording (default: the data set's)",
            kMostSteps);
  add_real(command, "--window", s.seconds, "Spiking: seconds that these divide (default: the data set's)");
  add_count(command, "--crop", s.crop, "Spiking: side of the square in the middle of a sensor to keep");
  add_count(command, "--downscale", s.downscale,
            "Spiking: side of the squares of a sensor's pixels that become one");
  add_real(command, "--tau", s.latency.tau, "mnist-latency: time constant in steps (default: 20)");
  add_real(command, "--latency-threshold", s.latency.threshold,
           "mnist-latency: pixels up to this fraction of white do not fire (default: 0.2)");
  add_real(command, "--delta", s.delta, "braille-delta: change for an event (default: 0.02)");
  add_count(command, "--samples", s.randman.samples, "randman: recordings of each class (default: 1000)");
  add_count(command, "--units", s.randman.units, "randman: units (default: 20)");
  add_count(command, "--dimensions", s.randman.dimensions,
            "randman: dimensions of the manifolds (default: 1)");
  add_real(command, "--smoothness", s.randman.alpha, "randman: alpha (default: 2)");
}

std::string dataset_of(const TrainRequest& r) { return r.dataset.empty() ? kDefaultSet : r.dataset; }

}  // namespace

void add_spiking_options(CLI::App& command, TrainRequest& request) {
  add_neuron_options(command, request.spiking);
  add_learning_options(command, request.spiking);
  add_data_options(command, request.recordings);
}

std::vector<std::string> names_of_spiking_options() {
  CLI::App command;
  command.set_help_flag();
  TrainRequest request;
  add_spiking_options(command, request);
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) names.push_back(option->get_name());
  return names;
}

void set_spiking_defaults(TrainRequest& r, const CLI::App& command) {
  SpikingTrainingSettings s = usual_settings(dataset_of(r));
  const SpikingTrainingSettings& given = r.spiking;
  const auto take = [&](const char* option, auto& value, const auto& from) {
    if (command.count(option) != 0) value = from;
  };
  take("--recurrent", s.recurrent, given.recurrent);
  take("--beta", s.decay, given.decay);
  take("--alpha", s.current_decay, given.current_decay);
  take("--alpha", s.neuron.synaptic, given.neuron.synaptic);
  take("--readout-beta", s.readout_decay, given.readout_decay);
  take("--reset", s.neuron.reset, given.neuron.reset);
  take("--reset-gradient", s.neuron.reset_gradient, given.neuron.reset_gradient);
  take("--surrogate", s.neuron.surrogate.family, given.neuron.surrogate.family);
  take("--slope", s.neuron.surrogate.slope, given.neuron.surrogate.slope);
  take("--delay", s.delay, given.delay);
  take("--learn-dynamics", s.learns_dynamics, given.learns_dynamics);
  take("--loss", s.loss, given.loss);
  take("--firing", s.initial_firing, given.initial_firing);
  take("--activity-penalty", s.activity_penalty, given.activity_penalty);
  take("--activity-cap", s.activity_cap, given.activity_cap);
  take("--gradient-threshold", s.gradient_threshold, given.gradient_threshold);
  take("--first-gradient-threshold", s.first_gradient_threshold, given.first_gradient_threshold);
  take("--most-listed", s.most_listed, given.most_listed);
  take("--cosine", s.cosine, given.cosine);
  r.spiking = s;
  const auto unless = [&](const char* option, auto& value, const auto& usual) {
    if (command.count(option) == 0) value = usual;
  };
  unless("--optimizer", r.settings.optimizer, s.optimizer);
  unless("--rate", r.settings.rate, s.rate);
  unless("--clip", r.settings.clip, s.clip);
  unless("--epochs", r.settings.epochs, s.epochs);
  unless("--batch", r.batches, std::vector{s.batch});
  r.settings.batch = r.batches.front();
}

void check_spiking(const TrainRequest& r, const CLI::App& command) {
  for (const char* option : {"--density", "--block", "--butterfly", "--rank", "--recipe", "--factors",
                             "--activation", "--dropout", "--schedule", "--change", "--every", "--until",
                             "--micro-batches", "--images", "--tiles", "--estimate"})
    if (command.count(option) != 0)
      throw UsageError(fmt::format("{} is not for --kind spiking; leave it out", option));
  if (r.machine != "host")
    throw UsageError(fmt::format("--kind spiking trains on this computer, not on --machine {}", r.machine));
  const auto sets = recording_sets();
  if (std::ranges::find(sets, dataset_of(r)) == sets.end())
    throw UsageError(
        fmt::format("--dataset {} is none of recordings; there are {}", r.dataset, fmt::join(sets, ", ")));
}

RecordingSplit recordings_for(const TrainRequest& r) {
  const std::string name = dataset_of(r);
  const std::string folder = data_folder(r.data);
  if (folder.empty() && name != kDefaultSet)
    throw UsageError(
        fmt::format("--dataset {} needs its folder: pass --data FOLDER, or set TESSERA_DATA", name));
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
  s.optimizer = r.settings.optimizer;
  s.momentum = r.settings.momentum;
  s.weight_decay = r.settings.decay;
  s.rate = r.settings.rate;
  s.clip = r.settings.clip;
  s.batch = r.settings.batch;
  s.epochs = r.settings.epochs;
  s.seed = r.settings.seed;
  return s;
}

}  // namespace tessera::cli
