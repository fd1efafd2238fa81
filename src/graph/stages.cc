#include "graph/stages.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>

#include "graph/loop.h"

namespace tessera::graph {
namespace {

class StageSearch {
 public:
  explicit StageSearch(const Graph& graph)
      : whole_(graph),
        graph_(opened(graph)),
        of_value_(graph_.values.size()),
        follows_(graph_.values.size()),
        around_(graph_.nodes.size()) {
    for (size_t n = 0; n < around_.size(); ++n)
      for (size_t inside = n - graph_.nodes[n].inside; inside < n; ++inside)
        if (!around_[inside]) around_[inside] = n;
  }

  WholeLayers find_layers() {
    WholeLayers layers;
    for (OpenedNode& node : graph_.nodes) {
      node.stage.reset();
      if (node.node->backward) continue;
      is_loop(*node.node) ? pass_through(node) : place_parameters(node, layers);
    }
    for (size_t v = 0; v < of_value_.size(); ++v)
      if (is_parameter(v) && of_value_[v]) layers.of_parameters[static_cast<ValueId>(v)] = *of_value_[v];
    layers.stages = find();
    count_bytes(layers);
    return layers;
  }

  Stages find() {
    for (const OpenedNode& node : graph_.nodes) of_nodes_.push_back(place(node));
    place_beside_takers();
    size_t next = 0;
    return by_loop(whole_, of_nodes_, next);
  }

 private:
  static Stages by_loop(const Graph& graph, const std::vector<uint32_t>& stages, size_t& next) {
    Stages found;
    for (uint32_t n = 0; n < graph.nodes().size(); ++n) {
      if (const Node& node = graph.nodes()[n]; is_loop(node))
        found.loops[n] = by_loop(*node.body, stages, next);
      found.nodes.push_back(stages.at(next++));
    }
    return found;
  }

  /// The first and the last of some stages.
  struct Range {
    uint32_t first = 0, last = 0;
  };

  bool is_parameter(size_t value) const { return graph_.values[value].info().kind == Kind::parameter; }
  size_t position_of(const OpenedNode& node) const {
    return static_cast<size_t>(&node - graph_.nodes.data());
  }

  uint32_t place(const OpenedNode& node) {
    if (is_loop(*node.node)) return place_loop(node);
    if (is_free(node)) {
      free_.insert(position_of(node));
      return 0;
    }
    const uint32_t stage = node.stage ? *node.stage : within_loops(node, stage_beside(node));
    for (const size_t output : node.outputs) of_value_[output] = stage;
    for (const size_t input : node.inputs)
      if (is_parameter(input) && !of_value_[input]) of_value_[input] = stage;
    if (node.stage) named_ = stage;
    return stage;
  }

  /// A loop begins on the first of the stages on which its operations run. Its results are its body's.
  uint32_t place_loop(const OpenedNode& loop) {
    for (size_t i = 0; i < loop.outputs.size(); ++i) of_value_[loop.outputs[i]] = of_value_[loop.inputs[i]];
    const auto placed = [&](size_t n) -> std::optional<uint32_t> {
      if (is_loop(*graph_.nodes[n].node) || free_.contains(n)) return {};
      return of_nodes_[n];
    };
    const std::optional<Range> range = range_of_body(loop, placed);
    note_range(loop, range);
    return loop.stage ? *loop.stage : within_loops(loop, range.value_or(Range()).first);
  }

  /// The stages of the operations in a loop, as far as `known` says them by position.
  template <class Known>
  std::optional<Range> range_of_body(const OpenedNode& loop, const Known& known) const {
    std::optional<Range> range;
    const size_t end = position_of(loop);
    for (size_t n = end - loop.inside; n < end; ++n)
      if (const std::optional<uint32_t> stage = known(n))
        range = range ? Range{std::min(range->first, *stage), std::max(range->last, *stage)}
                      : Range{*stage, *stage};
    return range;
  }

  void note_range(const OpenedNode& loop, const std::optional<Range>& range) {
    if (!range || loop.node->backward) return;
    for (const size_t output : loop.outputs) ranges_[output] = *range;
  }

