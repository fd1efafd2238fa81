// Sessions: networks lowered for a machine, with their parameters; and what a run costs.
#include <fmt/format.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>
#include <tessera/communicator.h>
#include <tessera/error.h>
#include <tessera/estimate.h>
#include <tessera/graph.h>
#include <tessera/graph_file.h>
#include <tessera/inspect.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "arrays.h"
#include "base/clock.h"
#include "bindings.h"
#include "machine.h"
#include "report/network_report.h"
#include "tensors.h"

namespace tessera::python {
namespace {

using namespace nb::literals;
using graph::Graph;
using graph::RunCost;
using graph::Session;
using graph::TensorType;
using graph::ValueId;
using Released = nb::call_guard<nb::gil_scoped_release>;

struct BoundSession {
  BoundSession(const Graph& graph, const ChosenMachine& machine, uint32_t threads, uint64_t seed,
               uint32_t on_chips, uint32_t parts, bool host_io, const std::string& executable,
               std::shared_ptr<Communicator> communicator)
      : session(graph, machine.machine,
                {.seed = seed,
                 .threads = threads,
                 .on_chips = on_chips,
                 .parts = parts,
                 .host_io = host_io,
                 .executable = executable,
                 .communicator = std::move(communicator)}),
        is_host(machine.machine.is_host()) {}
  BoundSession(const Graph& graph, const BoundSession& owner, const std::string& executable)
      : session(graph, owner.session, executable), is_host(owner.is_host) {}

  Session session;
  bool is_host;
};

// A run holds its session's lock while it waits for Python to exchange messages with other ranks: a thread
// that waits for the lock releases the GIL.

std::vector<graph::ArrayType> types_of_arrays(const BoundSession& s) {
  const nb::gil_scoped_release released;
  return s.session.arrays();
}

Pattern native_pattern_of(const BoundSession& s, const std::string& name) {
  const nb::gil_scoped_release released;
  return s.session.pattern(name);
}

/// Throws UsageError if a graph has no input of that name.
TensorType type_of_input(const Graph& graph, const std::string& name) {
  for (const ValueId id : graph.inputs())
    if (graph.info(id).name == name) return graph.bound_type(id);
  throw UsageError(fmt::format("the graph has no input '{}'", name));
}

RunCost estimate(const Graph& graph, const ChosenMachine& machine, uint32_t on_chips, bool host_io,
                 const nb::typed<nb::dict, nb::str, nb::any>& inputs) {
  std::vector<TensorInput> arrays;
  std::vector<graph::Tensor> tensors;
  arrays.reserve(inputs.size());
  for (const auto& [key, array] : inputs) {
    const auto name = nb::cast<std::string>(key);
    const TensorType type = type_of_input(graph, name);
    arrays.emplace_back(array, name, type);
    tensors.push_back({name, arrays.back().data(), type.elements()});
  }
  const nb::gil_scoped_release released;
  return graph::estimate(graph, machine.machine,
                         {.on_chips = on_chips, .inputs = tensors, .host_io = host_io});
}

/// What a run binds.
class BoundArrays {
 public:
  BoundArrays(const BoundSession& s, const AnyList& arrays) {
    const std::vector<graph::ArrayType> all = types_of_arrays(s);
    const auto inputs = static_cast<size_t>(std::ranges::count(all, true, &graph::ArrayType::is_input));
    if (arrays.size() != inputs)
      throw UsageError(fmt::format("{} arrays for {} inputs", arrays.size(), inputs));
    inputs_.reserve(inputs);
    outputs_.reserve(all.size() - inputs);
    for (const auto& [name, type, is_input] : all) {
      if (is_input)
        inputs_.emplace_back(arrays[inputs_.size()], name, type);
      else
        outputs_.emplace_back(type);
      tensors_.push_back({name, is_input ? inputs_.back().data() : outputs_.back().data(), type.elements()});
    }
  }

  std::span<const graph::Tensor> tensors() const { return tensors_; }
  AnyList results() && {
    AnyList results;
    for (TensorOutput& output : outputs_) results.append(std::move(output).array());
    return results;
  }

