// Results and costs of pre-training: tables and a page.
#pragma once

#include <tessera/pretraining.h>

#include <string>

#include "report/training_report.h"

namespace tessera::report {

/// The costs are those of a training report, whose numbers of steps and batches are of the whole training.
struct PretrainingReport : TrainingReport {
  std::vector<std::string> phases = {};  ///< a line for each: its sequences and packs
  std::optional<PretrainingResult> pretrained = {};
};

/// The heading of lines, and an evaluation in one line.
std::string heading_of_evaluations();
std::string text_of(const PretrainingEvaluation& evaluation);

std::string page_of(const PretrainingReport& report);

}  // namespace tessera::report
