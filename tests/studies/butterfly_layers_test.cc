// Layers in `tessera reproduce butterfly`: cells of small layers, and the numbers that figure 6 and tables 4
// and 5 take from results.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "studies/butterfly/layer_cell.h"
#include "studies/butterfly/study.h"
#include "support/number_of.h"

namespace tessera::studies::butterfly {
namespace {

using graph::Form;
using graph::LayerStructure;

LayerCase small(LayerStructure structure, Form form, uint32_t classes) {
  return {.options = {.structure = structure,
                      .rank = 2,
                      .block_size = 8,
                      .butterfly_size = 4,
                      .scaled = false,
                      .form = form},
          .inputs = 64,
          .outputs = 64,
          .batch = 24,
          .classes = classes};
}

TEST(ButterflyLayers, AreAccountedAndAgreeWithFloat64) {
  machine::Machine gc200 = machine::find("gc200");
  if (!test::is_full()) gc200.tiles = 64;
  const machine::Machine host = machine::host(2);
  uint32_t number = 0;
  for (const LayerStructure structure :
       {LayerStructure::dense, LayerStructure::butterfly, LayerStructure::pixelfly, LayerStructure::fastfood})
    for (const uint32_t classes : {0U, 10U}) {
      if (!test::takes_half(number++)) continue;
      SCOPED_TRACE(testing::Message() << name_of(structure) << ", " << classes << " classes");
      const Result unfused = run_layer(small(structure, Form::unfused, classes), {gc200, true});
      const Result best = run_layer(small(structure, Form::fused, classes), {gc200, true});
      const Result here = run_layer(small(structure, Form::fused, classes), {host, true});
      for (const Result* result : {&unfused, &best, &here}) {
        EXPECT_TRUE(result->fits) << result->reason;
        EXPECT_EQ(result->verified, true) << result->max_rel_error.value_or(-1);
        EXPECT_GT(result->value("seconds"), 0);
        EXPECT_EQ(result->value("parameters"), unfused.value("parameters"));
      }
      EXPECT_GT(unfused.value("seconds_with_transfers"), unfused.value("seconds"));
      if (structure == LayerStructure::butterfly || structure == LayerStructure::fastfood) {
        EXPECT_GT(unfused.value("compute_sets"), best.value("compute_sets"));
      }
    }
}

TEST(ButterflyLayers, SayWhyTheyDoNotFit) {
  machine::Machine tiny = machine::find("gc200");
  tiny.tiles = 4;
  LayerCase what = small(LayerStructure::butterfly, Form::unfused, 0);
  what.inputs = what.outputs = what.batch = 1024;
  const Result result = run_layer(what, {tiny, true});
  EXPECT_FALSE(result.fits);
  EXPECT_FALSE(result.reason.empty());
  EXPECT_EQ(result.reason.find('\n'), std::string::npos);
  EXPECT_EQ(result.value("seconds"), std::nullopt);
}

/// The study after runs whose results are given.
class Results {
 public:
  Results() : study_(paper(), {.machines = {"gc200"}}) {
    study_.parts.push_back({machine::find("gc200"), {}});
  }
  void set(const Section& section, const std::string& cell, const std::string& value, double number) {
    study_.parts[0].results[{std::string(section.name), cell}].values[value] = number;
  }
  const Study& study() const { return study_; }
  const Comparison& comparison(const Section& section, std::string_view what) {
    comparisons_ = section.comparisons(study_);
    for (const Comparison& c : comparisons_)
      if (c.what == what) return c;
    ADD_FAILURE() << what;
    return comparisons_.at(0);
  }

