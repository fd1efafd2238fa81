// The tile programs that `tessera reproduce butterfly` runs: their results and costs.
#include <gtest/gtest.h>

#include <string>

#include "compiler/compile.h"
#include "studies/butterfly/exchange_program.h"
#include "studies/butterfly/first_programs.h"
#include "studies/butterfly/study.h"
#include "studies/paper/product_cell.h"
#include "support/toy_machine.h"

namespace tessera::studies::butterfly {
namespace {

/// Only vertices cost anything.
machine::Machine without_exchange_costs(uint32_t tiles) {
  machine::Machine m = testing::toy_machine(tiles);
  m.exchange_bytes_per_cycle = 1e9;
  m.load_bytes_per_cycle = 1e9;
  m.exchange_cycles = m.sync_cycles = 0;
  return m;
}

// 100 elements on 6 tiles: 17 on most, 9 for the busier of two workers. An element: 11 instructions and 5 per
// multiply-accumulate.
TEST(FirstPrograms, NaiveTakesItsInstructions) {
  const Result result = run_naive(10, {without_exchange_costs(6), true, 1});
  EXPECT_EQ(result.verified, true);
  EXPECT_NEAR(result.values.at("cycles"), 2 * 9 * (11 + 5 * 10), 1);
  EXPECT_EQ(result.values.at("vertices"), 100);
  EXPECT_EQ(result.values.at("edges"), 300);
  EXPECT_EQ(result.values.at("variables"), 3);
  EXPECT_EQ(result.values.at("compute_sets"), 1);
  EXPECT_NEAR(result.values.at("gflops"), 2000 / result.values.at("cycles"), 1e-9);  // at 1 GHz
}

// A grid of 4 × 4 tiles, blocks of 3 × 3, one of two workers.
TEST(FirstPrograms, BlockedTakesItsInstructions) {
  const Result result = run_blocked(12, {without_exchange_costs(20), true, 1});
  EXPECT_EQ(result.verified, true);
  const double block = 11 + 3 * 3 + 9 * (6 + 5 * 3);
  EXPECT_NEAR(result.values.at("cycles"), 4 * 2 * block, 1);
  EXPECT_EQ(result.values.at("vertices"), 4 * 16);
  EXPECT_EQ(result.values.at("compute_sets"), 4);
  EXPECT_EQ(result.values.at("variables"), 3 + 2 * 4);
}

TEST(FirstPrograms, AreRightForSizesThatDoNotDivide) {
  for (uint32_t size : {1U, 2U, 5U, 17U}) {
    EXPECT_EQ(run_naive(size, {testing::toy_machine(7), true, 1}).verified, true) << size;
    EXPECT_EQ(run_naive(size, {testing::toy_machine(1), true, 1}).verified, true) << size;
  }
  for (uint32_t size : {1U, 4U, 8U, 40U})
    EXPECT_EQ(run_blocked(size, {testing::toy_machine(5), true, 1}).verified, true) << size;
}

TEST(FirstPrograms, SayWhatOverflows) {
  const Result result = run_naive(64, {testing::toy_machine(4, 8 << 10), true, 1});
  EXPECT_FALSE(result.fits);
  EXPECT_NE(result.reason.find("bytes and has 8192; it holds"), std::string::npos) << result.reason;
  EXPECT_FALSE(result.value("seconds"));
  EXPECT_TRUE(result.value("total_bytes"));
}

TEST(ExchangeProgram, MovesEveryRowAndCostsItsBytes) {
  const machine::Machine m = testing::toy_machine(6);
  for (const uint32_t senders : {1U, 4U, 6U})
    for (const uint32_t distance : {1U, 3U, 5U}) {
      const bound::BoundProgram program(exchange_program(6, distance, senders, 5), m);
      EXPECT_TRUE(moves_every_element(program)) << senders << " " << distance;
      const double cycles = program.estimate().cycles.total();
      EXPECT_EQ(cycles, m.sync_cycles + m.exchange_cycles + 20 / m.exchange_bytes_per_cycle);
    }
}

// Every cell of the exchange on a small machine, where distance costs nothing either.
TEST(ExchangeSection, IsIndependentOfDistance) {
  const Section section = figure_3();
  Study study(paper(), {.machines = {"toy"}});
  study.parts.push_back({testing::toy_machine(8), {}});
  for (const Cell& cell : section.cells(study.parts[0].machine, study.request)) {
    const Result result = cell.run({study.parts[0].machine, true, 1});
    EXPECT_EQ(result.verified, true) << cell.name;
    study.parts[0].results[{std::string(section.name), cell.name}] = result;
  }
  EXPECT_FALSE(study.parts[0].results.empty());
  const auto comparisons = section.comparisons(study);
  ASSERT_FALSE(comparisons.empty());
  EXPECT_EQ(comparisons[0].ratio(), 1);
  EXPECT_EQ(section.figures(study).at(0).rows.size(), study.parts[0].results.size() / 4);
}

TEST(ProductCells, CountDenseOperationsAndTransfers) {
  machine::Machine m = machine::find("gc200");
  const ProductCase sparse{.m = 128, .k = 64, .n = 32, .density = 0.25};
  EXPECT_EQ(sparse.flops(), 2.0 * 128 * 64 * 32);
  const Result result = run_product(sparse, {m, true, 1});
  EXPECT_EQ(result.verified, true);
  const double seconds = result.values.at("seconds");
  EXPECT_NEAR(result.values.at("gflops"), 1e-9 * sparse.flops() / seconds, 1e-9);
  const double bytes_in = 4 * (128 * 64 / 4 + 64 * 32), bytes_out = 4 * 128 * 32;
  const double transfers =
      2 * m.host_link_latency_seconds + (bytes_in + bytes_out) / m.host_link_bytes_per_second;
  EXPECT_NEAR(result.values.at("transfer_seconds"), transfers, 1e-12);
  EXPECT_NEAR(result.values.at("seconds_with_transfers"), seconds + transfers, 1e-12);
  m.host_link_bytes_per_second = 0;
  EXPECT_FALSE(run_product(sparse, {m, false, 1}).value("transfer_seconds"));
}

TEST(ProductCells, MeasureTheHost) {
  const machine::Machine host = machine::host(1);
  const Result result = run_product({.m = 64, .k = 64, .n = 64}, {host, true, 1});
  EXPECT_EQ(result.verified, true);
  EXPECT_GT(result.values.at("gflops"), 0);
  EXPECT_FALSE(result.value("cycles"));
  EXPECT_FALSE(result.value("transfer_seconds"));
}

}  // namespace
}  // namespace tessera::studies::butterfly
