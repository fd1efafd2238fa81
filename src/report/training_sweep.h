// Trainings that differ in batch and seed alone: their means, as a table and a page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/interval.h"
#include "report/table.h"
#include "report/training_report.h"

namespace tessera::report {

struct SweepRun {
  uint32_t batch = 0;
  uint64_t seed = 0;
  TrainingReport report;  ///< with a result that has finished
};

/// The trainings of one batch size.
struct SweepPoint {
  uint32_t batch = 0;
  std::vector<uint64_t> seeds;
  uint64_t steps_per_epoch = 0;
  std::vector<double> accuracies;  ///< on the test images, by seed
  Interval accuracy;
  /// Of an epoch with its evaluation, the median of those of this process; on a tiled machine the model's.
  std::optional<double> epoch_seconds;
};

/// In the order of the batches' first runs.
std::vector<SweepPoint> points_of(const std::vector<SweepRun>& runs);

/// "44.61 ± 0.31 %", or without the interval if there is none.
std::string accuracy_text(const Interval& accuracy);

Table sweep_table(const std::vector<SweepPoint>& points);

std::string page_of(const std::vector<SweepRun>& runs);

}  // namespace tessera::report
