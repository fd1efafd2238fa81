#include "kernels/tile/tile_product/codelet.h"
#include "ops/sparse/static/part_builder.h"
#include "ops/sparse/static/sddmm.h"
#include "ops/tiles/rounding.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::MappedBox;
using program::StepId;
using program::VariableId;

class StaticSddmmBuilder : PartBuilder {
 public:
  StaticSddmmBuilder(const Builder& builder, const StaticSddmmShape& shape, const PartLayout& parts,
                     const ProductOperands& operands)
      : PartBuilder(builder, shape.pattern, shape.numbers, parts, operands),
        shape_(shape),
        dw_(operands.values) {}

  StepId build() {
    if (dw_.box.empty()) return b_.sequence({});
    program::CopySet gather{"gather", {}};
    local_x_ = layout_.add_x_rows(b_, operands_.x, gather);
    local_dy_ = add_rows(operands_.y, parts_.y_rows, parts_.y_begin, gather);
    lists_ = layout_.add_lists(b_, parts_.lists, parts_.list_begin);
    const bool stays = shape_.stays(partition_) && b_.holds(dw_);
    found_ = stays ? dw_ : add_found();
    std::vector<StepId> steps = {b_.copy(std::move(gather)), b_.execute(multiply())};
    if (!stays) {
      const Operand to = partition_.col_parts == 1 ? dw_ : add_received();
      steps.push_back(b_.copy({"send blocks", {gather_rows(found_, to, rows_received())}}));
      if (to != dw_) steps.push_back(b_.execute(reduce_set(to)));
    }
    return b_.sequence(std::move(steps));
  }

 private:
  /// The results of each part of the columns, stacked. Sums of several parts are sent as partial sums; those
  /// of a single part are complete.
  Operand add_found() const {
    return temporary("dW.found", partition_.col_parts > 1 ? numbers_.partials : numbers_.operands,
                     uint64_t{blocks_} * partition_.col_parts, block_elements_, blocks_of_all_parts(),
                     program::Purpose::gradient);
  }

  /// Calls visit(first row, end) for each range of rows of W that lies on one tile, or whose columns lie on
  /// several.
  template <class Visit>
  void each_range(const Visit& visit) const {
    uint32_t end = 0;
    for (const MappedBox& owned : shape_.values.mapping)
      if (!owned.box.empty() && owned.box.row_end() > end) {
        end = static_cast<uint32_t>(owned.box.row_end());
        visit(owned.box.row, end);
      }
  }

  /// For each range of rows of W the results of each part of the columns, stacked.
  std::vector<uint32_t> rows_received() const {
    std::vector<uint32_t> place(blocks_);
    for (uint32_t i = 0; i < blocks_; ++i) place[parts_.order[i]] = i;
    std::vector<uint32_t> rows;
    each_range([&](uint32_t begin, uint32_t end) {
      for (uint32_t c = 0; c < partition_.col_parts; ++c)
        for (uint32_t row = begin; row < end; ++row)
          rows.push_back(c * blocks_ + place[shape_.values.order[row]]);
    });
    return rows;
  }

  Operand add_received() const {
    std::vector<MappedBox> mapping;
    for (const MappedBox& owned : shape_.values.mapping) mapping.push_back({received(owned.box), owned.tile});
    return temporary("dW.received", numbers_.partials, uint64_t{blocks_} * partition_.col_parts,
                     block_elements_, std::move(mapping), program::Purpose::gradient);
  }
  Box received(const Box& owned) const {
    return {owned.row * partition_.col_parts, owned.rows * partition_.col_parts, owned.col, owned.cols};
  }

  program::ComputeSet multiply() const {
    program::ComputeSet set = multiply_set(
        kernels::tile_sddmm_codelet, {local_dy_, layout_.boxes(parts_.y_begin)}, {lists_, parts_.list_begin},
        {{local_x_, layout_.boxes(parts_.x_begin)},
         {found_.variable, found_.inside(boxes_of(blocks_of_all_parts()))}},
        {int64_t{block_size_}});
    if (partition_.col_parts > 1) round_partials(numbers_, set);
    return set;
  }

  program::ComputeSet reduce_set(const Operand& received_blocks) const {
    std::vector<Box> from;
    for (const MappedBox& owned : shape_.values.mapping) from.push_back(received(owned.box));
    return sums_of_owners(shape_.values.mapping, {received_blocks, std::move(from)}, dw_);
  }

  const StaticSddmmShape& shape_;
  const Operand& dw_;
  VariableId local_x_ = 0;
  VariableId local_dy_ = 0;
  Operand found_;
  std::vector<VariableId> lists_;
};

}  // namespace

StepId build_static_sddmm(const Builder& builder, const StaticSddmmShape& shape, const PartLayout& parts,
                          const ProductOperands& operands) {
  return StaticSddmmBuilder(builder, shape, parts, operands).build();
}

}  // namespace tessera::ops
