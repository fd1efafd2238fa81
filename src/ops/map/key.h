// What plans of operations between given operands depend on.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "ops/map/map.h"

namespace tessera::ops {

/// Where an operand of an operation lies: equal ones have equal plans.
struct MappedOperand {
  uint32_t variable = 0;  ///< the first operand in the same variable
  program::Box box;
  program::Role role = program::Role::temporary;
  uint32_t rows = 0, cols = 0;  ///< of the variable
  std::vector<program::MappedBox> mapping;

  bool operator==(const MappedOperand&) const = default;
};

/// Where a range of tiles is, if an operand lies on others as well, which may be on other chips.
struct Surroundings {
  machine::Machine machine;
  program::TileId first_tile = 0;

  bool operator==(const Surroundings& other) const {
    return machine.is_like(other.machine) && first_tile == other.first_tile;
  }
};

/// What the plan of an operation between given operands depends on.
struct MapKey {
  MapOperation operation;
  std::vector<MappedOperand> operands;
  machine::Machine machine;
  std::optional<Surroundings> surroundings;

  bool operator==(const MapKey& other) const {
    return operation == other.operation && operands == other.operands && machine.is_like(other.machine) &&
           surroundings == other.surroundings;
  }
};

MapKey key_of(const Builder& builder, const MapOperation& operation, std::span<const Operand> operands);

}  // namespace tessera::ops
