// Common parts of the builders of sparse products in which each tile computes a part of the pattern for a
// part of the columns.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ops/sparse/static/static_layout.h"

namespace tessera::ops {

class PartBuilder {
 protected:
  PartBuilder(const Builder& builder, const Pattern& pattern, const TiledNumbers& numbers,
              const PartLayout& layout, const ProductOperands& operands)
      : b_(builder),
        operands_(operands),
        layout_(layout),
        partition_(layout.partition()),
        parts_(layout.parts()),
        numbers_(numbers),
        blocks_(static_cast<uint32_t>(pattern.blocks())),
        block_size_(pattern.block_size),
        block_elements_(pattern.block_size * pattern.block_size) {}

  Operand temporary(std::string name, Type type, uint64_t rows, uint32_t cols,
                    std::vector<program::MappedBox> mapping,
                    program::Purpose purpose = program::Purpose::activation) const {
    return b_.temporary(std::move(name), type, static_cast<uint32_t>(rows), cols, std::move(mapping),
                        purpose);
  }

  /// A temporary for the rows of an operand that each tile uses; adds their copies to `gather`.
  program::VariableId add_rows(const Operand& from, const std::vector<uint32_t>& rows,
                               const std::vector<uint32_t>& begin, program::CopySet& gather) const {
    const Operand local = layout_.add_rows(b_, from, rows, begin);
    gather.groups.push_back(gather_rows(from, local, rows));
    return local.variable;
  }

  /// Mapping of W's blocks, with separate copies for each part of the columns.
  std::vector<program::MappedBox> blocks_of_all_parts() const {
    return layout_.on_all_parts(parts_.block_begin, block_elements_);
  }

  /// A variable, with a box per tile.
  struct PartField {
    program::VariableId variable = 0;
    std::vector<program::Box> boxes;
  };
  /// The work lists, with a variable for each part of the columns.
  struct PartLists {
    std::vector<program::VariableId> variables;
    const std::vector<uint32_t>& begin;
  };

  /// A compute set with a vertex for each part of the pattern and part of the columns. Its fields are
  /// `first`, the lists, and the others.
  program::ComputeSet multiply_set(const program::Codelet& codelet, const PartField& first,
                                   const PartLists& lists, const std::vector<PartField>& others,
                                   const std::vector<program::Param>& params) const {
    program::ComputeSet set{"multiply", program::Phase::compute, {}};
    for (uint32_t c = 0; c < partition_.col_parts; ++c) {
      const auto field = [&](const PartField& f) {
        return program::Field{f.variable, program::BoxSeries::table(layout_.slice(f.boxes, c))};
      };
      program::VertexGroup group{&codelet, layout_.tile_of(c, 0), partition_.parts(), 1, {}, params};
      group.fields = {
          field(first),
          {lists.variables[c], program::BoxSeries::table(boxes_of(layout_.on_parts(lists.begin, 1, c)))}};
      for (const PartField& other : others) group.fields.push_back(field(other));
      set.groups.push_back(std::move(group));
    }
    return set;
  }

  const Builder& b_;
  const ProductOperands& operands_;
  const PartLayout& layout_;
  const StaticPartition& partition_;
  const StaticParts& parts_;
  TiledNumbers numbers_;
  uint32_t blocks_;
  uint32_t block_size_;
  uint32_t block_elements_;
};

}  // namespace tessera::ops
