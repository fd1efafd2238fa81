#include "ops/tiled_spmm.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

#include "ops/tally.h"
#include "sparse/generate.h"
#include "sparse/pattern.h"

namespace tessera::ops {
namespace {

using machine::Machine;

// Cuts that are recounted exactly: so many, and more until one fits. Recounting builds the program,
// so of large ones there are fewer.
constexpr size_t kRecounted = 4;
constexpr size_t kMostRecounted = 16;
constexpr uint64_t kLargeBlocks = 1 << 19;
constexpr size_t kRecountedLarge = 2;
constexpr size_t kShown = 24;

constexpr const char* kNoPublishedPlan = "the published planner finds no plan within its limits";

/// Of dX the left factor is Wᵀ, of dW it is dY and the right one Xᵀ.
DenseShape dense_shape(const Pattern& p, const TiledSpmmProblem& problem) {
  const TiledNumbers numbers = problem.numbers();
  switch (problem.product) {
    case Product::input_gradient:
      return {p.cols, p.rows, problem.n, numbers, {"W.values", "dY", "dX"}};
    case Product::weight_gradient: return {p.rows, problem.n, p.cols, numbers, {"dY", "X", "dW"}};
    default: return {p.rows, p.cols, problem.n, numbers};
  }
}

/// A sparse product with what it needs of its forward product: how it is cut and how it is built.
class StaticProduct {
 public:
  StaticProduct(const Pattern& pattern, const TiledSpmmProblem& problem, const Machine& m,
                const StaticCut& forward)
      : pattern_(pattern), problem_(problem), machine_(m) {
    if (problem.product == Product::forward) return;
    values_ = value_layout(pattern, forward, m.tiles);
    if (problem.product == Product::weight_gradient) return;
    transposed_ = sparse::transpose(pattern);
    lent_ = lend(values_, transposed_);
  }

  std::vector<Expected<StaticCut>> cuts(Planner planner, const StaticCut& forced) const {
    return is_sampled() ? sampled_cuts(sampled_shape(), planner, machine_, forced)
                        : static_cuts(shape(), planner, machine_, forced);
  }

  TiledSpmmProgram build(const StaticCut& cut) const {
    TiledSpmmProgram out;
    if (is_sampled()) {
      SampledProgram built = build_sampled(sampled_shape(), cut, machine_);
      out.program = std::move(built.program);
      out.variables = {built.dw, built.x, built.dy, 0, 0};
      out.block_order = values_.order;
      return out;
    }
    StaticProgram built = build_static(shape(), cut, machine_);
    const bool forward = problem_.product == Product::forward;
    out.program = std::move(built.program);
    out.variables = forward ? SpmmVariables{built.values, built.x, built.y, 0, 0}
                            : SpmmVariables{built.values, built.y, built.x, 0, 0};
    out.block_order = std::move(built.block_order);
    return out;
  }

 private:
  bool is_sampled() const { return problem_.product == Product::weight_gradient; }
  StaticShape shape() const {
    if (problem_.product == Product::forward) return {pattern_, problem_.n, problem_.numbers()};
    return {transposed_.pattern, problem_.n, problem_.numbers(), &lent_};
  }
  SampledShape sampled_shape() const { return {pattern_, problem_.n, problem_.numbers(), values_}; }

