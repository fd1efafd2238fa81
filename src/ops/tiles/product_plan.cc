#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>

#include "base/memo.h"
#include "compiler/compile.h"
#include "kernels/tile/bucket/metadata.h"
#include "ops/tiles/forced_knobs.h"
#include "ops/tiles/weight_kinds.h"
#include "sparse/generate.h"

namespace tessera::ops {
namespace {

using machine::Machine;

// Exact costs need the program, so there are fewer for large ones.
constexpr uint64_t kLargeBlocks = 1 << 19;
constexpr size_t kRecountedLarge = 2;
constexpr size_t kShown = 24;

constexpr const char* kNoVendorPlan = "the vendor's planner finds no plan within its limits";

std::string too_large(uint64_t bytes, const Machine& m) {
  return fmt::format("needs {} bytes per tile of {}", bytes, m.tile_bytes);
}

/// Fixed layouts; null if the plan chooses.
struct FixedLayouts {
  const OperandLayout* values = nullptr;
  const OperandLayout* x = nullptr;
  const OperandLayout* y = nullptr;

  ProductLayouts among(const ProductLayouts& native) const {
    ProductLayouts given = native;
    if (values != nullptr) given.values = *values;
    if (x != nullptr) given.x = *x;
    if (y != nullptr) given.y = *y;
    return given;
  }
};

/// The planning task.
struct Case {
  const Pattern& pattern;
  const ProductProblem& problem;
  const Machine& machine;
  FixedLayouts fixed;
};

/// The exact cost of a partition, the layouts of operands for which it holds, and the program that was
/// counted.
struct Counted {
  compiler::Estimate estimate;
  ProductLayouts layouts;
  ClosedProduct closed;
};

/// A plan, and the program that gave its exact cost.
struct Planned {
  TileProductPlan plan;
  ClosedProduct closed;
};

/// Computes the exact cost of the program that `build_native` makes between external operands.
Counted count_closed(const Case& c, ProductLayouts native, const BuildNative& build_native,
                     const std::function<compiler::Estimate(const ClosedProduct&)>& count) {
  native.bias = bias_layout(c.pattern, c.problem, c.machine.tiles);
  ProductLayouts given = c.fixed.among(native);
  ClosedProduct closed = close_product(c.machine, c.problem, given, native, build_native);
  compiler::Estimate estimate = count(closed);
  return {std::move(estimate), std::move(given), std::move(closed)};
}
Counted count_closed(const Case& c, ProductLayouts native, const BuildNative& build_native) {
  return count_closed(c, std::move(native), build_native, [&](const ClosedProduct& closed) {
    return compiler::estimate(closed.program, c.machine);
  });
}

/// Whether a plan fits where another does not, or is faster; if neither fits, whether it is smaller.
bool is_better(const PlanCandidate& a, const PlanCandidate& b) {
  if (a.rejected.empty() != b.rejected.empty()) return a.rejected.empty();
  return a.rejected.empty() ? a.total() < b.total() : a.max_tile_bytes < b.max_tile_bytes;
}

/// Bytes of W, X and Y, or of gradients in their place.
uint64_t operand_bytes(const Case& c) {
  const uint64_t block = uint64_t{c.pattern.block_size} * c.pattern.block_size;
  const uint64_t w = c.problem.dense ? uint64_t{c.pattern.rows} * c.pattern.cols
                                     : c.problem.capacity.value_or(c.pattern.blocks()) * block;
  return (w + (uint64_t{c.pattern.rows} + c.pattern.cols) * c.problem.n) * size_of(c.problem.type);
}

/// Computes the exact cost of the candidates expected to be fastest, and chooses. Of the programs only the
/// best so far is kept. Where operands alone exceed the machine's memory, one candidate shows by how much.
template <class Partition, class Count>
Planned choose(const Case& c, const std::vector<Expected<Partition>>& partitions, size_t recounted,
               const Count& count) {
  const Machine& m = c.machine;
  const size_t most = operand_bytes(c) > m.tiles * uint64_t{m.tile_bytes} ? 1 : kMostRecounted;
  recounted = std::min(recounted, most);
  Planned best;
  std::vector<PlanCandidate> candidates;
  bool any_fits = false;
  for (const Expected<Partition>& expected : partitions) {
    if (candidates.size() >= recounted && (any_fits || candidates.size() >= most)) break;
    Counted counted = count(expected.partition);
    PlanCandidate candidate{to_string(expected.partition), counted.estimate.cycles.scaled(1 / m.clock_hz),
                            counted.estimate.memory.max_tile_bytes, ""};
    if (!counted.estimate.memory.fits())
      candidate.rejected = too_large(m.tile_bytes + counted.estimate.memory.overflow_bytes, m);
    any_fits |= candidate.rejected.empty();
    if (candidates.empty() || is_better(candidate, best.plan.chosen)) {
      best.plan.partition = expected.partition;
      best.plan.chosen = candidate;
      best.plan.layouts = std::move(counted.layouts);
      best.closed = std::move(counted.closed);
    }
    candidates.push_back(std::move(candidate));
  }
  const size_t exact = candidates.size();
  if (any_fits) choose_fastest(candidates);
  for (size_t i = exact; i < std::min(partitions.size(), kShown); ++i) {
    if (partitions[i].bytes == 0) continue;  // not compared by expected counts
    candidates.push_back({to_string(partitions[i].partition), partitions[i].cycles.scaled(1 / m.clock_hz),
                          static_cast<uint64_t>(partitions[i].bytes), "slower by expected counts"});
  }
  best.plan.candidates = std::move(candidates);
  return best;
}

/// The partitions that a planner compares, and how many of them get an exact cost.
template <class Partition>
struct Partitions {
  std::vector<Expected<Partition>> all;
  size_t recounted;
  bool within_limits;  ///< false if the vendor's planner finds none

