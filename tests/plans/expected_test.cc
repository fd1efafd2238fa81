// Expected costs of partitions, by which planners choose candidates for exact costs, in a file: it shows
// where a changed formula has an effect. Rewritten with TESSERA_UPDATE_GOLDEN=1.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/io.h>

#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "ops/tiles/weight_kinds.h"
#include "support/golden.h"

namespace tessera::ops {
namespace {

constexpr ProductKind kProducts[] = {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm};
constexpr TiledNumbers kNumbers[] = {{Type::f16, Type::f32}, {Type::f32, Type::f32}};

Pattern pattern_of(uint32_t block_size) {
  return generate({PatternKind::random, 1000, 760, 0.1, block_size, 1}).pattern;
}

ProductProblem problem_of(uint32_t n, const TiledNumbers& numbers, ProductKind product) {
  return {.n = n, .type = numbers.operands, .partials = numbers.partials, .product = product};
}

template <class Partition>
std::string lines_of(const std::string& what, const std::vector<Expected<Partition>>& partitions) {
  std::string lines;
  for (const Expected<Partition>& expected : partitions) {
    lines += fmt::format("{}, {}:", what, to_string(expected.partition));
    for (size_t phase = 0; phase < program::kPhases; ++phase)
      if (expected.cycles.at[phase] != 0)
        lines +=
            fmt::format(" {} {:.8g}", name_of(static_cast<program::Phase>(phase)), expected.cycles.at[phase]);
    lines += fmt::format(", {:.8g} bytes\n", expected.bytes);
  }
  return lines;
}

std::string text(const ProductProblem& problem, uint32_t block_size) {
  return fmt::format("{} {} b = {} n = {}", name_of(problem.type), name_of(problem.product), block_size,
                     problem.n);
}

std::string static_lines(const machine::Machine& m) {
  std::string lines;
  for (uint32_t block_size : {1U, 4U, 16U}) {
    const Pattern pattern = pattern_of(block_size);
    for (const TiledNumbers& numbers : kNumbers)
      for (ProductKind product : kProducts)
        for (uint32_t n : {12U, 250U}) {
          const ProductProblem problem = problem_of(n, numbers, product);
          const StaticProduct made(pattern, problem, m, {1, 4, 8});
          for (const StaticPartition& forced :
               {StaticPartition{1, 4, 16}, StaticPartition{1, 4, 8}, StaticPartition{3, 5, 7}})
            lines += lines_of("static " + text(problem, block_size), made.found(forced));
        }
  }
  return lines;
}

std::string dense_lines(const machine::Machine& m) {
  std::string lines;
  for (const TiledNumbers& numbers : kNumbers)
    for (uint32_t n : {12U, 250U}) {
      const ProductProblem problem = problem_of(n, numbers, ProductKind::forward);
      for (const DensePartition& forced :
           {DensePartition{8, 4, 1, 1, 1}, DensePartition{5, 1, 3, 1, 4}, DensePartition{3, 2, 2, 4, 1}})
        lines += lines_of("dense " + text(problem, 1),
                          dense_partitions({1000, 760, n, numbers}, Planner::best, m, forced));
    }
  return lines;
}

std::string dynamic_lines(const machine::Machine& m) {
  std::string lines;
  for (uint32_t block_size : {1U, 4U, 16U}) {
    const Pattern pattern = pattern_of(block_size);
    for (const TiledNumbers& numbers : kNumbers)
      for (uint32_t n : {12U, 250U}) {
        ProductProblem problem = problem_of(n, numbers, ProductKind::forward);
        problem.capacity = pattern.blocks();
        for (Planner planner : {Planner::best, Planner::vendor})
          for (const DynamicTiling& forced : {DynamicTiling{4, 3, 1, 0}, DynamicTiling{1, 1, 6, 0},
                                              DynamicTiling{7, 1, 2, 0}, DynamicTiling{6, 24, 10, 0}})
            lines += lines_of(planner == Planner::best ? "dynamic " + text(problem, block_size)
                                                       : "vendor dynamic " + text(problem, block_size),
                              dynamic_tilings(dynamic_shape(pattern, problem), planner, m, forced));
      }
  }
  return lines;
}

TEST(PinnedExpectations, OfBow) {
  const machine::Machine bow = machine::find("bow");
  testing::expect_golden(TESSERA_GOLDEN_PLANS "/expected.txt",
                         static_lines(bow) + dense_lines(bow) + dynamic_lines(bow));
}

}  // namespace
}  // namespace tessera::ops
