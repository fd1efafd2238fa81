// Networks: graphs of operations, by the numbers of their values.
#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>
#include <tessera/arithmetic.h>
#include <tessera/convolution.h>
#include <tessera/error.h>
#include <tessera/graph.h>
#include <tessera/layers.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "bindings.h"
#include "tensors.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
using graph::Graph;
using graph::Initial;
using graph::Shape;
using graph::Value;
using graph::ValueId;
using Ids = std::vector<ValueId>;

Initial initial_from(nb::handle values) {
  const std::span<const float> given = floats_of(values, "values");
  return Initial::from({given.begin(), given.end()});
}

std::vector<Value> values_of(Graph& graph, const Ids& ids) {
  std::vector<Value> values;
  for (const ValueId id : ids) values.push_back(graph.value(id));
  return values;
}

Ids ids_of(const std::vector<Value>& values) {
  Ids ids;
  for (const Value& value : values) ids.push_back(value.id);
  return ids;
}

Ids apply(Graph& graph, const std::string& operation, const Ids& inputs,
          const graph::Attributes& attributes) {
  return ids_of(graph.apply(operation, values_of(graph, inputs), attributes));
}

ValueId reduce(Graph& graph, const std::string& operation, ValueId id, const std::vector<int>& dims,
               bool keepdim) {
  const Value x = graph.value(id);
  if (operation == "sum") return sum(x, dims, keepdim).id;
  if (operation == "mean") return mean(x, dims, keepdim).id;
  return operation == "amax" ? max(x, dims, keepdim).id : min(x, dims, keepdim).id;
}

ValueId add_cross_entropy(Graph& graph, ValueId logits, ValueId target, std::optional<ValueId> weight,
                          std::optional<uint32_t> ignored, double smoothing, const std::string& reduction) {
  const std::map<std::string, graph::LossReduction> reductions = {{"mean", graph::LossReduction::mean},
                                                                  {"sum", graph::LossReduction::sum},
                                                                  {"none", graph::LossReduction::none}};
  const auto found = reductions.find(reduction);
  if (found == reductions.end())
    throw UsageError(
        fmt::format("cross_entropy: there is no reduction '{}': use mean, sum or none", reduction));
  const auto of_classes = value_or_none(graph, weight);
  return cross_entropy(graph.value(logits), graph.value(target),
                       {of_classes, ignored, smoothing, found->second})
      .id;
}

ValueId add_constant(Graph& graph, const std::string& name, const Shape& shape, nb::handle values,
                     const std::string& dtype) {
  const std::span<const float> given = floats_of(values, "values");
  return graph.constant(name, shape, {given.begin(), given.end()}, type_named(dtype)).id;
}

ValueId add_attention(Graph& g, ValueId q, ValueId k, ValueId v, std::optional<ValueId> query_ids,
                      std::optional<ValueId> key_ids, std::optional<ValueId> lengths,
                      std::optional<ValueId> bias, std::optional<ValueId> step, uint32_t heads,
                      uint32_t kv_heads, std::optional<double> scale, std::optional<uint32_t> left,
                      std::optional<uint32_t> right, int64_t offset, double dropout, uint64_t seed) {
  return attention(g.value(q), g.value(k), g.value(v),
                   {.heads = heads,
                    .kv_heads = kv_heads,
                    .scale = scale,
                    .left = left,
                    .right = right,
                    .offset = offset,
                    .query_ids = value_or_none(g, query_ids),
                    .key_ids = value_or_none(g, key_ids),
                    .lengths = value_or_none(g, lengths),
                    .bias = value_or_none(g, bias),
                    .dropout = dropout,
                    .step = value_or_none(g, step),
                    .seed = seed})
      .id;
}

std::optional<std::pair<Numbers<uint64_t>, Numbers<uint32_t>>> pattern_of(const Graph& graph, ValueId id) {
  if (!graph.type(id).pattern) return {};
  Pattern pattern = *graph.type(id).pattern;
  return std::pair(array_from(std::move(pattern.crow_indices)), array_from(std::move(pattern.col_indices)));
}

std::string kind_of(const Graph& graph, ValueId id) {
  switch (graph.info(id).kind) {
    case graph::Kind::input: return "input";
    case graph::Kind::parameter: return "parameter";
    case graph::Kind::state: return "state";
    case graph::Kind::constant: return "constant";
    case graph::Kind::result: break;
  }
  return "result";
}

