#include "graph/transforms/transforms.h"

#include <fmt/format.h>

#include <memory>

#include "base/record_pass.h"
#include "graph/loop.h"

namespace tessera::graph {
namespace {

constexpr Transform kOfSessions[] = {
    {"move permutations", [](Graph& graph, const machine::Machine&) { return move_permutations(graph); }},
    {"decompose", decompose},
    {"remove unused", [](Graph& graph, const machine::Machine&) { return remove_unused(graph); }},
    {"fuse", [](Graph& graph, const machine::Machine&) { return fuse(graph); }},
    {"join elementwise", join_elementwise}};

/// Functions, and what became of them: those that are called several times stay one.
using Functions = std::map<std::shared_ptr<const Graph>, std::shared_ptr<const Graph>>;

/// Returns how many operations it changed in the graph and its loops.
size_t run(const Transform& transform, Graph& graph, const machine::Machine& machine,
           Functions& transformed) {
  size_t changed = transform.run(graph, machine);
  std::vector<Node> nodes = graph.nodes();
  for (Node& node : nodes) {
    if (!node.body) continue;
    std::shared_ptr<const Graph>& known = transformed[node.body];
    if (!known) {
      auto copy = std::make_shared<Graph>(*node.body);
      const size_t inside = run(transform, *copy, machine, transformed);
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
