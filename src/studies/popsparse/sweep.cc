#include "studies/popsparse/sweep.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <new>
#include <regex>
#include <set>
#include <tuple>

#include "base/ceil_divide.h"
#include "sparse/blocks/packed_blocks.h"
#include "sparse/pattern.h"
#include "sparse/shuffle.h"
#include "studies/paper/product_cell.h"
#include "studies/spmm/runner.h"

namespace tessera::studies::popsparse {
namespace {

constexpr Precision kF16{Type::f16};
constexpr Precision kF16F32{Type::f16, true};
constexpr Precision kF32{Type::f32};

// The published benchmark shuffles the places of the blocks with this seed.
constexpr uint64_t kBenchmarkSeed = 123;

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
std::vector<uint32_t> sweep_powers(uint32_t first, uint32_t step, uint32_t last) {
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
  if (host)
    return {.sizes = sweep_powers(256, 2, 8192), .n = sweep_powers(4, 4, 4096), .types = {kF32, kF16}};
  return {
      .sizes = sweep_powers(256, 2, 8192), .n = sweep_powers(4, 4, 65536), .types = {kF16, kF16F32, kF32}};
}

/// Exactly the products that tables and figures need. Sparse products with larger X do not fit a Bow, with
/// few exceptions, and finding that out takes longest.
std::vector<Ranges> parts_for_tiles() {
  const std::vector<uint32_t> n = sweep_powers(4, 4, 65536);
  const std::vector<Mode> sparse = {Mode::static_sparse, Mode::dynamic_sparse};
  std::vector<Ranges> parts = {
      // The grid of speed-ups and its law.
      {.sizes = sweep_powers(256, 2, 8192),
       .n = n,
       .types = {kF16},
       .modes = {Mode::dense, Mode::static_sparse}},
      // Dense curves, with their own steps.
      {.sizes = sweep_powers(1024, 2, 8192),
       .n = sweep_powers(4, 2, 65536),
       .types = {kF16, kF32},
       .modes = {Mode::dense}},
      // Table 3.
      {.sizes = {4096},
       .n = n,
       .blocks = {1, 4, 16},
       .densities = {1.0 / 16},
       .types = {kF16, kF16F32, kF32}},
      // Scaling with density, block size and feature size.
      {.sizes = {4096}, .n = n, .blocks = {1, 16}, .types = {kF16}, .modes = sparse},
      {.sizes = {4096}, .n = n, .densities = {1.0 / 16}, .types = {kF16}, .modes = sparse},
      {.sizes = sweep_powers(256, 2, 8192), .n = n, .blocks = {16}, .densities = {1.0 / 16}, .types = {kF16}},
  };
  for (Ranges& part : parts) part.most_elements = 1 << 24;
  return parts;
}

std::vector<Ranges> parts_for_host() {
  const std::vector<uint32_t> n = sweep_powers(4, 4, 1024), sizes = sweep_powers(256, 2, 8192);
  const std::vector<Mode> dynamic = {Mode::dynamic_sparse};
  return {
      {.sizes = sizes, .n = n, .types = {kF32}, .modes = {Mode::dense, Mode::static_sparse}},
      {.sizes = {4096}, .n = n, .blocks = {1, 16}, .types = {kF32}, .modes = dynamic},
      {.sizes = {4096}, .n = n, .densities = {1.0 / 16}, .types = {kF32}, .modes = dynamic},
      {.sizes = sizes, .n = n, .blocks = {16}, .densities = {1.0 / 16}, .types = {kF32}, .modes = dynamic},
  };
}

/// The lists of a request; for lists that it omits, the parameters of the figures.
Ranges ranges_of(const ProductLists& lists, bool host) {
  Ranges ranges{.sizes = {1024, 4096}, .n = sweep_powers(4, 4, 1024), .types = {host ? kF32 : kF16}};
  const auto replace = [](auto& values, const auto& given) {
    if (!given.empty()) values = given;
  };
  replace(ranges.sizes, lists.sizes);
  replace(ranges.n, lists.n);
  replace(ranges.blocks, lists.blocks);
  replace(ranges.densities, lists.densities);
  replace(ranges.types, lists.types);
  replace(ranges.modes, lists.modes);
  std::ranges::sort(ranges.n);
  const auto repeated = std::ranges::unique(ranges.n);
  ranges.n.erase(repeated.begin(), repeated.end());
  return ranges;
}

/// Throws UsageError if there are too many places of blocks to shuffle.
void check_places(uint32_t size, uint32_t block) {
  const uint64_t side = base::ceil_divide(size, block), places = side * side;
  if (places > sparse::kMostShuffled)
    throw UsageError(
        fmt::format("--m {} --block {}: a pattern of the benchmark has at most {} places of blocks, not {}; "
                    "use larger blocks or a smaller size",
                    size, block, sparse::kMostShuffled, places));
}

void check(const Ranges& ranges) {
  const bool has_patterns = std::ranges::any_of(ranges.modes, [](Mode mode) { return mode != Mode::dense; });
  for (uint32_t size : ranges.sizes) {
    if (size == 0) throw UsageError("--m takes sizes from 1; '0' is too small");
    for (uint32_t block : ranges.blocks) {
      sparse::validate_sizes(size, size, block);
      if (has_patterns) check_places(size, block);
    }
  }
  if (std::find(ranges.n.begin(), ranges.n.end(), 0U) != ranges.n.end())
    throw UsageError("--n takes numbers of columns from 1; '0' is too small");
  if (std::find(ranges.densities.begin(), ranges.densities.end(), 0.0) != ranges.densities.end())
    throw UsageError("--density takes fractions above 0: a product without non-zeros has no rate");
}

/// The products that are executed and verified: for each mode, type and block size, the largest that takes at
/// most a moment.
std::set<Case> sample_of(const Sweep& sweep) {
  std::map<std::tuple<Mode, Precision, uint32_t>, Case> largest;
  for (const auto& [operand, columns] : sweep)
    for (uint32_t n : columns) {
      const Case what{operand, n};
      if (what.flops() > kSampleFlops) continue;
      Case& kept = largest[{operand.mode, operand.precision, operand.block}];
      if (what.flops() > kept.flops()) kept = what;
    }
  std::set<Case> sample;
  for (const auto& [kind, what] : largest) sample.insert(what);
  return sample;
}

spmm::SpmmRequest request_of(const Operand& operand, const machine::Machine& machine, const Request& r,
                             ops::Planner planner) {
  spmm::SpmmRequest request;
  request.pattern = PatternKind::shuffled;
  request.seed = kBenchmarkSeed;
  request.m = request.k = operand.size;
  request.machines = {machine.name};
  request.modes = {operand.mode};
  request.threads = r.threads;
  request.planner = planner;
  return request;
}

/// The benchmark leaves the partial sums of dynamic products to PopLibs, which takes FP32.
Precision precision_of(const Operand& o, bool on_tiles) {
  const bool wide = on_tiles && o.mode == Mode::dynamic_sparse && o.precision == kF16;
  return wide ? kF16F32 : o.precision;
}

/// Runs the products of one operand, which share its matrix.
struct Runner {
  Runner(spmm::SpmmRequest of, const machine::Machine& machine)
      : request(std::move(of)), runner(request), on_tiles(machine.kind == machine::Kind::tiled) {
    runner.use(machine);
  }

