// The float64 reference of graphs, and initial contents.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "base/random.h"
#include "graph/initial.h"
#include "graph/list_inputs.h"
#include "graph/loop.h"
#include "graph/shards.h"
#include "graph/substream.h"
#include "graph/transforms/transforms.h"
#include "kernels/common/numbers.h"

namespace tessera::graph {
namespace {

const Array& array_of(const WideArrays& arrays, const std::string& name, const TensorType& type,
                      std::string_view what) {
  const auto found = arrays.find(name);
  if (found == arrays.end()) throw UsageError(fmt::format("the {} '{}' is missing", what, name));
  if (found->second.size() != type.elements())
    throw UsageError(fmt::format("the {} '{}' has {} elements; {} has {}", what, name, found->second.size(),
                                 to_string(type), type.elements()));
  return found->second;
}

Array leaf(const Graph& graph, ValueId id, const WideArrays& inputs, const WideArrays& state) {
  const ValueInfo& info = graph.info(id);
  switch (info.kind) {
    case Kind::input: return array_of(inputs, info.name, graph.bound_type(id), "input");
    case Kind::parameter:
    case Kind::state: return array_of(state, info.name, info.type, "state");
    case Kind::constant: return {info.initial.values->begin(), info.initial.values->end()};
    case Kind::result: break;
  }
  return {};
}

/// Each parameter has its own stream of random numbers.
std::vector<float> initial_contents(const ValueInfo& info, uint64_t seed, uint32_t stream) {
  std::vector<float> contents(info.type.elements());
  const base::RandomStream random(seed, 0, stream);
  const auto scale = static_cast<float>(info.initial.scale);
  switch (info.initial.kind) {
    case Initial::Kind::zeros: break;
    case Initial::Kind::constant: contents.assign(contents.size(), scale); break;
    case Initial::Kind::normal: random.fill_normal(contents); break;
    case Initial::Kind::uniform: random.fill_symmetric(contents); break;
    case Initial::Kind::values:
      if (info.initial.values->size() != contents.size())
        throw UsageError(fmt::format("{}: {} initial values for {}", info.name, info.initial.values->size(),
                                     to_string(info.type)));
      return *info.initial.values;
  }
  if (info.initial.kind == Initial::Kind::normal || info.initial.kind == Initial::Kind::uniform)
    for (float& x : contents) x *= scale;
  return contents;
}

/// One replica of a graph.
struct Replica {
  Substream substream;
  uint32_t number = 0;
  uint32_t replicas = 1;
  std::vector<Array> values = {};
};

/// Whether a node sums over the elements of sharded values.
bool sums_parts(const Graph& graph, const Node& node) {
  const auto is_sharded = [&](ValueId id) { return graph.type(id).sharded; };
  return node.operation->traits.over_replicas == nullptr && std::ranges::any_of(node.inputs, is_sharded) &&
         !std::ranges::all_of(node.outputs, is_sharded);
}

void run(const Graph& graph, const Node& node, Replica& replica) {
  std::vector<Array>& values = replica.values;
  Evaluation evaluation{.graph = graph, .node = node, .substream = replica.substream};
  std::deque<Array> parts;
  const bool takes_parts = sums_parts(graph, node);
  for (ValueId input : node.inputs) {
    const bool is_part = takes_parts && graph.type(input).sharded;
    if (is_part) parts.push_back(own_elements(values[input], replica.number, replica.replicas));
    evaluation.inputs.push_back(is_part ? &parts.back() : &values[input]);
  }
  std::vector<Array> results = results_of(evaluation);
  for (size_t i = 0; i < results.size(); ++i) values[node.outputs[i]] = std::move(results[i]);
}

std::vector<const Array*> of_replicas(const std::vector<Replica>& replicas, ValueId id) {
  std::vector<const Array*> all;
  for (const Replica& replica : replicas) all.push_back(&replica.values[id]);
  return all;
}

void combine(const Node& node, std::vector<Replica>& replicas) {
  const uint32_t group = combined_replicas(node, static_cast<uint32_t>(replicas.size()));
  for (ValueId output : node.outputs) {
    const std::vector<const Array*> results = of_replicas(replicas, output);
    for (size_t begin = 0; begin < replicas.size(); begin += group) {
      const Array all = node.operation->traits.over_replicas(std::span(results).subspan(begin, group));
      for (size_t r = begin; r < begin + group; ++r) replicas[r].values[output] = all;
    }
  }
}

void run_nodes(const Graph& graph, std::vector<Replica>& replicas);

/// The values of a body to which nothing is given yet.
std::vector<Array> constants_of(const Graph& body) {
  std::vector<Array> values(body.values().size());
  for (ValueId id = 0; id < values.size(); ++id)
    if (body.info(id).kind == Kind::constant)
      values[id].assign(body.contents(id).begin(), body.contents(id).end());
  return values;
}

/// A loop in one replica, pass by pass.
class LoopRun {
 public:
  LoopRun(const Node& node, Replica& outside, Replica& inside)
      : form_(loop_form(node)), body_(*node.body), outside_(outside), inside_(inside), node_(node) {
    inside_.substream = outside.substream;
    inside_.values = constants_of(body_);
    for (size_t i = 0; i < form_.inputs.size(); ++i)
      if (form_.inputs[i] != LoopInput::indexed) value_inside(i) = outside.values[node.inputs[i]];
    for (size_t i = 0; i < form_.outputs.size(); ++i) {
      const uint64_t elements = body_.type(form_.body_outputs[i]).elements();
      const uint32_t times = form_.outputs[i] == LoopOutput::stacked ? form_.count : 1;
      outside_.values[node.outputs[i]].assign(elements * times, 0);
    }
  }