  /// The free planner's partitions follow the first ones of the vendor's planner, so that its result is never
  /// slower; they also replace partitions that the vendor's planner does not find.
  template <class Search>
  Partitions(Planner planner, size_t count, const Search& search)
      : all(search(Planner::vendor)),
        recounted(count),
        within_limits(!all.empty() || planner == Planner::best) {
    if (planner == Planner::vendor && !all.empty()) return;
    const size_t first = std::min(count, all.size());
    all.erase(all.begin() + static_cast<int64_t>(first), all.end());
    for (const Expected<Partition>& expected : search(Planner::best))
      if (std::none_of(all.begin(), all.begin() + static_cast<int64_t>(first),
                       [&](const auto& vendor) { return vendor.partition == expected.partition; }))
        all.push_back(expected);
    recounted += first;
  }
};

Planned plan_static(const Case& c, const StaticPartition& forced, const StaticPartition& forward) {
  const auto& [pattern, problem, m, fixed] = c;
  const StaticProduct product(pattern, problem, m, forward);
  const bool is_empty = problem.n == 0 || pattern.blocks() == 0;
  std::vector<Expected<StaticPartition>> partitions;
  if (!is_empty)
    for (const StaticPartition& given : product.given(problem.planner, forced))
      partitions.push_back({given, {}, 0});
  const bool is_vendors =
      problem.planner == Planner::vendor && !partitions.empty() && partitions.front().partition.is_vendors();
  size_t recounted = partitions.size();
  if (!is_vendors) {
    recounted += pattern.blocks() > kLargeBlocks ? kRecountedLarge : kRecounted;
    for (const Expected<StaticPartition>& found : product.found(forced))
      if (std::ranges::find(partitions, found.partition, &Expected<StaticPartition>::partition) ==
          partitions.end())
        partitions.push_back(found);
  }
  if (partitions.empty())
    throw UsageError(fmt::format("no partition of a {} × {} matrix has these numbers of parts", pattern.rows,
                                 pattern.cols));
  Planned planned = choose(c, partitions, recounted, [&](const StaticPartition& partition) {
    const PartLayout parts = product.deal(partition);
    return count_closed(c, product.layouts(parts), product.builder_of(parts));
  });
  planned.plan.values_of = forward;
  if (problem.planner == Planner::vendor && !is_vendors && !is_empty)
    planned.plan.chosen.rejected = kNoVendorPlan;
  return planned;
}

/// A gradient in the forward product's partition, with its operands in the forward product's layouts.
std::vector<Expected<DensePartition>> mirror(const TileProductPlan& forward) {
  auto partition = std::get<DensePartition>(forward.partition);
  if (partition.slices() > 1)
    throw UsageError(
        "a dense product in slices has no gradients in its own partition: plan it with m_slices=1 and "
        "n_slices=1");
  partition.mirrored = true;
  return {{partition, {}, 0}};
}

Planned plan_dense(const Case& c, const DensePartition& forced, const TileProductPlan* forward) {
  const auto& [pattern, problem, m, fixed] = c;
  const DenseProduct product(pattern, problem);
  const auto count = [&](const DensePartition& partition) {
    return count_closed(c, product.layouts(partition), product.builder_of(partition));
  };
  if (problem.product != ProductKind::forward && forward != nullptr)
    return choose(c, mirror(*forward), kRecounted, count);
  const Partitions<DensePartition> partitions(problem.planner, kRecounted, [&](Planner planner) {
    return dense_partitions(product.shape(false), planner, c.machine, forced);
  });
  Planned planned = choose(c, partitions.all, partitions.recounted, count);
  if (!partitions.within_limits) planned.plan.chosen.rejected = kNoVendorPlan;
  return planned;
}

/// A random pattern with the maximum number of blocks of W.
Pattern typical_pattern(const DynamicShape& s) {
  const double all = std::ceil(double{1} * s.m / s.block_size) * std::ceil(double{1} * s.k / s.block_size);
  const double density = all > 0 ? std::min(1.0, static_cast<double>(s.capacity) / all) : 0;
  return sparse::generate_pattern({PatternKind::random, s.m, s.k, density, s.block_size, 1});
}

/// Computes the exact cost of candidates for that pattern, and chooses.
Planned choose_dynamic(const Case& c, const std::vector<Expected<DynamicTiling>>& partitions,
                       size_t recounted) {
  const DynamicShape shape = dynamic_shape(c.pattern, c.problem);
  const Pattern typical = typical_pattern(shape);
  std::map<std::string, uint32_t> steps;
  Planned planned = choose(c, partitions, recounted, [&](const DynamicTiling& partition) {
    const DynamicGrid grid(shape, partition, c.machine);
    const DynamicEncoding encoding = encode(typical, shape, grid);
    steps[to_string(partition)] = encoding.steps;
    return count_closed(c, dynamic_layouts(shape, grid, c.machine.tiles), dynamic_builder(shape, grid),
                        [&](const ClosedProduct& closed) {
                          return estimate(closed.program, closed.bucket_metadata, grid, encoding, c.machine);
                        });
  });
  planned.plan.steps = steps.at(planned.plan.chosen.partition);
  return planned;
}

TooLarge too_large(const DynamicShape& s, const Machine& m) {
  return TooLarge(fmt::format(
      "a dynamic product of {} × {} with at most {} blocks of size {} and n = {} does not fit {}: "
      "each of its {} tiles may have {} rows and columns of blocks, the weight {} parts, and an operand "
      "{} rows; use larger blocks, a smaller weight or more tiles",
      s.m, s.k, s.capacity, s.block_size, s.n, m.name, m.tiles, kernels::kMostPartitionSide,
      kernels::kMostPartitions, std::numeric_limits<uint32_t>::max()));
}

Planned plan_dynamic(const Case& c, const DynamicTiling& forced) {
  const DynamicShape shape = dynamic_shape(c.pattern, c.problem);
  if (shape.capacity > std::numeric_limits<uint32_t>::max())
    throw TooLarge(
        fmt::format("a capacity of {} blocks does not fit {}: on tiles it may be {}; use larger blocks",
                    shape.capacity, c.machine.name, std::numeric_limits<uint32_t>::max()));
  const Partitions<DynamicTiling> partitions(
      c.problem.planner, shape.capacity > kLargeBlocks ? kRecountedLarge : kRecounted,
      [&](Planner planner) { return dynamic_tilings(shape, planner, c.machine, forced); });
  if (partitions.all.empty()) throw too_large(shape, c.machine);
  Planned planned = choose_dynamic(c, partitions.all, partitions.recounted);
  if (!partitions.within_limits) planned.plan.chosen.rejected = kNoVendorPlan;
  return planned;
}

/// A product whose operands each have one layout, or are left to the plan.
Planned plan_fixed(const Case& c, const ForcedKnobs& force, const TileProductPlan* forward) {
  const ProductProblem& problem = c.problem;
  if (problem.dense) return plan_dense(c, forced_dense(force, c.machine), forward);
  if (problem.product == ProductKind::forward)
    return problem.capacity ? plan_dynamic(c, forced_dynamic(force, c.machine))
                            : plan_static(c, forced_static(force, c.machine), {});
  TileProductPlan planned;
  if (forward == nullptr) {
    ProductProblem of_forward = problem;
    of_forward.product = ProductKind::forward;
    planned = plan_tile_product(c.pattern, of_forward, c.machine, problem.capacity ? force : ForcedKnobs{});
    forward = &planned;
  }
  if (problem.capacity) return choose_dynamic(c, {{std::get<DynamicTiling>(forward->partition), {}, 0}}, 1);
  return plan_static(c, forced_static(force, c.machine), std::get<StaticPartition>(forward->partition));
}

/// Calls visit(layout) for each choice, or visit(null) if there is none.
template <class Visit>
void each_choice(const std::vector<OperandLayout>& choices, const Visit& visit) {
  if (choices.empty()) visit(nullptr);
  for (const OperandLayout& layout : choices) visit(&layout);
}

/// The best plan over all choices of layouts.
Planned search(const Pattern& pattern, const ProductProblem& problem, const Machine& machine,
               const ForcedKnobs& force, const TileProductPlan* forward, const LayoutChoices& layouts) {
  check_tile_product(problem, machine, force);
  std::optional<Planned> best;
  each_choice(layouts.values, [&](const OperandLayout* values) {
    each_choice(layouts.x, [&](const OperandLayout* x) {
      each_choice(layouts.y, [&](const OperandLayout* y) {
        Planned planned = plan_fixed({pattern, problem, machine, {values, x, y}}, force, forward);
        if (!best || is_better(planned.plan.chosen, best->plan.chosen)) best = std::move(planned);
      });
    });
  });
  return std::move(*best);
}

/// What a plan depends on.
struct PlanKey {
  ProductProblem problem;
  ForcedKnobs force;
  std::optional<std::variant<StaticPartition, DensePartition, DynamicTiling>> forward;
  LayoutChoices layouts;
  Pattern pattern;
  Machine machine;

