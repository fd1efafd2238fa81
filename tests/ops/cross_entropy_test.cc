// Cross-entropy on tiles: each partition has the results of a host, and the predicted costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/map/softmax.h"
#include "ops/run_operation.h"
#include "program/sizes.h"

namespace tessera::ops {
namespace {

/// Operands of a cross-entropy, with labels of all classes and one beyond, and weights, some of which are 0.
struct Loss {
  SoftmaxCrossEntropyProblem problem;
  std::vector<Array> arrays;

  explicit Loss(const SoftmaxCrossEntropyProblem& p) : problem(p) {
    const uint32_t rows = p.classes_in_rows ? p.classes : p.columns;
    const uint32_t cols = p.classes_in_rows ? p.columns : p.classes;
    const uint32_t row_rows = p.classes_in_rows ? 1 : p.columns, row_cols = p.columns / row_rows;
    arrays.push_back(Array::random(p.type, rows, cols, false, 7));
    // A mask: classes that lie on some tiles are impossible.
    for (uint32_t i = 0; i < p.classes / 2; ++i) set(0, i, 1, -INFINITY);
    set(0, p.classes - 1, 2, NAN);
    arrays.emplace_back(Type::u32, row_rows, row_cols, false);
    for (uint32_t j = 0; j < p.columns; ++j)
      set(1, 0, j, j == 3 ? p.classes : (j + 1) * (p.classes - 1) / p.columns);
    if (p.weighted) {
      arrays.emplace_back(Type::f32, row_rows, row_cols, false);
      for (uint32_t j = 0; j < p.columns; ++j) set(2, 0, j, 0.5 * (j % 3));
    }
    if (p.gradient) arrays.emplace_back(p.type, rows, cols, false);
    arrays.emplace_back(Type::f32, row_rows, row_cols, false);
  }

