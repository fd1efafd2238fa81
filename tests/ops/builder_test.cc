// Conversions of operands between layouts, compared with the reference interpreter and with the layouts' own
// order of elements.
#include "ops/builder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "kernels/common/numbers.h"
#include "machine/model/machine.h"
#include "ops/blocks.h"
#include "ops/map/elementwise.h"
#include "ops/map/map.h"
#include "program/sizes.h"
#include "support/bound_arrays.h"
#include "support/error_of.h"
#include "support/reference_interpreter.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

using program::Role;
using program::StepId;

constexpr uint32_t kRows = 13, kCols = 22;

TEST(Conversions, CopyRowsOfPartsOfEqualWidthAtOnce) {
  const auto copies = [](const PartedMatrix& from, const PartedMatrix& to) {
    const OperandLayout has = parted_layout(from, {}), wants = parted_layout(to, {});
    const Operand source{0, {0, has.rows, 0, has.cols}}, target{1, {0, wants.rows, 0, wants.cols}};
    return conversion(source, has, target, wants).groups[0].count;
  };
  // 12 rows in 3 or 2 parts overlap in 4 pieces; columns lie in the same 4 parts, or others.
  const PartedMatrix thirds(12, 32, 1, 1, 3, 1, 4, 1), halves(12, 32, 1, 1, 2, 1, 4, 1);
  EXPECT_EQ(copies(thirds, halves), 4u * 4);
  EXPECT_EQ(copies(thirds, PartedMatrix(12, 32, 1, 1, 2, 1, 2, 1)), 12u * 4);
  // Slices are rows of the variable, each in the order of its matrix where parts have all its columns.
  EXPECT_EQ(copies(PartedMatrix(12, 32, 1, 4, 3, 1, 1, 1), PartedMatrix(12, 32, 1, 4, 2, 1, 1, 1)), 4u);
}

/// The layouts of a matrix of kRows × kCols: row by row and part by part, itself and its transpose; on a host
/// also in panels.
std::vector<OperandLayout> layouts_on(const machine::Machine& m) {
  std::vector<OperandLayout> layouts;
  for (bool transposed : {false, true}) {
    const uint32_t rows = transposed ? kCols : kRows;
    const uint32_t cols = transposed ? kRows : kCols;
    const PartedMatrix parts(rows, cols, 1, 1, 3, 2, 2, 4);
    const PartedMatrix slices(rows, cols, 2, 1, 2, 1, 1, 1);
    const bool host = m.kind == machine::Kind::host;
    const auto mapped = [&](uint32_t r, uint32_t c) {
      return host ? program::map_shared(r, c) : program::map_linearly(r, c, m.tiles);
    };
    layouts.push_back(matrix_layout(rows, cols, mapped(rows, cols)));
    if (!host) layouts.push_back(matrix_layout(rows, cols, program::map_to_tile(rows, cols, m.tiles - 1)));
    for (const PartedMatrix& parted : {parts, slices})
      layouts.push_back(parted_layout(parted, mapped(parted.slices(), parted.slice_elements())));
    for (size_t i = layouts.size() - (host ? 3 : 4); i < layouts.size(); ++i)
      layouts[i].transposed = transposed;
  }
  if (m.kind == machine::Kind::host) layouts.push_back(panel_layout({kRows, kCols}));
  return layouts;
}

std::vector<float> numbers() {
  std::vector<float> matrix(kRows * kCols);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i) - 100;
  return matrix;
}

void put(const std::vector<float>& elements, Type type, std::vector<std::byte>& variable) {
  const std::vector<std::byte> bytes = kernels::as_type(elements, type);
  ASSERT_EQ(bytes.size(), variable.size());
  variable = bytes;
}

