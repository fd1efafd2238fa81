#include "kernels/host/weight_rows/codelet.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/host/block_sparse/block_sparse.h"
#include "kernels/host/element_sparse/element_sparse.h"
#include "program/missing_row.h"
#include "sparse/blocks/block_order.h"
#include "sparse/elements/element_index.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

// All codelets have the list first, then what they copy or add, and the weight's size as first parameter.
constexpr size_t kRowList = take_element_rows_field::rows, kRowGiven = take_element_rows_field::values;
constexpr size_t kRowUnit = 0, kRowsOfTable = 1;

/// Finds the elements of a row in a weight of single elements.
class RowsOfElements {
 public:
  RowsOfElements(const Vertex& v, uint32_t cols) {
    using namespace take_element_rows_field;
    w_.cols = cols;
    w_.k_block = static_cast<uint32_t>(v.params[kRowUnit]);
    w_.chunks = v.fields[chunk_begin].cols - 1;
    w_.chunk_begin = v.fields[chunk_begin].as<const uint32_t>();
    w_.blocks = v.fields[blocks].as<const sparse::ElementBlock>();
    w_.row_groups = v.fields[row_groups].as<const sparse::RowGroup>();
    w_.indices = v.fields[indices].as<const uint32_t>();
  }

  /// The chunk of a row.
  uint32_t unit_of(uint32_t row) const {
    const uint32_t* const end = w_.chunk_begin + w_.chunks + 1;
    return static_cast<uint32_t>(std::upper_bound(w_.chunk_begin, end, row) - w_.chunk_begin) - 1;
  }

  /// Calls visit(column, place) for each element of a row.
  template <class Visit>
  void each(uint32_t row, const Visit& visit) const {
    const uint32_t chunk = unit_of(row);
    const auto own = static_cast<uint16_t>(row - w_.chunk_begin[chunk]);
    for (uint32_t k = 0; k < w_.k_blocks(); ++k) {
      const sparse::ElementBlock* const block = w_.blocks + uint64_t{chunk} * w_.k_blocks() + k;
      sparse::ElementBlock at = block[0];
      for (; at.row_group < block[1].row_group; ++at.row_group) {
        const sparse::RowGroup& row_group = w_.row_groups[at.row_group];
        if (has_row(row_group, own)) each_in(row_group, at, own, k * w_.k_block, visit);
        at.value += row_group.value_count();
        at.index += row_group.index_count();
      }
    }
  }

 private:
  // Without an early exit, so that compilers vectorise it: most row groups lack a row.
  static bool has_row(const sparse::RowGroup& row_group, uint16_t row) {
    bool has = false;
    for (uint32_t lane = 0; lane < sparse::kRowGroupLanes; ++lane)
      has |= row_group.row_a[lane] == row || row_group.row_b[lane] == row;
    return has;
  }

  template <class Visit>
  void each_in(const sparse::RowGroup& row_group, const sparse::ElementBlock& at, uint16_t row,
               uint32_t first_col, const Visit& visit) const {
    for (uint32_t lane = 0; lane < row_group.tasks; ++lane) {
      if (row_group.row_a[lane] == row) each_of_side(row_group, at, lane, 0, first_col, visit);
      if (row_group.row_b[lane] == row) each_of_side(row_group, at, lane, 1, first_col, visit);
    }
  }

  template <class Visit>
  void each_of_side(const sparse::RowGroup& row_group, const sparse::ElementBlock& at, uint32_t lane,
                    uint32_t side, uint32_t first_col, const Visit& visit) const {
    constexpr size_t kLanes = sparse::kRowGroupLanes;
    const uint32_t* const shared = w_.indices + at.index + lane;
    const uint32_t* const unpaired = shared + size_t{row_group.shared_steps / 2U} * kLanes;
    const uint64_t first_place = at.value + side * kLanes + lane;
    const auto give = [&](uint32_t column, uint64_t step) {
      if (column != w_.k_block) visit(first_col + column, first_place + 2 * kLanes * step);
    };
    for (uint32_t s = 0; s < row_group.shared_steps; ++s)
      give(sparse::column_in(shared[s / 2 * kLanes], s % 2), s);
    for (uint32_t s = 0; s < row_group.unpaired_steps; ++s)
      give(sparse::column_in(unpaired[s * kLanes], side), uint64_t{row_group.shared_steps} + s);
  }

  ElementWeight w_;
};

/// Finds the elements of a row in a weight of blocks.
class RowsOfBlocks {
 public:
  RowsOfBlocks(const Vertex& v, uint32_t cols) {
    using namespace take_block_rows_field;
    w_.cols = cols;
    w_.block_size = static_cast<uint32_t>(v.params[kRowUnit]);
    w_.column_type = v.fields[columns].type;
    w_.row_begin = v.fields[row_begin].as<const uint32_t>();
    w_.columns = v.fields[columns].data;
    if (!v.fields[slots].empty()) w_.slots = v.fields[slots].as<const uint32_t>();
  }

