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

/// Lets the owner of each part of a result add the rows of its box of the received data.
program::ComputeSet sums_of_owners(const std::vector<program::MappedBox>& owners, const OwnerField& received,
                                   const Operand& result);
/// The same for all rows of partial sums, which have the columns of the result.
program::ComputeSet sums_of_rows(std::vector<program::MappedBox> owners, const Operand& partials,
                                 const Operand& result);

/// The boxes of a mapping.
std::vector<program::Box> boxes_of(const std::vector<program::MappedBox>& mapping);
/// Box i on tile i.
std::vector<program::MappedBox> on_tiles(const std::vector<program::Box>& boxes);

}  // namespace tessera::ops
