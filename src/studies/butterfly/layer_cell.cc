#include "studies/butterfly/layer_cell.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "check/verification.h"
#include "lower/session_impl.h"
#include "sparse/pattern.h"
#include "studies/paper/measure_session.h"
#include "studies/paper/product_cell.h"
#include "studies/paper/program_size.h"

namespace tessera::studies::butterfly {
namespace {

using graph::Graph;
using graph::LayerStructure;
using graph::Value;

constexpr uint64_t kLayerCellSeed = 1;
// Executing this many elements of activations on tiles takes about a second, in float64 too.
constexpr uint64_t kMostExecuted = 256 * 256;

Graph graph_of(const LayerCase& what) {
  Graph graph;
  const Value x = graph.input("x", {what.batch, what.inputs});
  const graph::Layer layer = linear_layer(graph, "hidden", x, what.outputs, what.options);
  if (what.classes == 0) {
    graph.output("y", layer.y);
    return graph;
  }
  const Value hidden = relu(layer.y + graph.parameter("hidden.bias", {what.outputs}));
  const Value weight = graph.parameter("output.weight", {what.classes, what.outputs},
                                       graph::Initial::normal(1 / std::sqrt(what.outputs)));
  const Value logits = linear(hidden, weight, graph.parameter("output.bias", {what.classes}));
  const Value loss = cross_entropy(logits, graph.input("labels", {what.batch}, Type::u32));
  graph.output("loss", loss);
  add_training(loss, {.optimizer = graph::Sgd{.momentum = 0.9}});
  return graph;
}

uint64_t stored_elements(const graph::TensorType& type) {
  return type.pattern ? sparse::stored_elements(*type.pattern) : type.elements();
}

uint64_t parameters_of(const Graph& graph) {
  uint64_t count = 0;
  for (const graph::ValueInfo& info : graph.values())
    if (info.kind == graph::Kind::parameter) count += stored_elements(info.type);
  return count;
}

uint64_t input_bytes(const Graph& graph) {
  uint64_t bytes = 0;
  for (const graph::ValueInfo& info : graph.values())
    if (info.kind == graph::Kind::input) bytes += info.type.bytes();
  return bytes;
}

uint64_t output_bytes(const Graph& graph) {
  uint64_t bytes = 0;
  for (const auto& [name, id] : graph.outputs()) bytes += graph.type(id).bytes();
  return bytes;
}

graph::Arrays layer_cell_inputs_of(const Graph& graph, uint32_t classes) {
  graph::Arrays arrays;
  for (const graph::ValueInfo& info : graph.values()) {
    if (info.kind != graph::Kind::input) continue;
    std::vector<float>& values = arrays[info.name];
    values.resize(info.type.elements());
    if (info.name == "lr") {
      values = {1e-3F};
    } else if (info.type.type == Type::u32) {
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % classes);
    } else {
      base::RandomStream(kLayerCellSeed).fill_normal(values);
    }
  }
  return arrays;
}

/// Compares the layer's output, or the loss, with the merged form in float64.
void verify_layer_cell(const LayerCase& what, const graph::Arrays& found, Result& result) {
  LayerCase merged = what;
  merged.options.form = graph::Form::fused;
  const Graph graph = graph_of(merged);
  graph::WideArrays inputs, state;
  for (const auto& [name, values] : layer_cell_inputs_of(graph, what.classes))
    inputs[name] = {values.begin(), values.end()};
  for (const auto& [name, values] : initial_state(graph)) state[name] = {values.begin(), values.end()};
  double most = 0, error = 0;
  for (const auto& [name, expected] : evaluate(graph, inputs, state))
    for (size_t i = 0; i < expected.size(); ++i) {
      most = std::max(most, std::abs(expected[i]));
      error = check::worse(error, std::abs(double{found.at(name)[i]} - expected[i]));
    }
  constexpr double kTolerance = 1e-5;
  result.max_rel_error = error / most;
  result.tolerance = kTolerance;
  result.verified = *result.max_rel_error <= kTolerance;
}

void account(const LayerCase& what, const Graph& graph, const Setting& setting, Result& result) {
  const graph::Session::Impl impl(graph, setting.machine, {}, {}, bound::Runs::none);
  enter_size(impl.executable(), result);
  result.fits = impl.executable().memory.fits();
  if (!result.fits) {
    result.reason = "it exceeds tile memory";
    return;
  }
  const double seconds = impl.cost({}).seconds;
  result.values["seconds"] = seconds;
  result.values["cycles"] = seconds * setting.machine.clock_hz;
  enter_transfers(setting.machine, input_bytes(graph), output_bytes(graph), result);
  if (!setting.verify || uint64_t{what.batch} * what.outputs > kMostExecuted) return;
  graph::Session session(graph, Machine(setting.machine));
  verify_layer_cell(what, session.run(layer_cell_inputs_of(graph, what.classes)), result);
}

}  // namespace

LayerCase published_step(const graph::LayerOptions& options) {
  return {.options = options,
          .inputs = kPublishedFeatures,
          .outputs = kPublishedFeatures,
          .batch = 50,
          .classes = 10};
}

std::string name_of(const LayerCase& what, const machine::Machine& machine) {
  const LayerStructure s = what.options.structure;
  const bool alike =
      s == LayerStructure::dense || s == LayerStructure::low_rank || s == LayerStructure::circulant;
  if (alike || machine.kind == machine::Kind::host) return std::string(name_of(s));
  return fmt::format("{}, {}", name_of(s), name_of(what.options.form));
}

Result run_layer(const LayerCase& what, const Setting& setting) {
  const Graph graph = graph_of(what);
  Result result;
  result.values["parameters"] = static_cast<double>(parameters_of(graph));
  if (setting.on_host()) {
    graph::Session session(graph, Machine(setting.machine));
    if (setting.verify && uint64_t{what.batch} * what.outputs <= kMostExecuted)
      verify_layer_cell(what, session.run(layer_cell_inputs_of(graph, what.classes)), result);
    result.values["seconds"] = median_seconds(session, layer_cell_inputs_of(graph, what.classes));
    return result;
  }
  try {
    account(what, graph, setting, result);
  } catch (const UsageError&) {
    throw;
  } catch (const Error& error) {  // of a planner
    result.fits = false;
    result.reason = error.what();
    result.reason.resize(std::min(result.reason.find('\n'), result.reason.size()));
  }
  return result;
}

}  // namespace tessera::studies::butterfly