/// Converts from one layout to another in a program, and expects the elements at their places in the other.
void expect_converted(const OperandLayout& has, const OperandLayout& wants, Type type,
                      const machine::Machine& m) {
  program::Program program;
  const Builder builder(program, m);
  const Operand from = builder.add("from", Role::input, type, has);
  const Operand to = builder.add("to", Role::output, type, wants);
  std::vector<StepId> steps;
  const Operand brought = builder.bring(from, has, wants, steps);
  builder.send(brought, to, steps);
  program.set_main(builder.sequence(steps));

  testing::FlatVariables contents = testing::flat_variables(program);
  put(has.store(numbers()), type, contents[from.variable]);
  testing::BoundArrays arrays(program, contents);
  testing::interpret(program, contents);
  const auto executable = compiler::compile(program, m);
  const engine::Engine engine(executable);
  const engine::Profile profile = engine.run(arrays.bindings());
  for (const std::vector<std::byte>& result : {contents[to.variable], arrays.flat()[to.variable]}) {
    std::vector<float> found(kRows * kCols);
    wants.load(kernels::as_floats(result, type), found);
    EXPECT_EQ(found, numbers());
  }
  EXPECT_EQ(profile.cycles.at, compiler::estimate(program, m).cycles.at);
}

TEST(Conversion, BringsEveryLayoutToEveryOther) {
  for (const machine::Machine& m :
       {testing::toy_machine(1), testing::toy_machine(6), testing::toy_machine_with_regions(8),
        testing::toy_host(1), testing::toy_host(3)}) {
    const std::vector<OperandLayout> layouts = layouts_on(m);
    for (Type type : {Type::f32, Type::f16})
      for (size_t i = 0; i < layouts.size(); ++i)
        for (size_t j = 0; j < layouts.size(); ++j) {
          SCOPED_TRACE(fmt::format("{} tiles, {}, layout {} to {}", m.tiles, name_of(type), i, j));
          expect_converted(layouts[i], layouts[j], type, m);
        }
  }
}

TEST(Conversion, LayoutsSayWhichElementIsWhere) {
  for (const OperandLayout& layout : layouts_on(testing::toy_host(1))) {
    const auto order = layout.order();
    ASSERT_EQ(order.has_value(), !layout.parts);
    if (!order) continue;
    const std::vector<float> matrix = numbers(), stored = layout.store(matrix);
    size_t found = 0;
    for (uint32_t r = 0; r < layout.rows; ++r)
      for (uint32_t c = 0; c < layout.cols; ++c)
        if (const uint64_t element = order->at(r, c); element < matrix.size()) {
          EXPECT_EQ(stored[r * layout.cols + c], matrix[element]);
          ++found;
        }
    EXPECT_EQ(found, matrix.size());
  }
}

/// A result on other tiles than the builder's is sent there.
TEST(Conversion, TransposesToOtherTiles) {
  const machine::Machine m = testing::toy_machine(8);
  program::Program program;
  const Builder builder(program, m, 4, 4);
  const OperandLayout has = matrix_layout(kRows, kCols, program::map_linearly(kRows, kCols, 4));
  OperandLayout wants = matrix_layout(kCols, kRows, program::map_to_tile(kCols, kRows, 0));
  wants.transposed = true;
  const Operand from = builder.add("from", Role::input, Type::f32, has);
  const Operand to = Builder(program, m).add("to", Role::output, Type::f32, wants);
  ASSERT_FALSE(builder.holds(to));
  std::vector<StepId> steps;
  builder.convert(from, has, to, wants, steps);
  program.set_main(builder.sequence(steps));
  for (const program::ComputeSet& set : program.compute_sets())
    for (const program::VertexGroup& group : set.groups) EXPECT_GE(group.first_tile, 4U);
  testing::FlatVariables contents = testing::flat_variables(program);
  put(numbers(), Type::f32, contents[from.variable]);
  testing::BoundArrays arrays(program, contents);
  engine::Engine(compiler::compile(program, m)).run(arrays.bindings());
  std::vector<float> found(kRows * kCols);
  wants.load(kernels::as_floats(arrays.flat()[to.variable], Type::f32), found);
  EXPECT_EQ(found, numbers());
}