  /// The stage closest to `stage` among those of the loops around an operation: no pass of a loop waits for
  /// other stages, nor does its gradient, which runs where the loop does.
  uint32_t within_loops(const OpenedNode& node, uint32_t stage) const {
    for (std::optional<size_t> n = around_[position_of(node)]; n; n = around_[*n]) {
      const OpenedNode& loop = graph_.nodes[*n];
      std::optional<size_t> result = loop.gradient_of;
      if (!loop.node->backward && !loop.outputs.empty()) result = loop.outputs[0];
      if (!result) continue;
      if (const auto range = ranges_.find(*result); range != ranges_.end())
        return std::clamp(stage, range->second.first, range->second.last);
    }
    return stage;
  }

  /// Whether an input determines where an operation runs. A number that is given to a body does not, as it is
  /// sent there once.
  bool ties(const OpenedNode& node, size_t input) const {
    const OpenedValue& value = graph_.values[input];
    if (is_parameter(value.info().belongs.value_or(input))) return true;
    return of_value_[input] && (value.graph == node.graph || value.info().type.elements() > 1);
  }

  /// Whether nothing determines where an operation runs: it takes inputs, and results of such operations.
  bool is_free(const OpenedNode& node) const {
    return !node.stage && !node.node->backward && !is_loop(*node.node) && !node.gradient_of &&
           std::ranges::none_of(node.inputs, [&](size_t input) { return ties(node, input); });
  }

  /// Free operations run where their results are taken first, so that no stage waits for data from afar.
  void place_beside_takers() {
    std::map<size_t, uint32_t> forward, backward;  // by value: the first stage that takes it
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      const OpenedNode& node = graph_.nodes[n];
      if (free_.contains(n)) {
        const std::optional<uint32_t> first = first_of(node.outputs, forward);
        of_nodes_[n] = first ? *first : first_of(node.outputs, backward).value_or(0);
      }
      if (is_loop(*node.node)) continue;
      for (const size_t input : node.inputs) {
        auto& stages = node.node->backward ? backward : forward;
        const auto [known, is_new] = stages.try_emplace(input, of_nodes_[n]);
        known->second = std::min(known->second, of_nodes_[n]);
      }
    }
  }

  static std::optional<uint32_t> first_of(const std::vector<size_t>& values,
                                          const std::map<size_t, uint32_t>& stages) {
    std::optional<uint32_t> first;
    for (const size_t value : values)
      if (const auto taken = stages.find(value); taken != stages.end())
        first = std::min(first.value_or(taken->second), taken->second);
    return first;
  }

  /// The parameters from which a value is computed and nothing else, such as a cast one.
  std::vector<size_t> parameters_of(size_t value) const {
    if (is_parameter(value)) return {value};
    const auto found = computed_from_.find(value);
    return found == computed_from_.end() ? std::vector<size_t>() : found->second;
  }

  /// The parameters of all inputs, the first one first.
  std::vector<size_t> parameters_of(const OpenedNode& node) const {
    std::vector<size_t> all;
    std::set<size_t> seen;
    for (const size_t input : node.inputs)
      for (const size_t parameter : parameters_of(input))
        if (seen.insert(parameter).second) all.push_back(parameter);
    return all;
  }

  bool takes_parameters_alone(const OpenedNode& node) const {
    return std::ranges::all_of(node.inputs, [&](size_t input) {
      const OpenedValue& value = graph_.values[input];
      const bool is_constant = value.info().kind == Kind::constant && value.graph == node.graph;
      return is_constant || !parameters_of(input).empty();
    });
  }

  /// A loop's results are its body's outputs. All of it runs beside the parameters that it takes.
  void pass_through(const OpenedNode& loop) {
    const std::optional<Range> layers = range_of_body(loop, [&](size_t n) { return graph_.nodes[n].stage; });
    note_range(loop, layers);
    for (size_t i = 0; i < loop.outputs.size(); ++i) {
      computed_from_[loop.outputs[i]] = parameters_of(loop.inputs[i]);
      follows_[loop.outputs[i]] = std::max(follows_[loop.inputs[i]], layers.value_or(Range()).first);
    }
  }

