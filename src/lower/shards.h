// The contents of state of which each replica has a part, in the order in which the whole is stored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "program/program.h"

namespace tessera::graph {

/// A part beside a variable, and the number of parts.
struct PartOfVariable {
  const program::Variable& whole;
  const program::Variable& part;
  uint32_t replicas = 1;
};

/// The elements of a replica's part, taken from the whole, row-major; what is beyond them is 0.
std::vector<float> take_part(const PartOfVariable& of, std::span<const float> whole, uint32_t replica);
/// Puts a replica's elements in their places.
void put_part(const PartOfVariable& of, std::span<const float> part, uint32_t replica,
              std::span<float> whole);

}  // namespace tessera::graph
