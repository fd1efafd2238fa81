// Training the network of tables 4 and 5 on grey CIFAR-10, as cells. Only hosts train: the results of a
// modelled machine would differ only by roundings.
#pragma once

#include <tessera/training_settings.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/interval.h"
#include "studies/paper/study.h"

namespace tessera::studies::butterfly {

struct TrainingCase {
  graph::LayerOptions hidden;
  Recipe recipe = Recipe::paper;
  uint32_t epochs = 0;
  uint64_t seed = 0;
};

/// Trainings of a hidden layer, one per seed. The paper does not say how many epochs it trained: 15 with
/// three seeds if the request is full, else two with one seed.
std::vector<TrainingCase> trainings_of(const graph::LayerOptions& hidden, Recipe recipe,
                                       const Request& request);

/// Whether a request trains on a machine.
bool trains(const machine::Machine& machine, const Request& request);

/// The name of a training; `layer` names the hidden layer: "butterfly, paper recipe, 15 epochs, seed 0".
std::string name_of(const std::string& layer, const TrainingCase& what);

/// Enters "accuracy", in percent of the test images, by the network of the epoch with the best validation
/// accuracy.
Cell training_cell(const std::string& layer, const TrainingCase& what, const Request& request);

/// Mean accuracy over the seeds; none if one of them has not been trained.
std::optional<report::Interval> accuracy_of(const Part& part, std::string_view section,
                                            const std::string& layer,
                                            const std::vector<TrainingCase>& trainings);

/// "44.1 ± 0.6", or without a margin for one seed.
std::string accuracy_text(const std::optional<report::Interval>& accuracy);

}  // namespace tessera::studies::butterfly
