#include <algorithm>

#include "kernels/map/reduce/codelet.h"
#include "kernels/tile/tile_product/codelet.h"
#include "ops/sparse/static/static_layout.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::BoxSeries;
using program::MappedBox;
using program::Phase;
using program::Role;
using program::VariableId;

class Builder {
 public:
  Builder(const StaticShape& shape, const StaticPartition& partition, const machine::Machine& machine)
      : shape_(shape),
        partition_(partition),
        tiles_(machine.tiles),
        layout_(shape.pattern, partition, shape.n),
        parts_(layout_.parts()) {}

  StaticProgram build() {
    add_operands();
    program::CopySet gather{"gather", {}};
    take_values(gather);
    copy_values(gather);
    lists_ = layout_.add_lists(program());
    local_x_ = layout_.add_x_rows(program(), out_.x, gather);
    add_partials();
    steps_.push_back(program().copy(std::move(gather)));
    steps_.push_back(program().execute(multiply_set()));
    steps_.push_back(
        program().copy({"send partials", {gather_rows(partials_, received_, shape_.n, partial_rows_)}}));
    steps_.push_back(program().execute(reduce_set()));
    program().set_main(program().sequence(std::move(steps_)));
    out_.block_order = shape_.aliased != nullptr ? shape_.aliased->layout.order : parts_.order;
    return std::move(out_);
  }

 private:
  program::Program& program() { return out_.program; }

  VariableId add(std::string name, Type type, uint64_t rows, uint32_t cols, Role role,
                 std::vector<MappedBox> mapping, std::shared_ptr<const std::byte> contents = {}) {
    return program().add({std::move(name), type, static_cast<uint32_t>(rows), cols, role, std::move(mapping),
                          std::move(contents)});
  }

  void add_operands() {
    const Pattern& p = shape_.pattern;
    const Type type = shape_.numbers.operands;
    const bool gradient = shape_.aliased != nullptr;
    block_elements_ = p.block_size * p.block_size;
    out_.values =
        add("W.values", type, p.blocks(), block_elements_, Role::input,
            gradient ? shape_.aliased->layout.mapping : layout_.value_mapping(p.block_size, tiles_));
    out_.x = add(gradient ? "dY" : "X", type, p.cols, shape_.n, Role::input,
                 program::map_linearly(p.cols, shape_.n, tiles_));
    y_mapping_ = program::map_linearly(p.rows, shape_.n, tiles_);
    out_.y = add(gradient ? "dX" : "Y", type, p.rows, shape_.n, Role::output, y_mapping_);
  }

  /// Values that are lent are put where the cut wants them: by the exchange that gathers X, or by
  /// one before it where they are copied from there.
  void take_values(program::CopySet& gather) {
    values_ = out_.values;
    if (shape_.aliased == nullptr) return;
    const Pattern& p = shape_.pattern;
    values_ = add("W.blocks", shape_.numbers.operands, p.blocks(), block_elements_, Role::temporary,
                  layout_.value_mapping(p.block_size, tiles_));
    auto rows = std::make_shared<std::vector<uint32_t>>();
    for (uint64_t block : parts_.order) rows->push_back(shape_.aliased->row_of[block]);
    program::CopyGroup take = gather_rows(out_.values, values_, block_elements_, std::move(rows));
    if (partition_.col_parts == 1)
      gather.groups.push_back(std::move(take));
    else
      steps_.push_back(program().copy({"take values", {std::move(take)}}));
  }

  /// Values lie once; each part of X has a copy of them.
  void copy_values(program::CopySet& gather) {
    if (partition_.col_parts == 1) return;
    const auto blocks = static_cast<uint32_t>(shape_.pattern.blocks());
    const VariableId copies =
        add("W.copies", shape_.numbers.operands, uint64_t{blocks} * partition_.col_parts, block_elements_,
            Role::temporary, layout_.on_all_parts(parts_.block_begin, block_elements_));
    const Box all{0, blocks, 0, block_elements_};
    gather.groups.push_back({values_,
                             copies,
                             partition_.col_parts,
                             BoxSeries::same(all),
                             BoxSeries::stepped(all, {blocks, 0}),
                             {},
                             {},
                             {}});
    values_ = copies;
  }

  /// Partial rows where they are computed, and where they are added: sorted by the owner of their
  /// row of Y and by part, so that neighbouring rows of a part travel together.
  void add_partials() {
    y_boxes_ = layout_.boxes(parts_.y_begin);
    partials_ = add("partials", shape_.numbers.partials, parts_.y_rows.size(), shape_.n, Role::temporary,
                    on_tiles(y_boxes_));
    std::vector<uint32_t> first_row;  // of the owners' ranges of rows
    for (const MappedBox& owned : y_mapping_)
      if (first_row.empty() || first_row.back() != owned.box.row) first_row.push_back(owned.box.row);
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
    const std::vector<Box> x_boxes = layout_.boxes(parts_.x_begin);
    const auto table = [](std::vector<Box> boxes) { return BoxSeries::table(std::move(boxes)); };
    const std::vector<Box> values = boxes_of(layout_.on_all_parts(parts_.block_begin, block_elements_));
    for (uint32_t c = 0; c < partition_.col_parts; ++c) {
      program::VertexGroup group{
          &kernels::sparse_product_codelet, layout_.tile_of(c, 0), partition_.parts(), 1, {}, {}};
      group.fields = {{values_, table(layout_.slice(values, c))},
                      {lists_[c], table(boxes_of(layout_.on_parts(parts_.list_begin, 1, c)))},
                      {local_x_, table(layout_.slice(x_boxes, c))},
                      {partials_, table(layout_.slice(y_boxes_, c))}};
      group.params = {int64_t{shape_.pattern.block_size}, int64_t{shape_.aliased != nullptr}};
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
    for (size_t i = 0; i < y_mapping_.size(); ++i) {
      const Box& from = received_boxes_[i];
      list_boxes.push_back({static_cast<uint32_t>(lists.size()), from.rows, 0, 1});
      mapping.push_back({list_boxes.back(), y_mapping_[i].tile});
      lists.insert(lists.end(), row_within_.begin() + from.row, row_within_.begin() + from.row + from.rows);
    }
    const Indices indices(lists);
    const VariableId rows =
        add("Y.lists", indices.type, lists.size(), 1, Role::constant, std::move(mapping), indices.contents);
    return {"reduce", Phase::reduce,
            groups_of_owners(
                y_mapping_, kernels::reduce_rows_codelet,
                {{received_, received_boxes_}, {rows, list_boxes}, {out_.y, boxes_of(y_mapping_)}}, {})};
  }

  const StaticShape& shape_;
  const StaticPartition& partition_;
  uint32_t tiles_;
  PartLayout layout_;
  const StaticParts& parts_;
  StaticProgram out_;
  std::vector<program::StepId> steps_;
  uint32_t block_elements_ = 1;
  std::vector<MappedBox> y_mapping_;
  VariableId values_ = 0;
  std::vector<VariableId> lists_;
  VariableId local_x_ = 0;
  VariableId partials_ = 0;
  VariableId received_ = 0;
  std::vector<Box> y_boxes_;
  std::vector<Box> received_boxes_;
  Rows partial_rows_;
  std::vector<uint32_t> row_within_;  ///< row of Y that a received partial is of, from its owner's first
};

}  // namespace

StaticProgram build_static(const StaticShape& shape, const StaticPartition& partition,
                           const machine::Machine& machine) {
  return Builder(shape, partition, machine).build();
}

}  // namespace tessera::ops