  bool operator==(const PlanKey& other) const {
    return problem == other.problem && force == other.force && forward == other.forward &&
           machine.is_like(other.machine) && layouts == other.layouts && pattern == other.pattern;
  }
};

}  // namespace

uint32_t TileProductPlan::tiles_used() const {
  return std::visit([](const auto& c) { return c.tiles(); }, partition);
}

TileProductPlan plan_tile_product(const Pattern& pattern, const ProductProblem& problem,
                                  const Machine& machine, const ForcedKnobs& force,
                                  const TileProductPlan* forward, const LayoutChoices& layouts) {
  const auto plan = [&] { return search(pattern, problem, machine, force, forward, layouts).plan; };
  constexpr size_t kMost = 64;  // of patterns of perhaps millions of blocks
  static base::Memo<PlanKey, TileProductPlan> plans(kMost);
  PlanKey key{problem, force, {}, layouts, pattern, machine};
  if (forward != nullptr) key.forward = forward->partition;
  return plans.get(std::move(key), plan);
}

std::vector<ForcedKnobs> knobs_with_gradients(const Pattern& pattern, const ProductProblem& problem,
                                              const Machine& machine) {
  std::vector<ForcedKnobs> all;
  for (const DensePartition& p :
       partitions_with_gradients(DenseProduct(pattern, problem).shape(false), machine))
    all.push_back({{"m_parts", p.m_parts},
                   {"k_parts", p.k_parts},
                   {"n_parts", p.n_parts},
                   {"m_slices", 1},
                   {"n_slices", 1}});
  return all;
}

PlannedTileProduct plan_closed_product(const Pattern& pattern, const ProductProblem& problem,
                                       const Machine& machine, const ForcedKnobs& force,
                                       const TileProductPlan* forward, const LayoutChoices& layouts) {
  Planned planned = search(pattern, problem, machine, force, forward, layouts);
  TileProductProgram program =
      bound_program(std::move(planned.closed), pattern, problem, planned.plan, machine);
  return {std::move(planned.plan), std::move(program)};
}

std::string to_string(const TileProductPlan& plan) {
  return fmt::format("{} on {} tiles; predicted {:.3g} us, {} bytes on the fullest tile",
                     plan.chosen.partition, plan.tiles_used(), plan.chosen.total() * 1e6,
                     plan.chosen.max_tile_bytes);
}

}  // namespace tessera::ops