 private:
  Study study_;
  std::vector<Comparison> comparisons_;
};

TEST(ButterflyFigure6, FindsWhereStructurePays) {
  Results results;
  const Section section = figure_6();
  const double dense[] = {1, 4, 16, 64}, butterfly[] = {2, 4 * std::sqrt(2.0), 16 / std::sqrt(2.0), 40};
  for (size_t i = 0; i < 4; ++i) {
    const std::string size = std::to_string(256 << i);
    results.set(section, "dense, N = " + size, "seconds_with_transfers", dense[i]);
    results.set(section, "butterfly, unfused, N = " + size, "seconds_with_transfers", butterfly[i]);
  }
  // From √½ to √2 between 512 and 1024.
  EXPECT_NEAR(*results.comparison(section, "butterfly, unfused: break-even").ours, 512 * std::sqrt(2.0),
              1e-6);
  EXPECT_EQ(results.comparison(section, "butterfly, unfused: break-even").is_near(), true);
  EXPECT_NEAR(*results.comparison(section, "butterfly, unfused: best speed-up").ours, 1.6, 1e-12);
  EXPECT_NEAR(*results.comparison(section, "butterfly, unfused: worst slow-down").ours, 2, 1e-12);
  EXPECT_EQ(results.comparison(section, "pixelfly, unfused: best speed-up").ours, std::nullopt);
}

TEST(ButterflyTable4, ComparesRatiosAndCounts) {
  Results results;
  const Section section = table_4();
  results.set(section, "dense", "parameters", 1'059'850);
  results.set(section, "dense", "seconds_with_transfers", 2e-5);
  results.set(section, "butterfly, unfused", "parameters", 16'390);
  results.set(section, "butterfly, unfused", "seconds_with_transfers", 3e-5);
  const Comparison& compression = results.comparison(section, "butterfly: compression of parameters");
  EXPECT_NEAR(compression.published.value(), 98.45, 0.005);
  EXPECT_EQ(compression.is_near(), true);
  EXPECT_EQ(results.comparison(section, "butterfly: parameters").is_near(), true);
  const Comparison& step = results.comparison(section, "butterfly: step, relative to dense");
  EXPECT_NEAR(step.published.value(), 1.53, 0.005);
  EXPECT_NEAR(*step.ours, 1.5, 1e-12);
  EXPECT_EQ(step.is_near(), std::nullopt);
}

std::vector<Cell> trainings(const Section& section, const machine::Machine& machine, const Request& request) {
  std::vector<Cell> found = section.cells(machine, request);
  std::erase_if(found, [](const Cell& cell) { return cell.name.find(" recipe, ") == std::string::npos; });
  return found;
}

TEST(ButterflyTrainings, RunOnAHostWithImages) {
  const machine::Machine gc200 = machine::find("gc200"), host = machine::host(1);
  Request request;
  EXPECT_TRUE(trainings(table_4(), host, request).empty());
  request.images = std::make_shared<const ImageSplit>(synthetic_images(200, 40, 1, {32, 32, 10}));
  for (const Section& section : {table_4(), table_5()}) {
    EXPECT_TRUE(trainings(section, gc200, request).empty());
    // Six layers with two recipes; 21 points of three sweeps, of which two cross.
    EXPECT_EQ(trainings(section, host, request).size(), section.name == "table-4" ? 12U : 20U);
    for (const Cell& cell : trainings(section, host, request)) {
      const bool chosen = cell.name == "butterfly, best recipe, 2 epochs, seed 0" ||
                          cell.name ==
                              "pixelfly, butterfly size 128, block size 128, rank 2, paper recipe, 2 "
                              "epochs, seed 0";
      if (!chosen) continue;
      const double accuracy = cell.run({host, true, 1}).value("accuracy").value_or(-1);
      EXPECT_GT(accuracy, 0);
      EXPECT_LE(accuracy, 100);
    }
  }
}

TEST(ButterflyTrainings, AreShownAsMeansOverSeedsAndSweeps) {
  Study study(paper(), {.machines = {"host"}, .full = true});
  study.request.images = std::make_shared<const ImageSplit>();
  study.parts.push_back({machine::host(1), {}});
  const auto set = [&](const Section& section, const std::string& cell, double accuracy) {
    study.parts[0].results[{std::string(section.name), cell}].values["accuracy"] = accuracy;
  };
  const auto shows = [&](const Section& section, const std::string& words) {
    for (const Figure& figure : section.figures(study))
      if (text(figure).find(words) != std::string::npos) return true;
    return false;
  };
  for (int seed = 0; seed < 3; ++seed)
    set(table_4(), "butterfly, paper recipe, 15 epochs, seed " + std::to_string(seed), 41 + seed);
  EXPECT_TRUE(shows(table_4(), "42.0 ± 2.5"));
  const auto comparisons = table_4().comparisons(study);
  ASSERT_EQ(comparisons.size(), 1U);
  EXPECT_EQ(comparisons[0].what, "butterfly: accuracy");
  EXPECT_EQ(comparisons[0].published, 41.13);
  EXPECT_EQ(comparisons[0].ours, 42);

  EXPECT_FALSE(shows(table_5(), "low-rank size"));
  double accuracy = 30;
  for (const Cell& cell : trainings(table_5(), study.parts[0].machine, study.request))
    if (cell.name.find("size 16, block size 16,") != std::string::npos)
      set(table_5(), cell.name, accuracy += 1);
  EXPECT_TRUE(shows(table_5(), "34.5 ± 2.4"));
}

TEST(ButterflyTable5, HasThePublishedDeviationsOfParameters) {
  Results results;
  const Section section = table_5();
  for (const Cell& cell : section.cells(results.study().parts[0].machine, {})) {
    uint32_t butterfly = 0, block = 0, rank = 0;
    const auto after = [&](const char* what) {
      return static_cast<uint32_t>(
          std::stoul(cell.name.substr(cell.name.find(what) + std::string(what).size())));
    };
    butterfly = after("butterfly size "), block = after("block size "), rank = after("rank ");
    const uint32_t e = std::max(block, 1024 / butterfly);
    const double sparse = e * (std::log2(1024.0 / e) + 1);
    results.set(section, cell.name, "parameters", 1024 * (sparse + 2 * rank + 2) + 10'250);
    results.set(section, cell.name, "seconds", 1e-5 * (1 + rank));
  }
  for (const char* sweep : {"butterfly size", "block size", "low-rank size"})
    EXPECT_EQ(results.comparison(section, std::string("deviation of parameters over the ") + sweep).is_near(),
              true)
        << sweep;
  EXPECT_EQ(results.comparison(section, "spread of the time over the block size").ours, 0);
}

}  // namespace
}  // namespace tessera::studies::butterfly
