#include "ops/sparse/static/static_layout.h"

#include <algorithm>
#include <cstring>

namespace tessera::ops {

using program::Box;
using program::BoxSeries;
using program::CopyGroup;
using program::MappedBox;
using program::Role;
using program::TileId;
using program::VariableId;

Indices::Indices(const std::vector<uint32_t>& numbers) {
  const bool narrow = std::all_of(numbers.begin(), numbers.end(), [](uint32_t i) { return i <= 0xFFFF; });
  type = narrow ? Type::u16 : Type::u32;
  auto bytes = std::make_shared<std::vector<std::byte>>(numbers.size() * size_of(type));
  if (narrow) {
    auto* to = reinterpret_cast<uint16_t*>(bytes->data());
    for (uint32_t i : numbers) *to++ = static_cast<uint16_t>(i);
  } else if (!numbers.empty()) {
    std::memcpy(bytes->data(), numbers.data(), bytes->size());
  }
  contents = {bytes, bytes->data()};
}

std::vector<MappedBox> on_tiles(const std::vector<Box>& boxes) {
  std::vector<MappedBox> mapping;
  for (TileId tile = 0; tile < boxes.size(); ++tile) mapping.push_back({boxes[tile], tile});
  return mapping;
}

std::vector<Box> boxes_of(const std::vector<MappedBox>& mapping) {
  std::vector<Box> boxes;
  for (const MappedBox& mapped : mapping) boxes.push_back(mapped.box);
  return boxes;
}

CopyGroup gather_rows(VariableId from, VariableId to, uint32_t cols, Rows rows) {
  const Box all{0, static_cast<uint32_t>(rows->size()), 0, cols};
  return {from, to, 1, BoxSeries::same(all), BoxSeries::same(all), std::move(rows), {}, {}};
}

std::vector<program::VertexGroup> groups_of_owners(const std::vector<MappedBox>& owners,
                                                   const program::Codelet& codelet,
                                                   const std::vector<OwnerField>& fields,
                                                   const std::vector<program::Param>& params) {
  std::vector<program::VertexGroup> groups;
  for (size_t begin = 0; begin < owners.size();) {
    size_t end = begin + 1;
    while (end < owners.size() && owners[end].tile == owners[end - 1].tile + 1) ++end;
    program::VertexGroup group{&codelet, owners[begin].tile, static_cast<uint32_t>(end - begin), 1, {},
                               params};
    for (const OwnerField& field : fields)
      group.fields.push_back({field.variable, BoxSeries::table(std::vector<Box>(
                                                  field.boxes.begin() + static_cast<int64_t>(begin),
                                                  field.boxes.begin() + static_cast<int64_t>(end)))});
    groups.push_back(std::move(group));
    begin = end;
  }
  return groups;
}

PartLayout::PartLayout(const Pattern& pattern, const StaticPartition& partition, uint32_t n)
    : partition_(partition), n_(n), parts_(deal_out(pattern, partition)) {
  for (uint64_t c = 0; c <= partition.col_parts; ++c)
    col_begin_.push_back(static_cast<uint32_t>(n * c / partition.col_parts));
}

std::vector<Box> PartLayout::boxes(const std::vector<uint32_t>& begin) const {
  std::vector<Box> boxes;
  for (uint32_t c = 0; c < partition_.col_parts; ++c)
    for (uint32_t part = 0; part < partition_.parts(); ++part)
      boxes.push_back(
          {begin[part], begin[part + 1] - begin[part], col_begin_[c], col_begin_[c + 1] - col_begin_[c]});
  return boxes;
}

std::vector<Box> PartLayout::slice(const std::vector<Box>& boxes, uint32_t col_part) const {
  return {boxes.begin() + tile_of(col_part, 0), boxes.begin() + tile_of(col_part + 1, 0)};
}

std::vector<MappedBox> PartLayout::on_parts(const std::vector<uint32_t>& begin, uint32_t cols,
                                            uint32_t col_part, uint32_t offset) const {
  std::vector<MappedBox> mapping;
  for (uint32_t part = 0; part < partition_.parts(); ++part)
    mapping.push_back(
        {{offset + begin[part], begin[part + 1] - begin[part], 0, cols}, tile_of(col_part, part)});
  return mapping;
}

std::vector<MappedBox> PartLayout::on_all_parts(const std::vector<uint32_t>& begin, uint32_t cols) const {
  std::vector<MappedBox> mapping;
  for (uint32_t c = 0; c < partition_.col_parts; ++c) {
    const std::vector<MappedBox> part = on_parts(begin, cols, c, c * begin.back());
    mapping.insert(mapping.end(), part.begin(), part.end());
  }
  return mapping;
}

std::vector<MappedBox> PartLayout::value_mapping(uint32_t block_size, uint32_t tiles) const {
  const uint32_t cols = block_size * block_size;
  return partition_.col_parts > 1 ? program::map_linearly(parts_.block_begin.back(), cols, tiles)
                                  : on_parts(parts_.block_begin, cols, 0);
}

std::vector<VariableId> PartLayout::add_lists(program::Program& program) const {
  const Indices lists(parts_.lists);
  const auto rows = static_cast<uint32_t>(parts_.lists.size());
  std::vector<VariableId> added;
  for (uint32_t c = 0; c < partition_.col_parts; ++c)
    added.push_back(program.add(
        {"W.lists", lists.type, rows, 1, Role::constant, on_parts(parts_.list_begin, 1, c), lists.contents}));
  return added;
}

VariableId PartLayout::add_x_rows(program::Program& program, VariableId x, program::CopySet& gather) const {
  const program::Variable& source = program.variable(x);
  const VariableId local_x = program.add({source.name + ".rows",
                                          source.type,
                                          static_cast<uint32_t>(parts_.x_rows.size()),
                                          n_,
                                          Role::temporary,
                                          on_tiles(boxes(parts_.x_begin)),
                                          {}});
  gather.groups.push_back(
      partition_.whole_bands
          ? copy_bands(x, local_x)
          : gather_rows(x, local_x, n_, std::make_shared<const std::vector<uint32_t>>(parts_.x_rows)));
  return local_x;
}

/// The rows of a part are neighbours in X.
CopyGroup PartLayout::copy_bands(VariableId x, VariableId local_x) const {
  const std::vector<Box> to = boxes(parts_.x_begin);
  std::vector<Box> from = to;
  for (Box& box : from) box.row = box.empty() ? 0 : parts_.x_rows[box.row];
  return {x,  local_x, partition_.tiles(), BoxSeries::table(std::move(from)), BoxSeries::table(to), {},
          {}, {}};
}

}  // namespace tessera::ops
