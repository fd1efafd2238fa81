// Compute sets in which each tile processes its own part of an operand.
#pragma once

#include <vector>

#include "ops/operand.h"
#include "program/program.h"

namespace tessera::ops {

/// An operand, with a box per owner of a part.
struct OwnerField {
  Operand operand;
  std::vector<program::Box> boxes;
};

/// One vertex per box of a mapping, on its tile: a group for each run of ascending tiles.
std::vector<program::VertexGroup> groups_of_owners(const std::vector<program::MappedBox>& owners,
                                                   const program::Codelet& codelet,
                                                   const std::vector<OwnerField>& fields,
                                                   const std::vector<program::Param>& params);

/// The boxes of a mapping.
std::vector<program::Box> boxes_of(const std::vector<program::MappedBox>& mapping);
/// Box i on tile i.
std::vector<program::MappedBox> on_tiles(const std::vector<program::Box>& boxes);

}  // namespace tessera::ops
