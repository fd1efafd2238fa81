// The request of `tessera spmm`: products of a weight, on any machine.
#pragma once

#include <tessera/io.h>
#include <tessera/spmm.h>
#include <tessera/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/model/machine.h"
#include "ops/product_modes.h"
#include "ops/sparse/host/spmm.h"
#include "ops/tiles/expected.h"

namespace tessera::studies::spmm {

using ops::Mode;
using ops::name_of;
using ops::Precision;
inline const std::map<std::string, ops::Planner> kPlanners = {{"best", ops::Planner::best},
                                                              {"vendor", ops::Planner::vendor}};

/// As named by --product: "forward", "input_gradient", "sddmm".
std::string_view flag_of(ProductKind product);

/// Figures of one machine to change together.
using Settings = std::vector<machine::Setting>;

enum class Verify { full, sample, none, automatic };

struct SpmmRequest {
  // The weight: a file, or the parameters of a generated one.
  std::string weights;
  std::string tensor;
  std::optional<PatternKind> pattern;  ///< none: random
  std::optional<uint32_t> m;
  std::optional<uint32_t> k;
  std::vector<double> densities;
  uint64_t seed = 1;

  // The cases: every combination.
  std::vector<std::string> machines = {"host"};
  std::vector<Settings> settings = {{}};  ///< for modelled machines
  std::vector<Mode> modes = {Mode::static_sparse, Mode::dense};
  std::vector<ProductKind> products = {ProductKind::forward};
  std::vector<uint32_t> n;
  std::vector<uint32_t> blocks;
  std::vector<Precision> types = {Precision{}};

  // How to run them.
  Layout layout = Layout::row_major;
  std::map<std::string, int64_t> force;
  uint32_t threads = 0;
  Verify verify = Verify::automatic;
  bool estimate = false;
  ops::Planner planner = ops::Planner::best;  ///< for tiled machines

  // Output.
  std::string print;       // "", "plan", "candidates", "program" or "passes"
  bool keep_runs = false;  // for a page or a trace
  std::string report;      // file of a page; "": none
  std::string trace;       // file of a trace; "": none
  bool json = false;

  bool keeps_runs() const { return keep_runs || !report.empty() || !trace.empty(); }
};

}  // namespace tessera::studies::spmm
