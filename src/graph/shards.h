// Values of which each replica has a part, and the types of operations on them.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "graph/operation.h"

namespace tessera::graph {

/// Whether replicas have parts of a value: the only replica of a graph has all of a sharded one.
bool is_shard(const Graph& graph, ValueId id);

/// Whether replicas can have parts of a parameter of this type, or of state for it.
bool may_be_divided(const TensorType& type);

/// The types of an operation's results. An operation on sharded values runs on each replica's elements alone:
/// results of the same shape are sharded too, scalars are computed from these elements. Throws UsageError for
/// operations that cannot run so, and for operands other than sharded values of one shape and scalars.
Types types_of_results(const Operation& operation, const Signature& signature);

/// The value with whose elements a sharded result of a node is aligned.
ValueId whole_of_result(const Graph& graph, const Node& node, size_t output);
/// For a sharded output of a loop's body: the position of the body's input with whose elements it is aligned;
/// none: it is aligned with another value.
std::optional<size_t> input_of_parts(const Graph& body, size_t output);

/// The reference's elements of a sharded value: each replica's array has all of them, but only a part counts.
Array assembled(std::span<const Array* const> of_replicas);
/// The elements of one replica's part; all others are 0.
Array own_elements(const Array& all, uint32_t replica, uint32_t replicas);

}  // namespace tessera::graph
