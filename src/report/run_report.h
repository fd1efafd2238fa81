// The page of one run or of several: results, schedule, memory, plan, machine.
#pragma once

#include <string>
#include <vector>

#include "ops/plan.h"
#include "report/page.h"
#include "report/run_summary.h"

namespace tessera::report {

/// What is known of one combination that was run.
struct RunReport {
  std::string title;               ///< heads its section
  std::vector<KeyFigure> figures;  ///< what is to be seen first
  std::string remark;              ///< such as why there is no result
  RunSummary run;
  std::string partition;  ///< the plan in a line
  uint32_t tiles_used = 0;
  double predicted_seconds = 0;
  std::vector<ops::PlanCandidate> candidates;
};

/// The section of one combination.
Html section_of(const RunReport& report);

/// Parts of it.
Html schedule_of(const RunSummary& run);
Html memory_of(const RunSummary& run);
Html plan_of(const RunReport& report);
Html passes_of(const RunSummary& run);
Html figures_of(const RunSummary& run);

}  // namespace tessera::report
