// What all papers reproduced section by section have in common.
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "report/strict_markup.h"
#include "studies/butterfly/study.h"
#include "studies/paper/tables.h"
#include "studies/snn/study.h"

namespace tessera::studies {
namespace {

Study study_of(const Paper& paper, std::vector<std::string> machines) {
  Study study(paper, {.machines = machines});
  for (const std::string& name : machines) study.parts.push_back({machine::find(name), {}});
  return study;
}

class Papers : public ::testing::TestWithParam<const Paper*> {};
INSTANTIATE_TEST_SUITE_P(All, Papers, ::testing::Values(&butterfly::paper(), &snn::paper()),
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
  try {
    sections_of(paper, {.only = {"table-9"}});
    FAIL() << "an unknown section was taken";
  } catch (const UsageError& e) {
    EXPECT_NE(std::string(e.what()).find("'table-9' is none of them"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("table-1, "), std::string::npos) << e.what();
  }
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
      for (const Comparison& c : section.comparisons(study)) EXPECT_GT(c.published, 0) << c.what;
    }
  }
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
