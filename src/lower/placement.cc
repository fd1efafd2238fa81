#include "lower/placement.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "base/record_pass.h"
#include "bound/chip_search.h"
#include "compiler/compile.h"
#include "graph/loop.h"
#include "graph/stages.h"
#include "graph/transforms/transforms.h"
#include "lower/stage_balance.h"

namespace tessera::graph {
namespace {

using bound::kMostForSpeed;

void compile(Placed& placed, std::shared_ptr<const program::Program> program, const machine::Machine& machine,
             bound::Runs runs, const std::shared_ptr<Communicator>& communicator = {}) {
  placed.program.emplace(std::move(program), machine, runs, communicator);
  placed.bind_metadata();
  std::ranges::copy(placed.program->executable().passes, std::back_inserter(placed.passes));
}

/// Takes a compiled program instead of compiling it.
void take_compiled(Placed& placed, std::shared_ptr<const program::Program> program,
                   const machine::Machine& machine, bound::Runs runs, const FindExecutable& find,
                   const std::shared_ptr<Communicator>& communicator) {
  base::record_pass(placed.passes, "load", [&] {
    placed.program.emplace(find(std::move(program), machine), runs, communicator);
    return fmt::format("{} compute sets", placed.program->executable().sets.size());
  });
  placed.bind_metadata();
}

/// Lowers a graph; `find` has the executable, unless it is empty.
Placed build(const Graph& graph, Stages stages, const machine::Machine& machine,
             const std::set<ValueId>& in_place, bound::Runs runs, const FindExecutable& find = {},
             const std::shared_ptr<Communicator>& communicator = {}) {
  program::Program program;
  program.set_replicas(graph.replicas());
  const machine::Machine part = compiler::machine_of_replica(program, machine);
  const ops::Builder builder(program, part);
  Placed placed;
  Lowering lowering(graph, builder, std::move(stages), in_place);
  program.set_main(lowering.build(placed.passes));
  placed.lowered = lowering.release();
  auto lowered = std::make_shared<const program::Program>(std::move(program));
  if (find)
    take_compiled(placed, std::move(lowered), machine, runs, find, communicator);
  else
    compile(placed, std::move(lowered), machine, runs, communicator);
  return placed;
}

/// The first chips of a machine.
machine::Machine chips_of(const Graph& graph, const machine::Machine& machine, uint32_t chips) {
  const uint32_t all = machine.chip_count();
  if (chips > all)
    throw UsageError(fmt::format("{} chips are to work as one; {} has {}", chips, machine.name, all));
  if (graph.replicas() > 1 || has_stages(graph))
    throw UsageError("chips cannot work as one on a graph with replicas or stages, which divide them");
  return all == 1 ? machine : machine.part(0, chips * machine.chip_tiles);
}

/// The graph with pipelines for its micro-batches, which let stages work at the same time; none: it has no
/// micro-batches that could go through one.
std::optional<Graph> pipelined(const Graph& graph) {
  bool changed = false;
  std::vector<Node> nodes = graph.nodes();
  for (Node& node : nodes) {
    if (!is_loop(node)) continue;
    Loop loop = loop_of(node);
    if (loop.count == 1 || !loop.carried.empty() || loop.reversed || node.integer("call", 0) != 0) continue;
    node.attributes["pipeline"] = std::string(name_of(PipelineKind::one_forward_one_backward));
    changed = true;
  }
  if (!changed) return {};
  Graph copy = graph;
  copy.set_nodes(std::move(nodes));
  return copy;
}

/// The most micro-batches that a pipeline can have in flight.
uint32_t most_in_flight(const Graph& graph) {
  uint32_t most = 1;
  for (const Node& node : graph.nodes()) {
    if (!is_loop(node)) continue;
    const LoopForm form = loop_form(node);
    if (form.is_pipelined()) most = std::max(most, form.count);
  }
  return most;
}

/// The graph with one micro-batch after the other.
Graph without_pipelines(const Graph& graph) {
  std::vector<Node> nodes = graph.nodes();
  for (Node& node : nodes)
    if (is_loop(node))
      for (const std::string name : {"pipeline", "recomputed", "offload_from"}) node.attributes.erase(name);
  Graph plain = graph;
  plain.set_nodes(std::move(nodes));
  return plain;
}

/// A chip for each replica of a graph.
machine::Machine chips_of_replicas(const Graph& graph, const machine::Machine& machine) {
  if (machine.kind == machine::Kind::host || machine.chip_count() <= graph.replicas()) return machine;
  return machine.part(0, graph.replicas() * machine.chip_tiles);
}

uint64_t bytes_of_stage(const Graph& graph, const machine::Machine& machine, uint32_t stages) {
  if (machine.kind == machine::Kind::host) return std::numeric_limits<uint64_t>::max();
  const uint64_t parts = uint64_t{graph.replicas()} * stages, chips = machine.chip_count();
  return std::max<uint64_t>(1, chips / parts) * (machine.tiles / chips) * machine.tile_bytes;
}

/// The first layers of the parts into which a transformed graph can be divided: in the original graph, too,
/// all layers of a part lie behind the layers of the parts before it.
std::vector<uint32_t> parts_in_order(const WholeLayers& transformed, const WholeLayers& before) {
  std::vector<uint32_t> own;  // by layer: the layer that it was
  for (const ValueId begin : transformed.begins) own.push_back(before.of_parameters.at(begin));
  std::vector<uint32_t> least = own;  // of it and all that follow
  for (size_t layer = own.size(); layer-- > 1;) least[layer - 1] = std::min(least[layer - 1], least[layer]);
  std::vector<uint32_t> first;
  uint32_t most = 0;
  for (uint32_t layer = 0; layer < own.size(); ++layer) {
    if (layer == 0 || most < least[layer]) first.push_back(layer);
    most = std::max(most, own[layer]);
  }
  return first;
}

/// The costs of parts of several layers, in the form of costs of layers.
std::vector<LayerCost> costs_of_parts(const std::vector<LayerCost>& layers,
                                      const std::vector<uint32_t>& first) {
  std::vector<LayerCost> costs(first.size());
  for (size_t part = 0, layer = 0; layer < layers.size(); ++layer) {
    if (part + 1 < first.size() && layer == first[part + 1]) ++part;
    costs[part].cycles += layers[layer].cycles;
    costs[part].bytes.kept += layers[layer].bytes.kept;
    costs[part].bytes.stash += layers[layer].bytes.stash;
  }
  return costs;
}

class PlacementSearch {
 public:
  PlacementSearch(const Graph& graph, const machine::Machine& machine)
      : graph_(graph), pipelined_(pipelined(graph)), machine_(machine), layers_(whole_layers_of(graph)) {}

