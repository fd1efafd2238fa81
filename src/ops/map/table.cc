#include "ops/map/table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/ceil_divide.h"
#include "kernels/map/gather/codelet.h"
#include "ops/blocks.h"
#include "ops/owners.h"
#include "ops/split.h"

namespace tessera::ops {
namespace {

using program::Box;
using program::MappedBox;
using program::StepId;
using program::TileId;

/// First column of the table in part column j.
uint32_t first_column(const PartedMatrix& parts, uint32_t j) { return parts.begin(0, j) / parts.rows_of(0); }

/// The first row of each slice of selected rows, and the end: a tile takes all columns of its part of one
/// slice at a time. At most `most` slices.
std::vector<uint32_t> slices_of_rows(uint32_t rows, const PartedMatrix& table, Type type, uint32_t most) {
  constexpr uint64_t kMostBytes = 32768;  // a twentieth of a tile
  uint64_t cols = 0;
  for (uint32_t j = 0; j < table.col_parts(); ++j) cols = std::max<uint64_t>(cols, table.cols_of(j));
  const uint64_t slices = base::ceil_divide(rows * cols * size_of(type), kMostBytes);
  return split_evenly(rows, static_cast<uint32_t>(std::min<uint64_t>(slices, most)));
}

/// The parts of a table and their tiles.
class TableParts {
 public:
  TableParts(const Builder& builder, const PartedMatrix& parts, const Operand& table,
             bool lies_in_rows = false)
      : builder_(builder), parts_(parts), table_(table), lies_in_rows_(lies_in_rows) {
    std::vector<MappedBox> mapping = builder.mapping_of(table);
    std::ranges::sort(mapping, {}, [](const MappedBox& mapped) { return mapped.box.col; });
    const bool is_here = builder.holds(table) && !lies_in_rows;
    for (uint32_t i = 0; i < parts.row_parts(); ++i)
      for (uint32_t j = 0; j < parts.col_parts(); ++j) {
        const auto after = std::ranges::upper_bound(mapping, parts.begin(i, j), {},
                                                    [](const MappedBox& mapped) { return mapped.box.col; });
        const TileId spread = (i * parts.col_parts() + j) % builder.machine().tiles;
        tiles_.push_back(is_here ? (after - 1)->tile : spread);
        by_tile_.emplace_back(i, j);
      }
    std::ranges::stable_sort(by_tile_, {}, [&](const auto& at) { return tile_of(at.first, at.second); });
  }

  TileId tile_of(uint32_t i, uint32_t j) const { return tiles_[i * parts_.col_parts() + j]; }

  /// The boxes that box_of(i, j) gives for the parts, on their tiles.
  template <class BoxOf>
  std::vector<MappedBox> boxes(const BoxOf& box_of) const {
    std::vector<MappedBox> boxes;
    for (const auto& [i, j] : by_tile_) boxes.push_back({box_of(i, j), tile_of(i, j)});
    return boxes;
  }

  /// A vertex for each part, with the box of each field that box_of(i, j) gives.
  template <class BoxOf>
  OwnerField field(const Operand& operand, const BoxOf& box_of) const {
    return {operand, boxes_of(boxes(box_of))};
  }
  OwnerField field_of_parts() const {
    return field(table_, [&](uint32_t i, uint32_t j) {
      return lies_in_rows_ ? parts_.in_matrix(0, i, j) : parts_.part(0, i, j);
    });
  }
  /// For all parts, some rows.
  OwnerField field_of_rows(const Operand& operand, uint32_t first, uint32_t count) const {
    return field(operand, [&](uint32_t, uint32_t) { return Box{first, count, 0, operand.cols()}; });
  }
  program::Param columns() const {
    return param_of([&](uint32_t, uint32_t j) { return parts_.cols_of(j); });
  }
  program::Param first_rows() const {
    return param_of([&](uint32_t i, uint32_t) { return parts_.first_row(0, i); });
  }
  StepId execute(const program::Codelet& codelet, const std::vector<OwnerField>& fields,
                 const std::vector<program::Param>& params) const {
    std::vector<MappedBox> owners;
    for (const auto& [i, j] : by_tile_) owners.push_back({parts_.part(0, i, j), tile_of(i, j)});
    return builder_.execute({std::string(codelet.name), program::Phase::rearrange,
                             groups_of_owners(owners, codelet, fields, params)});
  }