  const Pattern& pattern_;
  const TiledSpmmProblem& problem_;
  const Machine& machine_;
  ValueLayout values_;
  sparse::TransposedPattern transposed_;
  LentValues lent_;
};

std::string too_large(uint64_t bytes, const Machine& m) {
  return fmt::format("needs {} bytes a tile of {}", bytes, m.tile_bytes);
}

/// Recounts the cuts that are expected to be fastest, and chooses.
template <class Cut, class Count>
TiledSpmmPlan choose(const std::vector<Expected<Cut>>& cuts, size_t recounted, const Machine& m,
                     const Count& count) {
  std::vector<Cut> counted;
  TiledSpmmPlan plan;
  bool any_fits = false;
  for (const Expected<Cut>& expected : cuts) {
    if (counted.size() >= recounted && (any_fits || counted.size() >= kMostRecounted)) break;
    const Tally tally = count(expected.cut);
    PlanCandidate candidate{to_string(expected.cut), tally.cycles.scaled(1 / m.clock_hz),
                            tally.max_tile_bytes, ""};
    if (tally.max_tile_bytes > m.tile_bytes)
      candidate.rejected = too_large(tally.max_tile_bytes, m);
    any_fits |= candidate.rejected.empty();
    counted.push_back(expected.cut);
    plan.candidates.push_back(std::move(candidate));
  }
  const auto smallest = std::min_element(
      plan.candidates.begin(), plan.candidates.end(),
      [](const auto& a, const auto& b) { return a.max_tile_bytes < b.max_tile_bytes; });
  const size_t best = any_fits ? choose_fastest(plan.candidates)
                               : static_cast<size_t>(smallest - plan.candidates.begin());
  plan.cut = counted[best];
  plan.chosen = plan.candidates[best];
  for (size_t i = counted.size(); i < std::min(cuts.size(), kShown); ++i)
    plan.candidates.push_back({to_string(cuts[i].cut), cuts[i].cycles.scaled(1 / m.clock_hz),
                               static_cast<uint64_t>(cuts[i].bytes), "slower by expected counts"});
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
    const auto knob =
        std::find_if(knobs.begin(), knobs.end(),
                     [&, n = std::string_view(name)](const Knob& k) { return k.name == n; });
    if (knob == knobs.end()) {
      std::string names;
      for (const Knob& k : knobs) names += fmt::format("{}{}", names.empty() ? "" : ", ", k.name);
      throw UsageError(fmt::format("this plan has no knob '{}': it has {}", name, names));
    }
    const bool slices = name.ends_with("slices");
    const int64_t most = slices ? 1 << 16 : static_cast<int64_t>(tiles);
    if (value < 1 || value > most)
      throw UsageError(slices ? fmt::format("{}={}: this knob takes 1 to {}", name, value, most)
                              : fmt::format("{}={}: a machine of {} tiles takes 1 to {}", name,
                                            value, tiles, tiles));
    *knob->value = static_cast<uint32_t>(value);
  }
}

void check_product(std::initializer_list<uint32_t> parts, std::string_view names, uint32_t tiles) {
  uint64_t product = 1;
  for (uint32_t p : parts) product *= std::max(1U, p);
  if (product > tiles)
    throw UsageError(
        fmt::format("{} is {}, more than the machine's {} tiles", names, product, tiles));
}

StaticCut forced_static(const ForcedKnobs& force, const Machine& m) {
  StaticCut cut;
  enter<3>(
      force,
      {{{"col_parts", &cut.col_parts}, {"bands", &cut.bands}, {"band_tiles", &cut.band_tiles}}},
      m.tiles);
  check_product({cut.col_parts, cut.bands, cut.band_tiles}, "col_parts × bands × band_tiles",
                m.tiles);
  return cut;
}

DenseCut forced_dense(const ForcedKnobs& force, const Machine& m) {
  DenseCut cut;
  enter<5>(force,
           {{{"m_parts", &cut.m_parts},
             {"k_parts", &cut.k_parts},
             {"n_parts", &cut.n_parts},
             {"m_slices", &cut.m_slices},
             {"n_slices", &cut.n_slices}}},
           m.tiles);
  check_product({cut.m_parts, cut.k_parts, cut.n_parts}, "m_parts × k_parts × n_parts", m.tiles);
  if (cut.m_slices > 1 && cut.n_slices > 1)
    throw UsageError("m_slices and n_slices: only one of m and n is cut serially");
  return cut;
}

DynamicCut forced_dynamic(const ForcedKnobs& force, const Machine& m) {
  DynamicCut cut;
  enter<3>(force, {{{"m_parts", &cut.m_parts}, {"k_parts", &cut.k_parts}, {"n_parts", &cut.n_parts}}}, m.tiles);
  check_product({cut.m_parts, cut.k_parts, cut.n_parts}, "m_parts × k_parts × n_parts", m.tiles);
  return cut;
}

/// The free planner's cuts, behind the first ones of the published planner: what it finds is then
/// never slower. Returns how many of the merged ones are to be recounted.
template <class Cut>
size_t put_first(const std::vector<Expected<Cut>>& published, size_t count,
                 std::vector<Expected<Cut>>& cuts) {
  std::vector<Expected<Cut>> merged(
      published.begin(),
      published.begin() + static_cast<int64_t>(std::min(count, published.size())));
  const size_t first = merged.size();
  for (const Expected<Cut>& expected : cuts)
    if (std::none_of(merged.begin(), merged.begin() + static_cast<int64_t>(first),
                     [&](const Expected<Cut>& other) { return other.cut == expected.cut; }))
      merged.push_back(expected);
  cuts = std::move(merged);
  return first + count;
}

TiledSpmmPlan plan_static(const Pattern& pattern, const TiledSpmmProblem& problem, const Machine& m,
                          const StaticCut& forced, const StaticCut& forward) {
  const StaticProduct product(pattern, problem, m, forward);
  size_t recounted = pattern.blocks() > kLargeBlocks ? kRecountedLarge : kRecounted;
  std::vector<Expected<StaticCut>> cuts = product.cuts(Planner::published, forced);
  const bool within_limits = !cuts.empty() || problem.planner == Planner::best;
  if (problem.planner == Planner::best || cuts.empty()) {
    const std::vector<Expected<StaticCut>> published = std::move(cuts);
    cuts = product.cuts(Planner::best, forced);
    recounted = put_first(published, recounted, cuts);
  }
  if (cuts.empty())
    throw UsageError(fmt::format("no cut of a {} × {} matrix has these numbers of parts",
                                 pattern.rows, pattern.cols));
  TiledSpmmPlan plan =
      choose(cuts, recounted, m, [&](const StaticCut& cut) { return tally(product.build(cut).program, m); });
  plan.values_of = forward;
  if (!within_limits)
    plan.chosen.rejected = kNoPublishedPlan;
  return plan;
}

TiledSpmmPlan plan_dense(const Pattern& pattern, const TiledSpmmProblem& problem, const Machine& m,
                         const DenseCut& forced) {
  const DenseShape shape = dense_shape(pattern, problem);
  size_t recounted = kRecounted;
  std::vector<Expected<DenseCut>> cuts = dense_cuts(shape, Planner::published, m, forced);
  if (problem.planner == Planner::best) {
    const std::vector<Expected<DenseCut>> published = std::move(cuts);
    cuts = dense_cuts(shape, Planner::best, m, forced);
    recounted = put_first(published, recounted, cuts);
  }
  if (cuts.empty()) throw UsageError("this dense product is too large to be laid out on tiles");
  return choose(cuts, recounted, m,
                [&](const DenseCut& cut) { return tally(build_dense(shape, cut).program, m); });
}

DynamicShape dynamic_shape(const Pattern& p, const TiledSpmmProblem& problem) {
  return {p.rows, p.cols, problem.n, p.block_size, *problem.capacity, problem.numbers(), problem.product};
}

/// A random pattern of as many blocks as W may have.
Pattern typical_pattern(const DynamicShape& s) {
  const double all = std::ceil(double{1} * s.m / s.block_size) * std::ceil(double{1} * s.k / s.block_size);
  const double density = all > 0 ? std::min(1.0, static_cast<double>(s.capacity) / all) : 0;
  return sparse::generate_pattern({PatternKind::random, s.m, s.k, density, s.block_size, 1});
}

/// Counts cuts for that pattern, and chooses.
TiledSpmmPlan choose_dynamic(const std::vector<Expected<DynamicCut>>& cuts, size_t recounted,
                             const DynamicShape& shape, const Machine& m) {
  const Pattern typical = typical_pattern(shape);
  std::map<std::string, uint32_t> steps;
  TiledSpmmPlan plan = choose(cuts, recounted, m, [&](const DynamicCut& cut) {
    const DynamicGrid grid(shape, cut, m);
    const DynamicEncoding encoding = encode(typical, shape, grid);
    steps[to_string(cut)] = encoding.steps;
    const DynamicProgram built = build_dynamic(shape, grid, m);
    return tally(built.program, built.bucket_metadata, grid, encoding, m);
  });
  plan.steps = steps.at(to_string(std::get<DynamicCut>(plan.cut)));
  return plan;
}

TiledSpmmPlan plan_dynamic(const DynamicShape& shape, Planner planner, const Machine& m,
                           const DynamicCut& forced) {
  if (shape.capacity > std::numeric_limits<uint32_t>::max())
    throw UsageError(fmt::format("a capacity of {} blocks is more than a program can hold", shape.capacity));
  size_t recounted = shape.capacity > kLargeBlocks ? kRecountedLarge : kRecounted;
  std::vector<Expected<DynamicCut>> cuts = dynamic_cuts(shape, Planner::published, m, forced);
  const bool within_limits = !cuts.empty() || planner == Planner::best;
  if (planner == Planner::best || cuts.empty()) {
    const std::vector<Expected<DynamicCut>> published = std::move(cuts);
    cuts = dynamic_cuts(shape, Planner::best, m, forced);
    recounted = put_first(published, recounted, cuts);
  }
  if (cuts.empty()) throw UsageError("this dynamic product is too large to be laid out on tiles");
  TiledSpmmPlan plan = choose_dynamic(cuts, recounted, shape, m);
  if (!within_limits) plan.chosen.rejected = kNoPublishedPlan;
  return plan;
}

TiledSpmmProgram build_dynamic_product(const Pattern& pattern, const DynamicShape& shape, const DynamicCut& cut,
                                       const Machine& m) {
  const DynamicGrid grid(shape, cut, m);
  DynamicProgram built = build_dynamic(shape, grid, m);
  TiledSpmmProgram out;
  out.program = std::move(built.program);
  out.variables = {built.values, built.x, built.y, 0, 0};
  out.dynamic = DynamicWeight{shape, grid, {}, built.metadata, built.bucket_metadata};
  out.set_pattern(pattern);
  return out;
}

TiledSpmmProgram build_dense_product(const DenseShape& shape, Product product,
                                     const DenseCut& cut) {
  DenseProgram built = build_dense(shape, cut);
  const auto [left, right, result] = dense_layouts(shape, cut);
  TiledSpmmProgram out;
  out.dense = true;
  out.program = std::move(built.program);
  switch (product) {
    case Product::forward:
      out.variables = {built.w, built.x, built.y, 0, 0};
      out.w = {left}, out.x = {right}, out.y = {result};
      break;
    case Product::input_gradient:
      out.variables = {built.w, built.y, built.x, 0, 0};
      out.w = {left, true}, out.x = {result}, out.y = {right};
      break;
    case Product::weight_gradient:
      out.variables = {built.y, built.x, built.w, 0, 0};
      out.w = {result}, out.x = {right, true}, out.y = {left};
      break;
  }
  return out;
}

/// A row-major matrix of rows × cols, as its transpose.
std::vector<float> turned_over(std::span<const float> matrix, uint64_t rows, uint64_t cols) {
  std::vector<float> turned(matrix.size());
  for (uint64_t r = 0; r < rows; ++r)
    for (uint64_t c = 0; c < cols; ++c) turned[c * rows + r] = matrix[r * cols + c];
  return turned;
}

}  // namespace

