// All operations, by file.
#pragma once

#include <optional>
#include <span>

#include "graph/operation.h"

// The files of operations/, each of which defines `NAME_operations()`.
#define TESSERA_OPERATION_FILES(X) \
  X(elementwise)                   \
  X(expression)                    \
  X(exact)                         \
  X(where)                         \
  X(activations)                   \
  X(linear)                        \
  X(patches)                       \
  X(convolution)                   \
  X(depthwise)                     \
  X(batched)                       \
  X(attention)                     \
  X(reduce)                        \
  X(softmax)                       \
  X(scan)                          \
  X(layer_norm)                    \
  X(loss)                          \
  X(shape)                         \
  X(cast)                          \
  X(dropout)                       \
  X(embedding)                     \
  X(replicas)                      \
  X(update)                        \
  X(call)                          \
  X(loop)                          \
  X(structured)                    \
  X(permute)                       \
  X(permute_features)              \
  X(select_features)               \
  X(spiking)                       \
  X(spike_counts)                  \
  X(neurons)                       \
  X(pooling)                       \
  X(interpolate)

namespace tessera::graph {

#define TESSERA_DECLARE(file) std::span<const Operation> file##_operations();
TESSERA_OPERATION_FILES(TESSERA_DECLARE)
#undef TESSERA_DECLARE

/// Operation::absorb of a reshape: fuses it with a permutation that follows, if that can read the reshape's
/// input as it lies.
std::optional<Node> absorb_permutation(const Graph& graph, const Node& own, const Node& next);

/// Throws UsageError for a graph that cannot be called as a function.
void check_function(const Graph& function);

}  // namespace tessera::graph
