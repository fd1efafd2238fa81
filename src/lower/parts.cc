#include "lower/parts.h"

#include <algorithm>

#include "graph/transforms/samples.h"
#include "lower/session_impl.h"

namespace tessera::graph {
namespace {

// Kernels reach their rate with about as many columns.
constexpr uint32_t kFewestRows = 96;
// Starting threads, and binding arrays, for each part.
constexpr double kSecondsOfPart = 4e-6;
// Least gain, as a fraction of the time of all samples at once.
constexpr double kLeastGain = 0.03;

uint32_t most_rows(const Graph& graph) {
  uint32_t most = 0;
  for (const Node& node : graph.nodes())
    for (ValueId output : node.outputs) most = std::max(most, graph.type(output).rows());
  return most;
}

/// The smallest parts that have enough rows.
std::optional<Parts> smallest(const Graph& graph) {
  const uint32_t samples = samples_of(graph);
  const uint64_t rows = most_rows(graph);
  for (uint32_t part = 1; part <= samples / 2; ++part)
    if (samples % part == 0 && rows * part / samples >= kFewestRows) return divide(graph, samples / part);
  return {};
}

/// Predicts as if each tile had a thread: the bits of results depend on the choice, but not on threads.
class Predictions {
 public:
  Predictions(const machine::Machine& machine, const SessionOptions& options, const Graph* owner)
      : machine_(machine), options_(undivided(options)), owner_(owner) {}

  double of_whole(const Graph& graph) const { return of(graph, machine_.tiles); }

  /// Seconds of parts, the last of which run alone if that is faster.
  double of_parts(Parts& parts) const {
    const double part = of(parts.graph, 1) + kSecondsOfPart;
    const uint32_t tiles = machine_.tiles, last = parts.count % tiles;
    const double together = parts.rounds(tiles) * part;
    if (last == 0 || last == parts.count) return together;
    const double apart = parts.count / tiles * part + last * (of(parts.graph, tiles) + kSecondsOfPart);
    if (apart < together) parts.last = last;
    return std::min(apart, together);
  }

 private:
  double of(const Graph& graph, uint32_t tiles) const {
    return Session::Impl(graph, host_of(machine_, tiles), options_, {nullptr, owner_}, bound::Runs::none)
        .cost({})
        .seconds;
  }

  const machine::Machine& machine_;
  SessionOptions options_;
  const Graph* owner_;
};

}  // namespace

std::optional<Parts> divide(const Graph& graph, uint32_t count) {
  std::optional<Graph> divided = for_samples(graph, count);
  if (!divided) return {};
  Parts parts{std::move(*divided), count, {}, 0};
  const auto note = [&](const std::string& name, ValueId own, ValueId whole) {
    if (!(parts.graph.type(own) == graph.type(whole))) parts.whole.emplace(name, graph.type(whole));
  };
  const std::vector<ValueId> own = parts.graph.inputs(), whole = graph.inputs();
  for (size_t i = 0; i < own.size(); ++i) note(graph.info(whole[i]).name, own[i], whole[i]);
  for (const auto& [name, id] : parts.graph.outputs()) note(name, id, graph.outputs().at(name));
  return parts;
}

std::optional<Parts> choose_parts(const Graph& graph, const machine::Machine& machine,
                                  const SessionOptions& options, const Graph* owner) {
  if (options.parts == 1) return {};
  if (owner == nullptr && options.communicator != nullptr && options.communicator->size() > 1) {
    if (options.parts == 0) return {};
    throw UsageError("ranks run a graph together, and not in parts of its samples: leave out the parts");
  }
  const bool is_host = machine.kind == machine::Kind::host;
  std::optional<Parts> parts;
  if (is_host) parts = options.parts == 0 ? smallest(graph) : divide(graph, options.parts);
  if (options.parts > 1 && !parts)
    throw UsageError(fmt::format(
        "{} samples cannot be run in {} parts on {}: parts must be equal, on a host, and no sample "
        "may depend on another; use another number, or 0",
        samples_of(graph), options.parts, machine.name));
  if (!parts || (options.parts > 1 && parts->count % machine.tiles == 0)) return parts;
  const Predictions predicted(machine, options, owner);
  const double seconds = predicted.of_parts(*parts);
  if (options.parts > 1 || seconds < (1 - kLeastGain) * predicted.of_whole(graph)) return parts;
  return {};
}

SessionOptions undivided(SessionOptions options) {
  options.parts = 1;
  return options;
}

uint32_t threads_of(const machine::Machine& machine, const SessionOptions& options) {
  return options.threads == 0 ? machine.tiles : std::min(options.threads, machine.tiles);
}

machine::Machine host_of(machine::Machine host, uint32_t tiles) {
  host.tiles = tiles;
  return host;
}

}  // namespace tessera::graph