 private:
  template <class NumberOf>
  program::Param param_of(const NumberOf& number_of) const {
    std::vector<int64_t> numbers;
    for (const auto& [i, j] : by_tile_) numbers.push_back(number_of(i, j));
    return {std::move(numbers)};
  }

  const Builder& builder_;
  const PartedMatrix& parts_;
  const Operand& table_;
  const bool lies_in_rows_;
  std::vector<TileId> tiles_;                           ///< by part
  std::vector<std::pair<uint32_t, uint32_t>> by_tile_;  ///< parts
};

/// Each part copies the selected rows that it has; then the rows of all parts are joined, spread over the
/// tiles with the same columns. Many rows are copied in slices. There are as many groups of parts as slices:
/// each group joins its own rows of every slice, and then joins the rows of all groups for one slice, so that
/// a tile has no more transfers than if it joined its slice of all rows at once.
class TableLookup {
 public:
  TableLookup(const Builder& builder, const TableLookupProblem& problem, const std::vector<Operand>& operands)
      : builder_(builder),
        p_(problem),
        list_(operands[0]),
        out_(operands[2]),
        parts_(builder, problem.table, operands[1]) {}

  StepId build() const {
    const uint32_t row_parts = p_.table.row_parts();
    std::vector<StepId> steps;
    if (row_parts == 1) {
      steps.push_back(take({0, p_.rows}, parts_.field(out_, [&](uint32_t, uint32_t j) {
        return of_matrix({0, p_.rows}, j);
      })));
      return builder_.in_order(std::move(steps));
    }
    // With more groups, a tile of the last join would receive more than in the joins before.
    const auto most = static_cast<uint32_t>(std::sqrt(double{1} * row_parts));
    const std::vector<uint32_t> slices = slices_of_rows(p_.rows, p_.table, p_.type, most);
    if (slices.size() == 2)
      join_at_once(steps);
    else
      join_in_groups(slices, steps);
    return builder_.sequence(std::move(steps));
  }

 private:
  struct Rows {
    uint32_t first = 0, count = 0;
  };
  /// The box that a vertex joins, and where the result goes.
  struct Join {
    MappedBox to;
    Box from;
  };

  /// Rows [begin[i], begin[i + 1]).
  static Rows rows_at(const std::vector<uint32_t>& begin, size_t i) {
    return {begin[i], begin[i + 1] - begin[i]};
  }
  Box of_matrix(Rows rows, uint32_t j) const {
    return {rows.first, rows.count, first_column(p_.table, j), p_.table.cols_of(j)};
  }
  /// The box of rows `rows` of the parts `parts`, in column j of parts, in a variable with `all` selected
  /// rows of each part.
  Box of_parts(uint32_t all, Rows parts, Rows rows, uint32_t j) const {
    const uint32_t cols = p_.table.cols_of(j);
    return {parts.first, parts.count, all * first_column(p_.table, j) + rows.first * cols, rows.count * cols};
  }

  StepId take(Rows rows, OwnerField to) const {
    return parts_.execute(
        kernels::rows_of_part_codelet,
        {parts_.field_of_rows(list_, rows.first, rows.count), parts_.field_of_parts(), std::move(to)},
        {parts_.columns(), parts_.first_rows(), int64_t{p_.table.rows()}});
  }

