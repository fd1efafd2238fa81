// Reductions over an axis: independence of their bits, and NaN. Reductions over all elements on tiles:
// results, and exchanged bytes.
#include "ops/map/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/map/reduce/codelet.h"
#include "ops/map/reduce_all.h"
#include "ops/run_operation.h"

namespace tessera::ops {
namespace {

using kernels::Reduction;

/// Sums long enough to be split.
TEST(AxisReduceTest, TheNumberOfThreadsDoesNotChangeBits) {
  for (const bool over_rows : {true, false})
    for (const bool column_major : {false, true}) {
      const uint32_t rows = over_rows ? 5003 : 9, cols = over_rows ? 9 : 40007;
      SCOPED_TRACE(fmt::format("{} × {}, column-major {}, seed 2", rows, cols, column_major));
      Array x = Array::random(Type::f32, rows, cols, column_major, 2);
      std::vector<std::vector<double>> results;
      for (uint32_t threads : {1U, 2U, 5U}) {
        Array y(Type::f32, over_rows ? 1 : rows, over_rows ? cols : 1, false);
        const AxisReduceProblem problem{Reduction::sum, rows, cols, over_rows};
        run_operation(problem, machine::host(threads), {&x, &y});
        results.emplace_back();
        for (uint32_t i = 0; i < 9; ++i) results.back().push_back(y.at(over_rows ? 0 : i, over_rows ? i : 0));
      }
      EXPECT_EQ(results[0], results[1]);
      EXPECT_EQ(results[0], results[2]);
    }
}

TEST(AxisReduceTest, NaNReachesItsResultAlone) {
  constexpr uint32_t kRows = 40, kCols = 70;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (Reduction op : {Reduction::sum, Reduction::maximum, Reduction::sum_of_squares})
    for (const bool over_rows : {true, false}) {
      SCOPED_TRACE(fmt::format("{} over {}", kernels::codelet_of(op).name, over_rows ? "rows" : "columns"));
      Array x = Array::random(Type::f32, kRows, kCols, false, 3);
      Array y(Type::f32, over_rows ? 1 : kRows, over_rows ? kCols : 1, false);
      x.set(17, 33, NAN);
      x.set(5, 8, kInfinity);
      run_operation(AxisReduceProblem{op, kRows, kCols, over_rows}, machine::host(1), {&x, &y});
      for (uint32_t i = 0; i < (over_rows ? kCols : kRows); ++i) {
        const double found = y.at(over_rows ? 0 : i, over_rows ? i : 0);
        EXPECT_EQ(std::isnan(found), i == (over_rows ? 33 : 17)) << i;
        EXPECT_EQ(std::isinf(found), i == (over_rows ? 8 : 5)) << i;
      }
    }
}

std::pair<uint32_t, uint32_t> size_of_results(const ReduceAllProblem&) { return {1, 1}; }
std::pair<uint32_t, uint32_t> size_of_results(const AxisReduceProblem& problem) {
  return problem.over_rows ? std::pair(1U, problem.cols) : std::pair(problem.rows, 1U);
}

/// A matrix in this mapping, and the executable of its reduction.
template <class Problem>
struct Reduced {
  Reduced(const Problem& problem, const machine::Machine& machine,
          std::vector<program::MappedBox> mapping = {}) {
    program::Program program;
    const Builder builder(program, machine);
    using program::Role;
    const auto [rows, cols] = size_of_results(problem);
    const Operand result = builder.external("out", Role::output, problem.to, rows, cols);
    const std::vector<Operand> operands = {
        builder.external("in", Role::input, problem.from, problem.rows, problem.cols, std::move(mapping)),
        result};
    made = plan(builder, problem, operands);
    program.set_main(build(builder, problem, made, operands));
    executable = compiler::compile(std::move(program), machine);
    in = operands[0].variable, out = result.variable;
  }

  void run(Array& x, Array& y) const {
    const engine::Binding bindings[] = {x.bind(in), y.bind(out)};
    engine::Engine(executable).run(bindings);
  }
  double run(Array& x, Type to) const {
    Array y(to, 1, 1, false);
    run(x, y);
    return y.at(0, 0);
  }
  void expect_predicted() const {
    program::PhaseTimes cycles;
    for (const program::PhaseTimes& set : executable->set_cycles) cycles += set;
    for (const compiler::Exchange& copy : executable->copies) cycles += copy.cost.cycles;
    expect_kept(made.chosen, *executable, cycles);
  }

