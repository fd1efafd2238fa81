// What running a case needs on any machine: activations, medians, estimates, verification.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <span>
#include <vector>

#include "cli/spmm_case.h"
#include "cli/spmm_request.h"
#include "compiler/executable.h"
#include "engine/engine.h"
#include "ops/plan.h"

namespace tessera::cli {

/// An activation matrix in memory. Throws Error if it would not fit.
struct Activations {
  Activations(uint32_t height, uint32_t width, Layout order);

  int64_t row_stride() const { return layout == Layout::row_major ? cols : 1; }
  int64_t col_stride() const { return layout == Layout::row_major ? 1 : rows; }
  MatrixView<const float> view() const { return {elements.data(), row_stride(), col_stride()}; }

  uint32_t rows;
  uint32_t cols;
  Layout layout;
  std::vector<float> elements;
};

using Trace = std::vector<engine::TraceEvent>;

struct Timed {
  double seconds = 0;
  engine::Profile profile;
  Trace trace;
};

/// Repeats until enough is measured; returns the run of median time.
Timed median_run(const std::function<engine::Profile(Trace&)>& run);

/// The compiler passes, as --print shows them.
std::string passes_text(const compiler::Executable& executable);

template <class Plan>
std::string printed(const std::string& what, const Plan& plan, const compiler::Executable& executable) {
  if (what == "plan") return to_string(plan) + "\n";
  if (what == "candidates") return ops::to_string(std::span<const ops::PlanCandidate>(plan.candidates));
  if (what == "program") return program::to_string(*executable.program);
  if (what == "passes") return passes_text(executable);
  return "";
}

/// What is known about a case before it runs.
template <class Plan>
SpmmResult start(const Plan& plan, const compiler::Executable& executable, const SpmmRequest& request) {
  SpmmResult result;
  result.printed = printed(request.print, plan, executable);
  result.memory = executable.memory;
  result.partition = plan.chosen.partition;
  result.tiles_used = plan.tiles_used();
  result.predicted_seconds = plan.chosen.total();
  result.fits = result.memory.fits();
  if (!request.report.empty()) result.candidates = plan.candidates;
  if (request.keeps_runs()) result.run = report::summarize(executable, {}, {}, report::Times::accounted);
  return result;
}

/// Accounts without floating-point work. `known`: integers on which control flow and costs depend.
void estimate(const engine::Engine& engine, std::span<const engine::Binding> known, SpmmResult& result);

/// Types to which numbers are rounded.
struct Rounding {
  Type weights;
  Type partials;
  Type result;
  uint32_t roundings = 1;  ///< of one partial sum, at most
};

/// Compares Y with W·X in float64, to the requested extent.
void verify(const SpmmRequest& request, const SparseMatrix& matrix, const Rounding& types,
            const Activations& x, const Activations& y, SpmmResult& result);

/// Compares dW with dY·Xᵀ at its pattern.
void verify_sddmm(const SpmmRequest& request, const SparseMatrix& dw, const Rounding& types,
                  const Activations& x, const Activations& dy, SpmmResult& result);

}  // namespace tessera::cli
