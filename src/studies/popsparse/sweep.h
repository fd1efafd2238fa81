// The products of the sweep, and how they are run.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ops/product_modes.h"
#include "studies/paper/study.h"

namespace tessera::studies::popsparse {

using ops::Mode;
using ops::Precision;

/// A weight and how it is multiplied. For dense weights, block and density are 1.
struct Operand {
  Mode mode = Mode::dense;
  Precision precision;
  uint32_t size = 0;  ///< m = k
  uint32_t block = 1;
  double density = 1;

  auto operator<=>(const Operand&) const = default;
};

/// The dense weight with which a sparse weight is compared.
Operand dense_of(const Operand& sparse);

/// One product of the sweep.
struct Case {
  Operand operand;
  uint32_t n = 0;

  auto operator<=>(const Case&) const = default;

  double flops() const { return 2.0 * operand.size * operand.size * operand.density * n; }
};

/// Numbers of columns for each operand, ascending.
using Sweep = std::map<Operand, std::vector<uint32_t>>;

/// The sweep of a request. Throws UsageError for sizes, blocks or types that do not form a product.
Sweep sweep_of(const Request& request, const machine::Machine& machine);

/// "static b = 16"; "f16 static b = 16 d = 1/16 m = 4096", with the density in full; and followed by " n =
/// 256".
std::string name_of(Mode mode, uint32_t block);
std::string name_of(const Operand& operand);
std::string name_of(const Case& what);
/// The product with this name, n = 0 for an operand's name; none: there is no such name.
std::optional<Case> case_named(const std::string& name);
/// "1/16", or "0.1"
std::string density_text(double density);

/// The name of a product's result: name_of(), and everything else on which the result depends.
std::string key_of(const Case& what, ops::Planner planner);

/// The cells of the sweep, the cells of one operand as a series. A sample is executed and verified; the
/// others are only estimated, or on a host measured. Enters "m", "n", "block", "density", "nnz" (stored
/// elements), "tile_bytes" (of the fullest tile), "tiles_used", and if it fits "seconds" (on a modelled
/// machine its cycles at its clock) and "tflops" (10^12 operations on stored elements per second); on a
/// modelled machine "cycles", for dynamic products "steps" (of propagation) and "update_seconds" (to set a
/// new pattern). Throws as sweep_of().
std::vector<Cell> cells_of(const machine::Machine& machine, const Request& request, ops::Planner planner);

}  // namespace tessera::studies::popsparse