  void begin(uint32_t pass) {
    const uint32_t index = form_.index(pass);
    if (const auto number = number_of_call(node_); number && !outside_.substream.empty())
      inside_.substream = *number == 0 ? in_micro_batch(outside_.substream, index)
                                       : called(called(outside_.substream, *number), index);
    for (size_t i = 0; i < form_.inputs.size(); ++i) {
      if (form_.inputs[i] != LoopInput::indexed) continue;
      const auto size = static_cast<int64_t>(body_.type(form_.body_inputs[i]).elements());
      const auto begin = outside_.values[node_.inputs[i]].begin() + index * size;
      value_inside(i).assign(begin, begin + size);
    }
  }

  void end(uint32_t pass) {
    for (size_t i = 0; i < form_.outputs.size(); ++i) {
      const Array& own = inside_.values[form_.body_outputs[i]];
      Array& all = outside_.values[node_.outputs[i]];
      if (form_.outputs[i] == LoopOutput::last) all = own;
      if (form_.outputs[i] == LoopOutput::stacked)
        std::ranges::copy(own, all.begin() + static_cast<int64_t>(form_.index(pass) * own.size()));
      if (form_.outputs[i] == LoopOutput::summed)
        for (size_t e = 0; e < all.size(); ++e) all[e] += form_.scale * own[e];
    }
    std::map<size_t, Array> carried;
    for (const auto& [input, output] : form_.carried)
      carried[input] = inside_.values[form_.body_outputs[output]];
    for (auto& [input, array] : carried) value_inside(input) = std::move(array);
  }

 private:
  Array& value_inside(size_t input) { return inside_.values[form_.body_inputs[input]]; }

