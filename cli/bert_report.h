// The report of `tessera train bert`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "cli/bert_request.h"
#include "report/pretraining_report.h"

namespace tessera::cli {

/// The report of a training, without a result.
report::PretrainingReport report_of(const BertRequest& request, const BertTrainer& trainer,
                                    const Machine& machine, const TextSplit& text);

/// The training, or its estimate, as one JSON object.
std::string json_of(const BertRequest& request, const BertTrainer& trainer,
                    const report::PretrainingReport& report, uint64_t resumed_from);

/// The lines above the evaluations, and the text after them.
std::string heading(const report::PretrainingReport& report);
std::string summary(const report::PretrainingReport& report);

}  // namespace tessera::cli
