// Loops of a graph: the form that a loop's node describes, and a graph together with the operations of its
// loops.
#pragma once

#include <tessera/graph.h>

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tessera::graph {

bool is_loop(const Node& node);

/// How passes take an input of a loop's body, and what becomes of an output.
enum class LoopInput : uint8_t { same, indexed, carried };
enum class LoopOutput : uint8_t { last, stacked, summed };

/// The form of a loop, by the positions of its node's inputs and outputs.
struct LoopForm {
  uint32_t count = 1;
  double scale = 1;
  bool reversed = false;
  std::vector<LoopInput> inputs = {};
  std::vector<LoopOutput> outputs = {};
  std::vector<bool> in_f32 = {};  ///< by output: whether its sum is FP32 whatever its type is
  Pipeline pipeline = {};
  std::map<size_t, size_t> carried = {};  ///< by input: the output whose value the next pass takes
  std::vector<ValueId> body_inputs = {};  ///< by position
  std::vector<ValueId> body_outputs = {};

  /// Position of a pass's rows among the rows of all passes.
  uint32_t index(uint32_t pass) const { return reversed ? count - 1 - pass : pass; }
  /// Whether a pass may begin before the one before it has ended.
  bool is_pipelined() const { return !(pipeline == Pipeline{}); }
};

/// Throws UsageError for a node whose attributes do not fit its body.
LoopForm loop_form(const Node& node);
/// The form of a loop's node, with inputs and outputs by name.
Loop loop_of(const Node& node);
/// The attributes of a node for a loop. Throws UsageError for names that the body lacks.
Attributes attributes_of(const Loop& loop, const Graph& body);

/// Throws UsageError for a graph that is to be a function, whose sums over passes cannot be offloaded.
void check_offloaded_sums(const Graph& function);

/// A type with the rows of `passes` passes, one after the other; for a scalar, with one element per pass.
TensorType of_all_passes(TensorType type, uint32_t passes, std::string_view name);

/// Maps the inputs of a node's body to the node's inputs; for a loop, only inputs that are the same in all
/// passes.
std::map<ValueId, ValueId> same_inside(const Node& node);

/// An operation of a graph or of a loop's body, with its values numbered over all of them.
struct OpenedNode {
  const Graph* graph = nullptr;
  const Node* node = nullptr;
  std::optional<uint32_t> stage = {};  ///< stage of the operation, or of a loop around it
  std::vector<size_t> inputs = {};
  std::vector<size_t> outputs = {};
  std::optional<size_t> gradient_of = {};
  size_t inside = 0;  ///< for a loop: how many operations before it are in its body, and in loops there
};
struct OpenedValue {
  const Graph* graph = nullptr;
  ValueId id = 0;
  std::optional<size_t> node = {};  ///< position of the node that computes the value

  const ValueInfo& info() const { return graph->info(id); }
};
/// The operations of a graph in the order in which they run. The operations of a loop's body come before the
/// loop itself, which takes the body's outputs in their order and computes its own results. The inputs of a
/// body have the numbers of the loop's inputs. The graph's own values keep their numbers.
struct OpenedGraph {
  std::vector<OpenedNode> nodes = {};
  std::vector<OpenedValue> values = {};
};
OpenedGraph opened(const Graph& graph);

}  // namespace tessera::graph
