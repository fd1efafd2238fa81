#include <algorithm>
#include <cstring>

#include "kernels/element.h"
#include "kernels/reduce/codelet.h"
#include "kernels/tile_product/codelet.h"
#include "ops/tiled_static.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::CopyGroup;
using program::MappedBox;
using program::Phase;
using program::Role;
using program::TileId;
using program::VariableId;

using Rows = std::shared_ptr<const std::vector<uint32_t>>;

/// Constants of the smallest type that holds them.
struct Indices {
  Type type;
  std::shared_ptr<const std::byte> contents;

  explicit Indices(const std::vector<uint32_t>& numbers) {
    const bool narrow =
        std::all_of(numbers.begin(), numbers.end(), [](uint32_t i) { return i <= 0xFFFF; });
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
};

class Builder {
 public:
  Builder(const StaticShape& shape, const StaticCut& cut, const machine::Machine& machine)
      : shape_(shape),
        cut_(cut),
        tiles_(machine.tiles),
        parts_(deal_out(shape.pattern, cut)),
        col_begin_(cut_columns()) {}

  StaticProgram build() {
    add_operands();
    program::CopySet gather{"gather", {}};
    add_weights(gather);
    add_x(gather);
    add_partials();
    program::ComputeSet multiply = multiply_set();
    program::CopySet send{"send partials", {gather_rows(partials_, received_, partial_rows_)}};
    program::ComputeSet reduce = reduce_set();
    program::Program& p = out_.program;
    p.set_main(p.sequence({p.copy(std::move(gather)), p.execute(std::move(multiply)),
                           p.copy(std::move(send)), p.execute(std::move(reduce))}));
    out_.block_order = std::move(parts_.order);
    return std::move(out_);
  }

 private:
  std::vector<uint32_t> cut_columns() const {
    std::vector<uint32_t> begin;
    for (uint64_t c = 0; c <= cut_.col_parts; ++c)
      begin.push_back(static_cast<uint32_t>(shape_.n * c / cut_.col_parts));
    return begin;
  }
  TileId tile_of(uint32_t col_part, uint32_t part) const { return col_part * cut_.parts() + part; }

  VariableId add(std::string name, Type type, uint64_t rows, uint32_t cols, Role role,
                 std::vector<MappedBox> mapping, std::shared_ptr<const std::byte> contents = {}) {
    return out_.program.add({std::move(name), type, static_cast<uint32_t>(rows), cols, role,
                             std::move(mapping), std::move(contents)});
  }

  /// Rows [begin[part], begin[part + 1]) × the columns of a part of X, for every tile.
  std::vector<Box> boxes(const std::vector<uint32_t>& begin) const {
    std::vector<Box> boxes;
    for (uint32_t c = 0; c < cut_.col_parts; ++c)
      for (uint32_t part = 0; part < cut_.parts(); ++part)
        boxes.push_back({begin[part], begin[part + 1] - begin[part], col_begin_[c],
                         col_begin_[c + 1] - col_begin_[c]});
    return boxes;
  }
  std::vector<MappedBox> on_tiles(const std::vector<Box>& boxes) const {
    std::vector<MappedBox> mapping;
    for (TileId tile = 0; tile < boxes.size(); ++tile) mapping.push_back({boxes[tile], tile});
    return mapping;
  }
  /// Rows of a variable that every part of X shares, on the tiles of one part of X.
  std::vector<MappedBox> on_parts(const std::vector<uint32_t>& begin, uint32_t cols,
                                  uint32_t col_part, uint32_t offset = 0) const {
    std::vector<MappedBox> mapping;
    for (uint32_t part = 0; part < cut_.parts(); ++part)
      mapping.push_back({{offset + begin[part], begin[part + 1] - begin[part], 0, cols},
                         tile_of(col_part, part)});
    return mapping;
  }

  void add_operands() {
    const Pattern& p = shape_.pattern;
    const Type type = shape_.numbers.operands;
    const auto blocks = static_cast<uint32_t>(p.blocks());
    block_elements_ = p.block_size * p.block_size;
    out_.values = add("W.values", type, blocks, block_elements_, Role::input,
                      cut_.col_parts > 1 ? program::map_linearly(blocks, block_elements_, tiles_)
                                         : on_parts(parts_.block_begin, block_elements_, 0));
    out_.x = add("X", type, p.cols, shape_.n, Role::input,
                 program::map_linearly(p.cols, shape_.n, tiles_));
    y_mapping_ = program::map_linearly(p.rows, shape_.n, tiles_);
    out_.y = add("Y", type, p.rows, shape_.n, Role::output, y_mapping_);
  }