 private:
  std::vector<TensorInput> inputs_;
  std::vector<TensorOutput> outputs_;
  std::vector<graph::Tensor> tensors_;
};

/// Seconds, of a tiled machine the model's, and the outputs in their order.
std::pair<double, AnyList> run(BoundSession& s, const AnyList& arrays) {
  BoundArrays bound(s, arrays);
  double seconds = 0;
  {
    const nb::gil_scoped_release released;
    seconds = base::seconds_of([&] { s.session.run(bound.tensors()); });
    if (!s.is_host) seconds = s.session.last_seconds();
  }
  return {seconds, std::move(bound).results()};
}

/// The number of an input whose array has integers of 64 bits instead of 32, and the least and the largest
/// that it may have.
using WideInput = std::tuple<size_t, int32_t, int32_t>;

/// With arrays of the types and shapes of inputs and outputs, in their order, which the caller has checked.
void run_at(BoundSession& s, const std::vector<uintptr_t>& addresses, const std::vector<WideInput>& wide) {
  std::vector<void*> arrays = pointers<void>(addresses);
  std::vector<std::vector<int32_t>> copies;
  if (!wide.empty()) {
    const std::vector<graph::ArrayType> types = types_of_arrays(s);
    for (const auto& [i, least, most] : wide) {
      const auto* integers = static_cast<const int64_t*>(arrays[i]);
      copies.push_back(narrowed({integers, types[i].type.elements()}, types[i].name, least, most));
      arrays[i] = copies.back().data();
    }
  }
  const nb::gil_scoped_release released;
  s.session.run_in_order(arrays);
}

RunCost measure(BoundSession& s, const AnyList& arrays) {
  const BoundArrays bound(s, arrays);
  const nb::gil_scoped_release released;
  return s.session.measure(bound.tensors());
}

std::vector<std::string> names_of(const BoundSession& s, bool inputs) {
  std::vector<std::string> names;
  for (const graph::ArrayType& each : types_of_arrays(s))
    if (each.is_input == inputs) names.push_back(each.name);
  return names;
}

std::vector<std::string> names_of(const BoundSession& s, graph::Kind kind) {
  std::vector<std::string> names;
  for (const graph::ValueInfo& info : s.session.graph().values())
    if (info.kind == kind) names.push_back(info.name);
  return names;
}

void set(BoundSession& s, const std::string& name, nb::handle values) {
  const std::span<const float> array = floats_of(values, name.c_str());
  const nb::gil_scoped_release released;
  s.session.set(name, array);
}

Numbers<float> get(const BoundSession& s, const std::string& name) {
  std::vector<float> values;
  {
    const nb::gil_scoped_release released;
    values = s.session.get(name);
  }
  return array_from(std::move(values));
}

std::pair<Numbers<uint64_t>, Numbers<uint32_t>> pattern_in(const BoundSession& s, const std::string& name) {
  Pattern pattern = native_pattern_of(s, name);
  return {array_from(std::move(pattern.crow_indices)), array_from(std::move(pattern.col_indices))};
}

void set_pattern(BoundSession& s, const std::string& name, nb::handle crow_indices, nb::handle col_indices) {
  Pattern pattern = native_pattern_of(s, name);
  pattern.crow_indices = integers_of<uint64_t>(crow_indices, "crow_indices");
  pattern.col_indices = integers_of<uint32_t>(col_indices, "col_indices");
  const nb::gil_scoped_release released;
  s.session.set_pattern(name, pattern);
}

/// Values by name, after patterns by name as pairs of crow_indices and col_indices.
void set_state(BoundSession& s, const nb::typed<nb::dict, nb::str, nb::any>& state,
               const nb::typed<nb::dict, nb::str, nb::any>& patterns) {
  graph::Arrays arrays;
  for (const auto& [key, values] : state) {
    const auto name = nb::cast<std::string>(key);
    const std::span<const float> array = floats_of(values, name.c_str());
    arrays[name].assign(array.begin(), array.end());
  }
  std::map<std::string, Pattern> changed;
  for (const auto& [key, arrays_of] : patterns) {
    Pattern& pattern = changed[nb::cast<std::string>(key)];
    pattern = native_pattern_of(s, nb::cast<std::string>(key));
    pattern.crow_indices = integers_of<uint64_t>(nb::object(arrays_of[0]), "crow_indices");
    pattern.col_indices = integers_of<uint32_t>(nb::object(arrays_of[1]), "col_indices");
  }
  const nb::gil_scoped_release released;
  s.session.set_state(arrays, changed);
}

/// Graphs with the parameters that their sessions have now.
void save_graphs(const std::string& path, const std::vector<const Graph*>& graphs,
                 const std::map<std::string, std::string>& texts,
                 const std::vector<const BoundSession*>& sessions) {
  graph::GraphFile file{.graphs = {}, .texts = texts};
  for (const Graph* graph : graphs) file.graphs.push_back(*graph);
  graph::Arrays values;
  for (const BoundSession* s : sessions) values.merge(s->session.state());
  graph::save_graphs(path, file, values);
}

std::pair<std::vector<Graph>, std::map<std::string, std::string>> load_graphs(const std::string& path) {
  graph::GraphFile file = graph::load_graphs(path);
  return {std::move(file.graphs), std::move(file.texts)};
}

Rows<uint64_t> memory_of_run(const RunCost& cost) {
  const std::vector<std::string> columns = memory_columns();
  std::vector<uint64_t> bytes;
  for (const auto& tile : cost.tiles)
    for (const std::string& column : columns) {
      const auto found = tile.find(column);
      bytes.push_back(found == tile.end() ? 0 : found->second);
    }
  return rows_from(std::move(bytes), columns.size());
}

/// Name, outputs, inputs, rows of its input, density, whether it is sparse, why it is not, seconds dense and
/// sparse (NaN: not known), block size, bytes of a copy.
using Layer = std::tuple<std::string, uint32_t, uint32_t, uint32_t, double, bool, std::string, double, double,
                         uint32_t, uint64_t>;

report::LayerRow layer_row_of(const Layer& layer) {
  report::LayerRow row;
  Zeros& zeros = row.zeros;
  std::tie(row.name, zeros.rows, zeros.cols, row.rows, zeros.density, row.is_sparse, row.why_dense,
           zeros.dense_seconds, zeros.sparse_seconds, zeros.best_block_size, row.copy_bytes) = layer;
  zeros.reason = std::isnan(zeros.dense_seconds) ? NoGain::not_a_product : NoGain::none;
  return row;
}

std::string page_of(const RunCost& cost, const Graph& graph, const std::string& title,
                    const std::string& machine, const std::vector<Layer>& layers) {
  std::vector<report::LayerRow> rows;
  rows.reserve(layers.size());
  for (const Layer& layer : layers) rows.push_back(layer_row_of(layer));
  return report::network_page(graph, cost, title, machine, rows);
}

void bind_cost(nb::module_& m) {
  nb::class_<graph::OperationCost>(m, "OperationCost", "The cost of an operation in one run.")
      .def_ro("operation", &graph::OperationCost::operation)
      .def_ro("value", &graph::OperationCost::value)
      .def_ro("seconds", &graph::OperationCost::seconds)
      .def_ro("conversion_seconds", &graph::OperationCost::conversion_seconds)
      .def_ro("cycles", &graph::OperationCost::cycles);
  nb::class_<RunCost>(m, "RunCost", "The cost of a run.")
      .def_ro("seconds", &RunCost::seconds)
      .def_ro("cycles", &RunCost::cycles)
      .def_prop_ro("host_io",
                   [](const RunCost& c) {
                     using Transfers = std::tuple<uint64_t, uint64_t, double>;
                     return c.host_io ? std::optional(Transfers(c.host_io->bytes_in, c.host_io->bytes_out,
                                                                c.host_io->seconds))
                                      : std::nullopt;
                   })
      .def_ro("balance", &RunCost::balance)
      .def_ro("operations", &RunCost::operations)
      .def_ro("in_functions", &RunCost::in_functions)
      .def_prop_ro(
          "seconds_by_kind",
          [](const RunCost& c) {
            nb::dict seconds;
            for (const graph::KindCost& each : graph::seconds_by_kind(c))
              seconds[each.kind.c_str()] = each.seconds;
            return seconds;
          },
          nb::sig("def seconds_by_kind(self) -> dict[str, float]"))
      .def_prop_ro("conversions",
                   [](const RunCost& c) {
                     std::vector<std::tuple<std::string, uint64_t, double>> conversions;
                     for (const graph::ConversionCost& each : c.conversions)
                       conversions.emplace_back(each.value, each.bytes, each.seconds);
                     return conversions;
                   })
      .def_ro("bytes", &RunCost::bytes)
      .def_ro("total_bytes", &RunCost::total_bytes)
      .def_ro("fullest_tile_bytes", &RunCost::fullest_tile_bytes)
      .def_ro("tile_bytes", &RunCost::tile_bytes)
      .def_ro("streaming_bytes", &RunCost::streaming_bytes)
      .def_ro("sent_bytes", &RunCost::sent_bytes)
      .def_ro("overflow", &RunCost::overflow)
      .def_prop_ro("chips",
                   [](const RunCost& c) {
                     std::vector<std::tuple<uint32_t, std::map<std::string, double>, uint64_t>> chips;
                     for (const graph::ChipCost& each : c.chips)
                       chips.emplace_back(each.chip, each.cycles, each.bytes);
                     return chips;
                   })
      .def_prop_ro("links",
                   [](const RunCost& c) {
                     std::vector<std::tuple<uint32_t, uint32_t, uint64_t, double>> links;
                     for (const graph::LinkCost& each : c.links)
                       links.emplace_back(each.from, each.to, each.bytes, each.seconds);
                     return links;
                   })
      .def_prop_ro("lanes",
                   [](const RunCost& c) {
                     using Span = std::tuple<std::string, uint32_t, uint32_t, double, double>;
                     std::vector<std::pair<uint32_t, std::vector<Span>>> lanes;
                     for (const graph::ChipLane& lane : c.lanes) {
                       std::vector<Span>& spans = lanes.emplace_back(lane.chip, std::vector<Span>()).second;
                       for (const auto& [kind, stage, micro_batch, begin, end] : lane.spans)
                         spans.emplace_back(name_of(kind), stage, micro_batch, begin, end);
                     }
                     return lanes;
                   })
      .def_prop_ro("under_way",
                   [](const RunCost& c) {
                     std::vector<std::pair<double, double>> spans;
                     for (const graph::ChipSpan& span : c.under_way) spans.emplace_back(span.begin, span.end);
                     return spans;
                   })
      .def_prop_ro("actions", [](const RunCost& c) { return c.actions; })
      .def_prop_ro("placements",
                   [](const RunCost& c) {
                     std::vector<std::tuple<std::string, double, std::string, bool>> placements;
                     for (const graph::PlacementCost& each : c.placements)
                       placements.emplace_back(each.placement, each.seconds, each.overflow, each.chosen);
                     return placements;
                   })
      .def_prop_ro("passes",
                   [](const RunCost& c) {
                     std::vector<std::tuple<std::string, std::string, double>> passes;
                     for (const PassRecord& each : c.passes)
                       passes.emplace_back(each.name, each.did, each.seconds);
                     return passes;
                   })
      .def_prop_ro("purposes", [](const RunCost&) { return memory_columns(); })
      .def_prop_ro("memory", &memory_of_run, kOwned)
      .def("page", &page_of, "graph"_a, "title"_a, "machine"_a, "layers"_a, Released());
}

}  // namespace

void bind_session(nb::module_& m) {
  bind_cost(m);
  m.def("estimate", &estimate, "graph"_a, "machine"_a, "on_chips"_a, "host_io"_a, "inputs"_a,
        "The cost of a graph, without a session.");
  m.def(
      "is_bound_in_place",
      [](nb::object array, const std::string& dtype, const graph::Shape& shape) {
        return !TensorInput(array, "the array", {type_named(dtype), shape, {}, {}}).is_copy();
      },
      "array"_a, "dtype"_a, "shape"_a, "Whether a session uses an array as it is.");
  m.def("save_graphs", &save_graphs, "path"_a, "graphs"_a, "texts"_a, "sessions"_a, Released());
  m.def("load_graphs", &load_graphs, "path"_a, Released());
  nb::class_<BoundSession>(m, "Session", "A network lowered for a machine, with its parameters.")
      .def(nb::init<const Graph&, const ChosenMachine&, uint32_t, uint64_t, uint32_t, uint32_t, bool,
                    const std::string&, std::shared_ptr<Communicator>>(),
           "graph"_a, "machine"_a, "threads"_a, "seed"_a, "on_chips"_a, "parts"_a, "host_io"_a,
           "executable"_a, "communicator"_a.none(), Released())
      .def(nb::init<const Graph&, const BoundSession&, const std::string&>(), "graph"_a, "owner"_a,
           "executable"_a, Released())
      .def("run", &run, "arrays"_a)
      .def("run_at", &run_at, "addresses"_a, "wide"_a = std::vector<WideInput>())
      .def("measure", &measure, "arrays"_a)
      .def_prop_ro("inputs", [](const BoundSession& s) { return names_of(s, true); })
      .def_prop_ro("outputs", [](const BoundSession& s) { return names_of(s, false); })
      .def_prop_ro("parameters", [](const BoundSession& s) { return names_of(s, graph::Kind::parameter); })
      .def_prop_ro("state", [](const BoundSession& s) { return names_of(s, graph::Kind::state); })
      .def_prop_ro("fits", [](const BoundSession& s) { return s.session.fits(); })
      .def_prop_ro(
          "sent_bytes", [](const BoundSession& s) { return s.session.sent_bytes(); }, Released())
      .def(
          "cost", [](const BoundSession& s) { return s.session.cost(); }, Released())
      .def("program", [](const BoundSession& s) { return s.session.program(); })
      .def("set", &set, "name"_a, "values"_a)
      .def("get", &get, "name"_a)
      .def("pattern", &pattern_in, "name"_a)
      .def("set_pattern", &set_pattern, "name"_a, "crow_indices"_a, "col_indices"_a)
      .def("set_state", &set_state, "state"_a, "patterns"_a)
      .def(
          "load_parameters",
          [](BoundSession& s, const std::string& path) { s.session.load_parameters(path); }, "path"_a,
          Released())
      .def(
          "save_parameters",
          [](const BoundSession& s, const std::string& path) { s.session.save_parameters(path); }, "path"_a,
          Released())
      .def(
          "save", [](const BoundSession& s, const std::string& path) { s.session.save(path); }, "path"_a,
          Released())
      .def(
          "load", [](BoundSession& s, const std::string& path) { s.session.load(path); }, "path"_a,
          Released())
      .def(
          "save_executable",
          [](const BoundSession& s, const std::string& path) { s.session.save_executable(path); }, "path"_a,
          Released());
}

}  // namespace tessera::python
