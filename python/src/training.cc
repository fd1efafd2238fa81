// Training steps of graphs: optimizers, groups of parameters, learning rates.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>
#include <tessera/gradients.h>
#include <tessera/graph.h>
#include <tessera/numbers.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "graph/pipeline_actions.h"
#include "report/lanes.h"
#include "tensors.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
using graph::Graph;
using graph::ParameterGroup;
using graph::ValueId;
using Betas = std::pair<double, double>;
/// Whether all stores round stochastically, and parameters, state and partial sums by themselves.
using StoreRoundings =
    std::tuple<std::optional<bool>, std::optional<bool>, std::optional<bool>, std::optional<bool>>;
/// Types of partial sums of products, of gradients' sums and of the optimizer's state, how stores round, the
/// seed, and the scale of the loss with the number of steps after which it grows.
using TrainingNumbers = std::tuple<std::optional<std::string>, std::string, std::string, StoreRoundings,
                                   uint64_t, std::optional<std::pair<double, uint32_t>>>;

TrainingNumbers training_numbers(const std::string& name, uint64_t seed) {
  const graph::Numbers numbers = graph::numbers_named(name);
  TrainingNumbers found{std::optional<std::string>(),
                        std::string(name_of(numbers.sums)),
                        std::string(name_of(numbers.state)),
                        StoreRoundings{numbers.rounding == graph::Rounding::stochastic, {}, {}, {}},
                        seed,
                        {}};
  if (numbers.partials) std::get<0>(found) = std::string(name_of(*numbers.partials));
  if (const auto& scale = numbers.loss_scale) std::get<5>(found) = {scale->initial, scale->grow_after};
  return found;
}

void bind_optimizers(nb::module_& m) {
  nb::class_<graph::Sgd>(m, "Sgd", "Stochastic gradient descent.")
      .def(nb::init<double, double, bool>(), "momentum"_a, "weight_decay"_a, "nesterov"_a);
  nb::class_<graph::Adam>(m, "Adam", "Adam, or AdamW.")
      .def(
          "__init__",
          [](graph::Adam* made, Betas betas, double epsilon, double weight_decay, bool decoupled,
             bool bias_correction) {
            new (made)
                graph::Adam{betas.first, betas.second, epsilon, weight_decay, decoupled, bias_correction};
          },
          "betas"_a, "eps"_a, "weight_decay"_a, "decoupled"_a, "bias_correction"_a);
  nb::class_<graph::Lamb>(m, "Lamb", "LAMB.")
      .def(
          "__init__",
          [](graph::Lamb* made, Betas betas, double epsilon, double weight_decay, bool bias_correction) {
            new (made) graph::Lamb{betas.first, betas.second, epsilon, weight_decay, bias_correction};
          },
          "betas"_a, "eps"_a, "weight_decay"_a, "bias_correction"_a);
  nb::class_<graph::Lars>(m, "Lars", "LARS.")
      .def(nb::init<double, double, double>(), "momentum"_a, "weight_decay"_a, "trust_coefficient"_a);
  nb::class_<ParameterGroup>(m, "ParameterGroup", "Parameters with settings of their own.")
      .def(
          "__init__",
          [](ParameterGroup* made, const std::vector<ValueId>& ids, std::vector<std::string> names,
             std::optional<double> lr_scale, std::optional<double> weight_decay,
             std::optional<bool> trust_ratio, std::optional<bool> shard, std::optional<bool> shard_weights,
             std::optional<bool> shard_gradients, std::optional<bool> offload,
             std::optional<bool> offload_weights, std::optional<bool> offload_gradients) {
            std::vector<graph::Value> parameters;  // of the graph that is trained
            for (const ValueId id : ids) parameters.push_back({nullptr, id});
            new (made) ParameterGroup{.parameters = std::move(parameters),
                                      .names = std::move(names),
                                      .lr_scale = lr_scale,
                                      .weight_decay = weight_decay,
                                      .trust_ratio = trust_ratio,
                                      .shard = shard,
                                      .shard_weights = shard_weights,
                                      .shard_gradients = shard_gradients,
                                      .offload = offload,
                                      .offload_weights = offload_weights,
                                      .offload_gradients = offload_gradients};
          },
          "ids"_a, "names"_a, "lr_scale"_a.none(), "weight_decay"_a.none(), "trust_ratio"_a.none(),
          "shard"_a.none(), "shard_weights"_a.none(), "shard_gradients"_a.none(), "offload"_a.none(),
          "offload_weights"_a.none(), "offload_gradients"_a.none());
}