  decltype(plan(std::declval<const Builder&>(), std::declval<const Problem&>(), {})) made;
  std::shared_ptr<const compiler::Executable> executable;
  program::VariableId in = 0, out = 0;
};
using AllReduced = Reduced<ReduceAllProblem>;

/// A quarter of the rows in two halves on each of four tiles; two of them are neighbours.
std::vector<program::MappedBox> in_halves(uint32_t rows, uint32_t cols) {
  std::vector<program::MappedBox> mapping;
  constexpr uint32_t kTiles[] = {5, 0, 3, 4};
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t begin = rows * i / 4, end = rows * (i + 1) / 4;
    mapping.push_back({{begin, end - begin, 0, cols / 2}, kTiles[i]});
    mapping.push_back({{begin, end - begin, cols / 2, cols - cols / 2}, kTiles[i]});
  }
  return mapping;
}

/// The reduction of the elements of a box.
double expected_of(Reduction op, const Array& x, const program::Box& box) {
  double sum = 0, most = -INFINITY;
  for (uint32_t r = box.row; r < box.row_end(); ++r)
    for (uint32_t c = box.col; c < box.col_end(); ++c) {
      sum += op == Reduction::sum ? x.at(r, c) : x.at(r, c) * x.at(r, c);
      most = std::max(most, x.at(r, c));
    }
  return op == Reduction::maximum ? most : sum;
}

double expected_of(Reduction op, const Array& x) { return expected_of(op, x, {0, x.rows(), 0, x.cols()}); }

/// Axes with an element for each tile or more, of matrices with few results.
TEST(AxisReduceTest, IsThatOfAllElementsHoweverManyPartsTheAxisHas) {
  constexpr float kScale = 0.5F;
  for (Reduction op : {Reduction::sum, Reduction::maximum, Reduction::sum_of_squares})
    for (const auto& [length, results] : {std::pair(700U, 3U), {101U, 25U}, {20000U, 1U}, {3001U, 2U}})
      for (const bool over_rows : {true, false})
        for (const Type from : {Type::f32, Type::f16})
          for (const uint32_t tiles : {6U, 100U}) {
            const uint32_t rows = over_rows ? length : results, cols = over_rows ? results : length;
            SCOPED_TRACE(fmt::format("{} of {} × {} {} on {} tiles, over rows {}",
                                     kernels::codelet_of(op).name, rows, cols, name_of(from), tiles,
                                     over_rows));
            const Reduced<AxisReduceProblem> reduced({op, rows, cols, over_rows, from, Type::f32, kScale},
                                                     machine::find("gc200").part(0, tiles));
            if (length > 3000 && tiles == 100) {
              EXPECT_GT(reduced.made.partition.parts, 1U);
            }
            Array x = Array::random(from, rows, cols, false, 5);
            Array y(Type::f32, over_rows ? 1 : rows, over_rows ? cols : 1, false);
            reduced.run(x, y);
            for (uint32_t i = 0; i < results; ++i)
              EXPECT_NEAR(y.at(over_rows ? 0 : i, over_rows ? i : 0),
                          kScale * expected_of(op, x,
                                               {over_rows ? 0 : i, over_rows ? length : 1, over_rows ? i : 0,
                                                over_rows ? 1 : length}),
                          16.0 * length * 1e-6)
                  << i;
            reduced.expect_predicted();
          }
}

/// A channel of the images of a micro-batch of ResNet-50.
TEST(AxisReduceTest, PartsAnAxisForWhichNoTileHasRoom) {
  for (const bool over_rows : {true, false}) {
    program::Program program;
    const machine::Machine machine = machine::find("gc200");
    const Builder builder(program, machine);
    constexpr uint32_t kLength = 20 * 112 * 112, kResults = 64;
    const AxisReduceProblem problem{Reduction::sum, over_rows ? kLength : kResults,
                                    over_rows ? kResults : kLength, over_rows};
    const AxisReducePlan made =
        plan(builder, problem,
             {builder.external("in", program::Role::input, Type::f32, problem.rows, problem.cols),
              builder.external("out", program::Role::output, Type::f32, over_rows ? 1 : kResults,
                               over_rows ? kResults : 1)});
    EXPECT_GT(made.partition.parts, 1U) << to_string(made.candidates);
    EXPECT_EQ(made.chosen.rejected, "");
  }
}

TEST(ReduceAllTest, IsThatOfAllElementsHoweverTheyLie) {
  constexpr float kScale = 0.5F;
  for (Reduction op : {Reduction::sum, Reduction::maximum, Reduction::sum_of_squares})
    for (const auto& [rows, cols] : {std::pair(61U, 34U), {700U, 3U}, {1U, 2000U}, {1U, 1U}, {8U, 16U}})
      for (const Type from : {Type::f32, Type::f16})
        for (const uint32_t tiles : {6U, 100U})
          for (const bool halves : {false, true}) {
            SCOPED_TRACE(fmt::format("{} of {} × {} {} on {} tiles, halves {}", kernels::codelet_of(op).name,
                                     rows, cols, name_of(from), tiles, halves));
            if (halves && (rows < 4 || cols < 2)) continue;
            const AllReduced reduced({op, rows, cols, from, Type::f32, kScale},
                                     machine::find("gc200").part(0, tiles),
                                     halves ? in_halves(rows, cols) : std::vector<program::MappedBox>());
            Array x = Array::random(from, rows, cols, false, 4);
            const double most = 16.0 * rows * cols * 1e-6;
            EXPECT_NEAR(reduced.run(x, Type::f32), kScale * expected_of(op, x), most);
            reduced.expect_predicted();
          }
}

TEST(ReduceAllTest, ExchangesPartialResultsAlone) {
  const machine::Machine machine = machine::find("gc200");
  for (const auto& [rows, cols] : {std::pair(2000U, 128U), {128U, 512U}}) {
    const AllReduced reduced({Reduction::sum_of_squares, rows, cols}, machine, {});
    SCOPED_TRACE(to_string(reduced.made.candidates));
    EXPECT_TRUE(reduced.made.partition.in_place);
    uint64_t sent = 0;
    for (const compiler::CompiledSet& set : reduced.executable->sets)
      sent += set.before.cost.bytes + set.after.cost.bytes;
    EXPECT_TRUE(reduced.executable->copies.empty());
    const uint64_t groups = reduced.made.partition.groups;
    EXPECT_LE(sent, sizeof(float) * (machine.tiles + groups));
    // No tile takes the results of all others.
    EXPECT_LT(reduced.made.chosen.exchange_code_bytes, 2000U);
  }
}

}  // namespace
}  // namespace tessera::ops
