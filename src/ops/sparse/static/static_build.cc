#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "kernels/map/reduce/codelet.h"
#include "kernels/tile/tile_product/codelet.h"
#include "ops/sparse/static/grouped_sums.h"
#include "ops/sparse/static/part_builder.h"
#include "ops/tiles/rounding.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::MappedBox;
using program::Phase;
using program::StepId;
using program::VariableId;

class StaticBuilder : PartBuilder {
 public:
  StaticBuilder(const Builder& builder, const StaticShape& shape, const PartLayout& parts,
                const ProductOperands& operands)
      : PartBuilder(builder, shape.pattern, shape.numbers, parts, operands),
        shape_(shape),
        grouped_sums_(partition_.is_vendors() && !shape.mirrored),
        in_begin_(shape.mirrored ? parts_.y_begin : parts_.x_begin),
        out_rows_(shape.mirrored ? parts_.x_rows : parts_.y_rows),
        out_begin_(shape.mirrored ? parts_.x_begin : parts_.y_begin) {}

  StepId build() {
    if (shape_.result(operands_).box.empty()) return b_.sequence({});
    program::CopySet gather{"gather", {}};
    take_values(gather);
    copy_values(gather);
    add_lists();
    add_in_rows(gather);
    choose_result();
    choose_sums();
    add_partials();
    steps_.push_back(b_.copy(std::move(gather)));
    steps_.push_back(b_.execute(multiply()));
    steps_.push_back(b_.copy({"send partials", {gather_rows(partials_, received_, partial_rows_)}}));
    steps_.push_back(b_.execute(reduce_set()));
    if (sums_ != result_)
      steps_.push_back(b_.copy({"move sums", {gather_rows(sums_, result_, sum_of_row_)}}));
    b_.send(result_, shape_.result(operands_), steps_);
    return b_.sequence(std::move(steps_));
  }

 private:
  /// Brings values with another layout to the partition: in the exchange that gathers X, or in one before it
  /// if they are copied further.
  void take_values(program::CopySet& gather) {
    values_ = operands_.values;
    if (shape_.aliased == nullptr) return;
    values_ = temporary("W.blocks", numbers_.operands, blocks_, block_elements_,
                        layout_.value_mapping(block_size_, b_.machine().tiles), program::Purpose::parameter);
    std::vector<uint32_t> rows;
    for (uint64_t block : parts_.order) rows.push_back(shape_.aliased->row_of[block]);
    program::CopyGroup take = gather_rows(operands_.values, values_, rows);
    if (partition_.col_parts == 1)
      gather.groups.push_back(std::move(take));
    else
      steps_.push_back(b_.copy({"take values", {std::move(take)}}));
  }

  /// Values are stored once; each part of X gets a copy.
  void copy_values(program::CopySet& gather) {
    if (partition_.col_parts == 1) return;
    const Operand copies = temporary("W.copies", numbers_.operands, uint64_t{blocks_} * partition_.col_parts,
                                     block_elements_, blocks_of_all_parts(), program::Purpose::parameter);
    gather.groups.push_back(copy_to_all(values_, copies, partition_.col_parts, {.row = blocks_}));
    values_ = copies;
  }

  void add_lists() {
    if (shape_.mirrored)
      std::tie(list_entries_, list_begin_) = parts_.transposed_lists();
    else
      list_entries_ = parts_.lists, list_begin_ = parts_.list_begin;
    lists_ = layout_.add_lists(b_, list_entries_, list_begin_);
  }

  void add_in_rows(program::CopySet& gather) {
    in_rows_ = shape_.mirrored ? add_rows(operands_.y, parts_.y_rows, in_begin_, gather)
                               : layout_.add_x_rows(b_, shape_.right(operands_), gather);
  }

  /// Sums are added where the result lies, if it lies in ranges of rows; otherwise in even ranges, from which
  /// they are sent.
  void choose_result() {
    result_ = shape_.result(operands_);
    y_mapping_ = b_.mapping_of(result_);
    std::ranges::sort(y_mapping_, {}, [](const MappedBox& m) { return std::pair(m.box.row, m.box.col); });
    if (b_.holds(result_) && in_row_ranges(y_mapping_)) return;
    result_ = temporary("result", numbers_.operands, shape_.result_rows(), shape_.n, {});
    y_mapping_ = b_.mapping_of(result_);
  }

  /// Whether any two boxes have the same rows or none in common.
  static bool in_row_ranges(const std::vector<MappedBox>& sorted) {
    for (size_t i = 1; i < sorted.size(); ++i) {
      const Box& before = sorted[i - 1].box;
      const Box& box = sorted[i].box;
      if (box.row < before.row_end() && (box.row != before.row || box.rows != before.rows)) return false;
    }
    return true;
  }

  /// Sums are added where the result lies, each row at its owners, or as PopLibs adds them.
  void choose_sums() {
    sums_ = result_;
    if (!grouped_sums_) {
      sum_of_row_.resize(shape_.result_rows());
      std::iota(sum_of_row_.begin(), sum_of_row_.end(), 0U);
      return;
    }
    std::vector<uint32_t> partials(shape_.result_rows());
    for (uint32_t row : out_rows_) ++partials[row];
    GroupedSums grouped = group_sums({partials, block_size_, shape_.n}, y_mapping_, numbers_, b_.machine());
    y_mapping_ = std::move(grouped.pieces);
    sum_of_row_ = std::move(grouped.position);
    if (grouped.moved)
      sums_ = temporary("sums", numbers_.operands, shape_.result_rows(), shape_.n, y_mapping_);
  }

