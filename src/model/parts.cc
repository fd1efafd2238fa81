#include "model/parts.h"

#include <algorithm>

#include "model/session_impl.h"
#include "model/transforms/samples.h"

namespace tessera::model {
namespace {

// Kernels reach their rate with about as many columns.
constexpr uint32_t kFewestRows = 96;
// Starting threads, and binding arrays, for each part.
constexpr double kSecondsOfPart = 4e-6;
// Of the time of all samples at once.
constexpr double kLeastGain = 0.03;

uint32_t most_rows(const Graph& graph) {
  uint32_t most = 0;
  for (const Node& node : graph.nodes())
    for (ValueId output : node.outputs) most = std::max(most, graph.type(output).rows());
  return most;
}

std::optional<Parts> divide(const Graph& graph, uint32_t count) {
  std::optional<Graph> divided = for_samples(graph, count);
  if (!divided) return {};
  Parts parts{std::move(*divided), count, {}};
  const auto note = [&](const std::string& name, ValueId own, ValueId whole) {
    if (!(parts.graph.type(own) == graph.type(whole))) parts.whole.emplace(name, graph.type(whole));
  };
  const std::vector<ValueId> own = parts.graph.inputs(), whole = graph.inputs();
  for (size_t i = 0; i < own.size(); ++i) note(graph.info(whole[i]).name, own[i], whole[i]);
  for (const auto& [name, id] : parts.graph.outputs()) note(name, id, graph.outputs().at(name));
  return parts;
}

/// The smallest parts that have rows enough.
std::optional<Parts> smallest(const Graph& graph) {
  const uint32_t samples = samples_of(graph);
  const uint64_t rows = most_rows(graph);
  for (uint32_t part = 1; part <= samples / 2; ++part)
    if (samples % part == 0 && rows * part / samples >= kFewestRows) return divide(graph, samples / part);
  return {};
}

double predicted(const Graph& graph, const machine::Machine& machine, const SessionOptions& options,
                 const Graph* owner) {
  return Session::Impl(graph, machine, options, owner, CompileFor::costs).cost({}).seconds;
}

}  // namespace

std::optional<Parts> choose_parts(const Graph& graph, const machine::Machine& machine,
                                  const SessionOptions& options, const Graph* owner) {
  if (options.parts == 1) return {};
  if (options.parts > 1) {
    std::optional<Parts> parts;
    if (machine.kind == machine::Kind::host) parts = divide(graph, options.parts);
    if (!parts)
      throw UsageError(fmt::format(
          "{} samples cannot be run in {} parts on {}: parts must be equal, on a host, and no sample "
          "may depend on another; use another number, or 0",
          samples_of(graph), options.parts, machine.name));
    return parts;
  }
  if (machine.kind != machine::Kind::host) return {};
  std::optional<Parts> parts = smallest(graph);
  if (!parts) return {};
  const double part = predicted(parts->graph, one_thread_of(machine), options, owner) + kSecondsOfPart;
  const double whole = predicted(graph, machine, options, owner);
  return parts->rounds(threads_of(machine, options)) * part < (1 - kLeastGain) * whole ? std::move(parts)
                                                                                       : std::nullopt;
}

uint32_t threads_of(const machine::Machine& machine, const SessionOptions& options) {
  return options.threads == 0 ? machine.tiles : std::min(options.threads, machine.tiles);
}

machine::Machine one_thread_of(machine::Machine host) {
  host.tiles = 1;
  return host;
}

}  // namespace tessera::model