void bind_schedules(nb::module_& m) {
  nb::class_<graph::Schedule>(m, "Schedule", "How the learning rate changes.")
      .def(
          "__init__",
          [](graph::Schedule* made, const std::string& kind, uint64_t steps, uint64_t warmup, double power,
             double end, std::vector<double> decay_at, double decay) {
            new (made) graph::Schedule{graph::schedule_named(kind), steps, warmup, power, end,
                                       std::move(decay_at),         decay};
            check(*made);
          },
          "kind"_a, "steps"_a, "warmup"_a, "power"_a, "end"_a, "decay_at"_a, "decay"_a)
      .def("factor", &graph::Schedule::factor, "finished"_a);
  m.def(
      "betas_of_packs",
      [](Betas unpacked, double packing_factor) {
        const graph::Betas betas = graph::betas_of_packs({unpacked.first, unpacked.second}, packing_factor);
        return Betas{betas.beta1, betas.beta2};
      },
      "betas"_a, "packing_factor"_a);
  m.def("packs_per_batch", &graph::packs_per_batch, "sequences"_a, "packing_factor"_a);
}

/// Times of forward and backward passes, by stage.
using StageTimesList = std::vector<std::pair<double, double>>;

std::vector<graph::StageTimes> of_stages(const StageTimesList& times) {
  std::vector<graph::StageTimes> all;
  for (const auto& [forward, backward] : times) all.push_back({forward, backward});
  return all;
}

using Analysis = std::tuple<double, double, std::vector<uint32_t>, std::vector<double>>;

Analysis entries_of(const graph::PipelineAnalysis& found) {
  return {found.time, found.used, found.in_flight, found.busy};
}

/// An action as text, its kind and stage, and its micro-batch, peer and bucket if it has them.
using ActionEntries = std::tuple<std::string, std::string, uint32_t, std::optional<uint32_t>,
                                 std::optional<uint32_t>, std::optional<uint32_t>>;

std::vector<ActionEntries> entries_of(const std::vector<graph::PipelineAction>& actions) {
  std::vector<ActionEntries> all;
  for (const graph::PipelineAction& action : actions) {
    std::optional<uint32_t> micro_batch, peer;
    if (!action.bucket) micro_batch = action.micro_batch;
    if (graph::is_sending(action.kind) || graph::is_receiving(action.kind)) peer = action.peer;
    all.emplace_back(to_string(action), name_of(action.kind), action.stage, micro_batch, peer, action.bucket);
  }
  return all;
}

void bind_actions(nb::module_& m) {
  using graph::ActionList;
  nb::class_<ActionList>(m, "ActionList")
      .def_ro("stages", &ActionList::stages)
      .def_ro("micro_batches", &ActionList::micro_batches)
      .def_prop_ro("places", [](const ActionList& list) { return list.links.places; })
      .def_prop_ro("buckets",
                   [](const ActionList& list) {
                     std::vector<std::pair<std::vector<uint32_t>, uint64_t>> buckets;
                     for (const graph::GradientBucket& bucket : list.links.buckets)
                       buckets.emplace_back(bucket.stages, bucket.bytes);
                     return buckets;
                   })
      .def_prop_ro("actions", [](const ActionList& list) { return entries_of(list.actions); })
      .def("of_place",
           [](const ActionList& list, uint32_t place) { return entries_of(list.of_place(place)); })
      .def("of_stage",
           [](const ActionList& list, uint32_t stage) { return entries_of(list.of_stage(stage)); })
      .def("analyse",
           [](const ActionList& list, const StageTimesList& times, double sending) {
             return entries_of(graph::analyse(list, of_stages(times), sending));
           })
      .def("__str__", [](const ActionList& list) { return graph::to_string(list); });
  m.def(
      "read_actions", [](const std::string& text) { return graph::read_actions(text); }, "text"_a);
}

