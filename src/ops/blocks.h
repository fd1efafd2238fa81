// Operands in nearly square blocks: exchanging by way of them takes fewer transfers between some mappings.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/builder.h"
#include "ops/operand.h"
#include "ops/parted_matrix.h"
#include "program/program.h"

namespace tessera::ops {

/// Transfers of a tile in one exchange whose code takes a thirtieth of its memory; beyond this number, a
/// second exchange pays.
inline constexpr uint64_t kMostTransfers = 512;

/// A mapping of an operand in nearly square blocks, one per tile, on at most `tiles` tiles.
std::vector<program::MappedBox> blocks_on_tiles(const Operand& operand, uint32_t tiles);

/// A mapping of a matrix that is stored in parts, mapped so: each row of a part is on the tile that has its
/// first element there, in boxes of consecutive rows.
std::vector<program::MappedBox> boxes_of_parts(const PartedMatrix& parts,
                                               const std::vector<program::MappedBox>& mapping);

/// The transfers of a tile in the middle that sends or of one that receives, whichever has more of them,
/// between two mappings of an operand. What several tiles receive is sent once.
uint64_t most_transfers(const std::vector<program::MappedBox>& from,
                        const std::vector<program::MappedBox>& to);

/// A temporary in blocks, if two exchanges by way of it take far fewer transfers than one exchange from the
/// mapping `from` to the mapping `to`: between whole rows and whole columns, each tile would send something
/// to every other, and the exchange code of every transfer stays on the tiles. Both are mappings of boxes of
/// the operand.
std::optional<Operand> blocks_between(const Builder& builder, const Operand& operand,
                                      const std::vector<program::MappedBox>& from,
                                      const std::vector<program::MappedBox>& to);

/// Whether a direct exchange from one mapping to another takes more than kMostTransfers of a tile. Otherwise
/// there are no blocks between.
bool takes_many_transfers(const std::vector<program::MappedBox>& from,
                          const std::vector<program::MappedBox>& to);

/// Whether there may be blocks between an operand and `boxes` boxes of it, at most `on_a_tile` of them on the
/// same tile: one tile or another may take more than kMostTransfers. Far faster than listing the boxes.
bool may_take_blocks(const Builder& builder, const Operand& operand, uint64_t boxes, uint64_t on_a_tile);

/// What to read instead of an operand that is taken in the mapping `to`: the operand, or blocks between, to
/// which `copies` then copies it. The blocks are temporaries of `like`, an operand of the same shape.
Operand read_by_blocks(const Builder& builder, const Operand& operand, const Operand& like,
                       const std::vector<program::MappedBox>& to, program::CopySet& copies);

}  // namespace tessera::ops