  LoopForm form_;
  const Graph& body_;
  Replica& outside_;
  Replica& inside_;
  const Node& node_;
};

void run_loop(const Node& node, std::vector<Replica>& replicas) {
  std::vector<Replica> inside(replicas.size());
  std::vector<LoopRun> runs;
  for (size_t r = 0; r < replicas.size(); ++r) runs.emplace_back(node, replicas[r], inside[r]);
  for (uint32_t pass = 0; pass < loop_form(node).count; ++pass) {
    for (LoopRun& run : runs) run.begin(pass);
    run_nodes(*node.body, inside);
    for (LoopRun& run : runs) run.end(pass);
  }
}

bool combines_replicas(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(), [](const Node& node) {
    return node.operation->traits.over_replicas != nullptr || (node.body && combines_replicas(*node.body));
  });
}

/// A function in all replicas at once.
void run_call(const Node& node, std::vector<Replica>& replicas) {
  const Graph& function = *node.body;
  const std::vector<ValueId> inputs = function.inputs();
  const std::optional<uint32_t> number = number_of_call(node);
  std::vector<Replica> inside;
  for (const Replica& outside : replicas) {
    inside.push_back({.substream = number ? called(outside.substream, *number) : outside.substream,
                      .number = outside.number,
                      .replicas = outside.replicas,
                      .values = constants_of(function)});
    for (size_t i = 0; i < inputs.size(); ++i)
      inside.back().values[inputs[i]] = outside.values[node.inputs[i]];
  }
  run_nodes(function, inside);
  size_t position = 0;
  for (const auto& [name, id] : function.outputs()) {
    for (size_t r = 0; r < replicas.size(); ++r)
      replicas[r].values[node.outputs[position]] = inside[r].values[id];
    ++position;
  }
}

/// Runs each node in all replicas.
void run_nodes(const Graph& graph, std::vector<Replica>& replicas) {
  for (const Node& node : graph.nodes()) {
    if (is_loop(node)) {
      run_loop(node, replicas);
      continue;
    }
    if (replicas.size() > 1 && node.body && combines_replicas(*node.body)) {
      run_call(node, replicas);
      continue;
    }
    for (Replica& replica : replicas) run(graph, node, replica);
    if (node.operation->traits.over_replicas != nullptr) combine(node, replicas);
  }
}

/// A replica's rows of an input that holds the rows of all replicas.
void take_rows(const Graph& graph, ValueId id, uint32_t replica, Array& values) {
  const uint64_t bound = graph.bound_type(id).elements(), own = graph.type(id).elements();
  if (graph.info(id).kind != Kind::input || bound == own) return;
  const auto begin = values.begin() + static_cast<int64_t>(replica * own);
  values = Array(begin, begin + static_cast<int64_t>(own));
}

/// Evaluates in the sub-stream of the first replica and the first micro-batch.
WideArrays evaluate(const Graph& graph, const WideArrays& inputs, WideArrays& state,
                    const Substream& substream) {
  for (const ListInputs& lists : list_inputs(graph))
    check_lists(graph, lists, leaf(graph, lists.ids, inputs, state), leaf(graph, lists.num, inputs, state));
  std::vector<Replica> replicas(graph.replicas(), {substream, 0, graph.replicas()});
  for (uint32_t r = 0; r < replicas.size(); ++r) {
    replicas[r].number = r;
    if (graph.replicas() > 1 && !substream.empty()) replicas[r].substream[kReplicaWord] = r;
    for (ValueId id = 0; id < graph.values().size(); ++id) {
      replicas[r].values.push_back(leaf(graph, id, inputs, state));
      take_rows(graph, id, r, replicas[r].values.back());
    }
  }
  run_nodes(graph, replicas);
  WideArrays outputs;
  for (const auto& [name, id] : graph.outputs()) {
    outputs[name] = replicas[0].values[id];
    if (graph.bound_type(id) == graph.type(id)) continue;
    for (size_t r = 1; r < replicas.size(); ++r)
      outputs[name].insert(outputs[name].end(), replicas[r].values[id].begin(), replicas[r].values[id].end());
  }
  for (const Assignment& assignment : graph.assignments())
    state[graph.info(assignment.state).name] = graph.type(assignment.value).sharded
                                                   ? assembled(of_replicas(replicas, assignment.value))
                                                   : replicas[0].values[assignment.value];
  return outputs;
}

}  // namespace

WideArrays evaluate(const Graph& graph, const WideArrays& inputs, WideArrays& state) {
  return evaluate(graph, inputs, state, Substream(substream_words(graph)));
}

std::vector<Array> results_of(const Evaluation& e) {
  if (e.node.operation->reference != nullptr) return e.node.operation->reference(e);
  return results_of(*decomposition_of(e.graph, e.node), e.inputs, e.substream);
}

std::vector<Array> results_of_passes(const Evaluation& e) {
  std::vector<Replica> replicas(1);
  replicas[0] = {.substream = e.substream, .values = std::vector<Array>(e.graph.values().size())};
  for (size_t i = 0; i < e.inputs.size(); ++i) replicas[0].values[e.node.inputs[i]] = *e.inputs[i];
  run_loop(e.node, replicas);
  std::vector<Array> results;
  for (ValueId output : e.node.outputs) results.push_back(std::move(replicas[0].values[output]));
  return results;
}

std::vector<Array> results_of(const Graph& function, const std::vector<const Array*>& inputs,
                              const Substream& substream) {
  WideArrays arrays, state;
  const std::vector<ValueId> ids = function.inputs();
  for (size_t i = 0; i < ids.size(); ++i) arrays[function.info(ids[i]).name] = *inputs[i];
  std::vector<Array> results;
  for (auto& [name, values] : evaluate(function, arrays, state, substream))
    results.push_back(std::move(values));
  return results;
}

void each_initial(const Graph& graph, uint64_t seed,
                  const std::function<void(const std::string&, std::vector<float>)>& take) {
  uint32_t stream = 0;
  for (const ValueInfo& info : graph.values()) {
    if (!is_kept(info)) continue;
    std::vector<float> contents = initial_contents(info, seed, stream++);
    kernels::require_held(fmt::format("'{}'", info.name), contents, info.type.type);
    take(info.name, std::move(contents));
  }
}

Arrays initial_state(const Graph& graph, uint64_t seed) {
  Arrays state;
  each_initial(graph, seed,
               [&](const std::string& name, std::vector<float> values) { state[name] = std::move(values); });
  return state;
}

}  // namespace tessera::graph
