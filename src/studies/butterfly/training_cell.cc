#include "studies/butterfly/training_cell.h"

#include <fmt/format.h>
#include <tessera/training.h>

#include "studies/butterfly/layer_cell.h"

namespace tessera::studies::butterfly {
namespace {

// An epoch of the dense network takes a few seconds.
constexpr double kSecondsPerEpoch = 3;

TrainingSettings settings_of(const TrainingCase& what) {
  TrainingSettings settings;
  settings.layers = {kPublishedFeatures, kPublishedFeatures, 10};
  settings.kind = layer_kind_named(graph::name_of(what.hidden.structure));
  settings.rank = what.hidden.rank;
  settings.block_size = what.hidden.block_size;
  settings.butterfly_size = what.hidden.butterfly_size;
  settings.recipe = what.recipe;
  if (what.recipe == Recipe::best) settings.optimizer = OptimizerKind::adam;
  settings.epochs = what.epochs;
  settings.seed = what.seed;
  settings.grey = true;
  return settings;
}

}  // namespace

std::vector<TrainingCase> trainings_of(const graph::LayerOptions& hidden, Recipe recipe,
                                       const Request& request) {
  std::vector<TrainingCase> all;
  for (uint64_t seed = 0; seed < (request.full ? 3 : 1); ++seed)
    all.push_back({hidden, recipe, request.full ? 15U : 2U, seed});
  return all;
}

bool trains(const machine::Machine& machine, const Request& request) {
  return machine.kind == machine::Kind::host && request.images != nullptr;
}

std::string name_of(const std::string& layer, const TrainingCase& what) {
  return fmt::format("{}, {} recipe, {} epochs, seed {}", layer, tessera::name_of(what.recipe), what.epochs,
                     what.seed);
}

Cell training_cell(const std::string& layer, const TrainingCase& what, const Request& request) {
  return {name_of(layer, what), kSecondsPerEpoch * what.epochs,
          [what, images = request.images](const Setting& setting) {
            Trainer trainer(settings_of(what), *images, Machine(setting.machine), setting.threads);
            const TrainingResult trained = trainer.train();
            Result result;
            result.values["accuracy"] = 100 * trained.test_accuracy.value();
            result.values["best_epoch"] = trained.best_epoch;
            return result;
          }};
}

std::optional<report::Interval> accuracy_of(const Part& part, std::string_view section,
                                            const std::string& layer,
                                            const std::vector<TrainingCase>& trainings) {
  std::vector<double> found;
  for (const TrainingCase& what : trainings) {
    const auto accuracy = part.value(section, name_of(layer, what), "accuracy");
    if (!accuracy) return std::nullopt;
    found.push_back(*accuracy);
  }
  return report::interval_of(found);
}

std::string accuracy_text(const std::optional<report::Interval>& accuracy) {
  return accuracy ? report::to_string(*accuracy) : "-";
}

}  // namespace tessera::studies::butterfly
