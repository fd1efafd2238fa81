// Results and costs of training: tables and a page.
#pragma once

#include <tessera/training.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "report/html.h"
#include "report/page.h"
#include "report/table.h"

namespace tessera::report {

struct TrainingReport {
  std::string network;  ///< "1024-1024-10, static, density 0.1, block 16"
  std::string images;
  std::string machine;
  uint32_t tiles = 0;
  bool modelled = false;  ///< whether times are cycles of a tiled machine
  double clock_hz = 0;
  std::vector<std::pair<std::string, std::string>> settings = {};
  uint64_t parameters = 0;
  uint64_t steps_per_epoch = 0;
  uint32_t epochs = 0;
  /// Number of batches that are evaluated after each epoch, and at the end.
  uint64_t validation_batches = 0, test_batches = 0;
  graph::RunCost step = {};
  graph::RunCost evaluation = {};
  std::vector<std::string> operations = {};  ///< names of the operations of `step`
  std::optional<TrainingResult> result = {};
  std::optional<SpikingTraces> traces = {};  ///< the response of a spiking network to a recording

  /// Predicted seconds of all training and evaluation.
  double predicted_seconds() const;
};

/// "linear f32[50, 1024]" for each operation of a graph.
std::vector<std::string> names_of_operations(const graph::Graph& graph);

/// A table of all settings except `but`.
Html settings_table(const TrainingReport& report, const std::vector<std::string>& but = {});
Table memory_table(const TrainingReport& report);
/// A table of operations by time, without those that take no time.
Table operations_table(const TrainingReport& report);
/// Loss and accuracy of an epoch in one line.
std::string text_of(const EpochResult& epoch);

/// Adds memory and time of a step, and the settings, to a page.
void add_costs(Page& page, const TrainingReport& report);

std::string page_of(const TrainingReport& report);

}  // namespace tessera::report
