// What all papers reproduced section by section have in common.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "io/files.h"
#include "report/strict_markup.h"
#include "studies/butterfly/study.h"
#include "studies/mlperf/study.h"
#include "studies/packing/study.h"
#include "studies/paper/cells.h"
#include "studies/paper/tables.h"
#include "studies/popsparse/study.h"
#include "studies/snn/study.h"
#include "support/error_of.h"

namespace tessera::studies {
namespace {

Study study_of(const Paper& paper, std::vector<std::string> machines) {
  Study study(paper, {.machines = machines});
  for (const std::string& name : machines) study.parts.push_back({machine::find(name), {}});
  return study;
}

class Papers : public ::testing::TestWithParam<const Paper*> {};
INSTANTIATE_TEST_SUITE_P(All, Papers,
                         ::testing::Values(&butterfly::paper(), &mlperf::paper(), &packing::paper(),
                                           &popsparse::paper(), &snn::paper()),
                         [](const auto& paper) { return std::string(paper.param->name); });

TEST_P(Papers, HaveSectionsAndCellsOfTheirOwn) {
  std::set<std::string_view> names;
  for (const Section& section : GetParam()->sections) {
    EXPECT_TRUE(names.insert(section.name).second) << section.name;
    EXPECT_FALSE(section.title.empty()) << section.name;
    if (section.cells == nullptr) continue;
    for (const char* machine : {"gc200", "host"})
      for (const bool full : {false, true}) {
        std::set<std::string> cells;
        for (const Cell& cell : section.cells(machine::find(machine), {.full = full})) {
          EXPECT_TRUE(cells.insert(cell.name).second) << section.name << ": " << cell.name;
          EXPECT_GT(cell.seconds, 0) << section.name << ": " << cell.name;
          EXPECT_TRUE(cell.run) << section.name << ": " << cell.name;
        }
      }
  }
}

TEST(PaperSections, AreChosenByName) {
  const Paper& paper = butterfly::paper();
  EXPECT_EQ(sections_of(paper, {}).size(), paper.sections.size());
  const auto chosen = sections_of(paper, {.only = {"table-2", "table-1"}});
  ASSERT_EQ(chosen.size(), 2U);
  EXPECT_EQ(chosen[0].name, "table-1");  // in the paper's order
  const std::string error =
      test::error_of<UsageError>([&] { (void)sections_of(paper, {.only = {"table-9"}}); });
  EXPECT_TRUE(test::says(error, "--only: invalid value 'table-9' (choose from "));
  EXPECT_TRUE(test::says(error, "table-1, "));
}

// With --only, on one machine, or before anything ran.
TEST_P(Papers, AcceptThatResultsAreMissing) {
  for (const std::vector<std::string>& machines :
       {std::vector<std::string>{}, {"gc200"}, {"host"}, {"gc200", "host"}}) {
    const Study study = study_of(*GetParam(), machines);
    EXPECT_NO_THROW(figures_of(study));
    EXPECT_NO_THROW(csv(study));
    EXPECT_EQ(nlohmann::json::parse(json(study))["sections"].size(), GetParam()->sections.size());
    EXPECT_EQ(testing::MarkupReader::read(page(study)).name, "html");
    for (const Section& section : GetParam()->sections) {
      if (section.comparisons == nullptr) continue;
      for (const Comparison& c : section.comparisons(study))
        if (c.says.empty() || c.published) {
          EXPECT_GT(c.published.value(), 0) << c.what;
        }
    }
  }
}

class Silent : public Watcher {
 public:
  void progress(size_t, const std::string&, double) override {}
  void complain(const std::string& message) override { complaints += message + "\n"; }

  std::string complaints;
};

class PaperCells : public ::testing::Test {
 protected:
  /// A cell of a series, which counts the cells that ran before it; sizes above `most` do not fit.
  static Task cell(const std::string& series, uint32_t size, uint32_t most) {
    const auto run_it = [=](const Setting& setting) {
      if (*setting.shared == nullptr) *setting.shared = std::make_shared<double>(0);
      double& before = *static_cast<double*>(setting.shared->get());
      return Result{.fits = size <= most, .values = {{"before", before++}}};
    };
    return {"",
            {.name = fmt::format("{} {}", series, size),
             .run = run_it,
             .series = series,
             .extent = fmt::format("size {}", size)}};
  }

  /// Runs the cells that the file lacks; returns the number of failures.
  size_t run_all(const std::vector<Task>& tasks) {
    Store store(folder_.file("cells.jsonl"), {{"file", "test"}});
    const size_t failed = run({.threads = 1}, machine::find("gc200"), tasks, store, watcher_);
    results_.clear();
    for (const Task& task : tasks)
      if (const Result* result = store.find("", task.cell.name)) results_[task.cell.name] = *result;
    return failed;
  }