  Placed find(bound::Runs runs) {
    const uint32_t most = machine_.chip_count();
    consider(fmt::format("1 of {} chips", most), graph_, stages_of(graph_), {.chips = 1});
    const bool fits_one = best_.fits();
    for (uint32_t chips = 2; chips <= most && wants_stages(chips, fits_one); chips *= 2)
      consider_stages(chips);
    for (uint32_t chips = 2; chips <= most && wants_as_one(chips, fits_one); chips *= 2)
      consider(fmt::format("{} chips as one", chips), graph_, stages_of(graph_), {.chips = chips});
    const Candidate& best = best_.best();
    considered_[best.number].chosen = true;
    Placed placed = std::move(best_.best().placed);
    placed.considered = std::move(considered_);
    if (runs != bound::Runs::none) {
      const compiler::Executable& estimated = placed.program->executable();
      placed.passes.resize(placed.passes.size() - estimated.passes.size());
      compile(placed, estimated.program, part(placed.placement.chips), runs);
    }
    return placed;
  }

 private:
  struct Candidate {
    Placed placed;
    size_t number;  ///< among those considered
  };

  bool wants_stages(uint32_t chips, bool fits_one) const {
    if (graph_.balanced_stages()) return false;  // some are asked for
    return fits_one ? std::ranges::any_of(graph_.nodes(), is_loop) && chips <= kMostForSpeed : !best_.fits();
  }
  bool wants_as_one(uint32_t chips, bool fits_one) const {
    return fits_one ? chips <= kMostForSpeed : !best_.fits();
  }

  void consider_stages(uint32_t chips) {
    if (layers_.count() < chips) return;
    const bool fits = pipelined_ && consider_pipeline(chips);
    if (!fits) consider_cuts(graph_, {.chips = chips});
  }

  /// Considers stages with a pipeline; returns whether they fit.
  bool consider_pipeline(uint32_t chips) {
    try {
      return consider_cuts(*pipelined_, {.chips = chips, .pipeline = true});
    } catch (const UsageError&) {
      return false;  // something passes from one micro-batch to the next
    }
  }

  /// Considers stages that take about equal time, and if they do not fit, those with the fewest bytes.
  /// Returns whether they fit.
  bool consider_cuts(const Graph& graph, Placement placement) {
    const uint32_t in_flight = most_in_flight(graph);
    const uint64_t chip_bytes = machine_.chip_tiles * machine_.tile_bytes;
    for (const uint64_t bytes : {chip_bytes, uint64_t{0}}) {
      std::vector<uint32_t> first = balanced_stages(costs_, placement.chips, bytes, in_flight);
      if (first == placement.first_layers) return false;
      placement.first_layers = std::move(first);
      consider(fmt::format("{} stages of whole layers on as many chips{}{}", placement.chips,
                           placement.pipeline ? ", as a pipeline" : "",
                           bytes == 0 ? ", with the fewest bytes" : ""),
               graph, stages_of_layers(layers_, placement.first_layers), placement);
      if (considered_.back().overflow.empty()) return true;
    }
    return false;
  }

