// Rows of a table of which each tile has a part.
#include <cmath>
#include <cstring>
#include <optional>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/map/gather/codelet.h"
#include "program/missing_row.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

std::byte* address_of_element(const FieldView& field, uint64_t i) {
  return address_of(field, static_cast<int64_t>(i / field.cols), static_cast<int64_t>(i % field.cols));
}

/// The rows of the table that a part has, and the fields of its list and itself.
struct PartOfTable {
  int64_t first, rows, table_rows;
  uint32_t list_field, part_field;

  /// Entry i of a list as a row of the part; none: it is another part's. Numbers from 2^31 on are negative
  /// numbers in lists that were signed.
  std::optional<uint32_t> row_at(const FieldView& list, uint32_t i) const {
    const auto row = static_cast<int64_t>(number_at(list, i, 0));
    if (row >= table_rows)
      throw program::MissingRow(
          {i, static_cast<int32_t>(row), static_cast<uint64_t>(table_rows), list_field, part_field});
    if (row < first || row >= first + rows) return {};
    return static_cast<uint32_t>(row - first);
  }
};

}  // namespace

void rows_of_part_reference(const Vertex& v) {
  using namespace rows_of_part_field;
  const FieldView &list = v.fields[rows], &from = v.fields[part], &to = v.fields[out];
  const auto cols = static_cast<uint32_t>(v.params[rows_of_part_param::cols]);
  if (cols == 0) return;
  const PartOfTable table{v.params[rows_of_part_param::first], from.cols / cols,
                          v.params[rows_of_part_param::table_rows], rows, part};
  const size_t bytes = size_of(from.type);
  for (uint32_t i = 0; i < list.rows; ++i) {
    const std::optional<uint32_t> row = table.row_at(list, i);
    for (uint32_t c = 0; c < cols; ++c) {
      std::byte* const element = address_of_element(to, uint64_t{i} * cols + c);
      if (row)
        std::memcpy(element, address_of(from, 0, int64_t{*row} * cols + c), bytes);
      else
        std::memset(element, 0, bytes);
    }
  }
}

void join_rows_reference(const Vertex& v) {
  const FieldView &parts = v.fields[join_rows_field::parts], &out = v.fields[join_rows_field::out];
  const size_t bytes = size_of(out.type);
  for (uint32_t i = 0; i < parts.cols; ++i) {
    uint64_t joined = 0;
    for (uint32_t p = 0; p < parts.rows; ++p) {
      uint64_t bits = 0;
      std::memcpy(&bits, address_of(parts, p, i), bytes);
      joined |= bits;
    }
    std::memcpy(address_of_element(out, i), &joined, bytes);
  }
}

void add_rows_to_part_reference(const Vertex& v) {
  using namespace add_rows_to_part_field;
  const FieldView &list = v.fields[rows], &from = v.fields[values], &to = v.fields[part];
  if (from.cols == 0) return;
  const PartOfTable table{v.params[add_rows_to_part_param::first],
                          static_cast<int64_t>(to.elements() / from.cols),
                          v.params[add_rows_to_part_param::table_rows], rows, part};
  for (uint32_t i = 0; i < from.rows; ++i) {
    const std::optional<uint32_t> row = table.row_at(list, i);
    if (!row || *row + table.first == v.params[add_rows_to_part_param::skipped]) continue;
    for (uint32_t c = 0; c < from.cols; ++c) {
      const int64_t at = int64_t{*row} * from.cols + c, r = at / to.cols, col = at % to.cols;
      set_number(to, r, col, f32_at(to, r, col) + f32_at(from, i, c));
    }
  }
}

namespace {

// Cycles on a tile, as for rows of a table that one tile has all of (codelet.cc), and for sums of rows
// (kernels/map/reduce). All entries of a list may be a single part's, and count as if they were.
constexpr double kWorkerCycles = 30;
constexpr double kRowCycles = 19;
constexpr double kCopyVectorCycles = 2;
constexpr double kAddVectorCycles = 3;
constexpr double kJoinWorkerCycles = 16;
constexpr double kJoinVectorCycles = 6;

}  // namespace

program::PhaseTimes rows_of_part_cost(const Vertex& v, const machine::Machine& m) {
  const auto cols = static_cast<double>(v.params[rows_of_part_param::cols]);
  const double vectors = std::ceil(cols / tile_vector_width(v.fields[rows_of_part_field::out].type));
  const double rows = worker_slice(m, v.fields[rows_of_part_field::rows].rows);
  return in_phase(Phase::rearrange,
                  m.workers_per_tile * (kWorkerCycles + rows * (kRowCycles + kCopyVectorCycles * vectors)));
}

program::PhaseTimes join_rows_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& parts = v.fields[join_rows_field::parts];
  const double vectors = std::ceil(worker_slice(m, parts.cols) / tile_vector_width(parts.type));
  return in_phase(Phase::rearrange,
                  m.workers_per_tile * (kJoinWorkerCycles + vectors * (kJoinVectorCycles + parts.rows)));
}

/// Each worker has some of the columns. Values of 16 bits are converted while sums are loaded.
program::PhaseTimes add_rows_to_part_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& values = v.fields[add_rows_to_part_field::values];
  const double vectors = std::ceil(worker_slice(m, values.cols) / tile_vector_width(Type::f32));
  return in_phase(
      Phase::rearrange,
      m.workers_per_tile * (kWorkerCycles + values.rows * (kRowCycles + kAddVectorCycles * vectors)));
}

}  // namespace tessera::kernels
