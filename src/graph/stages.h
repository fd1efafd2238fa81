// Stages of a graph, which determine on which chips its operations run.
#pragma once

#include <tessera/graph.h>
#include <tessera/pipeline.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tessera::graph {

/// The stage that a call or a loop names.
std::optional<uint32_t> stage_of(const Node& node);
/// Whether any call or loop names a stage, in loops too.
bool names_stages(const Graph& graph);
/// Whether a graph has several stages of whole layers, which the bodies of its loops do not name.
bool has_stages_of_layers(const Graph& graph);
/// Whether a graph has several stages: any call or loop names one, in loops too, or they are of whole layers.
bool has_stages(const Graph& graph);

/// Stages of a graph's operations, by their positions, and of the operations of its loops.
struct Stages {
  std::vector<uint32_t> nodes = {};
  std::map<uint32_t, Stages> loops = {};  ///< by position of the loop's node

  uint32_t count() const;
};

/// The stages of whole layers, if the graph begins some (Graph::begin_stages); balanced stages are not known
/// yet, and count as one. Otherwise the stages that calls and loops name. Other operations run on the stage
/// of their parameters, which are on the stage that takes them first; operations without parameters run on
/// the stage of their inputs, operations on inputs of the graph alone on the first stage that takes their
/// results, and gradients on the stage of the operation to which they belong. A loop without a stage begins
/// on the first of the stages on which its operations run; its gradient runs on no others.
Stages stages_of(const Graph& graph);

/// Bytes of a layer, without values in streaming memory.
struct LayerBytes {
  uint64_t kept = 0;   ///< of parameters, their state, and sums of gradients
  uint64_t stash = 0;  ///< of results that its backward operations take, for one micro-batch
};

/// The layers of a graph, in their order. A layer has the parameters that a forward operation is the first to
/// take, as they are or computed from parameters alone, such as casts; and all operations that run beside
/// them: forward, gradients and updates. An operation that takes them again after a later layer is in that
/// later layer, unless they have a pattern. All operations of a loop are in the layers whose parameters it
/// takes.
struct WholeLayers {
  Stages stages = {};  ///< with a stage for each layer, regardless of those that calls and loops name
  std::vector<LayerBytes> bytes = {};
  std::vector<ValueId> begins = {};  ///< by layer: the parameter with which it begins
  /// The layer of each parameter that a forward operation takes.
  std::map<ValueId, uint32_t> of_parameters = {};

  size_t count() const { return bytes.size(); }
};

WholeLayers whole_layers_of(const Graph& graph);

/// Stages of whole layers, each from its first layer to the first layer of the next stage. `first` is not
/// empty.
Stages stages_of_layers(const WholeLayers& layers, const std::vector<uint32_t>& first);

/// Throws UsageError unless layers can make this number of stages.
void check_stage_count(uint32_t stages, size_t layers);

/// The stage of the operation that computes a value, or else of the first operation that takes it, in loops
/// too.
uint32_t stage_of(const Graph& graph, const Stages& stages, ValueId id);

/// Throws UsageError unless parts of the chips, by stage, are numbered from 0 without a gap.
void check_places(const std::vector<uint32_t>& places);

/// What a micro-batch runs in one pass through a stage: positions of nodes.
struct StagePart {
  uint32_t stage = 0;
  PassKind kind = PassKind::forward;
  std::vector<uint32_t> nodes = {};

  bool is_backward() const { return kind != PassKind::forward; }
};

/// Which results of backward operations serve only for gradients of weights: nothing takes them, or only
/// operations of the same stage whose results do so, too. Operations are noted from the last to the first.
class WeightUses {
 public:
  explicit WeightUses(const Graph& graph)
      : by_others_(graph.values().size()), stages_(graph.values().size()) {}

  bool serves(ValueId id, uint32_t stage) const {
    return !by_others_[id] && (!stages_[id] || *stages_[id] == stage);
  }
  bool is_taken(ValueId id) const { return by_others_[id] || stages_[id]; }
  /// Notes what an operation of a stage takes, and whether its own results serve for gradients of weights.
  void take(ValueId id, uint32_t stage, bool for_weights);

 private:
  std::vector<bool> by_others_;
  std::vector<std::optional<uint32_t>> stages_;
};

/// The operations of a graph by passes, in an order in which they can run: forward by stages, then backward
/// from the last stage. An operation that needs what a later pass computes is part of that one, wherever it
/// lies. Passes without operations are left out. `splits_backward`: each backward pass is followed by one for
/// operations that serve only for gradients of weights, for which no other pass waits.
std::vector<StagePart> parts_of_stages(const Graph& graph, const Stages& stages,
                                       bool splits_backward = false);

}  // namespace tessera::graph
