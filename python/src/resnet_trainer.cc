// Training of residual networks: its settings, and the trainer of `tessera train resnet`.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <tessera/communicator.h>
#include <tessera/images.h>
#include <tessera/resnet_training.h>
#include <tessera/training.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "machine.h"
#include "trainers.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
using Released = nb::call_guard<nb::gil_scoped_release>;

void bind_resnet_settings(nb::module_& m) {
  using Settings = ResnetTrainingSettings;
  nb::class_<Settings> settings(m, "ResnetTrainingSettings", "How a residual network is trained.");
  bind_common_settings(settings);
  settings
      .def(
          "__init__",
          [](Settings* made, uint32_t depth, const std::optional<std::string>& shortcut,
             const std::string& numbers, const std::string& optimizer, const std::string& lr_schedule,
             const std::string& drop_grow) {
            Settings s;
            s.depth = depth;
            if (shortcut) s.shortcut = graph::shortcut_named(*shortcut);
            s.numbers = numbers;
            s.optimizer = optimizer_named(optimizer);
            s.lr_schedule.kind = graph::schedule_named(lr_schedule);
            s.drop_grow.kind = drop_grow_named(drop_grow);
            new (made) Settings(std::move(s));
          },
          "depth"_a, "shortcut"_a.none(), "numbers"_a, "optimizer"_a, "lr_schedule"_a, "drop_grow"_a)
      .def_rw("label_smoothing", &Settings::label_smoothing)
      .def_rw("density", &Settings::density)
      .def_rw("block_size", &Settings::block_size)
      .def_rw("augment", &Settings::augment)
      .def_rw("padding", &Settings::padding)
      .def_rw("size", &Settings::size)
      .def_rw("batch", &Settings::batch)
      .def_rw("norm_replicas", &Settings::norm_replicas)
      .def_rw("steps", &Settings::steps)
      .def(
          "set_drop_grow",
          [](Settings& s, double change, uint32_t every, double until) {
            s.drop_grow.change = change;
            s.drop_grow.every = every;
            s.drop_grow.until = until;
          },
          "change"_a, "every"_a, "until"_a);
}

void bind_results(nb::module_& m) {
  nb::class_<SampleScore>(m, "SampleScore", "Scores on images that are not trained with.")
      .def_ro("loss", &SampleScore::loss)
      .def_ro("accuracy", &SampleScore::accuracy);
  nb::class_<EpochResult>(m, "EpochResult", "An epoch of a training with images.")
      .def_ro("epoch", &EpochResult::epoch, "Number of the epoch, from 1.")
      .def_ro("loss", &EpochResult::loss, "Mean loss of its steps.")
      .def_ro("accuracy", &EpochResult::accuracy,
              "Accuracy on the images of its steps; None with micro-batches.")
      .def_ro("validation_loss", &EpochResult::validation_loss)
      .def_ro("validation_accuracy", &EpochResult::validation_accuracy)
      .def_ro("seconds", &EpochResult::seconds,
              "Seconds of the last call of train() in the epoch, with its evaluation; 0 if another process "
              "trained the epoch.");
}

std::vector<ParameterArray> arrays_of_network(Trainer& trainer) {
  std::vector<NamedParameter> found;
  {
    const nb::gil_scoped_release released;
    found = trainer.named_parameters();
  }
  std::vector<ParameterArray> all;
  for (NamedParameter& each : found)
    all.emplace_back(std::move(each.name), array_from(std::move(each.values)), std::move(each.shape));
  return all;
}

/// Images are ImageSplit or ImageFolder.
template <class Images>
void make_resnet_trainer(Trainer* made, const ResnetTrainingSettings& settings, const Images& images,
                         const ChosenMachine& machine, uint32_t threads, bool only_estimates,
                         const std::shared_ptr<Communicator>& communicator) {
  const nb::gil_scoped_release released;
  if (only_estimates)
    new (made) Trainer(Trainer::for_estimates(settings, images, machine.machine, threads));
  else
    new (made) Trainer(settings, images, machine.machine, threads, communicator);
}

}  // namespace

void bind_resnet_trainer(nb::module_& m) {
  bind_resnet_settings(m);
  bind_results(m);
  nb::class_<Trainer> trainer(m, "ResnetTrainer", "A residual network with its images, on a machine.");
  trainer
      .def("__init__", &make_resnet_trainer<ImageSplit>, "settings"_a, "images"_a, "machine"_a, "threads"_a,
           "only_estimates"_a, "communicator"_a.none())
      .def("__init__", &make_resnet_trainer<ImageFolder>, "settings"_a, "images"_a, "machine"_a, "threads"_a,
           "only_estimates"_a, "communicator"_a.none())
      .def("validate", &Trainer::validate, Released())
      .def("test", &Trainer::test, Released())
      .def("parameters", &arrays_of_network)
      .def_prop_ro("best_epoch", [](const Trainer& t) { return t.best_epoch(); })
      .def_prop_ro("steps_per_epoch", [](const Trainer& t) { return t.steps_per_epoch(); })
      .def("graph", [](const Trainer& t) { return graph::Graph(t.graph()); })
      .def("step_cost", [](const Trainer& t) { return t.step_cost(); });
  bind_trainer_methods<TrainingProgress>(trainer);
}

}  // namespace tessera::python
