// Transforms: graph to graph, each in a file of its own, and the list that every session runs.
#pragma once

#include <tessera/graph.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "machine/model/machine.h"

namespace tessera::graph {

/// A transform of a graph, which leaves its results as they are, and returns how many operations it changed.
struct Transform {
  std::string_view name;
  size_t (*run)(Graph&, const machine::Machine&);
};

/// What a session does with its graph before it is lowered, in this order.
std::span<const Transform> session_transforms();

/// Runs transforms one after the other, each on the functions of a graph too, and records what they did.
/// Where assertions are on, the graph is verified after each.
std::vector<PassRecord> transform(Graph& graph, std::span<const Transform> transforms,
                                  const machine::Machine& machine);

/// The operations that define a node's, as a function of its inputs, with a result for each of its own.
std::shared_ptr<const Graph> decomposition_of(const Graph& graph, const Node& node);
/// Nodes whose operation is not lowered on a machine become the operations that define it; of a choice, those
/// for which `which` is true.
size_t decompose(Graph& graph, const machine::Machine& machine);
size_t decompose(Graph& graph, bool (*which)(const Node&));
/// Permutations of dimensions move behind the operations that can do without them, where they meet others:
/// of two that undo each other nothing stays. Does nothing unless fewer elements are moved then. Returns the
/// number of operations that take their inputs as they lie.
size_t move_permutations(Graph& graph);
/// Removes operations whose results nothing uses, such as the gradient of a network's input.
size_t remove_unused(Graph& graph);
/// Operations take over those after them that alone use their results, as far as they can: a product its
/// activation.
size_t fuse(Graph& graph);

/// Values of one graph, by those of another from which they were cloned.
using Clones = std::map<ValueId, ValueId>;
/// Adds nodes of one graph to another. Their inputs are in `clones`, or constants; their results are added to
/// it.
void clone(const Graph& from, std::span<const Node> nodes, Graph& to, Clones& clones);
/// Clones a function, whose inputs become given values.
Clones clone(const Graph& function, Graph& to, const std::vector<ValueId>& inputs);
/// The function runs instead of a node, which has to be erased: its first results are the node's. `count`
/// gets the number of nodes that are added before it.
Clones clone_instead(const Graph& function, Graph& graph, uint32_t node, uint32_t& count);

/// Throws Error, naming the value, if values are used before they are computed or computed twice, or have
/// another type than their operation gives them; also in functions.
void verify(const Graph& graph);
/// Where assertions are on.
#ifdef NDEBUG
inline void verify_if_asserting(const Graph&) {}
#else
inline void verify_if_asserting(const Graph& graph) { verify(graph); }
#endif

}  // namespace tessera::graph