  /// Values lie once; each part of X has a copy of them.
  void add_weights(program::CopySet& gather) {
    const auto blocks = static_cast<uint32_t>(shape_.pattern.blocks());
    values_ = out_.values;
    if (cut_.col_parts > 1) {
      std::vector<MappedBox> mapping;
      for (uint32_t c = 0; c < cut_.col_parts; ++c) {
        const std::vector<MappedBox> part =
            on_parts(parts_.block_begin, block_elements_, c, c * blocks);
        mapping.insert(mapping.end(), part.begin(), part.end());
      }
      values_ = add("W.copies", shape_.numbers.operands, uint64_t{blocks} * cut_.col_parts,
                    block_elements_, Role::temporary, std::move(mapping));
      const Box all{0, blocks, 0, block_elements_};
      gather.groups.push_back({out_.values,
                               values_,
                               cut_.col_parts,
                               BoxSeries::same(all),
                               BoxSeries::stepped(all, {blocks, 0}),
                               {},
                               {},
                               {}});
    }
    const Indices lists(parts_.lists);
    for (uint32_t c = 0; c < cut_.col_parts; ++c)
      lists_.push_back(add("W.lists", lists.type, parts_.lists.size(), 1, Role::constant,
                           on_parts(parts_.list_begin, 1, c), lists.contents));
  }

  CopyGroup gather_rows(VariableId from, VariableId to, Rows rows) const {
    const Box all{0, static_cast<uint32_t>(rows->size()), 0, shape_.n};
    return {from, to, 1, BoxSeries::same(all), BoxSeries::same(all), std::move(rows), {}, {}};
  }

  void add_x(program::CopySet& gather) {
    x_boxes_ = boxes(parts_.x_begin);
    local_x_ = add("X.rows", shape_.numbers.operands, parts_.x_rows.size(), shape_.n,
                   Role::temporary, on_tiles(x_boxes_));
    gather.groups.push_back(
        cut_.whole_bands
            ? copy_bands()
            : gather_rows(out_.x, local_x_,
                          std::make_shared<const std::vector<uint32_t>>(parts_.x_rows)));
  }

  /// The rows of a part are neighbours in X.
  CopyGroup copy_bands() const {
    std::vector<Box> from = x_boxes_;
    for (Box& box : from) box.row = box.empty() ? 0 : parts_.x_rows[box.row];
    return {out_.x,
            local_x_,
            cut_.tiles(),
            BoxSeries::table(std::move(from)),
            BoxSeries::table(x_boxes_),
            {},
            {},
            {}};
  }

  /// Partial rows where they are computed, and where they are added: sorted by the owner of their
  /// row of Y and by part, so that neighbouring rows of a part travel together.
  void add_partials() {
    y_boxes_ = boxes(parts_.y_begin);
    partials_ = add("partials", shape_.numbers.partials, parts_.y_rows.size(), shape_.n,
                    Role::temporary, on_tiles(y_boxes_));
    std::vector<uint32_t> first_row;  // of the owners' ranges of rows
    for (const MappedBox& owned : y_mapping_)
      if (first_row.empty() || first_row.back() != owned.box.row)
        first_row.push_back(owned.box.row);
    std::vector<uint32_t> owner(shape_.pattern.rows);
    for (uint32_t o = 0; o < first_row.size(); ++o)
      std::fill(owner.begin() + first_row[o],
                o + 1 < first_row.size() ? owner.begin() + first_row[o + 1] : owner.end(), o);
    std::vector<uint32_t> begin(first_row.size() + 1);
    for (uint32_t row : parts_.y_rows) ++begin[owner[row] + 1];
    for (size_t o = 1; o < begin.size(); ++o) begin[o] += begin[o - 1];
    std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
    auto rows = std::make_shared<std::vector<uint32_t>>(parts_.y_rows.size());
    row_within_.resize(parts_.y_rows.size());
    for (uint32_t i = 0; i < parts_.y_rows.size(); ++i) {
      const uint32_t row = parts_.y_rows[i];
      const uint32_t at = next[owner[row]]++;
      (*rows)[at] = i;
      row_within_[at] = row - first_row[owner[row]];
    }
    partial_rows_ = std::move(rows);
    for (const MappedBox& owned : y_mapping_) {
      const uint32_t o = owned.box.empty() ? 0 : owner[owned.box.row];
      const uint32_t first = owned.box.empty() ? 0 : begin[o];
      received_boxes_.push_back(
          {first, owned.box.empty() ? 0 : begin[o + 1] - first, owned.box.col, owned.box.cols});
    }
    std::vector<MappedBox> mapping;
    for (size_t i = 0; i < y_mapping_.size(); ++i)
      mapping.push_back({received_boxes_[i], y_mapping_[i].tile});
    received_ = add("partials.received", shape_.numbers.partials, parts_.y_rows.size(), shape_.n,
                    Role::temporary, std::move(mapping));
  }

