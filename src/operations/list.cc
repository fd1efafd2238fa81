#include "operations/list.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <limits>

#include "base/integer_types.h"

namespace tessera::graph {
namespace {

std::vector<const Operation*> gather() {
  std::vector<const Operation*> all;
#define TESSERA_GATHER(file) \
  for (const Operation& operation : file##_operations()) all.push_back(&operation);
  TESSERA_OPERATION_FILES(TESSERA_GATHER)
#undef TESSERA_GATHER
  return all;
}

}  // namespace

std::span<const Operation* const> all_operations() {
  static const std::vector<const Operation*> all = gather();
  return all;
}

const Operation& find_operation(std::string_view name) {
  const auto found = std::ranges::find(all_operations(), name, &Operation::name);
  if (found == all_operations().end()) throw UsageError(fmt::format("there is no operation '{}'", name));
  return **found;
}

void require_dense(const Signature& s) {
  for (const TensorType& type : s.inputs)
    if (type.pattern)
      throw UsageError(
          fmt::format("{} of {}, which is sparse, is not possible", s.operation, to_string(type)));
}

void require_float(const Signature& s, const TensorType& value) {
  if (is_integer(value.type))
    throw UsageError(
        fmt::format("{}: {} is not possible: use f32, f16 or bf16", s.operation, to_string(value)));
}

void require_type(const Signature& s, const TensorType& given, std::string_view name,
                  const TensorType& wanted) {
  if (!(given == wanted))
    throw UsageError(
        fmt::format("{}: {} is {}; it must be {}", s.operation, name, to_string(given), to_string(wanted)));
}

Shape shape_of(const Signature& s) {
  Shape shape;
  for (int64_t size : s.attributes.list("shape")) {
    if (size < 1 || size > std::numeric_limits<uint32_t>::max())
      throw UsageError(fmt::format("{}: a size of {} is not from 1 to 2^32 - 1", s.operation, size));
    shape.push_back(static_cast<uint32_t>(size));
  }
  return shape;
}

bool is_update(const Node& node) { return !node.operation->traits.updates.empty(); }

ValueId updated_parameter(const Graph& graph, const Node& node) {
  const ValueId updated = node.inputs[node.operation->traits.updates.front()];
  return graph.info(updated).belongs.value_or(updated);
}

std::vector<ValueId> updated_values(const Node& node) {
  std::vector<ValueId> updated;
  for (size_t operand : node.operation->traits.updates)
    if (updated.size() < node.outputs.size()) updated.push_back(node.inputs[operand]);
  return updated;
}

uint32_t combined_replicas(const Node& node, uint32_t replicas) {
  const auto group = static_cast<uint32_t>(node.integer("group", 0));
  if (group == 0 || replicas == 1) return replicas;
  if (replicas % group != 0)
    throw UsageError(fmt::format(
        "{}: groups of {} replicas, of which there are {}: a divisor of {} is needed as the group or, "
        "for statistics of batch norms, as replicas (batch_norm_of_batch) or norm_replicas",
        node.operation->name, group, replicas, replicas));
  return group;
}

bool may_overlap(const Node& node) {
  return node.operation->traits.over_replicas != nullptr && node.integer("overlap", 0) != 0;
}

bool sums_gradients(const Node& node) {
  return node.operation->traits.over_replicas != nullptr && node.integer("overlap", -1) != -1;
}

std::optional<ValueId> weight_input(const Node& node) {
  const auto& weight = node.operation->traits.weight;
  return weight ? std::optional(node.inputs[weight->operand]) : std::nullopt;
}

bool is_weight_gradient(const Node& node) {
  const auto& weight = node.operation->traits.weight;
  return weight && weight->product == ProductKind::sddmm;
}

size_t inputs_read(const Node& node) {
  if (is_weight_gradient(node)) return node.operation->traits.weight->operand;
  // The value as whose elements parts lie, which comes last.
  const bool takes_place = node.operation->traits.shards && node.inputs.size() > 1;
  return node.inputs.size() - (takes_place ? 1 : 0);
}

}  // namespace tessera::graph
