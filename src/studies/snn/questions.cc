// The paper's open questions, answered by training: what happens where far more neurons pass a gradient than
// lists have room for, which surrogate gradient to take, and how deep networks train. Randman with manifolds
// of two dimensions: its information is in the times of spikes alone, and it is not learned perfectly.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "report/interval.h"
#include "studies/snn/study.h"

namespace tessera::studies::snn {
namespace {

using machine::Machine;

constexpr uint32_t kHidden = 128;
constexpr double kAll = -std::numeric_limits<double>::infinity();

/// A network, and what of it is listed in the last epochs.
struct TrainingCase {
  std::string name;  ///< what distinguishes it in its section
  uint32_t layers = 1;
  Surrogate surrogate = {};
  double gradient_threshold = kAll;
  uint32_t most_listed = 0;  ///< 0: all
};

struct Extent {
  uint32_t epochs;
  uint32_t seeds;
};
Extent extent_of(const Request& request) {
  if (request.full) return {20, 3};
  return {8, 1};
}

const RecordingSplit& recordings() {
  static const RecordingSplit split = load_recordings("randman", "", {.randman = {.dimensions = 2}});
  return split;
}

SpikingTrainingSettings settings_of(const TrainingCase& what, uint32_t epochs, uint64_t seed) {
  SpikingTrainingSettings settings = usual_settings("randman");
  settings.hidden.assign(what.layers, kHidden);
  settings.delay = 1;
  settings.rate = 0.002;  // the usual one is for one layer
  settings.neuron.surrogate = what.surrogate;
  settings.gradient_threshold = settings.first_gradient_threshold = what.gradient_threshold;
  settings.most_listed = what.most_listed;
  settings.epochs = epochs;
  settings.seed = seed;
  return settings;
}

/// Enters "accuracy" in percent of the test recordings, and of the last epoch the fractions of hidden neurons
/// that "fired" and were "listed" in a step, those "dropped" of all that should have been listed, and
/// "seconds" of a training step.
Result train(const TrainingCase& what, uint32_t epochs, uint64_t seed, uint32_t threads) {
  SpikingTrainer trainer(settings_of(what, epochs, seed), recordings(), threads);
  const TrainingResult trained = trainer.train();
  Result result;
  result.values["accuracy"] = 100 * trained.test_accuracy.value();
  result.values["seconds"] = trained.step_seconds;
  const std::vector<SpikingActivity>& activity = trained.epochs.back().activity;
  const double places = static_cast<double>(trainer.steps_per_epoch()) * trainer.settings().batch *
                        recordings().train.steps * kHidden;
  double dropped = 0, wanted = 0;
  for (const SpikingActivity& of_layer : activity) {
    result.values["fired"] += of_layer.firing / static_cast<double>(activity.size());
    result.values["listed"] += of_layer.listed / static_cast<double>(activity.size());
    dropped += static_cast<double>(of_layer.dropped);
    wanted += static_cast<double>(of_layer.dropped) + of_layer.listed * places;
  }
  result.values["dropped"] = wanted > 0 ? dropped / wanted : 0;
  return result;
}

std::string name_of(const TrainingCase& what, uint32_t epochs, uint64_t seed) {
  return fmt::format("{}, {} epochs, seed {}", what.name, epochs, seed);
}

std::vector<TrainingCase> overflow_cases() {
  std::vector<TrainingCase> cases;
  for (const double threshold : {kAll, 0.5, 0.9})
    for (const uint32_t most : {0U, 64U, 32U, 16U, 8U})
      cases.push_back({.name = fmt::format("ϑ_grad {}, room {}", threshold, most == 0 ? kHidden : most),
                       .gradient_threshold = threshold,
                       .most_listed = most});
  return cases;
}

std::vector<TrainingCase> surrogate_cases() {
  std::vector<TrainingCase> cases;
  for (const SurrogateFamily family :
       {SurrogateFamily::superspike, SurrogateFamily::arctan, SurrogateFamily::triangle,
        SurrogateFamily::sigmoid, SurrogateFamily::boxcar})
    for (const double threshold : {kAll, 0.5})
      cases.push_back({.name = fmt::format("{}, ϑ_grad {}", tessera::name_of(family), threshold),
                       .surrogate = {.family = family},
                       .gradient_threshold = threshold});
  return cases;
}

std::vector<TrainingCase> depth_cases() {
  std::vector<TrainingCase> cases;
  for (uint32_t layers = 1; layers <= 5; ++layers)
    for (const auto& [slope, threshold] : {std::pair{10.0F, kAll}, {25.0F, kAll}, {25.0F, 0.5}})
      cases.push_back({.name = fmt::format("{} layers, slope {}, ϑ_grad {}", layers, slope, threshold),
                       .layers = layers,
                       .surrogate = {.slope = slope},
                       .gradient_threshold = threshold});
  return cases;
}

/// Cases of a section, and what its table says of them.
struct Question {
  std::string_view section;
  const char* title;
  const char* note;
  std::vector<TrainingCase> (*cases)();
};

constexpr Question kOverflow{
    "overflow", "Lists that are too short",
    "ϑ_grad: potentials above it pass a gradient; room: entries of the list of a "
    "layer of 128, in the last epochs. Dropped: of the neurons that had to be listed, at random.",
    overflow_cases};
constexpr Question kSurrogates{"surrogates", "Surrogate gradients", "All with the same slope.",
                               surrogate_cases};
constexpr Question kDepth{"depth", "Hidden layers of 128", "Each layer takes spikes a step later.",
                          depth_cases};

template <const Question& question>
std::vector<Cell> cells(const Machine& machine, const Request& request) {
  std::vector<Cell> all;
  if (machine.kind != machine::Kind::host) return all;
  const auto [epochs, seeds] = extent_of(request);
  for (const TrainingCase& what : question.cases())
    for (uint64_t seed = 0; seed < seeds; ++seed)
      all.push_back({name_of(what, epochs, seed), 1.5 * epochs * what.layers,
                     [what, epochs, seed](const Setting& setting) {
                       return train(what, epochs, seed, setting.threads);
                     }});
  return all;
}

/// Over the seeds; none if one is missing.
std::optional<report::Interval> value_of(const Part& part, const Question& question, const TrainingCase& what,
                                         const Request& request, const std::string& value) {
  const auto [epochs, seeds] = extent_of(request);
  std::vector<double> found;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const auto one = part.value(question.section, name_of(what, epochs, seed), value);
    if (!one) return std::nullopt;
    found.push_back(*one);
  }
  return report::interval_of(found);
}

template <const Question& question>
std::vector<Figure> figures(const Study& study) {
  const Part* host = study.host();
  if (host == nullptr) return {};
  Figure figure{fmt::format("{}: Randman of two dimensions, {} epochs", question.title,
                            extent_of(study.request).epochs),
                question.note,
                {"network", "accuracy, %", "fired", "listed", "dropped", "ms per batch"}};
  for (const TrainingCase& what : question.cases()) {
    const auto value = [&](const char* name) { return value_of(*host, question, what, study.request, name); };
    const auto accuracy = value("accuracy");
    if (!accuracy) continue;
    std::vector<Figure::Entry> row = {{what.name}, {report::to_string(*accuracy)}};
    for (const char* fraction : {"fired", "listed", "dropped"})
      row.push_back({fmt::format("{:.1f} %", 100 * value(fraction)->mean)});
    row.push_back({fmt::format("{:.3g}", 1e3 * value("seconds")->mean)});
    figure.rows.push_back(std::move(row));
  }
  return {figure};
}

template <const Question& question>
Section section() {
  return {.name = question.section,
          .title = question.title,
          .cells = cells<question>,
          .figures = figures<question>};
}

}  // namespace

Section overflow() { return section<kOverflow>(); }
Section surrogates() { return section<kSurrogates>(); }
Section depth() { return section<kDepth>(); }

}  // namespace tessera::studies::snn