  /// The selected rows that each part has, for some of the rows.
  Operand chosen(Rows rows, std::vector<StepId>& steps) const {
    const auto box_of = [&](uint32_t i, uint32_t j) {
      return of_parts(rows.count, {i, 1}, {0, rows.count}, j);
    };
    std::vector<MappedBox> mapping;
    for (uint32_t i = 0; i < p_.table.row_parts(); ++i)
      for (uint32_t j = 0; j < p_.table.col_parts(); ++j)
        mapping.push_back({box_of(i, j), parts_.tile_of(i, j)});
    const Operand to = builder_.temporary("chosen", p_.type, p_.table.row_parts(),
                                          rows.count * p_.table.cols(), std::move(mapping));
    steps.push_back(take(rows, parts_.field(to, box_of)));
    return to;
  }

  StepId join(const Operand& from, const Operand& to, std::vector<Join> all) const {
    std::ranges::stable_sort(all, {}, [](const Join& one) { return one.to.tile; });
    std::vector<MappedBox> owners;
    OwnerField joined{from, {}};
    for (const Join& one : all) owners.push_back(one.to), joined.boxes.push_back(one.from);
    return builder_.execute(
        {"join_rows", program::Phase::rearrange,
         groups_of_owners(owners, kernels::join_rows_codelet, {joined, {to, boxes_of(owners)}}, {})});
  }

  void join_at_once(std::vector<StepId>& steps) const {
    const uint32_t row_parts = p_.table.row_parts();
    const std::vector<uint32_t> first = split_evenly(p_.rows, std::min(p_.rows, row_parts));
    std::vector<Join> all;
    for (uint32_t j = 0; j < p_.table.col_parts(); ++j)
      for (size_t h = 0; h + 1 < first.size(); ++h) {
        const auto i = static_cast<uint32_t>(h * row_parts / (first.size() - 1));
        const Rows rows = rows_at(first, h);
        all.push_back(
            {{of_matrix(rows, j), parts_.tile_of(i, j)}, of_parts(p_.rows, {0, row_parts}, rows, j)});
      }
    const Operand from = chosen({0, p_.rows}, steps);
    steps.push_back(join(from, out_, std::move(all)));
  }

  /// The joins of a group for a slice, each on a tile of the group: they join the rows of the slice that the
  /// group has.
  std::vector<Join> joins_of_group(Rows slice, uint32_t group, Rows parts, uint32_t tiles) const {
    std::vector<Join> joins;
    const std::vector<uint32_t> piece = split_evenly(slice.count, tiles);
    for (uint32_t j = 0; j < p_.table.col_parts(); ++j)
      for (uint32_t h = 0; h + 1 < piece.size(); ++h) {
        const Rows rows = rows_at(piece, h);
        joins.push_back({{of_parts(p_.rows, {group, 1}, {slice.first + rows.first, rows.count}, j),
                          parts_.tile_of(parts.first + h, j)},
                         of_parts(slice.count, parts, rows, j)});
      }
    return joins;
  }

  /// The joins of a slice's rows from all groups, each where a group has joined its own rows.
  std::vector<Join> joins_of_slice(Rows slice, Rows parts, uint32_t groups, uint32_t tiles) const {
    std::vector<Join> joins;
    const std::vector<uint32_t> piece = split_evenly(slice.count, tiles);
    for (uint32_t j = 0; j < p_.table.col_parts(); ++j)
      for (uint32_t h = 0; h + 1 < piece.size(); ++h) {
        const Rows rows{slice.first + piece[h], piece[h + 1] - piece[h]};
        joins.push_back({{of_matrix(rows, j), parts_.tile_of(parts.first + h, j)},
                         of_parts(p_.rows, {0, groups}, rows, j)});
      }
    return joins;
  }

