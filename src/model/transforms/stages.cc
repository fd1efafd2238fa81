#include "model/transforms/stages.h"

#include <algorithm>
#include <optional>

#include "model/loop.h"

namespace tessera::model {
namespace {

uint64_t bytes_of(const TensorType& type) {
  const uint64_t elements = type.pattern
                                ? type.pattern->blocks() * type.pattern->block_size * type.pattern->block_size
                                : type.elements();
  return elements * size_of(type.type);
}

class LayerStages {
 public:
  LayerStages(const Graph& graph, uint32_t stages)
      : graph_(opened(graph)), stages_(stages), of_value_(graph_.values.size()) {}

  std::vector<uint32_t> find() {
    place_parameters();
    std::vector<uint32_t> of_node;
    for (const OpenedNode& node : graph_.nodes) {
      of_node.push_back(is_loop(*node.node) ? 0 : stage_of(node));
      for (size_t i = 0; i < node.outputs.size(); ++i)
        of_value_[node.outputs[i]] = is_loop(*node.node) ? of_value_[node.inputs[i]] : of_node.back();
    }
    return of_node;
  }

 private:
  bool is_parameter(size_t value) const { return graph_.values[value].info().kind == Kind::parameter; }

  /// In the order in which forward operations take them. A stage ends where it has its part of all bytes, or
  /// closest to that.
  void place_parameters() {
    uint64_t total = 0;
    each_parameter([&](size_t, uint64_t bytes) { total += bytes; });
    uint64_t before = 0;
    uint32_t stage = 0;
    each_parameter([&](size_t value, uint64_t bytes) {
      const uint64_t end = total * (stage + 1) / stages_;
      if (stage + 1 < stages_ && before > 0 && before + bytes / 2 >= end) ++stage;
      before += bytes;
      of_value_[value] = stage;
    });
  }

  template <class Visit>
  void each_parameter(const Visit& visit) const {
    std::vector<bool> seen(graph_.values.size());
    for (const OpenedNode& node : graph_.nodes)
      for (const size_t input : node.inputs)
        if (!node.node->backward && is_parameter(input) && !seen[input]) {
          seen[input] = true;
          visit(input, bytes_of(graph_.values[input].info().type));
        }
  }

  /// Where its parameter is; otherwise a forward operation follows its inputs, and a gradient the forward
  /// value from which it is computed.
  uint32_t stage_of(const OpenedNode& node) const {
    std::optional<uint32_t> last, of_forward;
    for (const size_t input : node.inputs) {
      const OpenedValue& value = graph_.values[input];
      const size_t belongs = value.info().belongs.value_or(input);
      if (is_parameter(belongs) && of_value_[belongs]) return *of_value_[belongs];
      if (!of_value_[input]) continue;
      if (value.node && !graph_.nodes[*value.node].node->backward)
        of_forward = std::max(of_forward.value_or(0), *of_value_[input]);
      last = std::max(last.value_or(0), *of_value_[input]);
    }
    if (node.node->backward && of_forward) return *of_forward;
    return last.value_or(0);
  }

  OpenedGraph graph_;
  uint32_t stages_;
  std::vector<std::optional<uint32_t>> of_value_;
};

}  // namespace

std::vector<uint32_t> stages_of_layers(const Graph& graph, uint32_t stages) {
  return LayerStages(graph, stages).find();
}

}  // namespace tessera::model