  /// An operation that takes parameters, or values computed from parameters alone, is in the layer of the
  /// first one; it begins the layer if no earlier operation takes that parameter. Other new parameters are in
  /// the layer too.
  void place_parameters(OpenedNode& node, WholeLayers& layers) {
    const std::vector<size_t> taken = parameters_of(node);
    if (!taken.empty() && takes_parameters_alone(node)) {
      for (const size_t output : node.outputs) computed_from_[output] = taken;
      return;
    }
    uint32_t layer = 0;
    for (const size_t input : node.inputs) layer = std::max(layer, follows_[input]);
    if (!taken.empty()) node.stage = layer = layer_of(taken[0], layer, layers);
    for (const size_t parameter : taken)
      if (!of_value_[parameter]) of_value_[parameter] = layer;
    for (const size_t output : node.outputs) follows_[output] = layer;
  }

  /// The layer of an operation with this first parameter, whose inputs depend on layers up to `follows`. A
  /// parameter of an earlier layer is sent to where it is taken again, as micro-batches cannot pass back
  /// through stages; one with a pattern stays where it is.
  uint32_t layer_of(size_t parameter, uint32_t follows, WholeLayers& layers) const {
    if (const std::optional<uint32_t>& known = of_value_[parameter])
      return graph_.values[parameter].info().type.pattern ? *known : std::max(*known, follows);
    layers.bytes.emplace_back();
    layers.begins.push_back(static_cast<ValueId>(parameter));  // values of the graph keep their numbers
    return static_cast<uint32_t>(layers.count()) - 1;
  }

  void count_bytes(WholeLayers& layers) const {
    if (layers.count() == 0) return;
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      const OpenedValue& value = graph_.values[v];
      const size_t of = value.info().belongs.value_or(v);
      if (!value.node && of_value_[of]) layers.bytes[*of_value_[of]].kept += bytes_on_tiles(value);
    }
    std::set<size_t> taken;
    for (const OpenedNode& node : graph_.nodes)
      if (node.node->backward) taken.insert(node.inputs.begin(), node.inputs.end());
    for (const size_t v : taken) {
      const OpenedValue& value = graph_.values[v];
      if (!value.node) continue;
      const Node& by = *graph_.nodes[*value.node].node;
      LayerBytes& bytes = layers.bytes[of_value_[v].value_or(of_nodes_[*value.node])];
      if (!by.backward)
        bytes.stash += bytes_on_tiles(value);
      else if (is_loop(by) && value.graph == &whole_)
        bytes.kept += bytes_on_tiles(value);
    }
  }

  static uint64_t bytes_on_tiles(const OpenedValue& value) {
    return value.info().offloaded ? 0 : value.info().type.bytes();
  }

  uint32_t stage_beside(const OpenedNode& node) const {
    if (node.gradient_of && of_value_[*node.gradient_of]) return *of_value_[*node.gradient_of];
    std::optional<uint32_t> last, of_forward, of_scalars;
    for (const size_t input : node.inputs) {
      const OpenedValue& value = graph_.values[input];
      const size_t belongs = value.info().belongs.value_or(input);
      if (is_parameter(belongs) && of_value_[belongs]) return *of_value_[belongs];
      if (!of_value_[input]) continue;
      if (value.node && !graph_.nodes[*value.node].node->backward)
        of_forward = std::max(of_forward.value_or(0), *of_value_[input]);
      auto& of_inputs = value.info().type.elements() == 1 ? of_scalars : last;
      of_inputs = std::max(of_inputs.value_or(0), *of_value_[input]);
    }
    if (node.node->backward && of_forward) return *of_forward;
    return last ? *last : of_scalars.value_or(node.node->backward ? named_ : 0);
  }

  const Graph& whole_;
  OpenedGraph graph_;
  std::vector<std::optional<uint32_t>> of_value_;
  std::vector<uint32_t> of_nodes_ = {};
  std::map<size_t, std::vector<size_t>> computed_from_;  ///< by value: parameters, if from them alone
  std::vector<uint32_t> follows_;                        ///< by value: the last layer on which it depends
  std::vector<std::optional<size_t>> around_;  ///< by position: that of the innermost loop around it
  std::map<size_t, Range> ranges_;             ///< by result of a forward loop: its stages
  std::set<size_t> free_;                      ///< positions of free operations
  uint32_t named_ = 0;  ///< the last stage that is named: gradients begin where the loss is
};

/// Where operations run depends on the order of stages alone, so stages of several layers follow from stages
/// of single layers.
Stages stages_from(const Stages& layers, const std::vector<uint32_t>& first) {
  Stages stages;
  for (const uint32_t layer : layers.nodes) {
    const auto next = std::upper_bound(first.begin() + 1, first.end(), layer);
    stages.nodes.push_back(static_cast<uint32_t>(next - first.begin()) - 1);
  }
  for (const auto& [node, body] : layers.loops) stages.loops[node] = stages_from(body, first);
  return stages;
}

