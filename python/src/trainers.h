// What the trainers of BERT and of residual networks have in common.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <tessera/graph.h>

#include <cstdint>
#include <exception>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"

namespace tessera::python {

/// Name, values and shape of a parameter.
using ParameterArray = std::tuple<std::string, Numbers<float>, graph::Shape>;

/// Trains by at most `steps` steps, and returns the loss of each. An interruption ends it after a step.
template <class Progress, class AnyTrainer>
std::vector<double> train_by(AnyTrainer& trainer, uint64_t steps, const std::string& checkpoint) {
  std::vector<double> losses;
  std::exception_ptr interruption;
  const auto goes_on = [&](const Progress& now) {
    losses.push_back(now.step_loss);
    const nb::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) interruption = std::make_exception_ptr(nb::python_error());
    return interruption == nullptr && losses.size() < steps;
  };
  {
    const nb::gil_scoped_release released;
    trainer.train({.checkpoint = checkpoint, .progress = goes_on});
  }
  if (interruption) std::rethrow_exception(interruption);
  return losses;
}

/// The settings that all have, but for the optimizer and the kind of schedule.
template <class Settings>
void bind_common_settings(nb::class_<Settings>& settings) {
  using namespace nb::literals;
  settings.def_rw("momentum", &Settings::momentum)
      .def_rw("bias_correction", &Settings::bias_correction)
      .def_rw("trust_coefficient", &Settings::trust_coefficient)
      .def_rw("weight_decay", &Settings::weight_decay)
      .def_rw("excluded", &Settings::excluded)
      .def_rw("lr", &Settings::lr)
      .def_rw("clip_norm", &Settings::clip_norm)
      .def_rw("epochs", &Settings::epochs)
      .def_rw("seed", &Settings::seed)
      .def_rw("validation", &Settings::validation)
      .def_rw("host_io", &Settings::host_io)
      .def_rw("micro_batches", &Settings::micro_batches)
      .def_rw("recompute", &Settings::recompute)
      .def_rw("memory_budget", &Settings::memory_budget)
      .def_rw("replicas", &Settings::replicas)
      .def_rw("overlap", &Settings::overlap)
      .def_rw("shard_from", &Settings::shard_from)
      .def_rw("shard_weights_from", &Settings::shard_weights_from)
      .def_rw("shard_gradients_from", &Settings::shard_gradients_from)
      .def_rw("offload_from", &Settings::offload_from)
      .def_rw("offload_weights_from", &Settings::offload_weights_from)
      .def_rw("offload_gradients_from", &Settings::offload_gradients_from)
      .def_rw("prefetch", &Settings::prefetch)
      .def_rw("groups", &Settings::groups)
      .def(
          "set_betas",
          [](Settings& s, double beta1, double beta2) {
            s.betas = {beta1, beta2};
          },
          "beta1"_a, "beta2"_a)
      .def(
          "set_lr_schedule",
          [](Settings& s, uint64_t warmup, double power, double end, std::vector<double> decay_at,
             double decay) {
            s.lr_schedule.warmup = warmup;
            s.lr_schedule.power = power;
            s.lr_schedule.end = end;
            s.lr_schedule.decay_at = std::move(decay_at);
            s.lr_schedule.decay = decay;
          },
          "warmup"_a, "power"_a, "end"_a, "decay_at"_a, "decay"_a);
}

/// The methods that all have.
template <class Progress, class AnyTrainer>
void bind_trainer_methods(nb::class_<AnyTrainer>& trainer) {
  using namespace nb::literals;
  using WithoutGil = nb::call_guard<nb::gil_scoped_release>;
  trainer.def("train", &train_by<Progress, AnyTrainer>, "steps"_a, "checkpoint"_a)
      .def("save", &AnyTrainer::save, "checkpoint"_a, WithoutGil())
      .def("resume", &AnyTrainer::resume, "checkpoint"_a, "allow_different_bits"_a, WithoutGil())
      .def("save_parameters", &AnyTrainer::save_parameters, "path"_a, WithoutGil())
      .def_prop_ro("settings_json", [](const AnyTrainer& t) { return t.settings_json(); })
      .def_prop_ro("finished_steps", [](const AnyTrainer& t) { return t.step(); })
      .def_prop_ro("steps", [](const AnyTrainer& t) { return t.steps(); })
      .def_prop_ro("history", [](const AnyTrainer& t) { return t.history(); });
}

}  // namespace tessera::python
