// Trainings that differ only in batch and seed: their means, as a table and a page.
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
  TrainingReport report;  ///< the report of a finished training
};

/// The trainings of one batch size.
struct SweepPoint {
  uint32_t batch = 0;
  std::vector<uint64_t> seeds;
  uint64_t steps_per_epoch = 0;
  std::vector<double> accuracies;  ///< on the test images, by seed
  Interval accuracy;
  /// Seconds of an epoch with its evaluation: the median over the epochs of this process; on a tiled machine
  /// the model's.
  std::optional<double> epoch_seconds;
};

/// The points of a sweep, in the order of the batches' first runs.
std::vector<SweepPoint> points_of(const std::vector<SweepRun>& runs);

/// "44.61 ± 0.31 %", or without the interval if there is none.
std::string accuracy_text(const Interval& accuracy);

Table sweep_table(const std::vector<SweepPoint>& points);

std::string page_of(const std::vector<SweepRun>& runs);

}  // namespace tessera::report