/// The first layers of stages. A stage whose parameter no layer takes any longer has no layers.
std::vector<uint32_t> first_layers_of(const WholeLayers& layers, const std::vector<ValueId>& begins) {
  std::vector<uint32_t> first(begins.size() + 1);
  auto next = static_cast<uint32_t>(layers.count());
  for (size_t stage = begins.size(); stage > 0; --stage) {
    const auto layer = layers.of_parameters.find(begins[stage - 1]);
    if (layer != layers.of_parameters.end()) next = std::min(next, layer->second);
    first[stage] = next;
  }
  return first;
}

/// By node: whether all of its results serve for gradients of weights.
std::vector<bool> weight_gradients(const Graph& graph, const Stages& stages) {
  std::vector<bool> found(graph.nodes().size());
  WeightUses uses(graph);
  for (size_t n = found.size(); n-- > 0;) {
    const Node& node = graph.nodes()[n];
    const uint32_t stage = stages.nodes[n];
    found[n] = node.backward &&
               std::ranges::all_of(node.outputs, [&](ValueId id) { return uses.serves(id, stage); });
    for (const ValueId input : node.inputs) uses.take(input, stage, found[n]);
  }
  return found;
}

/// Finds the passes in which nodes run, of which some are for gradients of weights.
class PassSearch {
 public:
  PassSearch(const Graph& graph, const Stages& stages, const std::vector<bool>& for_weights)
      : graph_(graph), stages_(stages), for_weights_(for_weights), count_(stages.count()) {}

  std::vector<StagePart> find() const {
    std::vector<StagePart> parts(3 * count_);
    for (uint32_t stage = 0; stage < count_; ++stage) {
      parts[stage] = {stage, PassKind::forward};
      parts[backward_of(stage)] = {stage, PassKind::backward_input};
      parts[backward_of(stage) + 1] = {stage, PassKind::backward_weight};
    }
    std::vector<uint32_t> passes(graph_.nodes().size());
    for (uint32_t n = 0; n < passes.size(); ++n) {
      const Node& node = graph_.nodes()[n];
      const uint32_t stage = stages_.nodes[n];
      passes[n] = node.backward ? backward_of(stage) + (for_weights_[n] ? 1 : 0) : stage;
      for (const ValueId input : node.inputs)
        if (const auto& from = graph_.info(input).node) passes[n] = std::max(passes[n], passes[*from]);
      parts[passes[n]].nodes.push_back(n);
    }
    std::erase_if(parts, [](const StagePart& part) { return part.nodes.empty(); });
    return parts;
  }

 private:
  /// Forward passes come first, then backward ones from the last stage.
  uint32_t backward_of(uint32_t stage) const { return count_ + 2 * (count_ - 1 - stage); }

  const Graph& graph_;
  const Stages& stages_;
  const std::vector<bool>& for_weights_;
  uint32_t count_;
};

/// Of the nodes for gradients of weights, removes those whose results other passes take; false: there are
/// none.
bool take_from_weights(const Graph& graph, const std::vector<StagePart>& parts,
                       std::vector<bool>& for_weights) {
  std::vector<const StagePart*> part_of(graph.nodes().size());
  for (const StagePart& part : parts)
    for (const uint32_t n : part.nodes) part_of[n] = &part;
  bool any = false;
  for (uint32_t n = 0; n < part_of.size(); ++n)
    for (const ValueId input : graph.nodes()[n].inputs) {
      const auto& from = graph.info(input).node;
      if (!from || part_of[*from] == part_of[n] || part_of[*from]->kind != PassKind::backward_weight)
        continue;
      any = true;
      for_weights[*from] = false;
    }
  // Then neither are the nodes from which these are computed.
  for (size_t n = part_of.size(); any && n-- > 0;)
    for (const ValueId input : graph.nodes()[n].inputs)
      if (const auto& from = graph.info(input).node; from && !for_weights[n]) for_weights[*from] = false;
  return any;
}

}  // namespace

