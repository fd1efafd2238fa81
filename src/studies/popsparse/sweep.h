// `tessera reproduce popsparse`: the benchmark of PopSparse (Li et al. 2023), which multiplies a sparse or
// dense m × m matrix with a dense m × n one over ranges of all parameters (its table 2). What to run.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "machine/model/machine.h"
#include "ops/product_modes.h"
#include "ops/product_problem.h"
#include "studies/paper/study.h"

namespace tessera::studies::popsparse {

using ops::Mode;
using ops::Precision;

struct Request : studies::Request {
  Request() { machines = {"bow"}; }  // one

  ops::Planner planner = ops::Planner::published;  ///< for tiled machines
  bool gain = false;                               ///< also plan freely, to tell what that gains

  // Lists that replace those of the sweep; every combination runs.
  std::vector<uint32_t> sizes;
  std::vector<uint32_t> n;
  std::vector<uint32_t> blocks;
  std::vector<double> densities;
  std::vector<Precision> types;
  std::vector<Mode> modes;

  const std::string& machine() const { return machines.front(); }
  bool has_lists() const {
    return !(sizes.empty() && n.empty() && blocks.empty() && densities.empty() && types.empty() &&
             modes.empty());
  }
};

/// As --planner takes it.
inline const char* planner_name(ops::Planner planner) {
  return planner == ops::Planner::best ? "best" : "published";
}

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

/// "f16 static b = 16, d = 1/16, m = 4096", with the density in full
std::string name_of(const Operand& operand);
/// The same, with ", n = 256": the name of its result, which enters "nnz" (stored elements), "tile_bytes" (of
/// the fullest), "tiles_used", and if it fits "seconds" (of a modelled machine its accounted cycles at its
/// clock) and "tflops" (10^12 operations on stored elements per second); of a modelled machine "cycles", of
/// dynamic products "steps" (of propagation) and "update_seconds" (to set a new pattern).
std::string name_of(const Cell& cell);
/// "1/16", or "0.1"
std::string density_text(double density);

/// What was run, and on which machine.
struct Outcome {
  Request request;
  machine::Machine machine;
  std::map<Cell, Result> results;
};

}  // namespace tessera::studies::popsparse