  /// The block row of a row.
  uint32_t unit_of(uint32_t row) const { return row / w_.block_size; }

  /// Calls visit(column, place) for each element of a row.
  template <class Visit>
  void each(uint32_t row, const Visit& visit) const {
    const sparse::BlockOrder order = sparse::order_of(w_.block_size);
    const uint32_t unit = unit_of(row), in_block = order.offset(row % w_.block_size, 0);
    for (uint32_t i = w_.row_begin[unit]; i < w_.row_begin[unit + 1]; ++i) {
      const uint32_t first = w_.column(i) * w_.block_size;
      const uint32_t end = std::min(first + w_.block_size, w_.cols);
      uint64_t place = uint64_t{w_.slots == nullptr ? i : w_.slots[i]} * order.block_values() + in_block;
      for (uint32_t c = first; c < end; c += order.group, place += order.strip_rows * order.group)
        for (uint32_t j = 0; j < order.group && c + j < end; ++j) visit(c + j, place + j);
    }
  }

 private:
  BlockWeight w_;
};

/// Numbers from 2^31 on are negative numbers in lists that were signed.
uint32_t listed_row(const Vertex& v, uint32_t i, size_t matrix) {
  const auto row = static_cast<uint32_t>(number_at(v.fields[kRowList], i, 0));
  const int64_t rows = v.params[kRowsOfTable];
  if (row >= rows)
    throw program::MissingRow({i, static_cast<int32_t>(row), static_cast<uint64_t>(rows),
                               static_cast<uint32_t>(kRowList), static_cast<uint32_t>(matrix)});
  return row;
}

template <class Rows>
void take_plainly(const Vertex& v, const FieldView& out) {
  const Rows weight(v, out.cols);
  const FieldView& values = v.fields[kRowGiven];
  clear(out);
  for (uint32_t i = 0; i < out.rows; ++i)
    weight.each(listed_row(v, i, kRowGiven), [&](uint32_t col, uint64_t place) {
      set_number(out, i, col,
                 number_at(values, static_cast<int64_t>(place / values.cols),
                           static_cast<int64_t>(place % values.cols)));
    });
}

/// Copies elements as words of their size.
template <class Rows, class Word>
void take_words(const Vertex& v, const FieldView& out) {
  const Rows weight(v, out.cols);
  const std::byte* const values = v.fields[kRowGiven].data;
  const auto step = out.col_stride * static_cast<int64_t>(sizeof(Word));
  clear(out);
  for (uint32_t i = 0; i < out.rows; ++i) {
    const uint32_t row = listed_row(v, i, kRowGiven);
    std::byte* const to = address_of(out, i, 0);
    weight.each(row, [&](uint32_t col, uint64_t place) {
      std::memcpy(to + col * step, values + place * sizeof(Word), sizeof(Word));
    });
  }
}

template <class Rows>
void take_rows_of(const Vertex& v, const FieldView& out) {
  if (size_of(out.type) == sizeof(uint16_t)) return take_words<Rows, uint16_t>(v, out);
  take_words<Rows, uint32_t>(v, out);
}

void take_element_rows_reference(const Vertex& v) {
  take_plainly<RowsOfElements>(v, v.fields[take_element_rows_field::out]);
}
void take_element_rows_simd(const Vertex& v) {
  take_rows_of<RowsOfElements>(v, v.fields[take_element_rows_field::out]);
}
void take_block_rows_reference(const Vertex& v) {
  take_plainly<RowsOfBlocks>(v, v.fields[take_block_rows_field::out]);
}
void take_block_rows_simd(const Vertex& v) {
  take_rows_of<RowsOfBlocks>(v, v.fields[take_block_rows_field::out]);
}

/// Calls add(entry, row) for each entry of the list whose row belongs to the vertex.
template <class Rows, class Add>
void each_own_row(const Vertex& v, const Rows& weight, size_t dw, const Add& add) {
  namespace at = add_element_rows_param;
  for (uint32_t i = 0; i < v.fields[kRowGiven].rows; ++i) {
    if (number_at(v.fields[kRowList], i, 0) == static_cast<double>(v.params[at::skipped])) continue;
    const uint32_t row = listed_row(v, i, dw);
    if (weight.unit_of(row) % v.params[at::parts] == v.params[at::part]) add(i, row);
  }
}

