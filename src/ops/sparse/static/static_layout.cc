#include "ops/sparse/static/static_layout.h"

#include <algorithm>
#include <cstring>

#include "base/ceil_divide.h"

namespace tessera::ops {

using program::Box;
using program::CopyGroup;
using program::MappedBox;
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

PartLayout::PartLayout(const Pattern& pattern, const StaticPartition& partition, uint32_t n)
    : partition_(partition), n_(n), parts_(deal_out(pattern, partition)) {
  const uint64_t grain = partition.col_grain;
  const uint64_t each =
      base::ceil_divide(base::ceil_divide(uint64_t{n}, grain), uint64_t{partition.col_parts});
  for (uint64_t c = 0; c <= partition.col_parts; ++c)
    col_begin_.push_back(static_cast<uint32_t>(grain == 1 ? n * c / partition.col_parts
                                                          : std::min<uint64_t>(n, c * each * grain)));
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

std::vector<VariableId> PartLayout::add_lists(const Builder& builder, const std::vector<uint32_t>& lists,
                                              const std::vector<uint32_t>& begin) const {
  const Indices indices(lists);
  const auto rows = static_cast<uint32_t>(lists.size());
  std::vector<VariableId> added;
  for (uint32_t c = 0; c < partition_.col_parts; ++c)
    added.push_back(
        builder.constant("W.lists", indices.type, rows, 1, indices.contents, on_parts(begin, 1, c)).variable);
  return added;
}

Operand PartLayout::add_rows(const Builder& builder, const Operand& from, const std::vector<uint32_t>& rows,
                             const std::vector<uint32_t>& begin) const {
  return builder.temporary(builder.variable_name(from) + ".rows", builder.type_of(from),
                           static_cast<uint32_t>(rows.size()), n_, on_tiles(boxes(begin)));
}

VariableId PartLayout::add_x_rows(const Builder& builder, const Operand& x, program::CopySet& gather) const {
  const Operand local_x = add_rows(builder, x, parts_.x_rows, parts_.x_begin);
  gather.groups.push_back(partition_.whole_bands ? copy_bands(x, local_x)
                                                 : gather_rows(x, local_x, parts_.x_rows));
  return local_x.variable;
}

/// The rows of a part are adjacent in X.
CopyGroup PartLayout::copy_bands(const Operand& x, const Operand& local_x) const {
  std::vector<Box> to = boxes(parts_.x_begin), from = to;
  for (Box& box : from) box.row = box.empty() ? 0 : parts_.x_rows[box.row];
  return copy_boxes(x, std::move(from), local_x, std::move(to));
}

}  // namespace tessera::ops