  /// Partial rows where they are computed, and where they are added: sorted by the owner of their sum and by
  /// part, so that neighbouring rows of a part are sent together.
  void add_partials() {
    y_boxes_ = layout_.boxes(out_begin_);
    partials_ = temporary("partials", numbers_.partials, out_rows_.size(), shape_.n, on_tiles(y_boxes_));
    std::vector<uint32_t> first_row;  // of the owners' ranges of rows
    for (const MappedBox& owned : y_mapping_)
      if (first_row.empty() || first_row.back() != owned.box.row) first_row.push_back(owned.box.row);
    std::vector<uint32_t> owner(shape_.result_rows());
    for (uint32_t o = 0; o < first_row.size(); ++o)
      std::fill(owner.begin() + first_row[o],
                o + 1 < first_row.size() ? owner.begin() + first_row[o + 1] : owner.end(), o);
    std::vector<uint32_t> begin(first_row.size() + 1);
    for (uint32_t row : out_rows_) ++begin[owner[sum_of_row_[row]] + 1];
    for (size_t o = 1; o < begin.size(); ++o) begin[o] += begin[o - 1];
    std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
    partial_rows_.resize(out_rows_.size());
    row_within_.resize(out_rows_.size());
    for (uint32_t i = 0; i < out_rows_.size(); ++i) {
      const uint32_t row = sum_of_row_[out_rows_[i]];
      const uint32_t at = next[owner[row]]++;
      partial_rows_[at] = i;
      row_within_[at] = row - first_row[owner[row]];
    }
    for (const MappedBox& owned : y_mapping_) {
      const uint32_t o = owner[owned.box.row];
      received_boxes_.push_back({begin[o], begin[o + 1] - begin[o], owned.box.col, owned.box.cols});
    }
    std::vector<MappedBox> mapping;
    for (size_t i = 0; i < y_mapping_.size(); ++i)
      mapping.push_back({received_boxes_[i], y_mapping_[i].tile});
    received_ =
        temporary("partials.received", numbers_.partials, out_rows_.size(), shape_.n, std::move(mapping));
  }

  program::ComputeSet multiply() const {
    std::vector<program::Param> params = {int64_t{block_size_}};
    if (!shape_.mirrored) params.emplace_back(int64_t{shape_.aliased != nullptr});
    program::ComputeSet set = multiply_set(
        shape_.mirrored ? kernels::sparse_transposed_product_codelet : kernels::sparse_product_codelet,
        {values_.variable, values_.inside(boxes_of(blocks_of_all_parts()))}, {lists_, list_begin_},
        {{in_rows_, layout_.boxes(in_begin_)}, {partials_.variable, y_boxes_}}, params);
    round_partials(numbers_, set);
    return set;
  }

  /// The owners of sums, each tile once before any comes again, so that neighbouring tiles are one group.
  std::vector<size_t> owners_in_order() const {
    std::vector<size_t> order(y_mapping_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (!grouped_sums_) return order;
    std::map<program::TileId, uint32_t> seen;
    std::vector<uint32_t> turn;
    for (const MappedBox& owned : y_mapping_) turn.push_back(seen[owned.tile]++);
    std::ranges::sort(order, {}, [&](size_t i) { return std::pair(turn[i], y_mapping_[i].tile); });
    return order;
  }

  /// Each owner of sums has a list of its partials' rows; owners of the same range of rows have copies of one
  /// list.
  program::ComputeSet reduce_set() {
    std::vector<uint32_t> lists;
    std::vector<MappedBox> mapping, owners;
    std::vector<Box> list_boxes, received;
    for (size_t i : owners_in_order()) {
      const Box& from = received_boxes_[i];
      owners.push_back(y_mapping_[i]);
      received.push_back(from);
      list_boxes.push_back({static_cast<uint32_t>(lists.size()), from.rows, 0, 1});
      mapping.push_back({list_boxes.back(), y_mapping_[i].tile});
      lists.insert(lists.end(), row_within_.begin() + from.row, row_within_.begin() + from.row + from.rows);
    }
    const Indices indices(lists);
    const Operand rows = b_.constant("Y.lists", indices.type, static_cast<uint32_t>(lists.size()), 1,
                                     indices.contents, std::move(mapping));
    return {"reduce", Phase::reduce,
            groups_of_owners(
                owners, grouped_sums_ ? kernels::worker_reduce_rows_codelet : kernels::reduce_rows_codelet,
                {{received_, received}, {rows, list_boxes}, {sums_, boxes_of(owners)}}, {})};
  }

  const StaticShape& shape_;
  const bool grouped_sums_;
  const std::vector<uint32_t>& in_begin_;  ///< of each part's rows of what is multiplied
  const std::vector<uint32_t>& out_rows_;  ///< rows of the result that the parts compute
  const std::vector<uint32_t>& out_begin_;
  std::vector<uint32_t> list_entries_;
  std::vector<uint32_t> list_begin_;
  std::vector<StepId> steps_;
  Operand result_;
  Operand sums_;                      ///< the result, or its rows in another order and place
  std::vector<uint32_t> sum_of_row_;  ///< by row of the result
  std::vector<MappedBox> y_mapping_;  ///< boxes of the sums, each of which a vertex adds
  Operand values_;
  std::vector<VariableId> lists_;
  VariableId in_rows_ = 0;
  Operand partials_;
  Operand received_;
  std::vector<Box> y_boxes_;
  std::vector<Box> received_boxes_;
  std::vector<uint32_t> partial_rows_;
  std::vector<uint32_t> row_within_;  ///< row of Y of each received partial, relative to its owner's first
};

}  // namespace

StepId build_static(const Builder& builder, const StaticShape& shape, const PartLayout& parts,
                    const ProductOperands& operands) {
  return StaticBuilder(builder, shape, parts, operands).build();
}

}  // namespace tessera::ops
