#include <fmt/format.h>
#include <tessera/error.h>

#include "graph/operation.h"
#include "graph/shards.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

class Verification {
 public:
  explicit Verification(const Graph& graph) : graph_(graph), is_known_(graph.values().size()) {
    for (ValueId id = 0; id < is_known_.size(); ++id) is_known_[id] = graph.info(id).kind != Kind::result;
  }

  void run() {
    for (uint32_t n = 0; n < graph_.nodes().size(); ++n) {
      const Node& node = graph_.nodes()[n];
      for (ValueId input : node.inputs) require(is_known_.at(input), input, "is used before it is computed");
      check_results(node, n);
      if (node.body) verify(*node.body);
    }
    for (const auto& [name, id] : graph_.outputs())
      require(is_known_.at(id), id, "is an output, and nothing computes it");
    for (const auto& [state, value] : graph_.assignments()) {
      require(is_known_.at(value), value, "is assigned, and nothing computes it");
      require(graph_.type(state) == graph_.type(value), state, "is assigned a value of another type");
    }
  }

 private:
  void require(bool holds, ValueId id, std::string_view what) const {
    if (!holds) throw Error(fmt::format("the graph is not valid: '{}' {}", graph_.info(id).name, what));
  }

  void check_results(const Node& node, uint32_t index) {
    Types inputs;
    for (ValueId input : node.inputs) inputs.push_back(graph_.type(input));
    const Types types = types_of_results(*node.operation, {node.operation->name, inputs, node});
    if (types.size() != node.outputs.size())
      throw Error(fmt::format("the graph is not valid: {} has {} results, and {} values for them",
                              node.operation->name, types.size(), node.outputs.size()));
    for (size_t i = 0; i < types.size(); ++i) {
      const ValueId output = node.outputs[i];
      require(!is_known_.at(output), output, "is computed twice, or no result");
      require(graph_.info(output).node == index, output,
              "names another operation than the one that computes it");
      require(graph_.type(output) == types[i], output, "has another type than its operation gives it");
      is_known_[output] = true;
    }
  }

  const Graph& graph_;
  std::vector<bool> is_known_;
};

}  // namespace

void verify(const Graph& graph) { Verification(graph).run(); }

}  // namespace tessera::graph
