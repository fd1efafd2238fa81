#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/product.h>

#include <algorithm>

#include "bound/product.h"
#include "compiler/memory.h"
#include "sparse/pattern.h"

namespace tessera {
namespace {

ops::ProductProblem problem_of(const Pattern& pattern, uint32_t n, const Machine& machine,
                               const ProductOptions& options) {
  ops::ProductProblem problem{.n = n, .type = options.type};
  problem.partials = options.partials.value_or(machine.is_host() ? Type::f32 : options.type);
  problem.planner = options.planner;
  problem.dense = options.dense;
  problem.product = options.kind;
  sparse::validate_sizes(pattern.rows, pattern.cols, pattern.block_size);
  if (options.capacity)
    problem.capacity = std::min(*options.capacity, uint64_t{pattern.block_rows()} * pattern.block_cols());
  problem.activation = options.activation;
  problem.bias = options.bias;
  return problem;
}

const SparseMatrix& checked(const SparseMatrix& weight, const ops::ProductProblem& problem,
                            const Machine& machine, const ProductOptions& options) {
  bound::check(problem, weight.pattern.block_size, machine.model(), options.force,
               {options.x_layout, options.y_layout});
  return weight;
}

Phases phases_of(const program::PhaseTimes& times) {
  Phases phases;
  for (size_t p = 0; p < program::kPhases; ++p)
    phases.emplace(name_of(static_cast<program::Phase>(p)), times.at[p]);
  return phases;
}

}  // namespace

struct Product::Planned {
  Planned(const SparseMatrix& weight, const ops::ProductProblem& problem, const Machine& machine,
          const ProductOptions& options)
      : prepared(checked(weight, problem, machine, options), problem, machine.model(), options.force, nullptr,
                 {.host = {options.x_layout, options.y_layout}}) {}

  /// Profile of a run: on tiles that of the machine, not of the computer that executes its program.
  ProductProfile profile_of(const engine::Profile& profile, bool is_estimate) const {
    const bool is_measured = prepared.is_on_host() && !is_estimate;
    ProductProfile out;
    const program::PhaseTimes seconds =
        is_measured ? profile.phases : profile.cycles.scaled(1 / prepared.machine().clock_hz);
    out.seconds = is_measured ? profile.seconds : seconds.total();
    out.phases = phases_of(seconds);
    out.cycles = phases_of(profile.cycles);
    return out;
  }

  bound::BoundProduct prepared;
};

Product::Product(const SparseMatrix& weight, uint32_t n, const Machine& machine,
                 const ProductOptions& options)
    : planned_(std::make_unique<Planned>(weight, problem_of(weight.pattern, n, machine, options), machine,
                                         options)) {}
Product::~Product() = default;
Product::Product(Product&&) noexcept = default;
Product& Product::operator=(Product&&) noexcept = default;

std::string Product::plan() const { return planned_->prepared.plan(); }
double Product::predicted_seconds() const { return planned_->prepared.predicted_seconds(); }
bool Product::fits() const { return planned_->prepared.fits(); }
uint32_t Product::tiles() const { return planned_->prepared.machine().tiles; }

uint32_t Product::fullest_tile() const {
  return planned_->prepared.is_on_host() ? 0 : planned_->prepared.memory().fullest_tile;
}

TileBytes Product::memory(uint32_t tile) const {
  const std::vector<compiler::TileMemory>& memories = planned_->prepared.memory().tiles;
  if (tile >= memories.size())
    throw UsageError(
        fmt::format("there is no memory of a tile {}: the machine has {}", tile, memories.size()));
  const compiler::TileMemory& memory = memories[tile];
  return {memory.total(), memory.categories(), memory.by_purpose()};
}

ProductProfile Product::estimate() const { return planned_->profile_of(planned_->prepared.estimate(), true); }

ProductProfile Product::run(MatrixView<float> x, MatrixView<float> y, const float* bias) {
  return planned_->profile_of(planned_->prepared.run(x, y, {}, bias), false);
}

std::vector<float> Product::gradient() const { return planned_->prepared.gradient(); }

void Product::set_matrix(const SparseMatrix& weight) { planned_->prepared.set_matrix(weight); }

}  // namespace tessera
