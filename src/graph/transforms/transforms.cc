#include "graph/transforms/transforms.h"

#include <fmt/format.h>

#include <memory>

#include "base/record_pass.h"
#include "graph/loop.h"
#include "graph/stages.h"

namespace tessera::graph {
namespace {

constexpr Transform kOfSessions[] = {
    {"move permutations", [](Graph& graph, const machine::Machine&) { return move_permutations(graph); }},
    {"decompose", decompose},
    {"remove unused", [](Graph& graph, const machine::Machine&) { return remove_unused(graph); }},
    {"fuse", [](Graph& graph, const machine::Machine&) { return fuse(graph); }},
    {"join elementwise", join_elementwise, true}};

/// Transformed functions by the original ones, so that a function called several times stays one.
using Functions = std::map<std::shared_ptr<const Graph>, std::shared_ptr<const Graph>>;

/// Returns how many operations it changed in the graph and its loops. `in_stages`: whether it is the body of
/// a loop of a graph with stages of whole layers.
size_t run(const Transform& transform, Graph& graph, const machine::Machine& machine, Functions& transformed,
           bool in_stages = false) {
  const bool has_layers = in_stages || has_stages_of_layers(graph);
  size_t changed = has_layers && transform.joins_stages ? 0 : transform.run(graph, machine);
  std::vector<Node> nodes = graph.nodes();
  for (Node& node : nodes) {
    if (!node.body) continue;
    std::shared_ptr<const Graph>& known = transformed[node.body];
    if (!known) {
      auto copy = std::make_shared<Graph>(*node.body);
      const size_t inside = run(transform, *copy, machine, transformed, has_layers && is_loop(node));
      if (is_loop(node)) changed += inside;
      known = std::move(copy);
    }
    node.body = known;
  }
  graph.set_nodes(std::move(nodes));
  return changed;
}

}  // namespace

std::span<const Transform> session_transforms() { return kOfSessions; }

std::vector<PassRecord> transform(Graph& graph, std::span<const Transform> transforms,
                                  const machine::Machine& machine) {
  std::vector<PassRecord> records;
  for (const Transform& each : transforms)
    base::record_pass(records, std::string(each.name), [&] {
      Functions transformed;
      const size_t changed = run(each, graph, machine, transformed);
      verify_if_asserting(graph);
      return fmt::format("{} operations", changed);
    });
  return records;
}

}  // namespace tessera::graph
