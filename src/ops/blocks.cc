#include "ops/blocks.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "base/ceil_divide.h"
#include "ops/split.h"

namespace tessera::ops {
namespace {

using base::ceil_divide;
using program::Box;
using program::MappedBox;
using Mapping = std::vector<MappedBox>;

/// The intersections of the box of a tile in the middle of a mapping with each box on other tiles.
std::vector<Box> common_with_middle(const Mapping& mapping, const Mapping& others) {
  std::vector<Box> common;
  if (mapping.empty()) return common;
  const program::TileId tile = mapping[mapping.size() / 2].tile;
  for (const MappedBox& own : mapping) {
    if (own.tile != tile) continue;
    for (const MappedBox& other : others) {
      const Box box = intersection(own.box, other.box);
      if (other.tile != tile && !box.empty()) common.push_back(box);
    }
  }
  return common;
}

/// Blocks on a few tiles, far apart and different for each operand, because they hold all exchange code of
/// the blocks.
Mapping blocks_on_few_tiles(const Operand& operand, uint32_t few, uint32_t tiles) {
  Mapping blocks = blocks_on_tiles(operand, few);
  const uint32_t apart = tiles / few;
  for (MappedBox& block : blocks) block.tile = block.tile * apart + operand.variable % apart;
  return blocks;
}

/// An upper bound of the number of boxes on one tile; exact if boxes are in the order of their tiles.
uint64_t most_on_a_tile(const Mapping& mapping) {
  uint64_t most = 0, on_tile = 0;
  for (size_t i = 0; i < mapping.size(); ++i) {
    const bool is_first = i == 0;
    if (!is_first && mapping[i].tile < mapping[i - 1].tile) return mapping.size();
    on_tile = !is_first && mapping[i].tile == mapping[i - 1].tile ? on_tile + 1 : 1;
    most = std::max(most, on_tile);
  }
  return most;
}

}  // namespace

Mapping blocks_on_tiles(const Operand& operand, uint32_t tiles) {
  const double side = std::sqrt(static_cast<double>(operand.box.elements()) / tiles);
  const auto parts = [&](uint32_t size, uint32_t most) {
    return std::clamp(static_cast<uint32_t>(std::lround(size / side)), 1U, std::min(size, most));
  };
  const uint32_t down = parts(operand.rows(), tiles);
  const uint32_t across = parts(operand.cols(), tiles / down);
  const std::vector<uint32_t> row = split_evenly(operand.rows(), down),
                              col = split_evenly(operand.cols(), across);
  Mapping blocks;
  for (uint32_t i = 0; i < down; ++i)
    for (uint32_t j = 0; j < across; ++j)
      blocks.push_back({{row[i], row[i + 1] - row[i], col[j], col[j + 1] - col[j]}, i * across + j});
  return blocks;
}

Mapping boxes_of_parts(const PartedMatrix& parts, const Mapping& mapping) {
  std::vector<uint32_t> begin;  // of each part in a slice
  for (uint32_t i = 0; i < parts.row_parts(); ++i)
    for (uint32_t j = 0; j < parts.col_parts(); ++j) begin.push_back(parts.begin(i, j));
  Mapping boxes;
  const auto add = [&](uint32_t slice, uint32_t position, const MappedBox& mapped) {
    const uint32_t i = position / parts.col_parts(), j = position % parts.col_parts();
    const Box stored = intersection(parts.part(slice, i, j), mapped.box);
    if (stored.empty()) return;
    const uint32_t before = stored.col - begin[position], cols = parts.cols_of(j);
    const uint32_t first = ceil_divide(before, cols), end = ceil_divide(before + stored.cols, cols);
    const Box whole = parts.in_matrix(slice, i, j);
    const Box box = intersection({whole.row + first, end - first, whole.col, whole.cols}, whole);
    if (!box.empty()) boxes.push_back({box, mapped.tile});
  };
  for (const MappedBox& mapped : mapping)
    for (uint32_t slice = mapped.box.row; slice < mapped.box.row_end(); ++slice) {
      const auto after = std::ranges::upper_bound(begin, mapped.box.col);
      for (auto part = after - 1; part != begin.end() && *part < mapped.box.col_end(); ++part)
        add(slice, static_cast<uint32_t>(part - begin.begin()), mapped);
    }
  return boxes;
}

uint64_t most_transfers(const Mapping& from, const Mapping& to) {
  std::vector<Box> sent = common_with_middle(from, to);
  std::ranges::sort(sent, {},
                    [](const Box& box) { return std::tuple(box.row, box.col, box.rows, box.cols); });
  const auto repeated = std::ranges::unique(sent);
  sent.erase(repeated.begin(), repeated.end());
  return std::max(sent.size(), common_with_middle(to, from).size());
}

std::optional<Operand> blocks_between(const Builder& builder, const Operand& operand, const Mapping& from,
                                      const Mapping& to) {
  constexpr uint64_t kMostBytes = 4096;  // bytes of a block on few tiles
  if (builder.is_host() || operand.box.empty()) return {};
  const uint64_t direct = most_transfers(from, to);
  if (direct <= kMostTransfers) return {};
  const uint32_t tiles = builder.machine().tiles;
  const auto few = static_cast<uint32_t>(std::lround(std::sqrt(tiles)));
  const auto by_way_of = [&](const Mapping& blocks) {
    return most_transfers(from, blocks) + most_transfers(blocks, to);
  };
  Mapping best = blocks_on_tiles(operand, tiles);
  uint64_t least = by_way_of(best);
  if (operand.box.elements() * size_of(builder.type_of(operand)) <= few * kMostBytes) {
    Mapping blocks = blocks_on_few_tiles(operand, few, tiles);
    if (const uint64_t transfers = by_way_of(blocks); transfers < least) {
      least = transfers;
      best = std::move(blocks);
    }
  }
  if (2 * least > direct) return {};
  return builder.like(operand, builder.variable_name(operand) + ".blocks", std::move(best),
                      builder.purpose_of(operand));
}

bool takes_many_transfers(const Mapping& from, const Mapping& to) {
  return most_transfers(from, to) > kMostTransfers;
}

bool may_take_blocks(const Builder& builder, const Operand& operand, uint64_t boxes, uint64_t on_a_tile) {
  const Mapping& lies = builder.program().variable(operand.variable).mapping;
  if (lies.size() * on_a_tile > kMostTransfers) return true;
  return boxes * most_on_a_tile(lies) > kMostTransfers;
}

Operand read_by_blocks(const Builder& builder, const Operand& operand, const Operand& like, const Mapping& to,
                       program::CopySet& copies) {
  const std::optional<Operand> blocks = blocks_between(builder, like, builder.mapping_of(operand), to);
  if (!blocks) return operand;
  copies.groups.push_back(copy_of(operand, *blocks));
  return *blocks;
}

}  // namespace tessera::ops