void bind_values(nb::class_<Graph>& graph) {
  graph
      .def(
          "input",
          [](Graph& g, const std::string& name, const Shape& shape, const std::string& dtype) {
            return g.input(name, shape, type_named(dtype)).id;
          },
          "name"_a, "shape"_a, "dtype"_a)
      .def(
          "parameter",
          [](Graph& g, const std::string& name, const Shape& shape, const Initial& initial,
             const std::string& dtype) { return g.parameter(name, shape, initial, type_named(dtype)).id; },
          "name"_a, "shape"_a, "initial"_a, "dtype"_a)
      .def(
          "sparse_parameter",
          [](Graph& g, const std::string& name, const SparseMatrix& pattern, const Initial& initial,
             const std::string& dtype, std::optional<uint64_t> capacity) {
            return g.sparse_parameter(name, pattern.pattern, initial, type_named(dtype), capacity).id;
          },
          "name"_a, "pattern"_a, "initial"_a, "dtype"_a, "capacity"_a.none())
      .def("constant", &add_constant, "name"_a, "shape"_a, "values"_a, "dtype"_a)
      .def("apply", &apply, "operation"_a, "inputs"_a, "attributes"_a)
      .def(
          "matmul",
          [](Graph& g, ValueId a, ValueId b, bool transpose_a, bool transpose_b) {
            return matmul(g.value(a), g.value(b), transpose_a, transpose_b).id;
          },
          "a"_a, "b"_a, "transpose_a"_a, "transpose_b"_a)
      .def(
          "call",
          [](Graph& g, const std::shared_ptr<const Graph>& function, const Ids& inputs,
             std::optional<uint32_t> number, std::optional<uint32_t> stage, bool recompute) {
            return ids_of(g.call(function, values_of(g, inputs), {number, stage, recompute}));
          },
          "function"_a, "inputs"_a, "number"_a.none(), "stage"_a.none(), "recompute"_a)
      .def("place_stages", &Graph::place_stages, "places"_a)
      .def(
          "set_partial_sums",
          [](Graph& g, const std::string& dtype, bool is_stochastic, uint64_t seed) {
            g.set_partial_sums(
                {.type = type_named(dtype),
                 .rounding = is_stochastic ? graph::Rounding::stochastic : graph::Rounding::nearest,
                 .seed = seed});
          },
          "dtype"_a, "is_stochastic"_a, "seed"_a)
      .def(
          "loop",
          [](Graph& g, const std::shared_ptr<const Graph>& body, const Ids& inputs, uint32_t count,
             std::set<std::string> indexed, std::map<std::string, std::string> carried,
             std::set<std::string> stacked, std::set<std::string> summed, double scale, bool reversed,
             std::optional<uint32_t> stage) {
            return ids_of(g.loop(body, values_of(g, inputs),
                                 {count, std::move(indexed), std::move(carried), std::move(stacked),
                                  std::move(summed), scale, reversed, stage}));
          },
          "body"_a, "inputs"_a, "count"_a, "indexed"_a, "carried"_a, "stacked"_a, "summed"_a, "scale"_a,
          "reversed"_a, "stage"_a.none())
      .def("cross_entropy", &add_cross_entropy, "logits"_a, "target"_a, "weight"_a.none(), "ignored"_a.none(),
           "smoothing"_a, "reduction"_a)
      .def(
          "rotary_tables",
          [](Graph& g, uint32_t positions, uint32_t features, double base) {
            const graph::RotaryTables tables = graph::rotary_tables(g, positions, features, base);
            return std::pair(tables.cosines.id, tables.sines.id);
          },
          "positions"_a, "features"_a, "base"_a)
      .def(
          "rotary",
          [](Graph& g, ValueId x, ValueId cosines, ValueId sines, bool interleaved) {
            return rotary(g.value(x), {g.value(cosines), g.value(sines)}, interleaved).id;
          },
          "x"_a, "cosines"_a, "sines"_a, "interleaved"_a)
      .def(
          "index_select",
          [](Graph& g, ValueId x, int dim, ValueId ids) {
            return index_select(g.value(x), dim, g.value(ids)).id;
          },
          "x"_a, "dim"_a, "ids"_a)
      .def(
          "scatter_add",
          [](Graph& g, ValueId x, int dim, ValueId ids, uint32_t size) {
            return scatter_add(g.value(x), dim, g.value(ids), size).id;
          },
          "values"_a, "dim"_a, "ids"_a, "size"_a)
      .def(
          "scatter",
          [](Graph& g, ValueId x, ValueId ids, ValueId values) {
            return scatter(g.value(x), g.value(ids), g.value(values)).id;
          },
          "x"_a, "ids"_a, "values"_a)
      .def(
          "power",
          [](Graph& g, ValueId x, ValueId exponent) { return pow(g.value(x), g.value(exponent)).id; }, "x"_a,
          "exponent"_a)
      .def(
          "remainder", [](Graph& g, ValueId a, ValueId b) { return remainder(g.value(a), g.value(b)).id; },
          "a"_a, "b"_a)
      .def(
          "floor_divide",
          [](Graph& g, ValueId a, ValueId b) { return floor_divide(g.value(a), g.value(b)).id; }, "a"_a,
          "b"_a)
      .def(
          "gather",
          [](Graph& g, ValueId x, int dim, ValueId ids) { return gather(g.value(x), dim, g.value(ids)).id; },
          "x"_a, "dim"_a, "ids"_a)
      .def("attention", &add_attention, "q"_a, "k"_a, "v"_a, "query_ids"_a.none(), "key_ids"_a.none(),
           "lengths"_a.none(), "bias"_a.none(), "step"_a.none(), "heads"_a, "kv_heads"_a, "scale"_a.none(),
           "left"_a.none(), "right"_a.none(), "offset"_a, "dropout"_a, "seed"_a)
      .def("reduce", &reduce, "operation"_a, "x"_a, "dims"_a, "keepdim"_a)
      .def(
          "argmax",
          [](Graph& g, ValueId x, int dim, bool keepdim) { return argmax(g.value(x), dim, keepdim).id; },
          "x"_a, "dim"_a, "keepdim"_a)
      .def(
          "cumsum", [](Graph& g, ValueId x, int dim) { return cumsum(g.value(x), dim).id; }, "x"_a, "dim"_a)
      .def(
          "softmax", [](Graph& g, ValueId x, int dim) { return softmax(g.value(x), dim).id; }, "x"_a, "dim"_a)
      .def(
          "log_softmax", [](Graph& g, ValueId x, int dim) { return log_softmax(g.value(x), dim).id; }, "x"_a,
          "dim"_a)
      .def(
          "permute",
          [](Graph& g, ValueId x, const std::vector<int>& dims) { return permute(g.value(x), dims).id; },
          "x"_a, "dims"_a)
      .def(
          "convolution",
          [](Graph& g, ValueId x, ValueId weight, std::optional<ValueId> bias, std::vector<uint32_t> kernel,
             std::vector<uint32_t> stride, std::vector<uint32_t> padding, std::vector<uint32_t> dilation,
             uint32_t groups) {
            return convolution(g.value(x), g.value(weight), value_or_none(g, bias),
                               {std::move(kernel), std::move(stride), std::move(padding), std::move(dilation),
                                groups})
                .id;
          },
          "x"_a, "weight"_a, "bias"_a.none(), "kernel"_a, "stride"_a, "padding"_a, "dilation"_a, "groups"_a)
      .def(
          "transposed_convolution",
          [](Graph& g, ValueId x, ValueId weight, std::optional<ValueId> bias, std::vector<uint32_t> kernel,
             std::vector<uint32_t> stride, std::vector<uint32_t> padding, std::vector<uint32_t> dilation,
             uint32_t groups, const std::vector<uint32_t>& output_padding) {
            return transposed_convolution(g.value(x), g.value(weight), value_or_none(g, bias),
                                          {std::move(kernel), std::move(stride), std::move(padding),
                                           std::move(dilation), groups},
                                          output_padding)
                .id;
          },
          "x"_a, "weight"_a, "bias"_a.none(), "kernel"_a, "stride"_a, "padding"_a, "dilation"_a, "groups"_a,
          "output_padding"_a)
      .def(
          "patches",
          [](Graph& g, ValueId x, std::vector<uint32_t> kernel, std::vector<uint32_t> stride,
             std::vector<uint32_t> padding, std::vector<uint32_t> dilation) {
            return patches(g.value(x),
                           {std::move(kernel), std::move(stride), std::move(padding), std::move(dilation)})
                .id;
          },
          "x"_a, "kernel"_a, "stride"_a, "padding"_a, "dilation"_a)
      .def(
          "fold",
          [](Graph& g, ValueId x, std::vector<uint32_t> kernel, std::vector<uint32_t> stride,
             std::vector<uint32_t> padding, std::vector<uint32_t> dilation, const Shape& sizes) {
            return fold(g.value(x),
                        {std::move(kernel), std::move(stride), std::move(padding), std::move(dilation)},
                        sizes)
                .id;
          },
          "x"_a, "kernel"_a, "stride"_a, "padding"_a, "dilation"_a, "sizes"_a)
      .def(
          "pad",
          [](Graph& g, ValueId x, uint32_t dim, uint32_t before, uint32_t after, double value) {
            return pad(g.value(x), dim, before, after, value).id;
          },
          "x"_a, "dim"_a, "before"_a, "after"_a, "value"_a)
      .def(
          "dropout",
          [](Graph& g, ValueId x, double p, ValueId step, uint64_t seed) {
            return graph::dropout(g.value(x), p, g.value(step), seed).id;
          },
          "x"_a, "p"_a, "step"_a, "seed"_a)
      .def(
          "stochastic_cast",
          [](Graph& g, ValueId x, const std::string& dtype, ValueId step, uint64_t seed) {
            return graph::stochastic_cast(g.value(x), type_named(dtype), g.value(step), seed).id;
          },
          "x"_a, "dtype"_a, "step"_a, "seed"_a)
      .def(
          "output", [](Graph& g, const std::string& name, ValueId id) { g.output(name, g.value(id)); },
          "name"_a, "value"_a)
      .def("remove_output", &Graph::remove_output, "name"_a)
      .def("drop_initial_values", &Graph::drop_initial_values)
      .def("replicate", &Graph::replicate, "count"_a)
      .def(
          "offload", [](Graph& g, ValueId value) { g.offload(g.value(value)); }, "value"_a)
      .def(
          "shard", [](Graph& g, ValueId parameter) { g.shard(g.value(parameter)); }, "parameter"_a)
      .def("set_prefetch", &Graph::set_prefetch, "prefetch"_a);
}

