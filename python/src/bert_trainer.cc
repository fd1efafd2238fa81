// Pre-training of BERT: its settings, and the trainer of `tessera train bert`.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <tessera/bert.h>
#include <tessera/communicator.h>
#include <tessera/graph.h>
#include <tessera/pretraining.h>
#include <tessera/token_text.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "machine.h"
#include "tensors.h"
#include "trainers.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
using Released = nb::call_guard<nb::gil_scoped_release>;
using Evaluation = PretrainingEvaluation;
/// Tokens and packs of a step, and steps.
using PhaseSizes = std::tuple<uint32_t, uint32_t, uint64_t>;

std::vector<ParameterArray> arrays_of_parameters(const BertTrainer& trainer) {
  // Threads that exchange parameters with other ranks take Python meanwhile.
  const auto values_of = [&](const std::string& name) {
    const nb::gil_scoped_release released;
    return trainer.parameter(name);
  };
  std::vector<ParameterArray> all;
  for (const graph::ValueInfo& info : trainer.graph().values())
    if (info.kind == graph::Kind::parameter)
      all.emplace_back(info.name, array_from(values_of(info.name)), info.type.shape);
  return all;
}

void bind_settings(nb::module_& m) {
  using Settings = PretrainingSettings;
  nb::class_<Settings> settings(m, "PretrainingSettings", "How BERT is pre-trained.");
  bind_common_settings(settings);
  settings
      .def(
          "__init__",
          [](Settings* made, const graph::BertConfig& config, const std::vector<PhaseSizes>& phases,
             const std::string& average, const std::string& numbers, const std::string& optimizer,
             const std::string& lr_schedule, const std::string& pipeline) {
            Settings s;
            s.config = config;
            s.phases.clear();
            for (const auto& [length, packs, steps] : phases) s.phases.push_back({length, packs, steps});
            s.average = graph::packed_average_named(average);
            s.numbers = numbers;
            s.optimizer = optimizer_named(optimizer);
            s.lr_schedule.kind = graph::schedule_named(lr_schedule);
            s.pipeline = graph::pipeline_named(pipeline);
            new (made) Settings(std::move(s));
          },
          "config"_a, "phases"_a, "average"_a, "numbers"_a, "optimizer"_a, "lr_schedule"_a, "pipeline"_a)
      .def_prop_ro("pipeline", [](const Settings& s) { return std::string(name_of(s.pipeline)); })
      .def_rw("packed", &Settings::packed)
      .def_rw("max_per_pack", &Settings::max_per_pack)
      .def_rw("head_slices", &Settings::head_slices)
      .def_rw("stages", &Settings::stages)
      .def_rw("stage_layers", &Settings::stage_layers)
      .def_rw("stage_feed_forwards", &Settings::stage_feed_forwards)
      .def_rw("head_layers", &Settings::head_layers)
      .def_rw("head_feed_forwards", &Settings::head_feed_forwards)
      .def_rw("offload_activations_from", &Settings::offload_activations_from)
      .def_rw("evaluate_every", &Settings::evaluate_every)
      .def_rw("estimate_packs", &Settings::estimate_packs)
      .def(
          "set_roundings",
          [](Settings& s, std::optional<bool> all, std::optional<bool> parameters, std::optional<bool> state,
             std::optional<bool> partials) {
            s.rounding = rounding_of(all);
            s.roundings = {rounding_of(parameters), rounding_of(state), rounding_of(partials)};
          },
          "all"_a.none(), "parameters"_a.none(), "state"_a.none(), "partials"_a.none())
      .def(
          "set_partials", [](Settings& s, const std::string& dtype) { s.partials = type_named(dtype); },
          "dtype"_a)
      .def(
          "set_sums", [](Settings& s, const std::string& dtype) { s.sums = type_named(dtype); }, "dtype"_a)
      .def(
          "set_loss_scale",
          [](Settings& s, double initial, uint32_t grow_after) {
            s.loss_scale = graph::LossScale{initial, grow_after};
          },
          "initial"_a, "grow_after"_a);
}

void bind_evaluation(nb::module_& m) {
  nb::class_<Evaluation>(m, "PretrainingEvaluation",
                         "Losses of a training of BERT, averaged over tokens, or as `average` says.")
      .def_ro("step", &Evaluation::step, "Number of finished steps.")
      .def_ro("sequences", &Evaluation::sequences, "Number of sequences trained with so far.")
      .def_ro("loss", &Evaluation::loss,
              "Mean loss of the steps since the evaluation before; 0 if there are none.")
      .def_ro("held_out_loss", &Evaluation::held_out_loss, "Sum of both losses of the held-out text.")
      .def_ro("masked_lm_loss", &Evaluation::masked_lm_loss, "Loss of masked tokens in the held-out text.")
      .def_ro("next_sentence_loss", &Evaluation::next_sentence_loss,
              "Loss of sentence pairs in the held-out text.");
}

}  // namespace

void bind_bert_trainer(nb::module_& m) {
  bind_settings(m);
  bind_evaluation(m);
  nb::class_<BertTrainer> trainer(m, "BertTrainer", "BERT with its text, on a machine.");
  trainer
      .def(
          "__init__",
          [](BertTrainer* made, const PretrainingSettings& settings, const std::shared_ptr<TokenText>& train,
             const std::shared_ptr<TokenText>& held_out, const ChosenMachine& machine, uint32_t threads,
             bool only_estimates, const std::shared_ptr<Communicator>& communicator) {
            const nb::gil_scoped_release released;
            const TextSplit text{train, held_out};
            if (only_estimates)
              new (made) BertTrainer(BertTrainer::for_estimates(settings, text, machine.machine, threads));
            else
              new (made) BertTrainer(settings, text, machine.machine, threads, communicator);
          },
          "settings"_a, "train"_a, "held_out"_a, "machine"_a, "threads"_a, "only_estimates"_a,
          "communicator"_a.none())
      .def("evaluate", &BertTrainer::evaluate, Released())
      .def("load_parameters", &BertTrainer::load_parameters, "path"_a, Released())
      .def("parameters", &arrays_of_parameters)
      .def("steps_per_epoch", &BertTrainer::steps_per_epoch, "phase"_a)
      .def(
          "graph", [](const BertTrainer& t, size_t phase) { return graph::Graph(t.graph(phase)); }, "phase"_a)
      .def(
          "step_cost", [](const BertTrainer& t, size_t phase) { return graph::RunCost(t.step_cost(phase)); },
          "phase"_a);
  bind_trainer_methods<PretrainingProgress>(trainer);
}

}  // namespace tessera::python