  machine::Machine part(uint32_t chips) const { return machine_.part(0, chips * machine_.chip_tiles); }

  void consider(std::string name, const Graph& graph, Stages stages, const Placement& placement) {
    const machine::Machine machine = part(placement.chips);
    Placed placed = build(graph, std::move(stages), machine, {}, bound::Runs::none);
    placed.placement = placement;
    const compiler::MemoryReport& memory = placed.program->memory();
    const bool fits = memory.fits();
    const engine::Profile profile = placed.program->estimate();
    if (costs_.empty()) costs_ = costs_of_layers(graph, layers_, placed.lowered, profile);  // on one chip
    const double seconds = placed.program->seconds_of(profile);
    const auto bytes = static_cast<double>(memory.overflow_bytes);
    considered_.push_back({std::move(name), seconds, fits ? "" : overflow_text(memory), false});
    best_.consider({fits, seconds, bytes}, {std::move(placed), considered_.size() - 1});
  }

  const Graph& graph_;
  const std::optional<Graph> pipelined_;
  const machine::Machine& machine_;
  const WholeLayers layers_;
  std::vector<LayerCost> costs_;
  std::vector<PlacementCost> considered_;
  bound::BestOnChips<Candidate> best_;
};

void bind_metadata_of(const Lowered& lowered, bound::BoundProgram& program) {
  for (const auto& [id, weight] : lowered.weights)
    for (const engine::Binding& binding : weight->bindings()) program.bind(binding);
  for (const ByReplica& own : lowered.by_replica) {
    const int64_t cols = own.operand.cols();
    const uint32_t* words = own.words->data() + program.first_replica() * own.operand.cols();
    program.bind({own.operand.variable, const_cast<uint32_t*>(words), cols, 1, cols});
  }
  for (const auto& [key, function] : lowered.functions) bind_metadata_of(function.body, program);
  for (const auto& [node, body] : lowered.loops) bind_metadata_of(*body, program);
}

}  // namespace

Graph with_balanced_stages(const Graph& graph, const machine::Machine& machine) {
  const uint32_t stages = graph.balanced_stages().value_or(1);
  Graph plain = without_pipelines(graph);
  transform(plain, session_transforms(), machine);
  const WholeLayers layers = whole_layers_of(plain);
  const std::vector<uint32_t> parts = parts_in_order(layers, whole_layers_of(graph));
  check_stage_count(stages, parts.size());
  const Placed placed =
      build(plain, stages_of_layers(layers, {0}), chips_of_replicas(plain, machine), {}, bound::Runs::none);
  const engine::Profile profile = placed.program->estimate();
  const std::vector<LayerCost> costs =
      costs_of_parts(costs_of_layers(plain, layers, placed.lowered, profile), parts);
  const std::vector<uint32_t> first =
      balanced_stages(costs, stages, bytes_of_stage(graph, machine, stages), most_in_flight(graph));
  Graph found = graph;
  std::vector<Value> begins;
  for (size_t stage = 1; stage < first.size(); ++stage)
    begins.push_back(found.value(layers.begins[parts[first[stage]]]));
  found.begin_stages(begins);
  return found;
}

void Placed::bind_metadata() { bind_metadata_of(lowered, *program); }

Placed place_graph(const Graph& graph, const machine::Machine& machine, const std::set<ValueId>& in_place,
                   uint32_t chips, bound::Runs runs, const std::shared_ptr<Communicator>& communicator) {
  if (chips > 0) {
    Placed placed = build(graph, stages_of(graph), chips_of(graph, machine, chips), in_place, runs);
    placed.placement.chips = chips;
    return placed;
  }
  const bool is_free = machine.kind == machine::Kind::tiled && machine.chip_count() > 1 &&
                       graph.replicas() == 1 && !has_stages(graph) &&
                       machine.tiles == machine.chip_count() * machine.chip_tiles;
  return is_free ? PlacementSearch(graph, machine).find(runs)
                 : build(graph, stages_of(graph), machine, in_place, runs, {}, communicator);
}

Placed place_again(const Graph& graph, const machine::Machine& machine, const std::set<ValueId>& in_place,
                   const Placement& placement, bound::Runs runs, const FindExecutable& find,
                   const std::shared_ptr<Communicator>& communicator) {
  const machine::Machine part = placement.chips > 0 ? chips_of(graph, machine, placement.chips) : machine;
  Stages stages = placement.first_layers.empty()
                      ? stages_of(graph)
                      : stages_of_layers(whole_layers_of(graph), placement.first_layers);
  const std::optional<Graph> changed = placement.pipeline ? pipelined(graph) : std::nullopt;
  Placed placed =
      build(changed ? *changed : graph, std::move(stages), part, in_place, runs, find, communicator);
  placed.placement = placement;
  return placed;
}

}  // namespace tessera::graph