void bind_structured(nb::class_<Graph>& graph) {
  graph
      .def(
          "butterfly",
          [](Graph& g, ValueId x, ValueId twiddle, uint32_t outputs, uint32_t nblocks, bool tied,
             bool complex, bool decreasing, const std::string& form) {
            const Butterfly of{.inputs = g.type(x).cols() / (complex ? 2 : 1),
                               .outputs = outputs,
                               .nblocks = nblocks,
                               .tied = tied,
                               .complex = complex,
                               .decreasing = decreasing};
            return butterfly(g.value(x), g.value(twiddle), of, graph::form_named(form)).id;
          },
          "x"_a, "twiddle"_a, "outputs"_a, "nblocks"_a, "tied"_a, "complex"_a, "decreasing"_a, "form"_a)
      .def(
          "fastfood",
          [](Graph& g, ValueId x, const Ids& diagonals, std::vector<uint32_t> permutation, uint32_t outputs,
             const std::string& form) {
            return fastfood(g.value(x), g.value(diagonals.at(0)), g.value(diagonals.at(1)),
                            g.value(diagonals.at(2)), {g.type(x).cols(), outputs, std::move(permutation)},
                            graph::form_named(form))
                .id;
          },
          "x"_a, "diagonals"_a, "permutation"_a, "outputs"_a, "form"_a)
      .def(
          "linear_layer",
          [](Graph& g, const std::string& name, ValueId x, uint32_t outputs, const std::string& structure,
             uint32_t rank, uint32_t block_size, uint32_t butterfly_size, bool scaled, uint64_t seed,
             const std::string& form) {
            const graph::LayerOptions options{graph::layer_structure_named(structure),
                                              rank,
                                              block_size,
                                              butterfly_size,
                                              scaled,
                                              seed,
                                              graph::form_named(form)};
            return linear_layer(g, name, g.value(x), outputs, options).y.id;
          },
          "name"_a, "x"_a, "outputs"_a, "structure"_a, "rank"_a, "block_size"_a, "butterfly_size"_a,
          "scaled"_a, "seed"_a, "form"_a);
}

