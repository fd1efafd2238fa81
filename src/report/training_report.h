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

/// Costs of a step and of the evaluation of a batch, and how many of each a training has.
struct PhaseCosts {
  std::string name = {};     ///< "packs of 128 tokens"; "": the only phase
  uint64_t steps = 0;        ///< in the whole training
  uint64_t evaluations = 0;  ///< of batches, in the whole training
  graph::RunCost step = {};
  graph::RunCost evaluation = {};
  std::vector<std::string> operations = {};  ///< names of the operations of `step`
};

/// What the reports of all trainings have: the network, its data and its costs.
struct CostReport {
  std::string network;  ///< "1024-1024-10, static, density 0.1, block 16"
  std::string data;
  std::string machine;
  uint32_t tiles = 0;
  bool modelled = false;  ///< whether times are cycles of a tiled machine
  double clock_hz = 0;
  std::vector<std::pair<std::string, std::string>> settings = {};
  uint64_t parameters = 0;
  std::vector<PhaseCosts> phases = {};  ///< in the order of training; at least one

  /// Predicted seconds of all training and evaluation.
  double predicted_seconds() const;
  /// Bytes of the step that takes the most.
  uint64_t most_bytes() const;
};

struct TrainingReport : CostReport {
  uint64_t steps_per_epoch = 0;
  uint64_t validation_batches = 0;  ///< that are evaluated after each epoch
  std::optional<TrainingResult> result = {};
  std::optional<SpikingTraces> traces = {};  ///< the response of a spiking network to a recording
};

/// "linear f32[50, 1024]" for each operation of a graph.
std::vector<std::string> names_of_operations(const graph::Graph& graph);

/// "host, 2 tiles"
std::string machine_text(const Machine& machine);
/// Seconds, or cycles of a tiled machine.
std::string time_text(const CostReport& report, double seconds);

/// A table of all settings except `but`.
Html settings_table(const CostReport& report, const std::vector<std::string>& but = {});
Table memory_table(const CostReport& report, const PhaseCosts& phase);
/// A table of operations by time, without those that take no time.
Table operations_table(const CostReport& report, const PhaseCosts& phase);
/// Loss and accuracy of an epoch in one line.
std::string text_of(const EpochResult& epoch);

/// Time of a step, which is `measured` unless that is 0, its memory, and the number of parameters.
void add_cost_figures(std::vector<KeyFigure>& figures, const CostReport& report, double measured);
/// Adds memory and time of a step of each phase, and the settings, to a page. `measured` are seconds by
/// operation of the only phase, if there are any.
void add_cost_sections(Page& page, const CostReport& report, const std::vector<double>& measured = {});

std::string page_of(const TrainingReport& report);

}  // namespace tessera::report
