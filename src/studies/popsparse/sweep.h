// `tessera reproduce popsparse`: the benchmark of PopSparse (Li et al. 2023), which multiplies a sparse or
// dense m × m matrix with a dense m × n one over ranges of all parameters (its table 2). What to run.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "ops/product_modes.h"
#include "ops/product_problem.h"

namespace tessera::studies::popsparse {

using ops::Mode;
using ops::Precision;

struct Request {
  std::string machine = "bow";
  ops::Planner planner = ops::Planner::published;  ///< for tiled machines
  uint32_t threads = 0;                            ///< 0: one per physical core
  bool full = false;                               ///< the whole table 2
  bool gain = false;                               ///< also plan freely, to tell what that gains
  bool verify = true;                              ///< execute a sample of the modelled cells

  // Lists that replace those of the sweep; every combination runs.
  std::vector<uint32_t> sizes;
  std::vector<uint32_t> n;
  std::vector<uint32_t> blocks;
  std::vector<double> densities;
  std::vector<Precision> types;
  std::vector<Mode> modes;

  std::string out;        ///< folder of results; "": popsparse-MACHINE
  std::string published;  ///< folder of published tables; "": those committed
  std::string csv;
  std::string html;
  bool json = false;

  bool has_lists() const {
    return !(sizes.empty() && n.empty() && blocks.empty() && densities.empty() && types.empty() &&
             modes.empty());
  }
};

/// A weight and how it is multiplied. For dense ones, block and density are 1.
struct Operand {
  Mode mode = Mode::dense;
  Precision precision;
  uint32_t size = 0;  ///< m = k
  uint32_t block = 1;
  double density = 1;

  auto operator<=>(const Operand&) const = default;
};

/// One product of the sweep.
struct Cell {
  Operand operand;
  uint32_t n = 0;

  auto operator<=>(const Cell&) const = default;

  double flops() const { return 2.0 * operand.size * operand.size * operand.density * n; }
};

/// Numbers of columns for each operand, ascending.
using Sweep = std::map<Operand, std::vector<uint32_t>>;

/// The sweep of a request. Throws UsageError for sizes, blocks or types that do not form a product.
Sweep sweep_of(const Request& request, const machine::Machine& machine);

/// Cells that are executed and verified while the others are only accounted: for each mode, type and block
/// size the largest one that takes at most a moment.
std::vector<Cell> sample_of(const Sweep& sweep);

/// "f16 static b = 16, d = 1/16, m = 4096, n = 256"
std::string name_of(const Cell& cell);
/// "1/16", or "0.1"
std::string density_text(double density);

/// Result of a cell. Seconds of a modelled machine are its accounted cycles at its clock.
struct Result {
  Cell cell;
  bool fits = true;
  std::string reason;  ///< why it does not fit
  uint64_t nnz = 0;    ///< stored elements
  std::optional<double> seconds;
  std::optional<double> cycles;
  std::optional<double> update_seconds;  ///< time to set a new pattern of a dynamic weight
  std::optional<uint32_t> steps;         ///< propagation steps of a dynamic product
  uint64_t tile_bytes = 0;               ///< of the fullest tile
  uint32_t tiles_used = 0;
  std::optional<bool> verified;
  std::optional<double> max_rel_error;
  std::optional<double> tolerance;

  /// 10^12 operations on stored elements per second.
  std::optional<double> tflops() const {
    if (!seconds || *seconds <= 0) return std::nullopt;
    return 2e-12 * static_cast<double>(nnz) * cell.n / *seconds;
  }
};

/// What was run, and on which machine.
struct Outcome {
  Request request;
  machine::Machine machine;
  std::map<Cell, Result> results;
};

}  // namespace tessera::studies::popsparse
