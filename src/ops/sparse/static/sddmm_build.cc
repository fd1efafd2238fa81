#include "kernels/common/element.h"
#include "kernels/map/reduce/codelet.h"
#include "kernels/tile/tile_product/codelet.h"
#include "ops/sparse/static/sddmm.h"
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
  Builder(const StaticSddmmShape& shape, const StaticPartition& partition, const machine::Machine& machine)
      : shape_(shape),
        partition_(partition),
        layout_(shape.pattern, partition, shape.n),
        parts_(layout_.parts()),
        blocks_(static_cast<uint32_t>(shape.pattern.blocks())),
        block_elements_(shape.pattern.block_size * shape.pattern.block_size) {
    add_operands(machine.tiles);
  }

  StaticSddmmProgram build() {
    program::CopySet gather{"gather", {}};
    local_x_ = layout_.add_x_rows(program(), out_.x, gather);
    add_dy_rows(gather);
    lists_ = layout_.add_lists(program());
    const bool stays = shape_.stays(partition_);
    found_ = stays ? out_.dw : add_found();
    std::vector<program::StepId> steps = {program().copy(std::move(gather)),
                                          program().execute(multiply_set())};
    if (!stays) {
      const VariableId to = partition_.col_parts == 1 ? out_.dw : add_received();
      steps.push_back(
          program().copy({"send blocks", {gather_rows(found_, to, block_elements_, rows_received())}}));
      if (to != out_.dw) steps.push_back(program().execute(reduce_set(to)));
    }
    program().set_main(program().sequence(std::move(steps)));
    return std::move(out_);
  }

 private:
  program::Program& program() { return out_.program; }

  VariableId add(std::string name, Type type, uint64_t rows, uint32_t cols, Role role,
                 std::vector<MappedBox> mapping) {
    return program().add(
        {std::move(name), type, static_cast<uint32_t>(rows), cols, role, std::move(mapping), {}});
  }

  void add_operands(uint32_t tiles) {
    const Pattern& p = shape_.pattern;
    const Type type = shape_.numbers.operands;
    out_.x = add("X", type, p.cols, shape_.n, Role::input, program::map_linearly(p.cols, shape_.n, tiles));
    out_.dy = add("dY", type, p.rows, shape_.n, Role::input, program::map_linearly(p.rows, shape_.n, tiles));
    out_.dw = add("dW", type, blocks_, block_elements_, Role::output, shape_.values.mapping);
  }

  void add_dy_rows(program::CopySet& gather) {
    local_dy_ = add("dY.rows", shape_.numbers.operands, parts_.y_rows.size(), shape_.n, Role::temporary,
                    on_tiles(layout_.boxes(parts_.y_begin)));
    gather.groups.push_back(gather_rows(out_.dy, local_dy_, shape_.n,
                                        std::make_shared<const std::vector<uint32_t>>(parts_.y_rows)));
  }

  /// What each part of the columns finds, one below the other. Sums of several parts travel as
  /// partial sums do; those of one are complete.
  VariableId add_found() {
    return add("dW.found", partition_.col_parts > 1 ? shape_.numbers.partials : shape_.numbers.operands,
               uint64_t{blocks_} * partition_.col_parts, block_elements_, Role::temporary,
               layout_.on_all_parts(parts_.block_begin, block_elements_));
  }

  /// Calls visit(first row, end) for each range of rows of W that lies on one tile, or whose
  /// columns lie on several.
  template <class Visit>
  void each_range(const Visit& visit) const {
    uint32_t end = 0;
    for (const MappedBox& owned : shape_.values.mapping)
      if (!owned.box.empty() && owned.box.row_end() > end) {
        end = static_cast<uint32_t>(owned.box.row_end());
        visit(owned.box.row, end);
      }
  }

  /// For each range of rows of W what each part of the columns found, one below the other.
  Rows rows_received() const {
    std::vector<uint32_t> place(blocks_);
    for (uint32_t i = 0; i < blocks_; ++i) place[parts_.order[i]] = i;
    auto rows = std::make_shared<std::vector<uint32_t>>();
    each_range([&](uint32_t begin, uint32_t end) {
      for (uint32_t c = 0; c < partition_.col_parts; ++c)
        for (uint32_t row = begin; row < end; ++row)
          rows->push_back(c * blocks_ + place[shape_.values.order[row]]);
    });
    return rows;
  }

  VariableId add_received() {
    std::vector<MappedBox> mapping;
    for (const MappedBox& owned : shape_.values.mapping) mapping.push_back({received(owned.box), owned.tile});
    return add("dW.received", shape_.numbers.partials, uint64_t{blocks_} * partition_.col_parts,
               block_elements_, Role::temporary, std::move(mapping));
  }
  Box received(const Box& owned) const {
    return {owned.row * partition_.col_parts, owned.rows * partition_.col_parts, owned.col, owned.cols};
  }

  program::ComputeSet multiply_set() const {
    program::ComputeSet set{"multiply", Phase::compute, {}};
    const auto table = [](std::vector<Box> boxes) { return BoxSeries::table(std::move(boxes)); };
    const std::vector<Box> x = layout_.boxes(parts_.x_begin);
    const std::vector<Box> dy = layout_.boxes(parts_.y_begin);
    const std::vector<Box> found = boxes_of(layout_.on_all_parts(parts_.block_begin, block_elements_));
    for (uint32_t c = 0; c < partition_.col_parts; ++c) {
      program::VertexGroup group{
          &kernels::tile_sddmm_codelet, layout_.tile_of(c, 0), partition_.parts(), 1, {}, {}};
      group.fields = {{local_dy_, table(layout_.slice(dy, c))},
                      {lists_[c], table(boxes_of(layout_.on_parts(parts_.list_begin, 1, c)))},
                      {local_x_, table(layout_.slice(x, c))},
                      {found_, table(layout_.slice(found, c))}};
      group.params = {int64_t{shape_.pattern.block_size}};
      set.groups.push_back(std::move(group));
    }
    return set;
  }

  program::ComputeSet reduce_set(VariableId received_blocks) const {
    std::vector<Box> from;
    for (const MappedBox& owned : shape_.values.mapping) from.push_back(received(owned.box));
    return {"reduce", Phase::reduce,
            groups_of_owners(shape_.values.mapping, kernels::reduce_sum_codelet,
                             {{received_blocks, std::move(from)}, {out_.dw, boxes_of(shape_.values.mapping)}},
                             {kernels::param_of(1.0F)})};
  }

  const StaticSddmmShape& shape_;
  const StaticPartition& partition_;
  PartLayout layout_;
  const StaticParts& parts_;
  uint32_t blocks_;
  uint32_t block_elements_;
  StaticSddmmProgram out_;
  VariableId local_x_ = 0;
  VariableId local_dy_ = 0;
  VariableId found_ = 0;
  std::vector<VariableId> lists_;
};

}  // namespace

StaticSddmmProgram build_static_sddmm(const StaticSddmmShape& shape, const StaticPartition& partition,
                                      const machine::Machine& machine) {
  return Builder(shape, partition, machine).build();
}

}  // namespace tessera::ops
