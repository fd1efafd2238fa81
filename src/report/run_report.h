// The page of one or several runs: results, schedule, memory, plan, machine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ops/plan.h"
#include "report/page.h"
#include "report/run_summary.h"
#include "report/table.h"

namespace tessera::report {

/// A combination that was run.
struct RunReport {
  std::string title;               ///< heading of its section
  std::vector<KeyFigure> figures;  ///< the key figures at the top
  std::string remark;              ///< such as the reason why there is no result
  RunSummary run;
  std::string partition;  ///< the plan in one line
  uint32_t tiles_used = 0;
  double predicted_seconds = 0;
  std::vector<ops::PlanCandidate> candidates;
};

/// The section of one combination.
Html section_of(const RunReport& report);

/// Parts of a section.
Html schedule_of(const RunSummary& run);
Html memory_of(const RunSummary& run);
Html plan_of(const RunReport& report);
Html passes_of(const RunSummary& run);
Html figures_of(const RunSummary& run);

/// A table of the passes by which a program was made.
Table passes_table(std::span<const PassRecord> passes);

}  // namespace tessera::report
