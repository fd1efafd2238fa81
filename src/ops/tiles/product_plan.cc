#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "compiler/compile.h"
#include "ops/tiles/kinds.h"
#include "sparse/generate.h"

namespace tessera::ops {
namespace {

using machine::Machine;

// Number of candidates that get an exact cost; more until one fits. Exact costs need the program, so there
// are fewer for large ones.
constexpr size_t kRecounted = 4;
constexpr size_t kMostRecounted = 16;
constexpr uint64_t kLargeBlocks = 1 << 19;
constexpr size_t kRecountedLarge = 2;
constexpr size_t kShown = 24;

constexpr const char* kNoPublishedPlan = "the published planner finds no plan within its limits";

std::string too_large(uint64_t bytes, const Machine& m) {
  return fmt::format("needs {} bytes a tile of {}", bytes, m.tile_bytes);
}

/// What a product costs between external operands of these layouts.
template <class Build>
compiler::Estimate count_closed(const ProductProblem& problem, const ProductLayouts& layouts,
                                const Machine& m, const Build& build_step) {
  program::Program program;
  const Builder builder(program, m);
  program.set_main(build_step(builder, add_external(builder, problem, layouts)));
  return compiler::estimate(program, m);
}

/// Recounts the cuts that are expected to be fastest, and chooses.
template <class Partition, class Count>
TileProductPlan choose(const std::vector<Expected<Partition>>& partitions, size_t recounted, const Machine& m,
                       const Count& count) {
  std::vector<Partition> counted;
  TileProductPlan plan;
  bool any_fits = false;
  for (const Expected<Partition>& expected : partitions) {
    if (counted.size() >= recounted && (any_fits || counted.size() >= kMostRecounted)) break;
    const compiler::Estimate estimate = count(expected.partition);
    PlanCandidate candidate{to_string(expected.partition), estimate.cycles.scaled(1 / m.clock_hz),
                            estimate.memory.max_tile_bytes, ""};
    if (!estimate.memory.fits())
      candidate.rejected = too_large(m.tile_bytes + estimate.memory.overflow_bytes, m);
    any_fits |= candidate.rejected.empty();
    counted.push_back(expected.partition);
    plan.candidates.push_back(std::move(candidate));
  }
  const auto smallest =
      std::min_element(plan.candidates.begin(), plan.candidates.end(),
                       [](const auto& a, const auto& b) { return a.max_tile_bytes < b.max_tile_bytes; });
  const size_t best =
      any_fits ? choose_fastest(plan.candidates) : static_cast<size_t>(smallest - plan.candidates.begin());
  plan.partition = counted[best];
  plan.chosen = plan.candidates[best];
  for (size_t i = counted.size(); i < std::min(partitions.size(), kShown); ++i)
    plan.candidates.push_back({to_string(partitions[i].partition),
                               partitions[i].cycles.scaled(1 / m.clock_hz),
                               static_cast<uint64_t>(partitions[i].bytes), "slower by expected counts"});
  return plan;
}

struct Knob {
  std::string_view name;
  uint32_t* value;
};

/// Enters forced knobs; those that are not forced become 0.
template <size_t count>
void enter(const ForcedKnobs& force, const std::array<Knob, count>& knobs, uint64_t tiles) {
  for (const Knob& knob : knobs) *knob.value = 0;
  for (const auto& [name, value] : force) {
    const auto knob = std::find_if(knobs.begin(), knobs.end(),
                                   [&, n = std::string_view(name)](const Knob& k) { return k.name == n; });
    if (knob == knobs.end()) {
      std::string names;
      for (const Knob& k : knobs) names += fmt::format("{}{}", names.empty() ? "" : ", ", k.name);
      throw UsageError(fmt::format("this plan has no knob '{}': it has {}", name, names));
    }
    const bool slices = name.ends_with("slices");
    const int64_t most = slices ? 1 << 16 : static_cast<int64_t>(tiles);
    if (value < 1 || value > most)
      throw UsageError(
          slices ? fmt::format("{}={}: this knob takes 1 to {}", name, value, most)
                 : fmt::format("{}={}: a machine of {} tiles takes 1 to {}", name, value, tiles, tiles));
    *knob->value = static_cast<uint32_t>(value);
  }
}

void check_product(std::initializer_list<uint32_t> parts, std::string_view names, uint32_t tiles) {
  uint64_t product = 1;
  for (uint32_t p : parts) product *= std::max(1U, p);
  if (product > tiles)
    throw UsageError(fmt::format("{} is {}, more than the machine's {} tiles", names, product, tiles));
}

StaticPartition forced_static(const ForcedKnobs& force, const Machine& m) {
  StaticPartition partition;
  enter<3>(force,
           {{{"col_parts", &partition.col_parts},
             {"bands", &partition.bands},
             {"band_tiles", &partition.band_tiles}}},
           m.tiles);
  check_product({partition.col_parts, partition.bands, partition.band_tiles},
                "col_parts × bands × band_tiles", m.tiles);
  return partition;
}

DensePartition forced_dense(const ForcedKnobs& force, const Machine& m) {
  DensePartition partition;
  enter<5>(force,
           {{{"m_parts", &partition.m_parts},
             {"k_parts", &partition.k_parts},
             {"n_parts", &partition.n_parts},
             {"m_slices", &partition.m_slices},
             {"n_slices", &partition.n_slices}}},
           m.tiles);
  check_product({partition.m_parts, partition.k_parts, partition.n_parts}, "m_parts × k_parts × n_parts",
                m.tiles);
  if (partition.m_slices > 1 && partition.n_slices > 1)
    throw UsageError("m_slices and n_slices: only one of m and n is cut serially");
  return partition;
}

DynamicTiling forced_dynamic(const ForcedKnobs& force, const Machine& m) {
  DynamicTiling partition;
  enter<3>(
      force,
      {{{"m_parts", &partition.m_parts}, {"k_parts", &partition.k_parts}, {"n_parts", &partition.n_parts}}},
      m.tiles);
  check_product({partition.m_parts, partition.k_parts, partition.n_parts}, "m_parts × k_parts × n_parts",
                m.tiles);
  return partition;
}

/// The free planner's cuts, behind the first ones of the published planner: what it finds is then
/// never slower. Returns how many of the merged ones are to be recounted.
template <class Partition>
size_t put_first(const std::vector<Expected<Partition>>& published, size_t count,
                 std::vector<Expected<Partition>>& partitions) {
  std::vector<Expected<Partition>> merged(
      published.begin(), published.begin() + static_cast<int64_t>(std::min(count, published.size())));
  const size_t first = merged.size();
  for (const Expected<Partition>& expected : partitions)
    if (std::none_of(merged.begin(), merged.begin() + static_cast<int64_t>(first),
                     [&](const Expected<Partition>& other) { return other.partition == expected.partition; }))
      merged.push_back(expected);
  partitions = std::move(merged);
  return first + count;
}

TileProductPlan plan_static(const Pattern& pattern, const ProductProblem& problem, const Machine& m,
                            const StaticPartition& forced, const StaticPartition& forward) {
  const StaticProduct product(pattern, problem, m, forward);
  size_t recounted = pattern.blocks() > kLargeBlocks ? kRecountedLarge : kRecounted;
  std::vector<Expected<StaticPartition>> partitions = product.partitions(Planner::published, forced);
  const bool within_limits = !partitions.empty() || problem.planner == Planner::best;
  if (problem.planner == Planner::best || partitions.empty()) {
    const std::vector<Expected<StaticPartition>> published = std::move(partitions);
    partitions = product.partitions(Planner::best, forced);
    recounted = put_first(published, recounted, partitions);
  }
  if (partitions.empty())
    throw UsageError(
        fmt::format("no cut of a {} × {} matrix has these numbers of parts", pattern.rows, pattern.cols));
  TileProductPlan plan = choose(partitions, recounted, m, [&](const StaticPartition& partition) {
    const PartLayout parts = product.deal(partition);
    return count_closed(problem, product.layouts(parts), m,
                        [&](const Builder& builder, const ProductOperands& operands) {
                          return product.build(builder, parts, operands);
                        });
  });
  plan.values_of = forward;
  if (!within_limits) plan.chosen.rejected = kNoPublishedPlan;
  return plan;
}

TileProductPlan plan_dense(const Pattern& pattern, const ProductProblem& problem, const Machine& m,
                           const DensePartition& forced) {
  const DenseProduct product(pattern, problem);
  const DenseShape shape = product.shape(false);
  size_t recounted = kRecounted;
  std::vector<Expected<DensePartition>> partitions = dense_partitions(shape, Planner::published, m, forced);
  if (problem.planner == Planner::best) {
    const std::vector<Expected<DensePartition>> published = std::move(partitions);
    partitions = dense_partitions(shape, Planner::best, m, forced);
    recounted = put_first(published, recounted, partitions);
  }
  if (partitions.empty()) throw UsageError("this dense product is too large to be laid out on tiles");
  return choose(partitions, recounted, m, [&](const DensePartition& partition) {
    return count_closed(problem, product.layouts(partition), m,
                        [&](const Builder& builder, const ProductOperands& operands) {
                          return product.build(builder, partition, operands);
                        });
  });
}

/// A random pattern with the maximum number of blocks of W.
Pattern typical_pattern(const DynamicShape& s) {
  const double all = std::ceil(double{1} * s.m / s.block_size) * std::ceil(double{1} * s.k / s.block_size);
  const double density = all > 0 ? std::min(1.0, static_cast<double>(s.capacity) / all) : 0;
  return sparse::generate_pattern({PatternKind::random, s.m, s.k, density, s.block_size, 1});
}

/// Counts cuts for that pattern, and chooses.
TileProductPlan choose_dynamic(const std::vector<Expected<DynamicTiling>>& partitions, size_t recounted,
                               const ProductProblem& problem, const DynamicShape& shape, const Machine& m) {
  const Pattern typical = typical_pattern(shape);
  std::map<std::string, uint32_t> steps;
  TileProductPlan plan = choose(partitions, recounted, m, [&](const DynamicTiling& partition) {
    const DynamicGrid grid(shape, partition, m);
    const DynamicEncoding encoding = encode(typical, shape, grid);
    steps[to_string(partition)] = encoding.steps;
    program::Program program;
    const Builder builder(program, m);
    const ProductOperands operands = add_external(builder, problem, dynamic_layouts(shape, grid, m.tiles));
    const BuiltProduct built = build_dynamic(builder, shape, grid, operands);
    program.set_main(built.step);
    return estimate(program, built.bucket_metadata, grid, encoding, m);
  });
  plan.steps = steps.at(to_string(std::get<DynamicTiling>(plan.partition)));
  return plan;
}

TileProductPlan plan_dynamic(const Pattern& pattern, const ProductProblem& problem, const Machine& m,
                             const DynamicTiling& forced) {
  const DynamicShape shape = dynamic_shape(pattern, problem);
  if (shape.capacity > std::numeric_limits<uint32_t>::max())
    throw UsageError(fmt::format("a capacity of {} blocks is more than a program can hold", shape.capacity));
  size_t recounted = shape.capacity > kLargeBlocks ? kRecountedLarge : kRecounted;
  std::vector<Expected<DynamicTiling>> partitions = dynamic_tilings(shape, Planner::published, m, forced);
  const bool within_limits = !partitions.empty() || problem.planner == Planner::best;
  if (problem.planner == Planner::best || partitions.empty()) {
    const std::vector<Expected<DynamicTiling>> published = std::move(partitions);
    partitions = dynamic_tilings(shape, Planner::best, m, forced);
    recounted = put_first(published, recounted, partitions);
  }
  if (partitions.empty()) throw UsageError("this dynamic product is too large to be laid out on tiles");
  TileProductPlan plan = choose_dynamic(partitions, recounted, problem, shape, m);
  if (!within_limits) plan.chosen.rejected = kNoPublishedPlan;
  return plan;
}

}  // namespace

uint32_t TileProductPlan::tiles_used() const {
  return std::visit([](const auto& c) { return c.tiles(); }, partition);
}

void check_tile_product(const ProductProblem& problem, const Machine& machine, const ForcedKnobs& force) {
  if (problem.type != Type::f32 && problem.type != Type::f16)
    throw UsageError(fmt::format("a tiled machine computes in f32 or f16, not in {}", name_of(problem.type)));
  if (problem.partials != problem.type && problem.partials != Type::f32)
    throw UsageError(fmt::format("partial sums of {} are f32 or {}, not {}", name_of(problem.type),
                                 name_of(problem.type), name_of(problem.partials)));
  if (problem.dense)
    (void)forced_dense(force, machine);
  else if (problem.capacity)
    (void)forced_dynamic(force, machine);
  else
    (void)forced_static(force, machine);
}

TileProductPlan plan_tile_product(const Pattern& pattern, const ProductProblem& problem,
                                  const Machine& machine, const ForcedKnobs& force,
                                  const TileProductPlan* forward) {
  check_tile_product(problem, machine, force);
  if (problem.dense) return plan_dense(pattern, problem, machine, forced_dense(force, machine));
  TileProductPlan planned;
  if (problem.product != Product::forward && forward == nullptr) {
    ProductProblem of_forward = problem;
    of_forward.product = Product::forward;
    planned = plan_tile_product(pattern, of_forward, machine, problem.capacity ? force : ForcedKnobs{});
    forward = &planned;
  }
  if (problem.capacity && problem.product == Product::forward)
    return plan_dynamic(pattern, problem, machine, forced_dynamic(force, machine));
  if (problem.capacity)
    return choose_dynamic({{std::get<DynamicTiling>(forward->partition), {}, 0}}, 1, problem,
                          dynamic_shape(pattern, problem), machine);
  const StaticPartition values_of =
      problem.product == Product::forward ? StaticPartition{} : std::get<StaticPartition>(forward->partition);
  return plan_static(pattern, problem, machine, forced_static(force, machine), values_of);
}

std::string to_string(const TileProductPlan& plan) {
  return fmt::format("{} on {} tiles; predicted {:.3g} us, {} bytes on the fullest tile",
                     plan.chosen.partition, plan.tiles_used(), plan.chosen.total() * 1e6,
                     plan.chosen.max_tile_bytes);
}

}  // namespace tessera::ops
