// Lanes of pipelines: which pass of which micro-batch each stage or chip works on, and when it waits.
#pragma once

#include <tessera/pipeline.h>
#include <tessera/run_cost.h>

#include <cstddef>
#include <span>
#include <string>

#include "report/chart.h"
#include "report/html.h"

namespace tessera::report {

/// "F3", "R3", "B3", "I3" and "W3" for passes; otherwise the name of the kind.
std::string short_name(const graph::ChipSpan& span);

/// A schedule alone, with a lane for each stage, in units of the times.
Timeline lanes_of(const graph::PipelineSchedule& schedule, std::span<const graph::StageTimes> times);

/// A chart of the chips of a run whose micro-batches go through stages, and a table of how they spend the
/// time. Of a long run, the chart shows the beginning and the end. Empty if the cost has no lanes.
Html lanes_of(const graph::RunCost& cost);

/// Number of passes of a chip that one of `lanes` shows at the beginning and at the end of a long run.
size_t passes_shown(size_t lanes);

/// Most lanes that are drawn.
inline constexpr size_t kMostLanes = 16;

}  // namespace tessera::report
