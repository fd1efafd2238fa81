#include "studies/spmm/product.h"

#include <tessera/io.h>

#include <vector>

#include "base/clock.h"
#include "base/median.h"
#include "base/random.h"
#include "bound/weight.h"
#include "check/verification.h"
#include "engine/median_run.h"
#include "kernels/common/numbers.h"
#include "sparse/generate.h"
#include "sparse/pattern.h"
#include "studies/spmm/run.h"

namespace tessera::studies::spmm {
namespace {

constexpr int kUpdates = 11;

/// Median seconds to set another random pattern with the same number of blocks.
double measure_update(Weight& weight, uint64_t seed) {
  const Pattern first = weight.pattern();
  const double all = static_cast<double>(first.block_rows()) * first.block_cols();
  const Pattern second = sparse::generate_pattern({PatternKind::random, first.rows, first.cols,
                                                   all > 0 ? static_cast<double>(first.blocks()) / all : 0,
                                                   first.block_size, seed + 1});
  std::vector<double> seconds;
  for (int i = 0; i < kUpdates; ++i)
    seconds.push_back(base::seconds_of([&] { weight.set_pattern(i % 2 == 0 ? second : first); }));
  return base::median(seconds);
}

/// Seeded numbers that are exact in the product's type.
Activations random_activations(const bound::BoundProduct& product, uint32_t rows, uint64_t seed,
                               uint64_t stream) {
  const ops::ProductProblem& problem = product.problem();
  Activations a(rows, problem.n, product.layouts().x);
  base::RandomStream(seed, 0, stream).fill_symmetric(a.elements);
  if (!product.is_on_host() && problem.type != Type::f32)
    a.elements = kernels::as_floats(kernels::as_type(a.elements, problem.type), problem.type);
  return a;
}

MatrixView<float> view_of(Activations& a) { return {a.elements.data(), a.row_stride(), a.col_stride()}; }

/// Repeats until enough is measured.
void measure(bound::BoundProduct& product, Activations& x, Activations& y, SpmmResult& result) {
  const engine::TimedRun timed = engine::median_run([&](std::vector<engine::TraceEvent>& trace) {
    return product.run(view_of(x), view_of(y), {.trace = result.run ? &trace : nullptr});
  });
  result.seconds = timed.seconds;
  result.phases = timed.profile.phases;
  result.phases[program::Phase::control] += timed.seconds - timed.profile.seconds;
  if (result.run)
    result.run = report::summarize(product.executable(), timed.profile, timed.trace, report::Times::measured);
}

/// Compares the result with float64.
void verify_product(const SpmmRequest& request, const bound::BoundProduct& product,
                    const SparseMatrix& matrix, const Activations& x, const Activations& y,
                    SpmmResult& result) {
  const ops::ProductProblem& problem = product.problem();
  const bool is_sddmm = problem.product == ProductKind::sddmm;
  const Type result_type = product.is_on_host() ? Type::f32 : problem.type;
  const Rounding types{product.is_on_host() && is_sddmm ? Type::f32 : problem.type, problem.partials,
                       result_type, product.roundings()};
  switch (problem.product) {
    case ProductKind::forward: return verify(request, matrix, types, x, y, result);
    case ProductKind::input_gradient: return verify(request, sparse::transpose(matrix), types, y, x, result);
    case ProductKind::sddmm:
      return verify_sddmm(request, {matrix.pattern, product.gradient()}, types, x, y, result);
  }
}

}  // namespace

ops::ProductProblem problem_of(const SpmmRequest& request, const SpmmCase& what,
                               const machine::Machine& machine, uint64_t blocks) {
  ops::ProductProblem problem{.n = what.n, .type = what.precision.type};
  const bool sums_in_f32 = machine.kind == machine::Kind::host || what.precision.f32_partials;
  problem.partials = sums_in_f32 ? Type::f32 : problem.type;
  problem.planner = request.planner;
  problem.dense = what.mode == Mode::dense;
  problem.product = what.product;
  if (what.mode == Mode::dynamic_sparse) problem.capacity = blocks;
  return problem;
}

void ProductRuns::pack(const ops::ProductProblem& problem, const SpmmCase& what, const SparseMatrix& matrix) {
  if (packed_is_of_ && packed_is_of_->precision == what.precision && packed_is_of_->mode == what.mode) return;
  packed_is_of_ = std::nullopt;
  dynamic_ = std::nullopt;
  if (what.mode == Mode::dynamic_sparse) {
    dynamic_ = Weight::dynamic(matrix, *problem.capacity, problem.type);
    packed_ = dynamic_->storage()->packed;
  } else {
    packed_ = bound::pack(matrix, problem);
  }
  packed_is_of_ = what;
}

bound::BoundProduct ProductRuns::plan(const ops::ProductProblem& problem, const SpmmCase& what,
                                      const SparseMatrix& matrix, const machine::Machine& machine,
                                      const ops::ForcedKnobs& force, Layout layout) {
  if (machine.kind == machine::Kind::tiled) return {matrix, problem, machine, force};
  pack(problem, what, matrix);
  return {packed_, problem, machine, force, {layout, layout}};
}

SpmmResult ProductRuns::run(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                            const machine::Machine& machine, const ops::ForcedKnobs& force) {
  SpmmResult result = plan_and_run(request, what, matrix, machine, force);
  result.what = what;
  result.m = matrix.pattern.rows;
  result.k = matrix.pattern.cols;
  result.nnz = sparse::stored_elements(matrix.pattern);
  result.density = sparse::density(matrix.pattern);
  result.tiles = machine.tiles;
  if (const auto gflops = result.useful_gflops();
      gflops && machine.kind == machine::Kind::host && !request.estimate)
    result.peak_fraction = *gflops / (machine.figures.core_gflops() * machine.tiles);
  return result;
}

SpmmResult ProductRuns::plan_and_run(const SpmmRequest& request, const SpmmCase& what,
                                     const SparseMatrix& matrix, const machine::Machine& machine,
                                     const ops::ForcedKnobs& force) {
  const ops::ProductProblem problem = problem_of(request, what, machine, matrix.pattern.blocks());
  bound::BoundProduct product = plan(problem, what, matrix, machine, force, request.layout);
  const bool on_tiles = !product.is_on_host();
  if (planned_) planned_(product);
  SpmmResult result = start(product, request);
  if (on_tiles && problem.capacity) {
    result.update_seconds = base::seconds_of([&] { product.set_pattern(matrix.pattern); });
    result.steps = product.steps();
  }
  if (!result.fits) return result;
  if (on_tiles || request.estimate) estimate(product, result);
  if (request.estimate) return result;
  if (on_tiles && problem.capacity) product.set_matrix(matrix);
  Activations x = random_activations(product, matrix.pattern.cols, request.seed, 1);
  Activations y = random_activations(product, matrix.pattern.rows, request.seed, 2);
  if (on_tiles)
    product.run(view_of(x), view_of(y));
  else
    measure(product, x, y, result);
  verify_product(request, product, matrix, x, y, result);
  if (on_tiles || !dynamic_) return result;
  result.update_seconds = measure_update(*dynamic_, request.seed);
  packed_is_of_ = std::nullopt;  // values are lost with their blocks
  return result;
}

}  // namespace tessera::studies::spmm
