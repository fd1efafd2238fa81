// What operations that draw random numbers have in common: attributes "seed" and "stream", and a step as
// input; and of those that drop elements, "p".
#pragma once

#include <cstdint>

#include "graph/operation.h"

namespace tessera::graph {

/// The probability that an element is kept, and of what random stream its number is.
float keep_of(const Node& node);
uint64_t seed_of(const Node& node);
uint32_t stream_of(const Node& node);

/// Throws UsageError for a step that is none.
void require_step(const Signature& signature, const TensorType& step);
/// Throws UsageError for a probability or a step that is none.
void require_dropout(const Signature& signature, const TensorType& step);

}  // namespace tessera::graph