  void set(size_t array, uint32_t row, uint32_t col, double value) {
    problem.classes_in_rows ? arrays[array].set(row, col, value) : arrays[array].set(col, row, value);
  }
  std::vector<Array*> pointers() {
    std::vector<Array*> all;
    for (Array& array : arrays) all.push_back(&array);
    return all;
  }
};

/// All columns of some classes on each tile.
std::vector<program::MappedBox> classes_on_tiles(const SoftmaxCrossEntropyProblem& p, uint32_t tiles) {
  std::vector<program::MappedBox> mapping;
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    const uint32_t first = uint64_t{p.classes} * tile / tiles, end = uint64_t{p.classes} * (tile + 1) / tiles;
    const program::Box box = {first, end - first, 0, p.columns};
    mapping.push_back({p.classes_in_rows ? box : program::Box{0, p.columns, first, end - first}, tile});
  }
  return mapping;
}

/// Operands on a machine's tiles. Logits and gradients lie as in classes_on_tiles(), or are spread like other
/// operands.
std::vector<Operand> add_operands(const Builder& builder, const SoftmaxCrossEntropyProblem& problem,
                                  bool by_classes = false) {
  std::vector<Operand> operands;
  for (const MapOperand& operand : operation_of(problem).operands) {
    std::vector<program::MappedBox> mapping;
    if (by_classes && (operand.name == "logits" || operand.name == "gradient"))
      mapping = classes_on_tiles(problem, builder.machine().tiles);
    operands.push_back(builder.external(operand.name, operand.role, operand.type, operand.rows, operand.cols,
                                        std::move(mapping)));
  }
  return operands;
}

void expect_same(const Array& found, const Array& expected, double relative) {
  double most = 0;
  for (uint32_t r = 0; r < expected.rows(); ++r)
    for (uint32_t c = 0; c < expected.cols(); ++c)
      if (std::isfinite(expected.at(r, c))) most = std::max(most, std::abs(expected.at(r, c)));
  for (uint32_t r = 0; r < expected.rows(); ++r)
    for (uint32_t c = 0; c < expected.cols(); ++c) {
      const double wanted = expected.at(r, c);
      if (std::isfinite(wanted))
        ASSERT_NEAR(found.at(r, c), wanted, relative * most) << r << ", " << c;
      else
        ASSERT_TRUE(std::isnan(wanted) ? std::isnan(found.at(r, c)) : found.at(r, c) == wanted)
            << r << ", " << c;
    }
}

/// Runs each partition that fits on a machine.
void expect_partitions_like_host(const SoftmaxCrossEntropyProblem& problem, const machine::Machine& machine,
                                 bool by_classes) {
  Loss expected(problem);
  run_operation(problem, machine::host(1), expected.pointers());
  const auto run = [&](const CrossEntropyPartition* wanted) {
    program::Program program;
    const Builder builder(program, machine);
    const std::vector<Operand> operands = add_operands(builder, problem, by_classes);
    CrossEntropyPlan made = plan(builder, problem, operands);
    const bool is_chosen = wanted == nullptr;
    if (!is_chosen) made.partition = *wanted;
    program.set_main(build(builder, problem, made, operands));
    const auto executable = compiler::compile(std::move(program), machine);
    SCOPED_TRACE(to_string(made.partition));
    Loss found(problem);
    std::vector<engine::Binding> bindings;
    for (size_t i = 0; i < operands.size(); ++i)
      bindings.push_back(found.arrays[i].bind(operands[i].variable));
    engine::Engine(executable).run(bindings);
    const double relative = 64 * std::max(epsilon_of(Type::f32), epsilon_of(problem.type));
    for (size_t i = 0; i < found.arrays.size(); ++i)
      expect_same(found.arrays[i], expected.arrays[i], relative);
    if (!is_chosen) return;
    program::PhaseTimes cycles;
    for (const program::PhaseTimes& set : executable->set_cycles) cycles += set;
    for (const compiler::Exchange& copy : executable->copies) cycles += copy.cost.cycles;
    expect_kept(made.chosen, *executable, cycles);
  };
  run(nullptr);
  for (const uint32_t groups : {0U, 8U}) {
    const CrossEntropyPartition spread = {.spreads_classes = true, .groups = groups};
    if (groups <= machine.tiles / 2) run(&spread);
  }
}

TEST(CrossEntropyTest, OfSpreadClassesIsThatOfWholeColumns) {
  for (const bool in_rows : {true, false})
    for (const Type type : {Type::f32, Type::f16})
      for (const uint32_t tiles : {3U, 40U})
        for (const int kind : {0, 1, 2}) {
          const SoftmaxCrossEntropyProblem problem{.classes = 123,
                                                   .columns = 10,
                                                   .scale = 0.25F,
                                                   .type = type,
                                                   .classes_in_rows = in_rows,
                                                   .gradient = kind > 0,
                                                   .weighted = kind > 1};
          SCOPED_TRACE(fmt::format("in rows {}, {}, {} tiles, kind {}", in_rows, name_of(type), tiles, kind));
          for (const bool by_classes : {false, true})
            expect_partitions_like_host(problem, machine::find("gc200").part(0, tiles), by_classes);
        }
}

/// Labels and weights on many tiles come to all tiles through one.
TEST(CrossEntropyTest, OfManyColumnsIsThatOfWholeColumns) {
  for (const bool in_rows : {true, false})
    for (const int kind : {0, 1, 2}) {
      const SoftmaxCrossEntropyProblem problem{.classes = 123,
                                               .columns = 80,
                                               .scale = 0.25F,
                                               .classes_in_rows = in_rows,
                                               .gradient = kind > 0,
                                               .weighted = kind > 1};
      SCOPED_TRACE(fmt::format("in rows {}, kind {}", in_rows, kind));
      expect_partitions_like_host(problem, machine::find("gc200").part(0, 96), true);
    }
}

TEST(CrossEntropyTest, HasNoTransferFromEachColumnToEachTile) {
  program::Program program;
  const machine::Machine machine = machine::find("gc200");
  const Builder builder(program, machine);
  constexpr uint32_t kColumns = 160;
  const SoftmaxCrossEntropyProblem problem{
      .classes = 3000, .columns = kColumns, .classes_in_rows = false, .weighted = true};
  const CrossEntropyPlan made = plan(builder, problem, add_operands(builder, problem, true));
  const auto spread = std::ranges::find(made.candidates, "classes spread, joined in 32 groups of tiles",
                                        &PlanCandidate::partition);
  ASSERT_NE(spread, made.candidates.end()) << to_string(made.candidates);
  // Labels and weights of all columns come to one tile.
  EXPECT_LT(spread->exchange_code_bytes, 2 * kColumns * program::kTransferCodeBytes + 3000);
}

/// For few columns and many classes this is fastest, and takes little exchange code.
TEST(CrossEntropyTest, SpreadsManyClasses) {
  const machine::Machine machine = machine::find("gc200");
  for (const uint32_t classes : {500U, 8000U, 30522U}) {
    program::Program program;
    const Builder builder(program, machine);
    const SoftmaxCrossEntropyProblem problem{.classes = classes, .columns = 10};
    const CrossEntropyPlan made = plan(builder, problem, add_operands(builder, problem));
    SCOPED_TRACE(to_string(made.candidates));
    EXPECT_TRUE(made.partition.spreads_classes);
    EXPECT_LT(made.chosen.exchange_code_bytes, 5000U);
  }
}

/// For many columns and few classes, whole columns are fastest.
TEST(CrossEntropyTest, KeepsColumnsOfFewClasses) {
  program::Program program;
  const machine::Machine machine = machine::find("gc200");
  const Builder builder(program, machine);
  SoftmaxCrossEntropyProblem problem{.classes = 10, .columns = 200};
  problem.classes_in_rows = false;
  const CrossEntropyPlan made = plan(builder, problem, add_operands(builder, problem));
  EXPECT_FALSE(made.partition.spreads_classes);
}

}  // namespace
}  // namespace tessera::ops