TEST(Conversion, TransposesLargeMatricesOfTilesInBlocks) {
  constexpr uint32_t kSide = 20, kLong = 3000, kTiles = 4;
  const machine::Machine m = testing::toy_machine(kTiles, 1 << 20);
  program::Program program;
  const Builder builder(program, m);
  const OperandLayout has = matrix_layout(kLong, kSide, program::map_linearly(kLong, kSide, kTiles));
  OperandLayout wants = matrix_layout(kSide, kLong, program::map_linearly(kSide, kLong, kTiles));
  wants.transposed = true;
  const Operand from = builder.add("from", Role::input, Type::f32, has);
  const Operand to = builder.add("to", Role::output, Type::f32, wants);
  std::vector<StepId> steps;
  builder.convert(from, has, to, wants, steps);
  program.set_main(builder.sequence(steps));
  std::vector<float> matrix(kLong * kSide);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<float>(i);
  testing::FlatVariables contents = testing::flat_variables(program);
  put(has.store(matrix), Type::f32, contents[from.variable]);
  testing::BoundArrays arrays(program, contents);
  const auto executable = compiler::compile(program, m);
  engine::Engine(executable).run(arrays.bindings());
  std::vector<float> found(matrix.size());
  wants.load(kernels::as_floats(arrays.flat()[to.variable], Type::f32), found);
  EXPECT_EQ(found, matrix);
  // A tile of the result has 3,000 columns, each of which would need a separate transfer; a block has 750.
  size_t transfers = 0;
  for (const compiler::CompiledSet& set : executable->sets) transfers += set.before.transfers.size();
  for (const auto& copy : executable->copies) transfers += copy.transfers.size();
  EXPECT_LT(transfers, size_t{kTiles} * kLong / 2);
}

TEST(Conversion, TransposesLargeMatricesOfAHostOnAllThreads) {
  const machine::Machine m = testing::toy_host(3);
  for (const auto& [rows, threads] : {std::pair{100U, 1U}, {400U, 2U}, {2000U, 3U}}) {
    program::Program program;
    const Builder builder(program, m);
    const OperandLayout has = matrix_layout(rows, 100, program::map_shared(rows, 100));
    OperandLayout wants = matrix_layout(100, rows, program::map_shared(100, rows));
    wants.transposed = true;
    std::vector<StepId> steps;
    builder.bring(builder.add("from", Role::input, Type::f32, has), has, wants, steps);
    ASSERT_EQ(program.compute_sets().size(), 1U);
    EXPECT_EQ(program.compute_sets()[0].groups[0].tiles, threads);
  }
}

TEST(Conversion, LeavesPackedValuesAsTheyAre) {
  program::Program program;
  const machine::Machine m = testing::toy_machine(2);
  const Builder builder(program, m);
  OperandLayout has = matrix_layout(4, 16, program::map_linearly(4, 16, 2));
  has.blocks = {0, 1, 2, 3};
  OperandLayout wants = has;
  wants.transposed = true;
  const Operand from = builder.add("W", Role::input, Type::f32, has);
  std::vector<StepId> steps;
  EXPECT_USAGE_ERROR("packed values cannot be converted to their transpose",
                     builder.bring(from, has, wants, steps));
}

/// Bytes of exchange code of the tile with most of it.
uint64_t most_exchange_code(const program::Program& program, const machine::Machine& m) {
  uint64_t most = 0;
  for (const compiler::TileMemory& tile : compiler::estimate(program, m).memory.tiles)
    most = std::max<uint64_t>(most, tile[compiler::MemoryUse::exchange_code]);
  return most;
}

