// What `tessera spmm` was asked for.
#pragma once

#include <tessera/spmm.h>
#include <tessera/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "machine/model/machine.h"
#include "ops/sparse/host/spmm.h"
#include "ops/tiles/expected.h"

namespace tessera::cli {

/// Arithmetic of a product, as --type names it.
struct Precision {
  Type type = Type::f32;      ///< of W; on tiles, of X and Y too
  bool f32_partials = false;  ///< f16-f32: partial sums that leave a tile are FP32, not FP16

  bool operator==(const Precision&) const = default;
  auto operator<=>(const Precision&) const = default;
};

/// Whether the pattern is known when the product is planned, changes at run time, or is full.
enum class Mode { static_sparse, dynamic_sparse, dense };

std::string name_of(const Precision& precision);
std::string_view name_of(Mode mode);
/// As --product has it: "forward", "dx", "dw".
std::string_view flag_of(ops::Product product);

/// Changes of one machine, made together.
using Settings = std::vector<machine::Setting>;

enum class Verify { full, sample, none, automatic };

struct SpmmRequest {
  // The weight: a file, or the figures of a generated one.
  std::string weights;
  std::string tensor;
  std::string pattern;  // "": random
  std::optional<uint32_t> m;
  std::optional<uint32_t> k;
  std::vector<double> densities;
  uint64_t seed = 1;

  // What is run: every combination.
  std::vector<std::string> machines = {"host"};
  std::vector<Settings> settings = {{}};  ///< of the modelled ones
  std::vector<Mode> modes = {Mode::static_sparse, Mode::dense};
  std::vector<ops::Product> products = {ops::Product::forward};
  std::vector<uint32_t> n;
  std::vector<uint32_t> blocks;
  std::vector<Precision> types = {Precision{}};

  // How.
  Layout layout = Layout::row_major;
  std::map<std::string, int64_t> force;
  uint32_t threads = 0;
  Verify verify = Verify::automatic;
  bool estimate = false;
  ops::Planner planner = ops::Planner::best;  ///< of tiled machines

  // What is shown.
  std::string print;   // "", "plan", "candidates", "program" or "passes"
  std::string report;  // file of a page; "": none
  std::string trace;   // file of a trace; "": none
  bool json = false;

  bool keeps_runs() const { return !report.empty() || !trace.empty(); }
};

/// Lists as the command line has them, separated by commas. Throw UsageError naming the option and
/// the item that is wrong.
std::vector<Precision> parse_types(const std::string& text);
std::vector<Mode> parse_modes(const std::string& text);
std::vector<ops::Product> parse_products(const std::string& text);
std::map<std::string, int64_t> parse_knobs(const std::string& text);
/// KEY=VALUE or KEY=VALUE:VALUE:…, separated by commas: every combination of one value each.
std::vector<Settings> parse_settings(const std::string& text);

/// Throws UsageError where the options contradict one another or something is missing.
void check(const SpmmRequest& request);

}  // namespace tessera::cli
