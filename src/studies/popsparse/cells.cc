// The cells of the sweeps of `tessera reproduce popsparse`.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <tuple>

#include "sparse/pattern.h"
#include "studies/popsparse/sweep.h"

namespace tessera::studies::popsparse {
namespace {

constexpr Precision kF16{Type::f16};
constexpr Precision kF16F32{Type::f16, true};
constexpr Precision kF32{Type::f32};

// Executing this much on tiles takes about a second.
constexpr double kSampleFlops = 0.1e9;

/// Ranges; all combinations run.
struct Ranges {
  std::vector<uint32_t> sizes;
  std::vector<uint32_t> n;
  std::vector<uint32_t> blocks = {1, 4, 8, 16};
  std::vector<double> densities = {1.0 / 4, 1.0 / 8, 1.0 / 16, 1.0 / 32};
  std::vector<Precision> types;
  std::vector<Mode> modes = {Mode::dense, Mode::static_sparse, Mode::dynamic_sparse};
  uint64_t most_elements = UINT64_MAX;  ///< in X of sparse products
};

/// first, first · step, … up to last.
std::vector<uint32_t> powers(uint32_t first, uint32_t step, uint32_t last) {
  std::vector<uint32_t> values;
  for (uint64_t value = first; value <= last; value *= step) values.push_back(static_cast<uint32_t>(value));
  return values;
}

std::vector<Operand> operands_of(const Ranges& ranges) {
  std::vector<Operand> operands;
  for (Mode mode : ranges.modes)
    for (const Precision& precision : ranges.types)
      for (uint32_t size : ranges.sizes) {
        if (mode == Mode::dense) {
          operands.push_back({mode, precision, size, 1, 1});
          continue;
        }
        for (uint32_t block : ranges.blocks)
          for (double density : ranges.densities) operands.push_back({mode, precision, size, block, density});
      }
  return operands;
}

void add(const Ranges& ranges, Sweep& sweep) {
  for (const Operand& operand : operands_of(ranges)) {
    const uint64_t most = operand.mode == Mode::dense ? UINT64_MAX : ranges.most_elements / operand.size;
    const auto end = std::upper_bound(ranges.n.begin(), ranges.n.end(), most);
    std::vector<uint32_t>& n = sweep[operand];
    std::vector<uint32_t> merged;
    std::set_union(n.begin(), n.end(), ranges.n.begin(), end, std::back_inserter(merged));
    n = std::move(merged);
  }
}

/// Table 2. A host runs fewer columns: 2^16 would take hours.
Ranges all_of_table_2(bool host) {
  if (host) return {.sizes = powers(256, 2, 8192), .n = powers(4, 4, 4096), .types = {kF32, kF16}};
  return {.sizes = powers(256, 2, 8192), .n = powers(4, 4, 65536), .types = {kF16, kF16F32, kF32}};
}

/// What the tables and figures need, and no more. Sparse products with larger X do not fit a Bow, with few
/// exceptions, and finding that out takes longest.
std::vector<Ranges> parts_for_tiles() {
  const std::vector<uint32_t> n = powers(4, 4, 65536);
  const std::vector<Mode> sparse = {Mode::static_sparse, Mode::dynamic_sparse};
  std::vector<Ranges> parts = {
      // The grid of speed-ups and its law.
      {.sizes = powers(256, 2, 8192), .n = n, .types = {kF16}, .modes = {Mode::dense, Mode::static_sparse}},
      // Dense curves, with their own steps.
      {.sizes = {1024, 4096}, .n = powers(4, 2, 65536), .types = {kF16, kF32}, .modes = {Mode::dense}},
      // Table 3.
      {.sizes = {4096},
       .n = n,
       .blocks = {1, 4, 16},
       .densities = {1.0 / 16},
       .types = {kF16, kF16F32, kF32}},
      // Scaling with density, block size and feature size.
      {.sizes = {4096}, .n = n, .blocks = {1, 16}, .types = {kF16}, .modes = sparse},
      {.sizes = {4096}, .n = n, .densities = {1.0 / 16}, .types = {kF16}, .modes = sparse},
      {.sizes = powers(256, 2, 8192), .n = n, .blocks = {16}, .densities = {1.0 / 16}, .types = {kF16}},
  };
  for (Ranges& part : parts) part.most_elements = 1 << 24;
  return parts;
}

std::vector<Ranges> parts_for_host() {
  const std::vector<uint32_t> n = powers(4, 4, 1024), sizes = powers(256, 2, 8192);
  const std::vector<Mode> dynamic = {Mode::dynamic_sparse};
  return {
      {.sizes = sizes, .n = n, .types = {kF32}, .modes = {Mode::dense, Mode::static_sparse}},
      {.sizes = {4096}, .n = n, .blocks = {1, 16}, .types = {kF32}, .modes = dynamic},
      {.sizes = {4096}, .n = n, .densities = {1.0 / 16}, .types = {kF32}, .modes = dynamic},
      {.sizes = sizes, .n = n, .blocks = {16}, .densities = {1.0 / 16}, .types = {kF32}, .modes = dynamic},
  };
}

/// The lists of a request; parameters that it omits are those of the figures.
Ranges ranges_of(const Request& r, bool host) {
  Ranges ranges{.sizes = {1024, 4096}, .n = powers(4, 4, 1024), .types = {host ? kF32 : kF16}};
  if (!r.sizes.empty()) ranges.sizes = r.sizes;
  if (!r.n.empty()) ranges.n = r.n;
  if (!r.blocks.empty()) ranges.blocks = r.blocks;
  if (!r.densities.empty()) ranges.densities = r.densities;
  if (!r.types.empty()) ranges.types = r.types;
  if (!r.modes.empty()) ranges.modes = r.modes;
  std::sort(ranges.n.begin(), ranges.n.end());
  ranges.n.erase(std::unique(ranges.n.begin(), ranges.n.end()), ranges.n.end());
  return ranges;
}

void check(const Ranges& ranges) {
  for (uint32_t size : ranges.sizes) {
    if (size == 0) throw UsageError("--m takes sizes from 1; '0' is too small");
    for (uint32_t block : ranges.blocks) sparse::validate_sizes(size, size, block);
  }
  if (std::find(ranges.n.begin(), ranges.n.end(), 0U) != ranges.n.end())
    throw UsageError("--n takes numbers of columns from 1; '0' is too small");
  if (std::find(ranges.densities.begin(), ranges.densities.end(), 0.0) != ranges.densities.end())
    throw UsageError("--density takes fractions above 0: a product without non-zeros has no rate");
}

}  // namespace

Sweep sweep_of(const Request& request, const machine::Machine& machine) {
  const bool host = machine.kind == machine::Kind::host;
  if (request.full && request.has_lists())
    throw UsageError("--full has its own sweep: omit --m, --n, --block, --density, --type and --mode");
  std::vector<Ranges> parts = host ? parts_for_host() : parts_for_tiles();
  if (request.full) parts = {all_of_table_2(host)};
  if (request.has_lists()) parts = {ranges_of(request, host)};
  Sweep sweep;
  for (const Ranges& part : parts) {
    check(part);
    add(part, sweep);
  }
  return sweep;
}

std::vector<Cell> sample_of(const Sweep& sweep) {
  std::map<std::tuple<Mode, Precision, uint32_t>, Cell> largest;
  for (const auto& [operand, columns] : sweep)
    for (uint32_t n : columns) {
      const Cell cell{operand, n};
      if (cell.flops() > kSampleFlops) continue;
      Cell& kept = largest[{operand.mode, operand.precision, operand.block}];
      if (cell.flops() > kept.flops()) kept = cell;
    }
  std::vector<Cell> sample;
  for (const auto& [kind, cell] : largest) sample.push_back(cell);
  return sample;
}

std::string density_text(double density) {
  const double inverse = 1 / density;
  if (density == 1) return "1";
  return std::abs(inverse - std::round(inverse)) < 1e-9 ? fmt::format("1/{:.0f}", inverse)
                                                        : fmt::format("{:.4g}", density);
}

std::string name_of(const Operand& o) {
  const std::string kind = fmt::format("{} {}", ops::name_of(o.precision), ops::name_of(o.mode));
  if (o.mode == Mode::dense) return fmt::format("{}, m = {}", kind, o.size);
  std::string density = density_text(o.density);
  if (!density.starts_with("1/")) density = fmt::format("{}", o.density);
  return fmt::format("{} b = {}, d = {}, m = {}", kind, o.block, density, o.size);
}

std::string name_of(const Cell& cell) { return fmt::format("{}, n = {}", name_of(cell.operand), cell.n); }

}  // namespace tessera::studies::popsparse