  program::ComputeSet multiply_set() const {
    program::ComputeSet set{"multiply", Phase::compute, {}};
    const auto slice = [&](const std::vector<Box>& all, uint32_t c) {
      return std::vector<Box>(all.begin() + tile_of(c, 0), all.begin() + tile_of(c + 1, 0));
    };
    const auto blocks = static_cast<uint32_t>(shape_.pattern.blocks());
    for (uint32_t c = 0; c < cut_.col_parts; ++c) {
      std::vector<Box> values;
      std::vector<Box> lists;
      for (const MappedBox& m : on_parts(parts_.block_begin, block_elements_, c,
                                         values_ == out_.values ? 0 : c * blocks))
        values.push_back(m.box);
      for (const MappedBox& m : on_parts(parts_.list_begin, 1, c)) lists.push_back(m.box);
      program::VertexGroup group{
          &kernels::sparse_product_codelet, tile_of(c, 0), cut_.parts(), 1, {}, {}};
      group.fields = {{values_, BoxSeries::table(std::move(values))},
                      {lists_[c], BoxSeries::table(std::move(lists))},
                      {local_x_, BoxSeries::table(slice(x_boxes_, c))},
                      {partials_, BoxSeries::table(slice(y_boxes_, c))}};
      group.params = {int64_t{shape_.pattern.block_size}};
      set.groups.push_back(std::move(group));
    }
    return set;
  }

  /// Each owner of Y has the list of its partials' rows; owners of one range of rows have copies of
  /// one.
  program::ComputeSet reduce_set() {
    std::vector<uint32_t> lists;
    std::vector<MappedBox> mapping;
    std::vector<Box> list_boxes;
    std::vector<Box> out_boxes;
    for (size_t i = 0; i < y_mapping_.size(); ++i) {
      const Box& from = received_boxes_[i];
      list_boxes.push_back({static_cast<uint32_t>(lists.size()), from.rows, 0, 1});
      mapping.push_back({list_boxes.back(), y_mapping_[i].tile});
      lists.insert(lists.end(), row_within_.begin() + from.row,
                   row_within_.begin() + from.row + from.rows);
      out_boxes.push_back(y_mapping_[i].box);
    }
    const Indices indices(lists);
    const VariableId rows = add("Y.lists", indices.type, lists.size(), 1, Role::constant,
                                std::move(mapping), indices.contents);
    return {"reduce", Phase::reduce, owner_groups(rows, list_boxes, out_boxes)};
  }

  /// Owners lie on tiles that ascend, with gaps where rows are split unevenly: a group for each
  /// run.
  std::vector<program::VertexGroup> owner_groups(VariableId lists,
                                                 const std::vector<Box>& list_boxes,
                                                 const std::vector<Box>& out_boxes) const {
    std::vector<program::VertexGroup> groups;
    for (size_t begin = 0; begin < y_mapping_.size();) {
      size_t end = begin + 1;
      while (end < y_mapping_.size() && y_mapping_[end].tile == y_mapping_[end - 1].tile + 1) ++end;
      const auto run = [&](const std::vector<Box>& boxes) {
        return BoxSeries::table(std::vector<Box>(boxes.begin() + static_cast<int64_t>(begin),
                                                 boxes.begin() + static_cast<int64_t>(end)));
      };
      program::VertexGroup group{&kernels::reduce_rows_codelet,
                                 y_mapping_[begin].tile,
                                 static_cast<uint32_t>(end - begin),
                                 1,
                                 {},
                                 {}};
      group.fields = {
          {received_, run(received_boxes_)}, {lists, run(list_boxes)}, {out_.y, run(out_boxes)}};
      groups.push_back(std::move(group));
      begin = end;
    }
    return groups;
  }

  const StaticShape& shape_;
  const StaticCut& cut_;
  uint32_t tiles_;
  StaticParts parts_;
  std::vector<uint32_t> col_begin_;
  StaticProgram out_;
  uint32_t block_elements_ = 1;
  std::vector<MappedBox> y_mapping_;
  VariableId values_ = 0;
  std::vector<VariableId> lists_;
  VariableId local_x_ = 0;
  VariableId partials_ = 0;
  VariableId received_ = 0;
  std::vector<Box> x_boxes_;
  std::vector<Box> y_boxes_;
  std::vector<Box> received_boxes_;
  Rows partial_rows_;
  std::vector<uint32_t>
      row_within_;  ///< row of Y that a received partial is of, from its owner's first
};

}  // namespace

StaticProgram build_static(const StaticShape& shape, const StaticCut& cut,
                           const machine::Machine& machine) {
  return Builder(shape, cut, machine).build();
}

}  // namespace tessera::ops
