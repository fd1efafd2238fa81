// Pooling, normalisation and constants of networks of images.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <tessera/inference.h>
#include <tessera/vision.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "base/checksum.h"
#include "bindings.h"
#include "tensors.h"

namespace nb = nanobind;

namespace tessera::python {
namespace {

using namespace nb::literals;
using graph::Graph;
using graph::Value;
using graph::ValueId;
using OptionalId = std::optional<ValueId>;

/// Replaces the graph; returns the parameters that were changed, with checksums of the values of the
/// parameters that are left.
std::map<std::string, std::optional<uint64_t>> fold_constants(Graph& graph) {
  graph::FoldedGraph folded = graph::folded(graph);
  std::map<std::string, std::optional<uint64_t>> sums;
  for (const std::string& name : folded.changed) {
    std::optional<uint64_t>& sum = sums[name];
    if (!folded.graph.contains(name)) continue;
    const graph::ValueInfo& info = folded.graph.info(folded.graph.find(name).id);
    if (info.kind == graph::Kind::parameter && info.initial.kind == graph::Initial::Kind::values)
      sum = base::checksum(std::as_bytes(std::span(*info.initial.values)));
  }
  graph = std::move(folded.graph);
  return sums;
}

}  // namespace

void bind_vision(nb::class_<Graph>& graph) {
  graph
      .def(
          "batch_norm",
          [](Graph& g, ValueId x, ValueId mean, ValueId variance, OptionalId weight, OptionalId bias,
             double epsilon) {
            return batch_norm(g.value(x), g.value(mean), g.value(variance), value_or_none(g, weight),
                              value_or_none(g, bias), epsilon)
                .id;
          },
          "x"_a, "mean"_a, "variance"_a, "weight"_a.none(), "bias"_a.none(), "eps"_a)
      .def(
          "batch_norm_of_batch",
          [](Graph& g, ValueId x, OptionalId weight, OptionalId bias, double epsilon, uint32_t replicas) {
            const graph::BatchNorm norm = batch_norm_of_batch(g.value(x), value_or_none(g, weight),
                                                              value_or_none(g, bias), epsilon, replicas);
            return std::tuple(norm.y.id, norm.mean.id, norm.variance.id);
          },
          "x"_a, "weight"_a.none(), "bias"_a.none(), "eps"_a, "replicas"_a)
      .def(
          "group_norm",
          [](Graph& g, ValueId x, uint32_t groups, OptionalId weight, OptionalId bias, double epsilon) {
            return group_norm(g.value(x), groups, value_or_none(g, weight), value_or_none(g, bias), epsilon)
                .id;
          },
          "x"_a, "groups"_a, "weight"_a.none(), "bias"_a.none(), "eps"_a)
      .def(
          "state",
          [](Graph& g, const std::string& name, const graph::Shape& shape, const graph::Initial& initial,
             const std::string& dtype) {
            return g.state(name, {type_named(dtype), shape, {}, {}}, initial).id;
          },
          "name"_a, "shape"_a, "initial"_a, "dtype"_a)
      .def(
          "assign", [](Graph& g, ValueId state, ValueId value) { g.assign(g.value(state), g.value(value)); },
          "state"_a, "value"_a)
      .def("fold_constants", &fold_constants);
}

}  // namespace tessera::python
