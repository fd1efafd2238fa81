// One combination of `tessera spmm`: planned, built, compiled, run, verified, measured.
#pragma once

#include <tessera/sparse.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/spmm_request.h"
#include "compiler/executable.h"
#include "machine/machine.h"
#include "ops/spmm.h"
#include "report/run_summary.h"

namespace tessera::cli {

struct SpmmCase {
  std::string machine;
  Settings settings;
  Mode mode = Mode::sparse;
  Precision precision;
  std::optional<double> density;  ///< requested; none of a file or of dense
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
  uint64_t nnz = 0;       ///< stored elements, fill-in included
  double fill_in = 1;     ///< stored elements / non-zeros of the file
  bool fits = true;
  std::string failure;    ///< why there is no result; empty where there is one
  std::optional<double> seconds;
  std::optional<double> cycles;
  std::optional<double> dense_seconds;
  std::optional<double> peak_share;  ///< of the host's arithmetic
  std::optional<bool> verified;
  std::optional<double> max_abs_error;
  std::optional<double> max_rel_error;
  std::optional<double> tolerance;
  program::PhaseTimes phases;  ///< seconds
  compiler::MemoryReport memory;
  std::string cut;
  uint32_t tiles = 0;
  uint32_t tiles_used = 0;
  double predicted_seconds = 0;
  std::string printed;  ///< what --print asks for
  std::vector<ops::PlanCandidate> candidates;
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

/// Every combination that a request asks for, dense once per machine, type and n.
std::vector<SpmmCase> cases_of(const SpmmRequest& request);

/// Runs cases one after another, keeping what neighbours share: the matrix, its packed form, the
/// time of dense.
class SpmmRunner {
 public:
  explicit SpmmRunner(const SpmmRequest& request);
  ~SpmmRunner();

  /// Throws UsageError for a case that makes no sense, before any of them runs.
  void check(const SpmmCase& what);

  SpmmResult run(const SpmmCase& what);

  /// The result of a case that could not run.
  SpmmResult failed(const SpmmCase& what, std::string why) const;

 private:
  struct Weights;

  uint32_t m() const;
  uint32_t k() const;
  const machine::Machine& machine_of(const SpmmCase& what);
  const ops::ForcedKnobs& knobs_of(const SpmmCase& what) const;
  const SparseMatrix& matrix_of(const SpmmCase& what);
  SpmmResult run_on_host(const SpmmCase& what, const machine::Machine& machine);
  SpmmResult run_on_tiles(const SpmmCase& what, const machine::Machine& machine);

  const SpmmRequest& request_;
  std::unique_ptr<Weights> weights_;
};

}  // namespace tessera::cli
