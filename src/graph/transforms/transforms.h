// Transforms: graph to graph, each in a file of its own, and the list that every session runs.
#pragma once

#include <tessera/graph.h>

#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "machine/model/machine.h"

namespace tessera::graph {

/// A transform of a graph, which preserves its results and returns the number of operations that it changed.
struct Transform {
  std::string_view name;
  size_t (*run)(Graph&, const machine::Machine&);
  /// Whether operations of several stages could become one, so that graphs with stages of whole layers, and
  /// the bodies of their loops, stay as they are.
  bool joins_stages = false;
};

/// The transforms that a session applies to its graph before lowering, in this order.
std::span<const Transform> session_transforms();

/// Runs transforms one after the other, each on the functions of a graph too, and records what they did. With
/// assertions, the graph is verified after each transform.
std::vector<PassRecord> transform(Graph& graph, std::span<const Transform> transforms,
                                  const machine::Machine& machine);

/// The decomposition of a node's operation, as a function of the node's inputs with an output per result.
std::shared_ptr<const Graph> decomposition_of(const Graph& graph, const Node& node);
/// Replaces nodes whose operation is not lowered on a machine by its decomposition; or the nodes for which
/// `which` is true.
size_t decompose(Graph& graph, const machine::Machine& machine);
size_t decompose(Graph& graph, bool (*which)(const Node&));
/// Moves permutations of dimensions behind operations that can run on permuted inputs, so that they meet
/// other permutations and may cancel. Changes nothing unless fewer elements are moved afterwards. Returns the
/// number of operations that were rewritten for permuted inputs.
size_t move_permutations(Graph& graph);
/// Removes operations whose results nothing uses, such as the gradient of a network's input.
size_t remove_unused(Graph& graph);
/// Fuses operations with the sole users of their results where Operation::absorb allows it, such as a product
/// with its activation.
size_t fuse(Graph& graph);
/// On hosts: joins elementwise operations, and reductions of their results, into expressions, which are
/// computed in one pass. Results have the same bits, but for sums whose values would have been transposed or
/// have more than 2^20 rows.
size_t join_elementwise(Graph& graph, const machine::Machine& machine);

/// Maps the values of one graph to their clones in another.
using Clones = std::map<ValueId, ValueId>;
/// Clones nodes of one graph into another. Their inputs must be constants or in `clones`, to which their
/// results are added.
void clone(const Graph& from, std::span<const Node> nodes, Graph& to, Clones& clones);
/// Clones a function into a graph, with the given values as its inputs.
Clones clone(const Graph& function, Graph& to, const std::vector<ValueId>& inputs);
/// Clones a function to replace a node, which must then be erased; the function's first results become the
/// node's. `count` is set to the number of nodes that are added before the node.
Clones clone_instead(const Graph& function, Graph& graph, uint32_t node, uint32_t& count);

/// Throws Error, naming the value, if a value is used before it is computed, is computed twice, or has
/// another type than its operation infers; also in functions.
void verify(const Graph& graph);
/// Verifies the graph if assertions are on.
#ifdef NDEBUG
inline void verify_if_asserting(const Graph&) {}
#else
inline void verify_if_asserting(const Graph& graph) { verify(graph); }
#endif

}  // namespace tessera::graph
