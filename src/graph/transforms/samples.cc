#include "graph/transforms/samples.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "graph/operation.h"
#include "graph/substream.h"
#include "graph/transforms/transforms.h"

namespace tessera::graph {
namespace {

/// Whether the values of an array repeat.
bool repeats(const std::vector<float>& values, uint32_t times) {
  const auto part = static_cast<int64_t>(values.size() / times);
  return std::equal(values.begin() + part, values.end(), values.begin(), values.end() - part);
}

/// Builds the graph for a part of another one's samples, value by value.
class Part {
 public:
  Part(const Graph& whole, uint32_t parts) : whole_(whole), parts_(parts), samples_(samples_of(whole)) {}

  std::optional<Graph> build() {
    for (ValueId id = 0; id < whole_.values().size(); ++id)
      if (whole_.info(id).kind != Kind::result) add(id);
    for (const Node& node : whole_.nodes())
      if (!add(node)) return {};
    for (const auto& [name, id] : whole_.outputs()) {
      if (!is_divided(id)) return {};
      part_.output(name, part_.value(at(id)));
    }
    name_results();
    verify_if_asserting(part_);
    return std::move(part_);
  }

 private:
  /// Names results as in the whole graph: first by temporary names, because another value may have the name
  /// by now.
  void name_results() {
    const auto rename = [&](const auto& name_of) {
      for (const auto& [id, own] : values_)
        if (const Kind kind = whole_.info(id).kind; kind == Kind::result || kind == Kind::constant)
          part_.rename(part_.value(own.first), name_of(id));
    };
    rename([](ValueId id) { return fmt::format("value {} of the whole", id); });
    rename([&](ValueId id) { return whole_.info(id).name; });
  }

  bool is_divided(ValueId id) const { return values_.at(id).second; }
  ValueId at(ValueId id) const { return values_.at(id).first; }

  bool can_divide(const TensorType& type) const {
    return !type.pattern && !type.shape.empty() && type.shape[0] % parts_ == 0;
  }
  TensorType divided(TensorType type) const {
    type.shape[0] /= parts_;
    return type;
  }

  void add(ValueId id) {
    const ValueInfo& info = whole_.info(id);
    const bool has_samples = can_divide(info.type) && info.type.shape[0] == samples_;
    switch (info.kind) {
      case Kind::input:
        return note(id, part_.input(info.name, has_samples ? divided(info.type) : info.type), has_samples);
      case Kind::constant: {
        // Contents that are the same for all samples.
        std::vector<float> values = whole_.contents(id);
        const bool is_same = has_samples && info.type.shape.size() > 1 && repeats(values, parts_);
        const TensorType type = is_same ? divided(info.type) : info.type;
        values.resize(type.elements());
        return note(id, part_.constant("", type.shape, std::move(values), type.type), is_same);
      }
      case Kind::parameter:
        if (info.type.pattern)
          return note(id,
                      part_.sparse_parameter(info.name, *info.type.pattern, info.initial, info.type.type,
                                             info.type.capacity),
                      false);
        return note(id, part_.parameter(info.name, info.type.shape, info.initial, info.type.type), false);
      default: {
        std::optional<Value> belongs;
        if (info.belongs) belongs = part_.value(at(*info.belongs));
        return note(id, part_.state(info.name, info.type, info.initial, belongs), false);
      }
    }
  }
  void note(ValueId id, Value value, bool is_divided) { values_[id] = {value.id, is_divided}; }

  bool keeps(const Divided& divided, bool any) const {
    const auto keeps_samples = divided.node.operation->traits.keeps_samples;
    return keeps_samples != nullptr &&
           std::ranges::all_of(divided.node.outputs,
                               [&](ValueId id) {
                                 const TensorType& type = whole_.type(id);
                                 return can_divide(type) && (any || type.shape[0] == samples_);
                               }) &&
           keeps_samples(divided);
  }

  bool add(const Node& node) {
    Divided operands{whole_, node, {}};
    std::vector<Value> inputs;
    for (ValueId input : node.inputs) {
      operands.operands.push_back(is_divided(input));
      inputs.push_back(part_.value(at(input)));
    }
    const bool any = std::ranges::find(operands.operands, true) != operands.operands.end();
    const bool keeps_samples = keeps(operands, any);
    // A weight's gradient lies in the session's state, where all parts would write it.
    const bool draws = draws_numbers(node);
    if (node.body || draws || is_weight_gradient(node) || (any && !keeps_samples)) return false;
    Attributes attributes = node.attributes;
    if (const auto shape = attributes.find("shape"); keeps_samples && shape != attributes.end())
      std::get<std::vector<int64_t>>(shape->second).at(0) /= parts_;
    const std::vector<Value> outputs = part_.apply(node.operation->name, inputs, std::move(attributes));
    for (size_t i = 0; i < outputs.size(); ++i) {
      const TensorType& type = whole_.type(node.outputs[i]);
      if (!(outputs[i].type() == (keeps_samples ? divided(type) : type))) return false;
      note(node.outputs[i], outputs[i], keeps_samples);
    }
    return true;
  }

  const Graph& whole_;
  const uint32_t parts_;
  const uint32_t samples_;
  Graph part_;
  std::map<ValueId, std::pair<ValueId, bool>> values_;  ///< in the part, and whether it is divided
};

}  // namespace

uint32_t samples_of(const Graph& graph) {
  const std::vector<ValueId> inputs = graph.inputs();
  if (inputs.empty() || graph.type(inputs.front()).shape.empty()) return 0;
  return graph.type(inputs.front()).shape.front();
}

std::optional<Graph> for_samples(const Graph& graph, uint32_t parts) {
  const bool is_changed = !graph.assignments().empty() || graph.replicas() > 1;
  const uint32_t samples = samples_of(graph);
  if (is_changed || parts < 2 || samples == 0 || samples % parts != 0 || graph.outputs().empty()) return {};
  try {
    return Part(graph, parts).build();
  } catch (const UsageError&) {
    return {};  // an operation does not take the part of an operand
  }
}

}  // namespace tessera::graph