template <class Rows>
void add_plainly(const Vertex& v, size_t field) {
  const FieldView &added = v.fields[kRowGiven], &dw = v.fields[field];
  const Rows weight(v, added.cols);
  each_own_row(v, weight, field, [&](uint32_t i, uint32_t row) {
    weight.each(row, [&](uint32_t col, uint64_t place) {
      const auto r = static_cast<int64_t>(place / dw.cols), c = static_cast<int64_t>(place % dw.cols);
      set_number(dw, r, c, number_at(dw, r, c) + number_at(added, i, col));
    });
  });
}

template <class Rows>
void add_rows_to(const Vertex& v, size_t field) {
  const FieldView& added = v.fields[kRowGiven];
  const Rows weight(v, added.cols);
  auto* const dw = v.fields[field].as<float>();
  each_own_row(v, weight, field, [&](uint32_t i, uint32_t row) {
    const auto* const from = reinterpret_cast<const float*>(address_of(added, i, 0));
    weight.each(row, [&](uint32_t col, uint64_t place) { dw[place] += from[col * added.col_stride]; });
  });
}

void add_element_rows_reference(const Vertex& v) {
  add_plainly<RowsOfElements>(v, add_element_rows_field::dw);
}
void add_element_rows_simd(const Vertex& v) { add_rows_to<RowsOfElements>(v, add_element_rows_field::dw); }
void add_block_rows_reference(const Vertex& v) { add_plainly<RowsOfBlocks>(v, add_block_rows_field::dw); }
void add_block_rows_simd(const Vertex& v) { add_rows_to<RowsOfBlocks>(v, add_block_rows_field::dw); }

// Cycles of a host per row: its index, and jumps that no prefetcher anticipates; per row group in which it
// is looked for; per element, whose value has a cache line of its own; and per entry of another vertex.
constexpr double kNamedRowCycles = 40;
constexpr double kSearchedGroupCycles = 8;
constexpr double kStoredElementCycles = 3;
constexpr double kOtherEntryCycles = 2;

/// Row groups of a chunk.
double searched_groups(const Vertex& v) {
  using namespace take_element_rows_field;
  return static_cast<double>(v.fields[row_groups].rows) / std::max(1U, v.fields[chunk_begin].cols - 1);
}

/// Cost of `rows` rows of a weight with these values, with `streams`: other bytes read and written.
program::PhaseTimes cost_of_rows(const Vertex& v, const machine::Machine& m, double rows,
                                 const FieldView& values, double groups, const HostWork& streams) {
  const double per_row = static_cast<double>(values.elements()) /
                         static_cast<double>(std::max<int64_t>(1, v.params[kRowsOfTable]));
  return in_phase(Phase::rearrange,
                  host_cycles(m, streams) + rows * (kNamedRowCycles + groups * kSearchedGroupCycles +
                                                    per_row * kStoredElementCycles));
}

program::PhaseTimes cost_of_taken_rows(const Vertex& v, const machine::Machine& m, const FieldView& out,
                                       double groups) {
  return cost_of_rows(v, m, out.rows, v.fields[kRowGiven], groups,
                      {bytes_of(v.fields[kRowList]), bytes_of(out), 0});
}

program::PhaseTimes take_element_rows_cost(const Vertex& v, const machine::Machine& m) {
  return cost_of_taken_rows(v, m, v.fields[take_element_rows_field::out], searched_groups(v));
}
program::PhaseTimes take_block_rows_cost(const Vertex& v, const machine::Machine& m) {
  return cost_of_taken_rows(v, m, v.fields[take_block_rows_field::out], 0);
}

program::PhaseTimes cost_of_rows_added(const Vertex& v, const machine::Machine& m, const FieldView& dw,
                                       double groups) {
  const FieldView& added = v.fields[kRowGiven];
  const auto parts = static_cast<double>(v.params[add_element_rows_param::parts]);
  program::PhaseTimes times = cost_of_rows(v, m, added.rows / parts, dw, groups,
                                           {bytes_of(v.fields[kRowList]) + bytes_of(added) / parts, 0, 0});
  times[Phase::rearrange] += added.rows * kOtherEntryCycles;
  return times;
}

program::PhaseTimes add_element_rows_cost(const Vertex& v, const machine::Machine& m) {
  return cost_of_rows_added(v, m, v.fields[add_element_rows_field::dw], searched_groups(v));
}
program::PhaseTimes add_block_rows_cost(const Vertex& v, const machine::Machine& m) {
  return cost_of_rows_added(v, m, v.fields[add_block_rows_field::dw], 0);
}

}  // namespace

TESSERA_DEFINE_FAMILY(weight_rows, TESSERA_WEIGHT_ROWS_CODELETS, TESSERA_HOST_CODELET)

}  // namespace tessera::kernels
