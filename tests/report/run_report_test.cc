// The page of a run shows the numbers of its executable.
#include "report/run_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "report/axis.h"
#include "report/runs.h"
#include "report/strict_markup.h"

namespace tessera::report {
namespace {

using testing::MarkupReader;
using testing::Node;
using testing::random_run;

std::vector<std::string> cells_of(const Node& row) {
  std::vector<std::string> cells;
  for (const Node* cell : row.all("td")) cells.push_back(cell->whole_text());
  return cells;
}

/// Rows of the table whose first heading is `heading`.
std::vector<std::vector<std::string>> rows_of(const Node& root, const std::string& heading) {
  for (const Node* table : root.all("table"))
    if (table->all("th").at(0)->text == heading) {
      std::vector<std::vector<std::string>> rows;
      for (const Node* row : table->all("tbody").at(0)->all("tr")) rows.push_back(cells_of(*row));
      return rows;
    }
  return {};
}

Node read(const RunReport& report) {
  return MarkupReader::read("<div>" + section_of(report).code + "</div>");
}

RunReport report_of(const testing::Run& run, Times times) {
  RunReport report;
  report.title = "run";
  report.run = summarize(*run.executable, run.profile, run.trace, times);
  return report;
}

TEST(RunReport, ShowsTheFullestTileByteByByte) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    const testing::Run run = random_run(seed, testing::toy_machine(5, 1 << 20));
    const Node root = read(report_of(run, Times::accounted));
    const auto rows = rows_of(root, "use");
    const compiler::MemoryReport& memory = run.executable->memory;
    ASSERT_EQ(rows.size(), memory.fullest.size() + 1);
    for (size_t r = 0; r + 1 < rows.size(); ++r)
      EXPECT_EQ(rows[r][1], count_text(memory.fullest.at(rows[r][0])));
    EXPECT_EQ(rows.back()[1], count_text(memory.max_tile_bytes));
  }
}

TEST(RunReport, ShowsEveryStepThatRan) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    for (const auto& [machine, times] : {std::pair(testing::toy_machine(5, 1 << 20), Times::accounted),
                                         std::pair(testing::toy_host(2), Times::measured)}) {
      const testing::Run run = random_run(seed, machine);
      std::vector<std::vector<std::string>> expected;
      for (const auto* profiles : {&run.profile.sets, &run.profile.copies})
        for (const engine::StepProfile& step : *profiles) {
          if (step.times == 0) continue;
          const double seconds =
              (times == Times::measured ? step.seconds : step.cycles.scaled(1 / machine.clock_hz)).total();
          expected.push_back({step.name, count_text(step.times), value_text(seconds, Unit::seconds)});
        }
      auto rows = rows_of(read(report_of(run, times)), "step");
      for (auto& row : rows) row.resize(3);
      std::sort(rows.begin(), rows.end());
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(rows, expected);
    }
  }
}

TEST(RunReport, NamesPassesAndFigures) {
  const testing::Run run = random_run(2, testing::toy_machine(5, 1 << 20));
  RunReport report = report_of(run, Times::accounted);
  report.run.figures = {{"tiles", 5, "tiles", "made up <here>"}};
  const Node root = read(report);
  EXPECT_EQ(rows_of(root, "pass").size(), run.executable->passes.size());
  EXPECT_EQ(rows_of(root, "figure").at(0).at(3), "made up <here>");
}

TEST(RunReport, SortsCandidatesByTimeFeasibleFirst) {
  const testing::Run run = random_run(2, testing::toy_machine(5, 1 << 20));
  RunReport report = report_of(run, Times::accounted);
  report.partition = "b";
  for (const auto& [partition, seconds, why] :
       {std::tuple("a", 3.0, "slower"), std::tuple("b", 2.0, ""), std::tuple("c", 1.0, "no room")}) {
    ops::PlanCandidate candidate{partition, {}, 10, why};
    candidate.seconds[program::Phase::compute] = seconds;
    report.candidates.push_back(candidate);
  }
  const auto rows = rows_of(read(report), "partition");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0][0], "b");
  EXPECT_EQ(rows[0][3], "chosen");
  EXPECT_EQ(rows[1][0], "c");
  EXPECT_EQ(rows[1][3], "no room");
}

TEST(RunReport, OfWhatDidNotRunSaysWhy) {
  RunReport report;
  report.remark = "tile 3 overflows";
  EXPECT_NE(read(report).whole_text().find("tile 3 overflows"), std::string::npos);
}

}  // namespace
}  // namespace tessera::report