/// Spiking layers, whose inputs "in.ids" and "in.num" it adds. Returns ids, num and dropped of each layer
/// with spikes, and the potentials of a last one without.
std::pair<std::vector<Ids>, std::optional<ValueId>> add_spiking(
    Graph& g, uint32_t steps, uint32_t batch, uint32_t capacity, const std::vector<SpikingLayer>& layers,
    const Ids& parameters, std::vector<uint32_t> capacities, bool learns_dynamics, ValueId gradient_threshold,
    ValueId step, uint64_t seed, std::pair<double, double> activity, std::vector<uint32_t> neurons_per_tile) {
  const graph::SpikingResults results =
      spiking(spike_input(g, "in", steps, batch, capacity), layers, values_of(g, parameters),
              {.capacities = std::move(capacities),
               .learns_dynamics = learns_dynamics,
               .gradient_threshold = g.value(gradient_threshold),
               .step = g.value(step),
               .seed = seed,
               .expected_input_activity = activity.first,
               .expected_activity = activity.second,
               .neurons_per_tile = std::move(neurons_per_tile)});
  std::vector<Ids> lists;
  for (size_t i = 0; i < results.spikes.size(); ++i)
    lists.push_back({results.spikes[i].ids.id, results.spikes[i].num.id, results.dropped[i].id});
  return {lists, results.potentials ? std::optional(results.potentials->id) : std::nullopt};
}