  /// `slices` are the first row of each, and the end.
  void join_in_groups(const std::vector<uint32_t>& slices, std::vector<StepId>& steps) const {
    const auto count = static_cast<uint32_t>(slices.size() - 1);
    const std::vector<uint32_t> groups = split_evenly(p_.table.row_parts(), count);
    const uint32_t tiles = p_.table.row_parts() / count;  // of each group, for a column of parts
    std::vector<std::vector<Join>> in_groups(count);      // by slice
    std::vector<MappedBox> mapping;
    std::vector<Join> last;
    for (uint32_t s = 0; s < count; ++s) {
      for (uint32_t g = 0; g < count; ++g)
        for (const Join& own : joins_of_group(rows_at(slices, s), g, rows_at(groups, g), tiles)) {
          in_groups[s].push_back(own);
          mapping.push_back(own.to);
        }
      for (const Join& own : joins_of_slice(rows_at(slices, s), rows_at(groups, s), count, tiles))
        last.push_back(own);
    }
    const Operand joined =
        builder_.temporary("joined", p_.type, count, p_.rows * p_.table.cols(), std::move(mapping));
    for (uint32_t s = 0; s < count; ++s) {
      const Operand from = chosen(rows_at(slices, s), steps);
      steps.push_back(join(from, joined, std::move(in_groups[s])));
    }
    steps.push_back(join(joined, out_, std::move(last)));
  }

  const Builder& builder_;
  const TableLookupProblem& p_;
  const Operand &list_, &out_;
  TableParts parts_;
};

}  // namespace

std::vector<MappedBox> part_boxes(const PartedMatrix& parts) {
  std::vector<MappedBox> boxes;
  for (uint32_t i = 0; i < parts.row_parts(); ++i)
    for (uint32_t j = 0; j < parts.col_parts(); ++j)
      boxes.push_back({parts.in_matrix(0, i, j), i * parts.col_parts() + j});
  return boxes;
}

StepId add(const Builder& builder, const TableLookupProblem& problem, const std::vector<Operand>& operands) {
  builder.require(operands[0], "rows", Type::u32, problem.rows, 1);
  builder.require(operands[1], "table", problem.type, 1, problem.table.slice_elements());
  builder.require(operands[2], "out", problem.type, problem.rows, problem.table.cols());
  return TableLookup(builder, problem, operands).build();
}

StepId add(const Builder& builder, const TableAddProblem& problem, const std::vector<Operand>& operands) {
  const PartedMatrix& table = problem.table;
  builder.require(operands[0], "rows", Type::u32, problem.rows, 1);
  builder.require(operands[1], "values", problem.values, problem.rows, table.cols());
  if (problem.lies_in_rows)
    builder.require(operands[2], "table", Type::f32, table.rows(), table.cols());
  else
    builder.require(operands[2], "table", Type::f32, 1, table.slice_elements());
  const TableParts parts(builder, table, operands[2], problem.lies_in_rows);
  const auto columns = [&](uint32_t first, uint32_t count) {
    return parts.boxes([&](uint32_t, uint32_t j) {
      return Box{first, count, first_column(table, j), table.cols_of(j)};
    });
  };
  program::CopySet to_blocks{"to blocks", {}};
  const Operand values =
      read_by_blocks(builder, operands[1], operands[1], columns(0, problem.rows), to_blocks);
  std::vector<StepId> steps;
  builder.copy(std::move(to_blocks), steps);
  const std::vector<uint32_t> slices = slices_of_rows(problem.rows, table, problem.values, problem.rows);
  for (size_t s = 0; s + 1 < slices.size(); ++s) {
    const uint32_t first = slices[s], count = slices[s + 1] - first;
    steps.push_back(parts.execute(
        kernels::add_rows_to_part_codelet,
        {parts.field_of_rows(operands[0], first, count),
         {values, boxes_of(columns(first, count))},
         parts.field_of_parts()},
        {problem.skipped ? int64_t{*problem.skipped} : -1, parts.first_rows(), int64_t{table.rows()}}));
  }
  return builder.in_order(std::move(steps));
}

}  // namespace tessera::ops
