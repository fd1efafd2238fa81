// Trainings with several batch sizes and seeds, as a table and a page.
#include "report/training_sweep.h"

#include <gtest/gtest.h>

#include <cmath>

#include "report/strict_markup.h"

namespace tessera::report {
namespace {

using testing::MarkupReader;

SweepRun run_of(uint32_t batch, uint64_t seed, double accuracy, double seconds) {
  SweepRun run{batch, seed, {}};
  run.report.network = "64-32-10, dense";
  run.report.data = "made for this test";
  run.report.machine = "host, 2 tiles";
  run.report.settings = {{"batch", "50"}, {"rate", "0.5"}, {"seed", "0"}};
  run.report.steps_per_epoch = 1000 / batch;
  run.report.phases = {{.steps = 2000 / batch}};
  TrainingResult result;
  result.finished = true;
  result.epochs = {{.epoch = 1, .validation_accuracy = accuracy - 0.01, .seconds = seconds},
                   {.epoch = 2, .validation_accuracy = accuracy, .seconds = 2 * seconds}};
  result.best_epoch = 2;
  result.test_accuracy = accuracy;
  result.test_loss = 1;
  run.report.result = result;
  return run;
}

TEST(TrainingSweep, HasAPointForEachBatch) {
  const std::vector<SweepPoint> points =
      points_of({run_of(50, 4, 0.4, 1), run_of(50, 5, 0.5, 3), run_of(25, 4, 0.3, 7)});
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].batch, 50u);
  EXPECT_EQ(points[0].seeds, (std::vector<uint64_t>{4, 5}));
  EXPECT_EQ(points[0].steps_per_epoch, 20u);
  EXPECT_NEAR(points[0].accuracy.mean, 0.45, 1e-15);
  EXPECT_NEAR(points[0].accuracy.margin, 12.7062 * 0.05, 1e-4);
  EXPECT_EQ(points[0].epoch_seconds, 3.0);  // of 1, 2, 3, 6
  EXPECT_EQ(points[1].batch, 25u);
  EXPECT_TRUE(std::isinf(points[1].accuracy.margin));
  const std::string text = sweep_table(points).text();
  EXPECT_NE(text.find("45.00 ± 63.53 %"), std::string::npos) << text;
  EXPECT_NE(text.find("  30.00 %"), std::string::npos) << text;
}

TEST(TrainingSweep, EpochsOfATiledMachineTakeWhatTheModelSays) {
  SweepRun run = run_of(50, 0, 0.4, 1);
  run.report.modelled = true;
  run.report.phases[0].step.seconds = 0.5;
  run.report.phases[0].evaluation.seconds = 0.25;
  run.report.validation_batches = 2;
  EXPECT_EQ(points_of({run})[0].epoch_seconds, 20 * 0.5 + 2 * 0.25);
}

TEST(TrainingSweep, EpochsOfEarlierProcessesHaveNoTime) {
  const std::vector<SweepPoint> points = points_of({run_of(50, 0, 0.4, 0)});
  EXPECT_FALSE(points[0].epoch_seconds.has_value());
  EXPECT_NE(sweep_table(points).text().find("earlier"), std::string::npos);
}

TEST(TrainingSweep, ThePageShowsMeansAndEachTraining) {
  const std::string page = page_of({run_of(50, 4, 0.4, 1), run_of(50, 5, 0.5, 3), run_of(100, 4, 0.3, 7)});
  const std::string text = MarkupReader::read(page).whole_text();
  for (const char* part : {"64-32-10, dense", "45.00 ± 63.53 %", "Time per epoch", "batch 100", "rate"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
}

}  // namespace
}  // namespace tessera::report
