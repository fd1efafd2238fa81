#include "graph/shards.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/integer_types.h"
#include "program/collective.h"

namespace tessera::graph {
namespace {

bool may_take_shards(const Traits& traits) {
  return traits.elementwise || traits.sums_elements || !traits.updates.empty();
}

void require_one_shape(std::string_view operation, const Types& inputs, const TensorType& shard) {
  for (const TensorType& input : inputs)
    if (input.sharded ? input.shape != shard.shape : input.elements() != 1)
      throw UsageError(fmt::format("{}: {} beside {}, of which each replica has a part", operation,
                                   to_string(input), to_string(shard)));
}

/// Calls visit(i) for the elements of a replica's part.
template <class Visit>
void each_own_element(uint64_t elements, uint32_t replica, uint32_t replicas, const Visit& visit) {
  const uint64_t end = program::chunk_begin(elements, replica + 1, replicas);
  for (uint64_t i = program::chunk_begin(elements, replica, replicas); i < end; ++i) visit(i);
}

}  // namespace

bool is_shard(const Graph& graph, ValueId id) { return graph.replicas() > 1 && graph.type(id).sharded; }

bool may_be_divided(const TensorType& type) {
  return !is_integer(type.type) && !type.capacity && type.elements() > 1;
}

Types types_of_results(const Operation& operation, const Signature& signature) {
  const auto shard = std::ranges::find(signature.inputs, true, &TensorType::sharded);
  if (shard == signature.inputs.end() || operation.traits.over_replicas != nullptr)
    return operation.infer(signature);
  if (!may_take_shards(operation.traits))
    throw UsageError(fmt::format("{}: it takes whole values, not {}", operation.name, to_string(*shard)));
  require_one_shape(operation.name, signature.inputs, *shard);
  Types whole = signature.inputs;
  for (TensorType& type : whole) type.sharded = false;
  Types results = operation.infer({signature.operation, whole, signature.attributes, signature.graph});
  for (TensorType& type : results) {
    type.sharded = type.shape == shard->shape;
    if (!type.sharded && type.elements() != 1)
      throw UsageError(fmt::format("{}: {} of {}, of which each replica has a part", operation.name,
                                   to_string(type), to_string(*shard)));
  }
  return results;
}

ValueId whole_of_result(const Graph& graph, const Node& node, size_t output) {
  if (node.body)
    if (const auto input = input_of_parts(*node.body, output)) return node.inputs.at(*input);
  for (ValueId input : node.inputs)
    if (graph.type(input).sharded) return graph.info(input).belongs.value();
  return node.inputs.back();
}

std::optional<size_t> input_of_parts(const Graph& body, size_t output) {
  const ValueId id = std::next(body.outputs().begin(), static_cast<std::ptrdiff_t>(output))->second;
  const std::vector<ValueId> inputs = body.inputs();
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i] == body.info(id).belongs) return i;
  return {};
}

Array assembled(std::span<const Array* const> of_replicas) {
  const auto replicas = static_cast<uint32_t>(of_replicas.size());
  Array all = *of_replicas.front();
  for (uint32_t r = 1; r < replicas; ++r)
    each_own_element(all.size(), r, replicas, [&](uint64_t i) { all[i] = (*of_replicas[r])[i]; });
  return all;
}

Array own_elements(const Array& all, uint32_t replica, uint32_t replicas) {
  Array own(all.size());
  each_own_element(all.size(), replica, replicas, [&](uint64_t i) { own[i] = all[i]; });
  return own;
}

}  // namespace tessera::graph
