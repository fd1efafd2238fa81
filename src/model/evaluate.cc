// The float64 reference of graphs, and initial contents.
#include <fmt/format.h>
#include <tessera/error.h>

#include "base/random.h"
#include "model/initial.h"
#include "model/list_inputs.h"
#include "model/substream.h"
#include "model/transforms/transforms.h"

namespace tessera::model {
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
  uint32_t number = 0;
  Substream substream;
  std::vector<Array> values = {};
};

void run(const Graph& graph, const Node& node, Replica& replica) {
  std::vector<Array>& values = replica.values;
  Evaluation evaluation{
      .graph = graph, .node = node, .replica = replica.number, .substream = replica.substream};
  for (ValueId input : node.inputs) evaluation.inputs.push_back(&values[input]);
  if (!values[node.outputs[0]].empty()) evaluation.before = &values[node.outputs[0]];
  std::vector<Array> results = results_of(evaluation);
  for (size_t i = 0; i < results.size(); ++i) values[node.outputs[i]] = std::move(results[i]);
}

void combine(const Node& node, std::vector<Replica>& replicas) {
  for (ValueId output : node.outputs) {
    std::vector<const Array*> results;
    for (const Replica& replica : replicas) results.push_back(&replica.values[output]);
    const Array all = node.operation->traits.over_replicas(results);
    for (Replica& replica : replicas) replica.values[output] = all;
  }
}

/// Runs a node in all replicas.
void run(const Graph& graph, const Node& node, std::vector<Replica>& replicas) {
  for (Replica& replica : replicas) run(graph, node, replica);
  if (node.operation->traits.over_replicas != nullptr) combine(node, replicas);
}

/// Inputs of which each micro-batch has some rows.
std::map<ValueId, Array> inputs_of_micro_batches(const Graph& graph, const Replica& replica) {
  std::map<ValueId, Array> whole;
  for (ValueId id = 0; id < replica.values.size(); ++id)
    if (replica.values[id].size() != graph.type(id).elements() && graph.info(id).kind == Kind::input)
      whole[id] = replica.values[id];
  return whole;
}

void begin_micro_batch(const Graph& graph, const std::map<ValueId, Array>& whole, uint32_t number,
                       Replica& replica) {
  if (graph.micro_batches() > 1 && !replica.substream.empty()) replica.substream[kMicroBatchWord] = number;
  for (const auto& [id, all] : whole) {
    const auto size = static_cast<int64_t>(graph.type(id).elements());
    replica.values[id].assign(all.begin() + number * size, all.begin() + (number + 1) * size);
  }
}

/// Runs the repeated nodes with the inputs of each micro-batch.
void run_repeated(const Graph& graph, std::vector<Replica>& replicas) {
  std::vector<std::map<ValueId, Array>> whole;
  for (const Replica& replica : replicas) whole.push_back(inputs_of_micro_batches(graph, replica));
  for (uint32_t pass = 0; pass < graph.micro_batches(); ++pass) {
    for (size_t r = 0; r < replicas.size(); ++r) begin_micro_batch(graph, whole[r], pass, replicas[r]);
    for (const Node& node : graph.nodes())
      if (node.repeated) run(graph, node, replicas);
  }
  for (Replica& replica : replicas) begin_micro_batch(graph, {}, 0, replica);
}

/// A replica's rows of an input that holds those of all.
void take_rows(const Graph& graph, ValueId id, uint32_t replica, Array& values) {
  const uint64_t bound = graph.bound_type(id).elements(), own = graph.replica_type(id).elements();
  if (graph.info(id).kind != Kind::input || bound == own) return;
  const auto begin = values.begin() + static_cast<int64_t>(replica * own);
  values = Array(begin, begin + static_cast<int64_t>(own));
}

/// In the sub-stream of the first replica and the first micro-batch.
WideArrays evaluate(const Graph& graph, const WideArrays& inputs, WideArrays& state,
                    const Substream& substream) {
  for (const ListInputs& lists : list_inputs(graph))
    check_lists(graph, lists, leaf(graph, lists.ids, inputs, state), leaf(graph, lists.num, inputs, state));
  std::vector<Replica> replicas(graph.replicas(), {0, substream});
  for (uint32_t r = 0; r < replicas.size(); ++r) {
    replicas[r].number = r;
    if (graph.replicas() > 1 && !substream.empty()) replicas[r].substream[kReplicaWord] = r;
    for (ValueId id = 0; id < graph.values().size(); ++id) {
      replicas[r].values.push_back(leaf(graph, id, inputs, state));
      take_rows(graph, id, r, replicas[r].values.back());
    }
  }
  run_repeated(graph, replicas);
  for (const Node& node : graph.nodes())
    if (!node.repeated) run(graph, node, replicas);
  WideArrays outputs;
  for (const auto& [name, id] : graph.outputs()) {
    outputs[name] = replicas[0].values[id];
    if (graph.bound_type(id) == graph.replica_type(id)) continue;
    for (size_t r = 1; r < replicas.size(); ++r)
      outputs[name].insert(outputs[name].end(), replicas[r].values[id].begin(), replicas[r].values[id].end());
  }
  for (const Assignment& assignment : graph.assignments())
    state[graph.info(assignment.state).name] = replicas[0].values[assignment.value];
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
  for (const ValueInfo& info : graph.values())
    if (info.kind == Kind::parameter || info.kind == Kind::state)
      take(info.name, initial_contents(info, seed, stream++));
}

Arrays initial_state(const Graph& graph, uint64_t seed) {
  Arrays state;
  each_initial(graph, seed,
               [&](const std::string& name, std::vector<float> values) { state[name] = std::move(values); });
  return state;
}

}  // namespace tessera::model
