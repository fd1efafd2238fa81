// The output of `tessera train`.
#pragma once

#include <tessera/training.h>

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/train_options.h"
#include "report/training_report.h"
#include "report/training_sweep.h"

namespace tessera::cli {

/// One training, or its estimate, as JSON. `samples` is the name of the data's key.
nlohmann::ordered_json json_of(const RunOptions& options, const char* samples, const Trainer& trainer,
                               const report::TrainingReport& report, uint64_t resumed_from);
/// One JSON object with trainings of a command and their summary.
std::string json(std::vector<nlohmann::ordered_json> trainings, const std::vector<report::SweepPoint>& points,
                 const char* command = "train");

/// The line above the epochs, and the text after them.
std::string heading(const report::TrainingReport& report, uint32_t batch);
std::string summary(const report::TrainingReport& report);
std::string estimate(const report::CostReport& report);
/// The text that --print asks for.
std::string printed(const RunOptions& options, const report::CostReport& report);
/// Whether there is a checkpoint to continue from; says so if a requested checkpoint does not exist.
bool continues(const RunOptions& options);
/// The message for a training that was stopped, such as "after step 3 of 8".
std::string stopped_text(const RunOptions& options, const std::string& where);
/// Prints a message if a machine's memory does not suffice; returns the exit status.
int complain_of_overflow(const report::CostReport& report);
/// Memory and time of a step and an evaluation, added to a JSON object. `measured` are seconds of the
/// operations, if there are any.
void add_costs(nlohmann::ordered_json& json, const report::CostReport& report,
               const report::PhaseCosts& phase, const std::vector<double>& measured = {});
/// A line for one of several trainings, and the text after the last.
std::string summary_of_run(const report::SweepRun& run);
std::string summary_of(const std::vector<report::SweepPoint>& points);

}  // namespace tessera::cli
