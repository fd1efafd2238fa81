// Tables in a grid of parts on tiles: rows are taken bit by bit, and added to in order, wherever parts lie.
#include "ops/map/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/layout.h"
#include "ops/run_operation.h"
#include "program/missing_row.h"

namespace tessera::ops {
namespace {

constexpr uint32_t kRows = 50, kCols = 20, kTiles = 24;

/// The first and last rows of parts, some of them several times.
const std::vector<uint32_t> kList = {0, 49, 7, 7, 16, 15, 31, 32, 48, 1, 7};

PartedMatrix grid_of(uint32_t row_parts, uint32_t col_parts) {
  return {kRows, kCols, 1, 1, row_parts, 4, col_parts, 4};
}

/// Each part on a tile; or spread over all tiles, whatever its parts.
OperandLayout layout_of(const PartedMatrix& grid, bool by_parts) {
  std::vector<program::MappedBox> mapping;
  const uint32_t parts = grid.row_parts() * grid.col_parts();
  for (uint32_t i = 0; by_parts && i < grid.row_parts(); ++i)
    for (uint32_t j = 0; j < grid.col_parts(); ++j)
      mapping.push_back({grid.part(0, i, j), kTiles - parts + j * grid.row_parts() + i});
  return parted_layout(grid, std::move(mapping));
}

Array list(std::vector<uint32_t> rows = kList) {
  Array array(Type::u32, static_cast<uint32_t>(rows.size()), 1, false);
  for (uint32_t i = 0; i < rows.size(); ++i) array.set(i, 0, rows[i]);
  return array;
}

/// A matrix as it is stored, with numbers whose bits sums would change.
struct Table {
  std::vector<float> matrix;
  Array stored;