void bind_pipelines(nb::module_& m) {
  using graph::PipelineSchedule;
  nb::class_<PipelineSchedule>(m, "PipelineSchedule")
      .def_ro("stages", &PipelineSchedule::stages)
      .def_ro("micro_batches", &PipelineSchedule::micro_batches)
      .def("of_stage",
           [](const PipelineSchedule& schedule, uint32_t stage) {
             std::vector<std::pair<std::string, uint32_t>> passes;
             for (const graph::StagePass& pass : schedule.of_stage(stage))
               passes.emplace_back(graph::name_of(pass.kind), pass.micro_batch);
             return passes;
           })
      .def("analyse",
           [](const PipelineSchedule& schedule, const StageTimesList& times) {
             return entries_of(graph::analyse(schedule, of_stages(times)));
           })
      .def("actions",
           [](const PipelineSchedule& schedule, std::vector<uint32_t> places, bool has_replicas) {
             return graph::actions_of(
                 schedule, graph::chain_of_stages(schedule.stages, std::move(places), has_replicas));
           })
      .def("svg",
           [](const PipelineSchedule& schedule, const StageTimesList& times) {
             return report::svg_file(report::lanes_of(schedule, of_stages(times)));
           })
      .def("__str__", [](const PipelineSchedule& schedule) { return graph::to_string(schedule); });
  m.def(
      "pipeline_schedule",
      [](const std::string& kind, uint32_t stages, uint32_t micro_batches, std::set<uint32_t> recomputed) {
        return graph::pipeline_schedule({graph::pipeline_named(kind), std::move(recomputed)}, stages,
                                        micro_batches);
      },
      "kind"_a, "stages"_a, "micro_batches"_a, "recomputed"_a);
}

}  // namespace

void bind_training(nb::module_& m, nb::class_<Graph>& graph) {
  bind_actions(m);
  bind_pipelines(m);
  bind_optimizers(m);
  bind_schedules(m);
  m.def("training_numbers", &training_numbers, "name"_a, "seed"_a);
  graph.def(
      "add_training",
      [](Graph& g, ValueId loss, const graph::Optimizer& optimizer, std::optional<double> clip_norm,
         uint32_t micro_batches, std::optional<uint32_t> stages,
         std::map<std::string, uint32_t> stages_of_layers, const std::string& pipeline,
         std::set<uint32_t> recomputed, std::optional<uint64_t> memory_budget, uint32_t replicas,
         bool overlap, std::optional<uint64_t> shard_from, std::optional<uint64_t> shard_weights_from,
         std::optional<uint64_t> shard_gradients_from, std::optional<uint64_t> offload_from,
         std::optional<uint64_t> offload_weights_from, std::optional<uint64_t> offload_gradients_from,
         std::optional<uint64_t> offload_activations_from, bool prefetch, const std::vector<ValueId>& frozen,
         std::vector<ParameterGroup> groups, const TrainingNumbers& numbers) {
        const auto& [partials, sums, state, roundings, seed, scale] = numbers;
        const auto& [of_all, of_parameters, of_state, of_partials] = roundings;
        graph::TrainingOptions options{
            .optimizer = optimizer,
            .clip_norm = clip_norm,
            .micro_batches = micro_batches,
            .stages = {stages, std::move(stages_of_layers)},
            .pipeline = {graph::pipeline_named(pipeline), std::move(recomputed), offload_activations_from},
            .memory_budget = memory_budget,
            .groups = std::move(groups),
            .replicas = replicas,
            .overlap = overlap,
            .shard_from = shard_from,
            .shard_weights_from = shard_weights_from,
            .shard_gradients_from = shard_gradients_from,
            .offload_from = offload_from,
            .offload_weights_from = offload_weights_from,
            .offload_gradients_from = offload_gradients_from,
            .prefetch = prefetch,
            .sums = type_named(sums),
            .state = type_named(state),
            .rounding = rounding_of(of_all).value_or(graph::Rounding::nearest),
            .roundings = {rounding_of(of_parameters), rounding_of(of_state), rounding_of(of_partials)},
            .seed = seed};
        if (partials) options.partials = type_named(*partials);
        if (scale) options.loss_scale = graph::LossScale{scale->first, scale->second};
        for (ParameterGroup& group : options.groups)
          for (graph::Value& parameter : group.parameters) parameter = g.value(parameter.id);
        for (ValueId id : frozen) options.frozen.push_back(g.value(id));
        add_training(g.value(loss), options);
      },
      "loss"_a, "optimizer"_a, "clip_norm"_a.none(), "micro_batches"_a, "stages"_a.none(),
      "stages_of_layers"_a, "pipeline"_a, "recomputed"_a, "memory_budget"_a.none(), "replicas"_a, "overlap"_a,
      "shard_from"_a.none(), "shard_weights_from"_a.none(), "shard_gradients_from"_a.none(),
      "offload_from"_a.none(), "offload_weights_from"_a.none(), "offload_gradients_from"_a.none(),
      "offload_activations_from"_a.none(), "prefetch"_a, "frozen"_a, "groups"_a, "numbers"_a);
}

}  // namespace tessera::python
