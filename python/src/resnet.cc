// Residual networks, as values of a graph.
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <tessera/resnet.h>
#include <tessera/sparse.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "arrays.h"
#include "bindings.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
using graph::Graph;
using graph::ResnetConfig;
using graph::ValueId;

/// Features, logits, and PyTorch's shapes of the weights of convolutions.
std::tuple<ValueId, ValueId, std::map<std::string, graph::Shape>> add_resnet(
    Graph& g, ValueId images, const ResnetConfig& config, bool training, const std::string& numbers,
    const std::map<std::string, SparseMatrix>& patterns, bool dynamic, uint32_t replicas,
    uint32_t norm_replicas, bool block_calls, bool recompute) {
  graph::ResnetOptions options{.training = training,
                               .numbers = graph::numbers_named(numbers),
                               .dynamic = dynamic,
                               .replicas = replicas,
                               .norm_replicas = norm_replicas,
                               .block_calls = block_calls,
                               .recompute = recompute};
  for (const auto& [name, matrix] : patterns) options.patterns[name] = matrix.pattern;
  const graph::Resnet made = graph::resnet(g, g.value(images), config, options);
  return {made.features.id, made.logits.id, made.kernels};
}

}  // namespace

void bind_resnet(nb::module_& m, nb::class_<Graph>& graph) {
  nb::class_<ResnetConfig>(m, "ResnetConfig", "The sizes of a residual network. The default is ResNet-50.")
      .def(nb::init<>())
      .def(nb::init<const ResnetConfig&>(), "other"_a)
      .def_static("of_depth", &ResnetConfig::of_depth, "depth"_a,
                  "Sizes for 18, 34, 50, 101 or 152 layers, for images of 224², or 6n + 2, for CIFAR-10.")
      .def_rw("blocks", &ResnetConfig::blocks)
      .def_rw("width", &ResnetConfig::width)
      .def_rw("is_bottleneck", &ResnetConfig::is_bottleneck)
      .def_rw("is_for_small_images", &ResnetConfig::is_for_small_images)
      .def_prop_rw(
          "shortcut", [](const ResnetConfig& c) { return graph::name_of(c.shortcut); },
          [](ResnetConfig& c, const std::string& name) { c.shortcut = graph::shortcut_named(name); })
      .def_rw("classes", &ResnetConfig::classes)
      .def_rw("epsilon", &ResnetConfig::epsilon)
      .def_rw("momentum", &ResnetConfig::momentum);
  graph
      .def("resnet", &add_resnet, "images"_a, "config"_a, "training"_a, "numbers"_a, "patterns"_a,
           "dynamic"_a, "replicas"_a, "norm_replicas"_a, "block_calls"_a, "recompute"_a)
      .def(
          "normalised_pixels",
          [](Graph& g, ValueId pixels, const std::vector<double>& mean,
             const std::vector<double>& deviation) {
            return graph::normalised_pixels(g.value(pixels), mean, deviation).id;
          },
          "pixels"_a, "mean"_a, "deviation"_a);
}

}  // namespace tessera::python