  Table(const PartedMatrix& grid, Type type) : stored(type, 1, grid.slice_elements(), false) {
    const Array random = Array::random(type, kRows, kCols, false, 3);
    for (uint32_t r = 0; r < kRows; ++r)
      for (uint32_t c = 0; c < kCols; ++c) matrix.push_back(static_cast<float>(random.at(r, c)));
    matrix[0] = -0.0F, matrix[1] = INFINITY, matrix[7 * kCols] = -INFINITY, matrix[16 * kCols + 2] = NAN;
    const std::vector<float> parts = grid.store(matrix);
    for (uint32_t i = 0; i < parts.size(); ++i) stored.set(0, i, parts[i]);
  }
};

/// Binds an array for each operand, and runs what `add` adds.
template <class Problem>
void run(const Problem& problem, const OperandLayout& table, size_t place_of_table,
         std::vector<Array*> arrays) {
  const machine::Machine machine = machine::find("gc200").part(0, kTiles);
  program::Program program;
  const Builder builder(program, machine);
  std::vector<Operand> operands;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const OperandLayout layout =
        i == place_of_table ? table : matrix_layout(arrays[i]->rows(), arrays[i]->cols(), {});
    operands.push_back(builder.add("operand",
                                   i + 1 < arrays.size() ? program::Role::input : program::Role::inout,
                                   arrays[i]->type(), layout));
  }
  program.set_main(add(builder, problem, operands));
  std::vector<engine::Binding> bindings;
  for (size_t i = 0; i < arrays.size(); ++i) bindings.push_back(arrays[i]->bind(operands[i].variable));
  engine::Engine(compiler::compile(std::move(program), machine)).run(bindings);
}

template <class Visit>
void each_grid(const Visit& visit) {
  for (const auto& [row_parts, col_parts] : {std::pair{1U, 1U}, {1U, 5U}, {6U, 1U}, {6U, 3U}, {12U, 2U}})
    for (const bool by_parts : {true, false}) {
      SCOPED_TRACE(fmt::format("{} × {} parts, on a tile each: {}", row_parts, col_parts, by_parts));
      const PartedMatrix grid = grid_of(row_parts, col_parts);
      visit(grid, layout_of(grid, by_parts));
    }
}

TEST(TableTest, TakesRowsBitByBit) {
  for (const Type type : {Type::f32, Type::f16})
    each_grid([&](const PartedMatrix& grid, const OperandLayout& layout) {
      Table table(grid, type);
      Array rows = list(), out(type, rows.rows(), kCols, false);
      run(TableLookupProblem{type, grid, rows.rows()}, layout, 1, {&rows, &table.stored, &out});
      for (uint32_t i = 0; i < kList.size(); ++i)
        for (uint32_t c = 0; c < kCols; ++c) {
          const double found = out.at(i, c), expected = table.matrix[kList[i] * kCols + c];
          EXPECT_TRUE(std::isnan(expected)
                          ? std::isnan(found)
                          : found == expected && std::signbit(found) == std::signbit(expected))
              << i << ", " << c << ": " << found << ", not " << expected;
        }
    });
}

TEST(TableTest, AddsToRowsInOrder) {
  each_grid([&](const PartedMatrix& grid, const OperandLayout& layout) {
    Table table(grid, Type::f32);
    std::vector<float> expected = table.matrix;
    Array rows = list(), values = Array::random(Type::f32, rows.rows(), kCols, true, 5);
    for (uint32_t i = 0; i < kList.size(); ++i)
      for (uint32_t c = 0; c < kCols && kList[i] != 48; ++c)
        expected[kList[i] * kCols + c] += static_cast<float>(values.at(i, c));
    run(TableAddProblem{grid, rows.rows(), 48}, layout, 2, {&rows, &values, &table.stored});
    const std::vector<float> in_parts = grid.store(expected);
    for (uint32_t i = 0; i < in_parts.size(); ++i) {
      const double found = table.stored.at(0, i);
      EXPECT_TRUE(found == in_parts[i] || (std::isnan(found) && std::isnan(in_parts[i])))
          << i << ": " << found << ", not " << in_parts[i];
    }
  });
}

/// More entries than a tile takes at a time.
std::vector<uint32_t> many_rows() {
  std::vector<uint32_t> rows;
  for (uint32_t i = 0; i < 2000; ++i) rows.push_back(i * 7 % kRows);
  return rows;
}

/// In slices, which groups of parts join first; or at once, if there are few parts.
TEST(TableTest, TakesManyRows) {
  const std::vector<uint32_t> chosen = many_rows();
  for (const auto& [row_parts, col_parts] : {std::pair{1U, 2U}, {3U, 1U}, {6U, 1U}, {12U, 1U}, {12U, 2U}})
    for (const bool by_parts : {true, false}) {
      SCOPED_TRACE(fmt::format("{} × {} parts, on a tile each: {}", row_parts, col_parts, by_parts));
      const PartedMatrix grid = grid_of(row_parts, col_parts);
      Table table(grid, Type::f32);
      Array rows = list(chosen), out(Type::f32, rows.rows(), kCols, false);
      run(TableLookupProblem{Type::f32, grid, rows.rows()}, layout_of(grid, by_parts), 1,
          {&rows, &table.stored, &out});
      uint32_t wrong = 0;
      for (uint32_t i = 0; i < chosen.size(); ++i)
        for (uint32_t c = 0; c < kCols; ++c) {
          const double found = out.at(i, c), expected = table.matrix[chosen[i] * kCols + c];
          if (found != expected && !(std::isnan(found) && std::isnan(expected))) ++wrong;
        }
      EXPECT_EQ(wrong, 0U);
    }
}

/// Values of 16 bits, slice by slice.
TEST(TableTest, AddsToManyRowsInOrder) {
  const std::vector<uint32_t> chosen = many_rows();
  for (const uint32_t row_parts : {1U, 6U, 12U}) {
    const PartedMatrix grid = grid_of(row_parts, 1);
    Table table(grid, Type::f32);
    std::vector<float> expected = table.matrix;
    Array rows = list(chosen), values = Array::random(Type::f16, rows.rows(), kCols, false, 5);
    for (uint32_t i = 0; i < chosen.size(); ++i)
      for (uint32_t c = 0; c < kCols; ++c)
        expected[chosen[i] * kCols + c] += static_cast<float>(values.at(i, c));
    run(TableAddProblem{grid, rows.rows(), {}, Type::f16}, layout_of(grid, true), 2,
        {&rows, &values, &table.stored});
    const std::vector<float> in_parts = grid.store(expected);
    for (uint32_t i = 0; i < in_parts.size(); ++i) {
      const double found = table.stored.at(0, i);
      EXPECT_TRUE(found == in_parts[i] || (std::isnan(found) && std::isnan(in_parts[i])))
          << i << ": " << found << ", not " << in_parts[i];
    }
  }
}

TEST(TableTest, AddsToRowsOfATableThatLiesRowByRow) {
  for (const auto& [row_parts, col_parts] : {std::pair{1U, 5U}, {6U, 1U}, {6U, 3U}})
    for (const bool by_parts : {true, false}) {
      const PartedMatrix grid = grid_of(row_parts, col_parts);
      const OperandLayout layout =
          matrix_layout(kRows, kCols, by_parts ? part_boxes(grid) : std::vector<program::MappedBox>());
      Array table = Array::random(Type::f32, kRows, kCols, false, 3), expected = table;
      Array rows = list(), values = Array::random(Type::f16, rows.rows(), kCols, false, 5);
      for (uint32_t i = 0; i < kList.size(); ++i)
        for (uint32_t c = 0; c < kCols && kList[i] != 48; ++c)
          expected.set(kList[i], c,
                       static_cast<float>(expected.at(kList[i], c)) + static_cast<float>(values.at(i, c)));
      run(TableAddProblem{grid, rows.rows(), 48, Type::f16, true}, layout, 2, {&rows, &values, &table});
      for (uint32_t r = 0; r < kRows; ++r)
        for (uint32_t c = 0; c < kCols; ++c) EXPECT_EQ(table.at(r, c), expected.at(r, c)) << r << ", " << c;
    }
}

TEST(TableTest, RefusesRowsThatTheTableLacks) {
  const PartedMatrix grid = grid_of(6, 3);
  Table table(grid, Type::f32);
  Array rows = list({3, kRows, 4}), out(Type::f32, 3, kCols, false);
  EXPECT_THROW(
      run(TableLookupProblem{Type::f32, grid, 3}, layout_of(grid, true), 1, {&rows, &table.stored, &out}),
      program::MissingRow);
  EXPECT_THROW(run(TableAddProblem{grid, 3}, layout_of(grid, true), 2, {&rows, &out, &table.stored}),
               program::MissingRow);
}

}  // namespace
}  // namespace tessera::ops
