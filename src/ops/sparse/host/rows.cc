#include "ops/sparse/host/rows.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/host/weight_rows/codelet.h"
#include "ops/map/fill.h"
#include "ops/map/map.h"
#include "ops/split.h"

namespace tessera::ops {
namespace {

using program::BoxSeries;
using program::Field;
using program::Param;

Field whole_of(const Operand& operand) { return {operand.variable, BoxSeries::same(operand.box)}; }

/// An array of the weight's index, as the products have it.
Field whole_array(const Builder& builder, WeightIndex& index, const char* name, Type type, const void* data,
                  uint64_t rows, uint32_t cols, bool changes) {
  return whole_of(builder.whole(index.array(builder, name, type, data, rows, cols, changes)));
}

void add_arrays(const Builder& builder, WeightIndex& index, const sparse::PackedElements& weight,
                std::vector<Field>& fields) {
  const sparse::ElementIndex& of = weight.index();
  const bool changes = weight.is_dynamic();
  const auto push = [&](const char* name, Type type, const void* data, uint64_t rows, uint32_t cols,
                        bool may_change) {
    fields.push_back(whole_array(builder, index, name, type, data, rows, cols, may_change));
  };
  push("chunk_begin", Type::u32, of.chunk_begin.data(), 1, static_cast<uint32_t>(of.chunk_begin.size()),
       false);
  push("blocks", Type::u8, of.blocks.data(), of.blocks.size(), sizeof(sparse::ElementBlock), changes);
  push("row_groups", Type::u8, of.row_groups.data(), of.row_groups.size(), sizeof(sparse::RowGroup), changes);
  push("indices", Type::u32, of.words.data(), of.words.size() / sparse::kRowGroupLanes,
       sparse::kRowGroupLanes, changes);
}

void add_arrays(const Builder& builder, WeightIndex& index, const sparse::PackedBlocks& weight,
                std::vector<Field>& fields) {
  const sparse::BlockIndex& of = weight.index();
  const bool changes = weight.is_dynamic();
  const auto push = [&](const char* name, Type type, const void* data, uint64_t cols) {
    fields.push_back(whole_array(builder, index, name, type, data, 1, static_cast<uint32_t>(cols), changes));
  };
  push("row_begin", Type::u32, of.row_begin.data(), of.row_begin.size());
  push("columns", of.column_type, of.columns.data(), weight.capacity());
  push("slots", Type::u32, of.slots.data(), of.slots.size());
}

/// The form of a weight as far as the codelets depend on it.
struct FormOfRows {
  bool has_blocks = false;
  Param unit = {};  ///< columns of a k-block, or the block size
  Param rows = {};
  uint32_t units = 0;  ///< chunks or block rows

  explicit FormOfRows(const PackedWeight& weight)
      : has_blocks(weight.has_blocks()), rows(static_cast<int64_t>(weight.rows())) {
    if (const auto* blocks = std::get_if<sparse::PackedBlocks>(&weight.form))
      unit = static_cast<int64_t>(blocks->block_size()), units = blocks->block_rows();
    if (const auto* elements = std::get_if<sparse::PackedElements>(&weight.form))
      unit = static_cast<int64_t>(elements->k_block()), units = elements->chunks();
  }
};

/// Fields list, `given`, and the arrays of the index.
std::vector<Field> first_fields(const Builder& builder, WeightIndex& index, Field list, Field given) {
  std::vector<Field> fields = {std::move(list), std::move(given)};
  const PackedWeight& weight = index.weight();
  if (const auto* blocks = std::get_if<sparse::PackedBlocks>(&weight.form))
    add_arrays(builder, index, *blocks, fields);
  else
    add_arrays(builder, index, std::get<sparse::PackedElements>(weight.form), fields);
  return fields;
}

program::StepId run_group(const Builder& builder, const char* name, program::VertexGroup group) {
  program::ComputeSet set{name, program::Phase::rearrange, {}};
  set.groups.push_back(std::move(group));
  return builder.execute(std::move(set));
}

void check_rows(const Builder& builder, const PackedWeight& weight, const ListedRows& o, Type values,
                Type rows) {
  const PackedShape packed = packed_shape(weight);
  builder.require(o.list, "the list", Type::u32, o.list.rows(), 1);
  builder.require(o.values, "values", values, packed.rows, packed.cols);
  builder.require(o.rows, "rows", rows, o.list.rows(), weight.cols());
}

}  // namespace

program::StepId take_rows(const Builder& builder, WeightIndex& index, const ListedRows& o) {
  const PackedWeight& weight = index.weight();
  check_rows(builder, weight, o, weight.type(), weight.type());
  const FormOfRows form(weight);
  constexpr uint32_t kGrain = 4;  // rows that are worth another thread
  const std::vector<uint32_t> begin = split_evenly(o.list.rows(), builder.machine().tiles, kGrain);
  const auto parts_of = [&](const Operand& operand) {
    std::vector<program::Box> boxes;
    for (size_t p = 0; p + 1 < begin.size(); ++p)
      boxes.push_back(operand.inside(program::Box{begin[p], begin[p + 1] - begin[p], 0, operand.cols()}));
    return Field{operand.variable, BoxSeries::table(std::move(boxes))};
  };
  program::VertexGroup group;
  group.codelet = form.has_blocks ? &kernels::take_block_rows_codelet : &kernels::take_element_rows_codelet;
  group.tiles = static_cast<uint32_t>(begin.size() - 1);
  group.fields = first_fields(builder, index, parts_of(o.list), whole_of(o.values));
  group.fields.push_back(parts_of(o.rows));
  group.params = {form.unit, form.rows};
  return run_group(builder, "take rows", std::move(group));
}

program::StepId sum_rows(const Builder& builder, WeightIndex& index, const ListedRows& o,
                         std::optional<uint32_t> skipped) {
  const PackedWeight& weight = index.weight();
  check_rows(builder, weight, o, Type::f32, Type::f32);
  const FormOfRows form(weight);
  const uint32_t parts = std::clamp(form.units, 1U, builder.machine().tiles);
  std::vector<int64_t> numbers;
  for (uint32_t part = 0; part < parts; ++part) numbers.push_back(part);
  program::VertexGroup group;
  group.codelet = form.has_blocks ? &kernels::add_block_rows_codelet : &kernels::add_element_rows_codelet;
  group.tiles = parts;
  group.fields = first_fields(builder, index, whole_of(o.list), whole_of(o.rows));
  group.fields.push_back(whole_of(o.values));
  group.params = {form.unit, form.rows, Param(skipped ? int64_t{*skipped} : -1), Param(std::move(numbers)),
                  Param(int64_t{parts})};
  std::vector<program::StepId> steps;
  if (!o.values.box.empty())
    steps.push_back(
        ops::add(builder, FillProblem{Type::f32, o.values.rows(), o.values.cols(), 0}, {o.values}));
  steps.push_back(run_group(builder, "add rows", std::move(group)));
  return builder.in_order(std::move(steps));
}

}  // namespace tessera::ops
