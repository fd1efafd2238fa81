// The areas of the extension module, one file each.
#pragma once

#include <nanobind/nanobind.h>
#include <tessera/graph.h>

#include <optional>

namespace tessera::python {

/// A list of Python objects of any type.
using AnyList = nanobind::typed<nanobind::list, nanobind::any>;

inline std::optional<graph::Value> value_or_none(graph::Graph& graph, std::optional<graph::ValueId> id) {
  return id ? std::optional(graph.value(*id)) : std::nullopt;
}

/// BERT, as a method of graphs.
void bind_bert(nanobind::module_& m, nanobind::class_<graph::Graph>& graph);
void bind_bert_plan(nanobind::module_& m);
void bind_bert_trainer(nanobind::module_& m);
void bind_contents(nanobind::module_& m);
void bind_exchange(nanobind::module_& m);
void bind_graph(nanobind::module_& m);
void bind_held(nanobind::module_& m);
void bind_images(nanobind::module_& m);
void bind_inspect(nanobind::module_& m);
void bind_machine(nanobind::module_& m);
void bind_matrix(nanobind::module_& m);
void bind_onnx(nanobind::module_& m);
void bind_weight(nanobind::module_& m);
void bind_packing(nanobind::module_& m);
void bind_products(nanobind::module_& m);
void bind_ranks(nanobind::module_& m);
void bind_recordings(nanobind::module_& m);
/// Residual networks, as a method of graphs.
void bind_resnet(nanobind::module_& m, nanobind::class_<graph::Graph>& graph);
void bind_resnet_trainer(nanobind::module_& m);
void bind_session(nanobind::module_& m);
void bind_spiking(nanobind::module_& m);
void bind_structured(nanobind::module_& m);
void bind_structured_calls(nanobind::module_& m);
void bind_text(nanobind::module_& m);
/// Optimizers, schedules of learning rates, and the training of graphs.
void bind_training(nanobind::module_& m, nanobind::class_<graph::Graph>& graph);
/// Methods of graphs.
void bind_vision(nanobind::class_<graph::Graph>& graph);

}  // namespace tessera::python