/// Runs a program with the numbers 0, 1, 2, … as `from`, and expects the results of the reference
/// interpreter.
void expect_as_interpreted(program::Program& program, const Operand& from, const machine::Machine& m) {
  std::vector<float> values(from.box.elements());
  std::iota(values.begin(), values.end(), 0.0F);
  testing::FlatVariables contents = testing::flat_variables(program);
  put(values, Type::f32, contents[from.variable]);
  testing::BoundArrays arrays(program, contents);
  testing::interpret(program, contents);
  const engine::Engine engine(compiler::compile(program, m));
  const engine::Profile profile = engine.run(arrays.bindings());
  EXPECT_EQ(profile.cycles.at, compiler::estimate(program, m).cycles.at);
  for (program::VariableId v = 0; v < program.variables().size(); ++v)
    if (program.variable(v).role == Role::output) {
      EXPECT_EQ(arrays.flat()[v], contents[v]) << program.variable(v).name;
    }
}

/// Directly, each of the tiles would take a transfer from each of the others, or to them.
TEST(Blocks, LieBetweenRowsAndColumns) {
  constexpr uint32_t kSide = 600;
  const machine::Machine m = machine::find("gc200");
  std::vector<program::MappedBox> by_row, by_column;
  for (uint32_t i = 0; i < kSide; ++i) {
    by_row.push_back({{i, 1, 0, kSide}, i});
    by_column.push_back({{0, kSide, i, 1}, i});
  }
  program::Program program;
  const Builder builder(program, m);
  const Operand from = builder.add("from", Role::input, Type::f32, matrix_layout(kSide, kSide, by_row));
  const OperandLayout columns = matrix_layout(kSide, kSide, by_column);
  const Operand sent = builder.add("sent", Role::output, Type::f32, columns),
                read = builder.add("read", Role::output, Type::f32, columns),
                written = builder.add("written", Role::output, Type::f32, columns);
  const UnaryProblem twice{kernels::Unary::scale, Type::f32, kSide, kSide, 2};
  std::vector<StepId> steps;
  builder.send(from, sent, steps);
  const MapPartition in_columns = partition_evenly(kSide, kSide, 1, kSide),
                     in_rows = partition_evenly(kSide, kSide, kSide, 1);
  steps.push_back(build(builder, twice, MapPlan{in_columns, {}, {}}, {from, read}));
  steps.push_back(build(builder, twice, MapPlan{in_rows, {}, {}}, {from, written}));
  program.set_main(builder.sequence(steps));
  EXPECT_LT(most_exchange_code(program, m), kSide * program::kTransferCodeBytes);
  expect_as_interpreted(program, from, m);
}

/// A list is gathered on few tiles before all take it.
TEST(Blocks, OfListsForAllLieOnFewTiles) {
  constexpr uint32_t kCount = 1024;
  const machine::Machine m = machine::find("gc200");
  std::vector<program::MappedBox> one_each;
  for (uint32_t i = 0; i < kCount; ++i) one_each.push_back({{i, 1, 0, 1}, i});
  program::Program program;
  const Builder builder(program, m);
  const Operand from = builder.add("from", Role::input, Type::f32, matrix_layout(kCount, 1, one_each));
  std::vector<program::MappedBox> whole;
  for (uint32_t tile = 0; tile < m.tiles; ++tile) whole.push_back({{0, kCount, 0, 1}, tile});
  const std::optional<Operand> blocks = blocks_between(builder, from, one_each, whole);
  ASSERT_TRUE(blocks);
  EXPECT_LE(program.variable(blocks->variable).mapping.size(), 64U);
  EXPECT_FALSE(blocks_between(builder, from, one_each, one_each));
}

