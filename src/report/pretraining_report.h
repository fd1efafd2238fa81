// Results and costs of pre-training: tables and a page.
#pragma once

#include <tessera/pretraining.h>

#include <string>

#include "report/training_report.h"

namespace tessera::report {

struct PretrainingReport : CostReport {
  std::vector<std::string> packs = {};  ///< a line for each phase: its sequences, packs and steps
  std::optional<PretrainingResult> pretrained = {};
};

/// The heading of lines, and an evaluation in one line.
std::string heading_of_evaluations();
std::string text_of(const PretrainingEvaluation& evaluation);

std::string page_of(const PretrainingReport& report);
/// The pipelines of its steps, for Perfetto.
std::string trace_of(const PretrainingReport& report);

}  // namespace tessera::report