  test::TemporaryFolder folder_;
  Silent watcher_;
  std::map<std::string, Result> results_;
};

// Whichever section reads them, they are run and kept once.
TEST(PaperTasks, AreThoseOfTheSectionsThatAreRead) {
  const Request request{.only = {"law", "scaling"}};
  const std::vector<Task> tasks = tasks_of(popsparse::paper(), request, machine::find("bow"));
  EXPECT_EQ(tasks.size(), tasks_of(popsparse::paper(), {}, machine::find("bow")).size());
  for (const Task& task : tasks) EXPECT_EQ(task.section, "products");
}

TEST_F(PaperCells, OfASeriesShareWhatTheyKeep) {
  EXPECT_EQ(run_all({cell("a", 1, 9), cell("a", 2, 9), cell("b", 1, 9)}), 0U);
  EXPECT_EQ(results_.at("a 1").value("before"), 0);
  EXPECT_EQ(results_.at("a 2").value("before"), 1);
  EXPECT_EQ(results_.at("b 1").value("before"), 0);
}

TEST_F(PaperCells, AreFoundUnderEarlierNames) {
  const std::string file = folder_.file("cells.jsonl");
  {
    Store store(file, {{"file", "test"}});
    store.add("figure 6", "butterfly, published, N = 128", {.values = {{"seconds", 1}}});
    store.add("figure 6", "butterfly, best, N = 128", {.values = {{"seconds", 2}}});
    store.add("table 4", "butterfly, best", {.values = {{"seconds", 3}}});
    store.add("table 4", "butterfly, best recipe, seed 0", {.values = {{"accuracy", 4}}});
  }
  const Store store(file, {{"file", "test"}});
  EXPECT_EQ(store.find("figure 6", "butterfly, unfused, N = 128")->value("seconds"), 1);
  EXPECT_EQ(store.find("figure 6", "butterfly, fused, N = 128")->value("seconds"), 2);
  EXPECT_EQ(store.find("table 4", "butterfly, fused")->value("seconds"), 3);
  EXPECT_EQ(store.find("table 4", "butterfly, best recipe, seed 0")->value("accuracy"), 4);
}

TEST_F(PaperCells, AfterOneThatDoesNotFitAreNotTried) {
  EXPECT_EQ(run_all({cell("a", 1, 1), cell("a", 2, 1)}), 0U);
  // Even if that cell is from an earlier run.
  EXPECT_EQ(run_all({cell("a", 1, 1), cell("a", 2, 1), cell("a", 3, 1), cell("b", 3, 3)}), 0U);
  EXPECT_TRUE(results_.at("a 1").fits);
  EXPECT_EQ(results_.at("a 2").value("before"), 1);
  EXPECT_FALSE(results_.at("a 3").fits);
  EXPECT_EQ(results_.at("a 3").reason, "not tried: size 2 does not fit");
  EXPECT_TRUE(results_.at("b 3").fits);
}

TEST_F(PaperCells, ThatFailAreReportedAndNotKept) {
  Task broken = cell("a", 1, 1);
  broken.cell.run = [](const Setting&) -> Result { throw Error("no such thing"); };
  EXPECT_EQ(run_all({broken, cell("a", 2, 9)}), 1U);
  EXPECT_FALSE(results_.contains("a 1"));
  EXPECT_TRUE(results_.contains("a 2"));
  EXPECT_EQ(watcher_.complaints, "a 1: no such thing\n");
}

TEST(PaperComparison, IsNearWithinItsBounds) {
  const auto within = [](double ours) { return Comparison{"a", "b", 100, ours}.within(0.15).is_near(); };
  EXPECT_EQ(within(86), true);
  EXPECT_EQ(within(114), true);
  EXPECT_EQ(within(84), false);
  EXPECT_EQ(within(116), false);
  const auto factor = [](double ours) { return Comparison{"a", "b", 100, ours}.within_factor(2).is_near(); };
  EXPECT_EQ(factor(51), true);
  EXPECT_EQ(factor(199), true);
  EXPECT_EQ(factor(49), false);
  EXPECT_EQ(factor(201), false);
  EXPECT_EQ((Comparison{"a", "b", 100, 1}.is_near()), std::nullopt);
  EXPECT_EQ((Comparison{"a", "b", 100, std::nullopt}.within(0.1).is_near()), std::nullopt);
}

}  // namespace
}  // namespace tessera::studies
