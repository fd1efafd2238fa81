// Common attributes of operations that draw random numbers: "seed" and "stream", with a step as input; and
// "p" of operations that drop elements.
#pragma once

#include <cstdint>

#include "graph/operation.h"

namespace tessera::graph {

/// The probability that an element is kept; the random stream of its number.
float keep_of(const Node& node);
uint64_t seed_of(const Node& node);
uint32_t stream_of(const Node& node);

/// Throws UsageError unless the step is a u32 scalar.
void require_step(const Signature& signature, const TensorType& step);
/// Throws UsageError for a probability out of range, and unless the step is a u32 scalar.
void require_dropout(const Signature& signature, const TensorType& step);

}  // namespace tessera::graph