uint32_t TiledSpmmPlan::tiles_used() const {
  return std::visit([](const auto& c) { return c.tiles(); }, cut);
}

void check_tiled_spmm(const TiledSpmmProblem& problem, const Machine& machine,
                      const ForcedKnobs& force) {
  if (problem.type != Type::f32 && problem.type != Type::f16)
    throw UsageError(
        fmt::format("a tiled machine computes in f32 or f16, not in {}", name_of(problem.type)));
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

TiledSpmmPlan plan_tiled_spmm(const Pattern& pattern, const TiledSpmmProblem& problem,
                              const Machine& machine, const ForcedKnobs& force,
                              const TiledSpmmPlan* forward) {
  check_tiled_spmm(problem, machine, force);
  if (problem.dense) return plan_dense(pattern, problem, machine, forced_dense(force, machine));
  TiledSpmmPlan planned;
  if (problem.product != Product::forward && forward == nullptr) {
    TiledSpmmProblem of_forward = problem;
    of_forward.product = Product::forward;
    planned = plan_tiled_spmm(pattern, of_forward, machine, problem.capacity ? force : ForcedKnobs{});
    forward = &planned;
  }
  if (problem.capacity && problem.product == Product::forward)
    return plan_dynamic(dynamic_shape(pattern, problem), problem.planner, machine, forced_dynamic(force, machine));
  if (problem.capacity)
    return choose_dynamic({{std::get<DynamicCut>(forward->cut), {}, 0}}, 1, dynamic_shape(pattern, problem), machine);
  const StaticCut values_of = problem.product == Product::forward ? StaticCut{} : std::get<StaticCut>(forward->cut);
  return plan_static(pattern, problem, machine, forced_static(force, machine), values_of);
}

TiledSpmmProgram build_tiled_spmm(const Pattern& pattern, const TiledSpmmProblem& problem,
                                  const TiledSpmmPlan& plan, const Machine& machine) {
  if (const auto* cut = std::get_if<DenseCut>(&plan.cut))
    return build_dense_product(dense_shape(pattern, problem), problem.product, *cut);
  if (const auto* cut = std::get_if<DynamicCut>(&plan.cut))
    return build_dynamic_product(pattern, dynamic_shape(pattern, problem), *cut, machine);
  return StaticProduct(pattern, problem, machine, plan.values_of)
      .build(std::get<StaticCut>(plan.cut));
}

std::vector<float> StoredMatrix::store(std::span<const float> matrix) const {
  return transposed ? layout.store(turned_over(matrix, layout.cols(), layout.rows()))
                    : layout.store(matrix);
}

void StoredMatrix::load(std::span<const float> stored, std::span<float> matrix) const {
  if (!transposed) return layout.load(stored, matrix);
  std::vector<float> turned(matrix.size());
  layout.load(stored, turned);
  std::ranges::copy(turned_over(turned, layout.rows(), layout.cols()), matrix.begin());
}

Tally DynamicWeight::tally(const program::Program& program, const Machine& machine) const {
  return ops::tally(program, bucket_metadata, grid, encoding, machine);
}

void TiledSpmmProgram::set_pattern(const Pattern& pattern) {
  dynamic->encoding = encode(pattern, dynamic->shape, dynamic->grid);
  block_order = dynamic->encoding.block_order;
}

std::vector<float> TiledSpmmProgram::stored_weight(const SparseMatrix& matrix) const {
  if (dense) return w.store(sparse::to_dense(matrix));
  const uint64_t block = uint64_t{matrix.pattern.block_size} * matrix.pattern.block_size;
  std::vector<float> stored(block_order.size() * block);
  for (uint64_t i = 0; i < block_order.size(); ++i)
    if (block_order[i] != DynamicEncoding::kNoBlock)
      std::copy_n(matrix.values.begin() + static_cast<int64_t>(block_order[i] * block), block,
                  stored.begin() + static_cast<int64_t>(i * block));
  return stored;
}

std::vector<float> TiledSpmmProgram::stored_x(std::span<const float> given) const {
  return dense ? x.store(given) : std::vector<float>(given.begin(), given.end());
}

std::vector<float> TiledSpmmProgram::stored_y(std::span<const float> given) const {
  return dense ? y.store(given) : std::vector<float>(given.begin(), given.end());
}

void TiledSpmmProgram::load_weight(std::span<const float> stored, SparseMatrix& matrix) const {
  const Pattern& p = matrix.pattern;
  const uint64_t block = uint64_t{p.block_size} * p.block_size;
  if (!dense) {
    matrix.values.resize(p.blocks() * block);
    for (uint64_t i = 0; i < block_order.size(); ++i)
      if (block_order[i] != DynamicEncoding::kNoBlock)
        std::copy_n(stored.begin() + static_cast<int64_t>(i * block), block,
                    matrix.values.begin() + static_cast<int64_t>(block_order[i] * block));
    return;
  }
  std::vector<float> full(uint64_t{p.rows} * p.cols);
  w.load(stored, full);
  matrix.values = sparse::values_at(p, full);
}

void TiledSpmmProgram::load_x(std::span<const float> stored, std::span<float> result) const {
  if (dense) return x.load(stored, result);
  std::copy(stored.begin(), stored.end(), result.begin());
}

void TiledSpmmProgram::load_y(std::span<const float> stored, std::span<float> result) const {
  if (dense) return y.load(stored, result);
  std::copy(stored.begin(), stored.end(), result.begin());
}

std::string to_string(const TiledSpmmPlan& plan) {
  return fmt::format("{} on {} tiles; predicted {:.3g} us, {} bytes on the fullest tile",
                     plan.chosen.cut, plan.tiles_used(), plan.chosen.total() * 1e6,
                     plan.chosen.max_tile_bytes);
}

}  // namespace tessera::ops