/// Each row of a part is where its first element is, also if slices are padded.
TEST(Blocks, OfPartsHaveWholeRowsOfThem) {
  constexpr uint32_t kTiles = 5;
  for (const PartedMatrix& parts :
       {PartedMatrix(kRows, kCols, 1, 1, 3, 2, 2, 4), PartedMatrix(kRows, kCols, 2, 3, 2, 4, 3, 1),
        PartedMatrix(2, 7, 1, 1, 1, 1, 1, 1)}) {
    const std::vector<program::MappedBox> mapping =
        program::map_linearly(parts.slices(), parts.slice_elements(), kTiles);
    std::vector<uint32_t> tiles(uint64_t{parts.rows()} * parts.cols(), kTiles);
    for (const auto& [box, tile] : boxes_of_parts(parts, mapping))
      for (uint32_t i = 0; i < box.elements(); ++i) {
        uint32_t& found = tiles.at((box.row + i / box.cols) * parts.cols() + box.col + i % box.cols);
        EXPECT_EQ(std::exchange(found, tile), kTiles);
      }
    for (const PartedMatrix::Run& row : parts.runs()) {
      const auto slice = static_cast<uint32_t>(row.stored / parts.slice_elements()),
                 place = static_cast<uint32_t>(row.stored % parts.slice_elements());
      const auto first = std::ranges::find_if(mapping, [&](const auto& mapped) {
        return contains(mapped.box, {slice, 1, place, 1});
      });
      ASSERT_NE(first, mapping.end());
      for (uint64_t i = row.first; i < row.first + row.count; ++i) EXPECT_EQ(tiles[i], first->tile);
    }
  }
}

/// Without a list of so many boxes, it is clear that each tile takes few transfers.
TEST(Blocks, AreLookedForOnlyAmongManyBoxes) {
  const machine::Machine m = machine::find("gc200");
  const auto may = [&](uint64_t lie, uint64_t boxes, uint64_t on_a_tile, bool descending = false) {
    const auto rows = static_cast<uint32_t>(lie);
    std::vector<program::MappedBox> mapping;
    for (uint32_t i = 0; i < rows; ++i)
      mapping.push_back({{i, 1, 0, 2}, (descending ? rows - 1 - i : i) / 2});  // two on a tile
    program::Program program;
    const Builder builder(program, m);
    const Operand operand =
        builder.add("operand", Role::input, Type::f32, matrix_layout(rows, 2, std::move(mapping)));
    return may_take_blocks(builder, operand, boxes, on_a_tile);
  };
  EXPECT_FALSE(may(kMostTransfers, kMostTransfers / 2, 1));
  EXPECT_TRUE(may(kMostTransfers + 2, 1, 1));
  EXPECT_TRUE(may(kMostTransfers / 2 + 2, 2, 2));
  EXPECT_TRUE(may(2, kMostTransfers / 2 + 1, 1));
  EXPECT_TRUE(may(4, kMostTransfers / 2, 1, true));  // they may all lie on one tile
}

/// The transpose of a square matrix in parts of half its rows and a quarter of its columns, on as many tiles
/// as it has rows.
OperandLayout transpose_in_parts(uint32_t side) {
  std::vector<program::MappedBox> mapping;
  for (uint32_t tile = 0; tile < side; ++tile) mapping.push_back({{0, 1, tile * side, side}, tile});
  OperandLayout layout = parted_layout(PartedMatrix(side, side, 1, 1, 2, 1, 4, 1), std::move(mapping));
  layout.transposed = true;
  return layout;
}

/// A tile has four rows of a part.
TEST(Conversion, OfPartsToBoxesMovesNothingToOtherTiles) {
  constexpr uint32_t kSide = 64;
  const machine::Machine m = testing::toy_machine(kSide, 1 << 20);
  const OperandLayout in_parts = transpose_in_parts(kSide);
  program::Program program;
  const Builder builder(program, m);
  const Operand from = builder.add("from", Role::input, Type::f32, in_parts);
  std::vector<StepId> steps;
  const std::optional<Operand> boxes = builder.in_boxes(from, in_parts, steps);
  ASSERT_TRUE(boxes);
  const Operand to =
      builder.add("to", Role::output, Type::f32, matrix_layout(kSide, kSide, builder.mapping_of(*boxes)));
  builder.send(*boxes, to, steps);
  program.set_main(builder.sequence(steps));
  EXPECT_LE(most_exchange_code(program, m), 2 * (program::kExchangeCodeBytes + program::kTransferCodeBytes));
  expect_as_interpreted(program, from, m);
  EXPECT_FALSE(builder.in_boxes(to, matrix_layout(kSide, kSide, {}), steps));
}