  spmm::SpmmCase case_of(const Case& what) const {
    const Operand& o = what.operand;
    spmm::SpmmCase one;
    one.machine = request.machines.front();
    one.mode = o.mode;
    one.precision = precision_of(o, on_tiles);
    if (o.mode != Mode::dense) one.density = o.density;
    one.block = o.mode == Mode::dense ? sparse::kDenseBlockSize : o.block;
    one.n = what.n;
    return one;
  }

  spmm::SpmmRequest request;  // before what refers to it
  spmm::SpmmRunner runner;
  bool on_tiles;
};

Result sweep_result_of(const Case& what, const spmm::SpmmResult& found) {
  Result result = studies::result_of(found);
  const auto enter = [&](const char* name, const auto& value) {
    if (value) result.values[name] = static_cast<double>(*value);
  };
  enter("m", std::optional(what.operand.size));
  enter("n", std::optional(what.n));
  enter("block", std::optional(what.operand.block));
  enter("density", std::optional(what.operand.density));
  enter("nnz", std::optional(found.nnz));
  enter("update_seconds", found.update_seconds);
  enter("steps", found.steps);
  enter("tile_bytes", std::optional(found.memory.max_tile_bytes));
  enter("tiles_used", std::optional(found.tiles_used));
  if (found.seconds && *found.seconds > 0)
    result.values["tflops"] = 2e-12 * static_cast<double>(found.nnz) * what.n / *found.seconds;
  return result;
}

Result run_sweep(const spmm::SpmmRequest& request, const Case& what, const Setting& setting) {
  if (*setting.shared == nullptr) *setting.shared = std::make_shared<Runner>(request, setting.machine);
  Runner& runner = *static_cast<Runner*>(setting.shared->get());
  runner.request = request;
  try {
    return sweep_result_of(what, runner.runner.run(runner.case_of(what)));
  } catch (const std::bad_alloc&) {
    throw Error("out of memory; try --threads 1, or smaller sizes");
  }
}

/// Relative cost of cells, for the remaining time; fitted by eye. Planning walks the blocks; measuring
/// repeats the product.
double sweep_seconds_of(const Case& what, bool host) {
  const Operand& o = what.operand;
  if (host) return 0.4 + 1e-10 * what.flops();
  if (o.mode == Mode::dense) return 0.1;
  const double blocks = what.flops() / (2.0 * what.n * o.block * o.block);
  return 0.3 + 5e-7 * blocks;
}

}  // namespace

Operand dense_of(const Operand& o) { return {Mode::dense, o.precision, o.size, 1, 1}; }

Sweep sweep_of(const Request& request, const machine::Machine& machine) {
  const bool host = machine.kind == machine::Kind::host, has_lists = request.products != ProductLists{};
  if (request.full && has_lists)
    throw UsageError("--full has its own sweep: omit --m, --n, --block, --density, --type and --mode");
  std::vector<Ranges> parts = host ? parts_for_host() : parts_for_tiles();
  if (request.full) parts = {all_of_table_2(host)};
  if (has_lists) parts = {ranges_of(request.products, host)};
  Sweep sweep;
  for (const Ranges& part : parts) {
    check(part);
    add(part, sweep);
  }
  return sweep;
}

std::string density_text(double density) {
  const double inverse = 1 / density;
  if (density == 1) return "1";
  return std::abs(inverse - std::round(inverse)) < 1e-9 ? fmt::format("1/{:.0f}", inverse)
                                                        : fmt::format("{:.4g}", density);
}

std::string name_of(Mode mode, uint32_t block) {
  return mode == Mode::dense ? "dense" : fmt::format("{} b = {}", ops::name_of(mode), block);
}

std::string name_of(const Operand& o) {
  std::string density = density_text(o.density);
  if (!density.starts_with("1")) density = fmt::format("{}", o.density);
  return fmt::format("{} {}{} m = {}", ops::name_of(o.precision), name_of(o.mode, o.block),
                     o.mode == Mode::dense ? "" : " d = " + density, o.size);
}

std::string name_of(const Case& what) { return fmt::format("{} n = {}", name_of(what.operand), what.n); }

std::optional<Case> case_named(const std::string& name) {
  static const std::regex pattern(
      "([^ ]+) (?:dense|(static|dynamic) b = (\\d{1,9}) d = (1/)?([0-9.]{1,20})) m = (\\d{1,9})( n = "
      "(\\d{1,9}))?");
  std::smatch found;
  if (!std::regex_match(name, found, pattern)) return std::nullopt;
  const auto count_of = [&](size_t group) {
    return found[group].matched ? static_cast<uint32_t>(std::stoul(found[group])) : 0;
  };
  Case what;
  what.operand.size = count_of(6);
  what.n = count_of(8);
  for (const Precision& precision : ops::kPrecisions)
    if (found[1].str() == ops::name_of(precision)) what.operand.precision = precision;
  for (const Mode mode : ops::kModes)
    if (found[2].str() == ops::name_of(mode)) what.operand.mode = mode;
  if (what.operand.mode != Mode::dense) {
    what.operand.block = count_of(3);
    const double number = std::strtod(found[5].str().c_str(), nullptr);
    what.operand.density = found[4].matched ? 1 / number : number;
  }
  const bool has_n = found[7].matched, is_product = what.operand.size > 0 && what.operand.block > 0 &&
                                                    what.operand.density > 0 && what.operand.density <= 1 &&
                                                    has_n == (what.n > 0);
  // Numbers may have been written in another way.
  const bool is_name = name == (has_n ? name_of(what) : name_of(what.operand));
  return is_product && is_name ? std::optional(what) : std::nullopt;
}

std::string key_of(const Case& what, ops::Planner planner) {
  return name_of(what) + (planner == ops::Planner::best ? ", planned freely" : "");
}

std::vector<Cell> cells_of(const machine::Machine& machine, const Request& request, ops::Planner planner) {
  const Sweep sweep = sweep_of(request, machine);
  const std::set<Case> sample = sample_of(sweep);
  const bool host = machine.kind == machine::Kind::host;
  std::vector<Cell> cells;
  for (const auto& [operand, columns] : sweep) {
    spmm::SpmmRequest one = request_of(operand, machine, request, planner);
    Runner runner(one, machine);
    runner.runner.check(runner.case_of({operand, columns.front()}));
    for (uint32_t n : columns) {
      const Case what{operand, n};
      const bool verify = request.verify && sample.contains(what);
      one.verify = verify ? spmm::Verify::sample : spmm::Verify::none;
      one.estimate = !host && !verify;
      cells.push_back({.name = key_of(what, planner),
                       .seconds = sweep_seconds_of(what, host),
                       .run = [=](const Setting& setting) { return run_sweep(one, what, setting); },
                       .series = name_of(operand),
                       .extent = fmt::format("n = {}", n)});
    }
  }
  return cells;
}

}  // namespace tessera::studies::popsparse
