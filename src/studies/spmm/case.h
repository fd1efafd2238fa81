// The combinations that `tessera spmm` runs, and their results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "compiler/executable.h"
#include "ops/plan.h"
#include "report/run_summary.h"
#include "studies/spmm/request.h"

namespace tessera::studies::spmm {

struct SpmmCase {
  std::string machine;
  Settings settings;
  Mode mode = Mode::static_sparse;
  ProductKind product = ProductKind::forward;
  Precision precision;
  std::optional<double> density;  ///< requested; none for files and dense weights
  uint32_t block = 1;
  uint32_t n = 0;
};

/// "bow tiles=2944"
std::string machine_title(const SpmmCase& what);

struct SpmmResult {
  SpmmCase what;
  uint32_t m = 0;
  uint32_t k = 0;
  double density = 0;
  uint64_t nnz = 0;    ///< stored elements, including fill-in
  double fill_in = 1;  ///< stored elements / non-zeros of the file
  bool fits = true;
  std::string failure;  ///< why there is no result; otherwise empty
  std::optional<double> seconds;
  std::optional<double> cycles;
  std::optional<double> dense_seconds;
  std::optional<double> update_seconds;  ///< time to set a new pattern of a dynamic weight
  std::optional<uint32_t> steps;         ///< propagation steps of a dynamic product on tiles
  std::optional<double> peak_fraction;   ///< fraction of the host's arithmetic peak
  std::optional<bool> verified;
  std::optional<double> max_abs_error;
  std::optional<double> max_rel_error;
  std::optional<double> tolerance;
  program::PhaseTimes phases;  ///< seconds
  compiler::MemoryReport memory;
  std::string partition;
  uint32_t tiles = 0;
  uint32_t tiles_used = 0;
  double predicted_seconds = 0;
  std::string printed;  ///< output of --print
  std::vector<ops::PlanCandidate> candidates;
  std::vector<report::ChipSummary> chips;  ///< chips of a machine with several chips
  std::vector<report::LinkSummary> links;
  std::optional<report::RunSummary> run;  ///< for --report and --trace

  std::optional<double> useful_gflops() const {
    if (!seconds || *seconds == 0) return std::nullopt;
    return 2e-9 * static_cast<double>(nnz) * what.n / *seconds;
  }
  std::optional<double> speedup() const {
    if (!seconds || !dense_seconds || *seconds == 0 || what.mode == Mode::dense) return std::nullopt;
    return *dense_seconds / *seconds;
  }
};

/// Every combination of a request; dense weights once per machine, type and n.
std::vector<SpmmCase> cases_of(const SpmmRequest& request);

}  // namespace tessera::studies::spmm