std::optional<uint32_t> stage_of(const Node& node) {
  if (!node.body || !node.attributes.contains("stage")) return {};
  const int64_t stage = node.integer("stage");
  if (stage < 0 || stage >= std::numeric_limits<uint32_t>::max())
    throw UsageError(fmt::format("a stage is {}; it must be at least 0 and below 2^32 - 1", stage));
  return static_cast<uint32_t>(stage);
}

bool names_stages(const Graph& graph) {
  return std::ranges::any_of(opened(graph).nodes,
                             [](const OpenedNode& node) { return node.stage.has_value(); });
}

bool has_stages_of_layers(const Graph& graph) {
  return !graph.stage_begins().empty() || graph.balanced_stages().value_or(1) > 1;
}

bool has_stages(const Graph& graph) {
  if (has_stages_of_layers(graph)) return true;
  return std::ranges::any_of(opened(graph).nodes,
                             [](const OpenedNode& node) { return node.stage.value_or(0) != 0; });
}

uint32_t Stages::count() const {
  uint32_t last = nodes.empty() ? 0 : *std::ranges::max_element(nodes);
  for (const auto& [node, body] : loops) last = std::max(last, body.count() - 1);
  return last + 1;
}

Stages stages_of(const Graph& graph) {
  if (graph.stage_begins().empty()) return StageSearch(graph).find();
  const WholeLayers layers = whole_layers_of(graph);
  return stages_of_layers(layers, first_layers_of(layers, graph.stage_begins()));
}

WholeLayers whole_layers_of(const Graph& graph) { return StageSearch(graph).find_layers(); }

Stages stages_of_layers(const WholeLayers& layers, const std::vector<uint32_t>& first) {
  return stages_from(layers.stages, first);
}

void check_stage_count(uint32_t stages, size_t layers) {
  const size_t most = std::max<size_t>(1, layers);
  if (stages == 0 || stages > most)
    throw UsageError(fmt::format(
        "a graph of {} layers with parameters of their own is to have {} stages: it can have 1 to {}", layers,
        stages, most));
}

uint32_t stage_of(const Graph& graph, const Stages& stages, ValueId id) {
  // For a loop, the operation is in its body.
  const auto of_node = [&](uint32_t n, const std::vector<ValueId>& ids, bool is_output) {
    const Node& node = graph.nodes()[n];
    if (!is_loop(node)) return stages.nodes[n];
    const auto position = std::ranges::find(ids, id) - ids.begin();
    const Graph& body = *node.body;
    const ValueId inside = is_output ? std::next(body.outputs().begin(), position)->second
                                     : body.inputs()[static_cast<size_t>(position)];
    return stage_of(body, stages.loops.at(n), inside);
  };
  if (const auto& n = graph.info(id).node) return of_node(*n, graph.nodes()[*n].outputs, true);
  for (uint32_t n = 0; n < graph.nodes().size(); ++n)
    if (const auto& inputs = graph.nodes()[n].inputs; std::ranges::find(inputs, id) != inputs.end())
      return of_node(n, inputs, false);
  return 0;
}

void check_places(const std::vector<uint32_t>& places) {
  if (places.empty()) throw UsageError("stages have no places: give the part of the chips for each stage");
  const std::set<uint32_t> parts(places.begin(), places.end());
  uint32_t next = 0;
  for (const uint32_t part : parts)
    if (part != next++)
      throw UsageError(fmt::format("a stage is placed on part {} of the chips, and none on part {}",
                                   *parts.rbegin(), next - 1));
}

void WeightUses::take(ValueId id, uint32_t stage, bool for_weights) {
  if (for_weights && serves(id, stage))
    stages_[id] = stage;
  else
    by_others_[id] = true;
}

std::vector<StagePart> parts_of_stages(const Graph& graph, const Stages& stages, bool splits_backward) {
  std::vector<bool> for_weights(graph.nodes().size());
  if (splits_backward) for_weights = weight_gradients(graph, stages);
  std::vector<StagePart> parts = PassSearch(graph, stages, for_weights).find();
  // No pass waits for gradients of weights, so results that another pass takes after all are not among them.
  while (splits_backward && take_from_weights(graph, parts, for_weights))
    parts = PassSearch(graph, stages, for_weights).find();
  if (!splits_backward)
    for (StagePart& part : parts)
      if (part.is_backward()) part.kind = PassKind::backward;
  return parts;
}

}  // namespace tessera::graph