void bind_spiking_layers(nb::class_<Graph>& graph) {
  graph
      .def("spiking", &add_spiking, "steps"_a, "batch"_a, "capacity"_a, "layers"_a, "parameters"_a,
           "capacities"_a, "learns_dynamics"_a, "gradient_threshold"_a, "step"_a, "seed"_a, "activity"_a,
           "neurons_per_tile"_a)
      .def(
          "spike_counts",
          [](Graph& g, ValueId ids, ValueId num, uint32_t batch, uint32_t neurons) {
            return graph::spike_counts({g.value(ids), g.value(num), batch}, neurons).id;
          },
          "ids"_a, "num"_a, "batch"_a, "neurons"_a)
      .def(
          "readout",
          [](Graph& g, ValueId potentials, uint32_t batch, uint32_t of) {
            return readout(g.value(potentials), batch, static_cast<graph::Readout>(of)).id;
          },
          "potentials"_a, "batch"_a, "of"_a);
}

void bind_questions(nb::class_<Graph>& graph) {
  graph.def_prop_ro("size", [](const Graph& g) { return g.values().size(); })
      .def(
          "find", [](Graph& g, const std::string& name) { return g.find(name).id; }, "name"_a)
      .def(
          "contains", [](const Graph& g, const std::string& name) { return g.contains(name); }, "name"_a)
      .def("kind", &kind_of, "value"_a)
      .def(
          "name", [](const Graph& g, ValueId id) { return g.info(id).name; }, "value"_a)
      .def(
          "rename", [](Graph& g, ValueId id, const std::string& name) { g.rename(g.value(id), name); },
          "value"_a, "name"_a)
      .def(
          "shape", [](const Graph& g, ValueId id) { return g.type(id).shape; }, "value"_a)
      .def(
          "bound_shape", [](const Graph& g, ValueId id) { return g.bound_type(id).shape; }, "value"_a)
      .def(
          "dtype", [](const Graph& g, ValueId id) { return std::string(tessera::name_of(g.type(id).type)); },
          "value"_a)
      .def(
          "describe", [](const Graph& g, ValueId id) { return to_string(g.type(id)); }, "value"_a)
      .def("pattern", &pattern_of, "value"_a)
      .def(
          "block_size",
          [](const Graph& g, ValueId id) { return g.type(id).pattern ? g.type(id).pattern->block_size : 0; },
          "value"_a)
      .def(
          "capacity", [](const Graph& g, ValueId id) { return g.type(id).capacity; }, "value"_a)
      .def("outputs", [](const Graph& g) { return g.outputs(); })
      .def("__str__", [](const Graph& g) { return to_string(g); });
}

}  // namespace

void bind_graph(nb::module_& m) {
  nb::class_<Initial>(m, "Initial", "Initial contents of a parameter.")
      .def_static("constant", &Initial::constant, "value"_a)
      .def_static("normal", &Initial::normal, "deviation"_a)
      .def_static("uniform", &Initial::uniform, "bound"_a)
      .def_static("values", &initial_from, "values"_a);
  nb::class_<Graph> graph(m, "Graph", "A network: operations on values, which are numbered.");
  graph.def(nb::init<>()).def("copy", [](const Graph& g) { return Graph(g); });
  bind_values(graph);
  bind_bert(m, graph);
  bind_resnet(m, graph);
  bind_vision(graph);
  bind_structured(graph);
  bind_spiking_layers(graph);
  bind_questions(graph);
  bind_training(m, graph);
}

}  // namespace tessera::python
