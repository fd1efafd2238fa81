// Loops of a graph: what their nodes say, and their operations beside those of the graph.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tessera::graph {

bool is_loop(const Node& node);

/// What becomes of an input of a loop's body from pass to pass, and of an output.
enum class LoopInput : uint8_t { same, indexed, carried };
enum class LoopOutput : uint8_t { last, stacked, summed };

/// What a loop's node says, by the positions of its inputs and outputs.
struct LoopForm {
  uint32_t count = 1;
  double scale = 1;
  bool reversed = false;
  std::vector<LoopInput> inputs = {};
  std::vector<LoopOutput> outputs = {};
  std::map<size_t, size_t> carried = {};  ///< by input: the output that it becomes
  std::vector<ValueId> body_inputs = {};  ///< by position
  std::vector<ValueId> body_outputs = {};

  /// Whose rows a pass takes and gives.
  uint32_t index(uint32_t pass) const { return reversed ? count - 1 - pass : pass; }
};

/// Throws UsageError for a node whose attributes do not fit its body.
LoopForm loop_form(const Node& node);
/// The same by names.
Loop loop_of(const Node& node);
/// Throws UsageError for names that the body lacks.
Attributes attributes_of(const Loop& loop, const Graph& body);

/// A type with the rows of so many passes, one after the other; of a scalar, the elements.
TensorType of_all_passes(TensorType type, uint32_t passes, std::string_view name);

/// The inputs of a body, and what a node gives for them; of a loop those that are the same in all passes.
std::map<ValueId, ValueId> same_inside(const Node& node);

/// An operation of a graph or of a loop's body, with its values numbered over all of them.
struct OpenedNode {
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  std::optional<uint32_t> stage = {};  ///< its own, or that of a loop around it
  std::vector<size_t> inputs = {};
  std::vector<size_t> outputs = {};
};
struct OpenedValue {
  const Graph* graph = nullptr;
  ValueId id = 0;
  std::optional<size_t> node = {};  ///< that computes it

  const ValueInfo& info() const { return graph->info(id); }
};
/// The operations of a graph in the order in which they run. The operations of a loop's body come before the
/// loop, which makes its results from the body's, in their order; what a body takes has its number outside.
/// The graph's own values keep their numbers.
struct OpenedGraph {
  std::vector<OpenedNode> nodes = {};
  std::vector<OpenedValue> values = {};
};
OpenedGraph opened(const Graph& graph);

}  // namespace tessera::graph