/// A tile gets 16 pieces of rows, and sends the same number; through whole rows of the transpose, it would
/// get an element from each of the others.
TEST(Conversion, TransposesBoxByBoxWhatLiesInParts) {
  constexpr uint32_t kSide = 64, kTaken = 16;
  const machine::Machine m = testing::toy_machine(kSide, 1 << 20);
  const OperandLayout in_parts = transpose_in_parts(kSide);
  const OperandLayout in_rows = matrix_layout(kSide, kSide, program::map_rows_to_tiles(kSide, kSide));
  for (const bool to_parts : {true, false}) {
    const OperandLayout &has = to_parts ? in_rows : in_parts, &wants = to_parts ? in_parts : in_rows;
    program::Program program;
    const Builder builder(program, m);
    const Operand from = builder.add("from", Role::input, Type::f32, has);
    const Operand to = builder.add("to", Role::output, Type::f32, wants);
    std::vector<StepId> steps;
    builder.convert(from, has, to, wants, steps);
    program.set_main(builder.sequence(steps));
    constexpr uint32_t kOnTheTile = 1, kExchanges = 2;
    EXPECT_LE(most_exchange_code(program, m), kExchanges * program::kExchangeCodeBytes +
                                                  (2 * kTaken + kOnTheTile) * program::kTransferCodeBytes);
    expect_as_interpreted(program, from, m);
  }
}

/// Elements that lie one after the other on both tiles take one transfer.
TEST(Conversion, OfRowsToAColumnTakesATransferForEach) {
  const machine::Machine m = machine::find("gc200");
  program::Program program;
  const Builder builder(program, m);
  const OperandLayout has = matrix_layout(2, 512, program::map_to_tile(2, 512, 3)),
                      wants = matrix_layout(1024, 1, program::map_to_tile(1024, 1, 5));
  const Operand from = builder.add("from", Role::input, Type::f32, has);
  const Operand to = builder.add("to", Role::output, Type::f32, wants);
  program.set_main(builder.copy(conversion(from, has, to, wants)));
  EXPECT_EQ(most_exchange_code(program, m), program::kExchangeCodeBytes + 2 * program::kTransferCodeBytes);
  expect_as_interpreted(program, from, m);
}

/// Even if an estimate, which takes a few thousand moves at a time, knows its first moves before the others.
TEST(Conversion, OfALongRowToAColumnTakesOneTransfer) {
  constexpr uint32_t kCount = program::kMostTransferBytes / sizeof(float);
  const machine::Machine m = machine::find("gc200");
  program::Program program;
  const Builder builder(program, m);
  const Operand from = builder.add("from", Role::input, Type::f32,
                                   matrix_layout(1, kCount, program::map_to_tile(1, kCount, 3)));
  const Operand to = builder.add("to", Role::output, Type::f32,
                                 matrix_layout(kCount, 1, program::map_to_tile(kCount, 1, 5)));
  std::vector<program::Box> row, column;
  for (uint32_t i = 0; i < kCount; ++i) {
    row.push_back({0, 1, i, 1});
    column.push_back({i, 1, 0, 1});
  }
  program.set_main(builder.copy({"copy", {copy_boxes(from, std::move(row), to, std::move(column))}}));
  EXPECT_EQ(most_exchange_code(program, m), program::kExchangeCodeBytes + program::kTransferCodeBytes);
  expect_as_interpreted(program, from, m);
}

}  // namespace
}  // namespace tessera::ops
