#include "cli/spmm_host.h"

#include <tessera/io.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <span>
#include <variant>
#include <vector>

#include "api/weight.h"
#include "base/random.h"
#include "cli/spmm_run.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "ops/sparse/host/spmm.h"
#include "sparse/generate.h"
#include "sparse/pattern.h"

namespace tessera::cli {

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
  for (int i = 0; i < kUpdates; ++i) {
    const auto start = std::chrono::steady_clock::now();
    weight.set_pattern(i % 2 == 0 ? second : first);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kUpdates / 2, seconds.end());
  return seconds[kUpdates / 2];
}

}  // namespace

void HostRuns::pack(const SpmmCase& what, const SparseMatrix& matrix) {
  const Type type = what.precision.type;
  if (packed_is_of_ && packed_is_of_->precision == what.precision && packed_is_of_->mode == what.mode) return;
  packed_is_of_ = std::nullopt;
  dynamic_ = std::nullopt;
  if (what.mode == Mode::dynamic_sparse) {
    dynamic_ = Weight::dynamic(matrix, matrix.pattern.blocks(), type);
    packed_ = dynamic_->storage()->packed;
  } else {
    ops::PackedWeight packed = ops::prepack_weight(matrix, type);
    packed.is_dense = what.mode == Mode::dense;
    packed_ = std::make_shared<const ops::PackedWeight>(std::move(packed));
  }
  packed_is_of_ = what;
}

SpmmResult HostRuns::run(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                         const machine::Machine& machine, const ops::ForcedKnobs& force) {
  pack(what, matrix);
  SpmmResult result = run_product(request, what, matrix, machine, force);
  if (!dynamic_ || request.estimate || !result.fits) return result;
  result.update_seconds = measure_update(*dynamic_, request.seed);
  packed_is_of_ = std::nullopt;  // values are lost with their blocks
  return result;
}

namespace {

/// Runs the bound product until enough is measured.
void measure(const engine::Engine& engine, std::span<const engine::Binding> bindings,
             const std::function<void()>& before, SpmmResult& result) {
  const Timed timed = median_run([&](Trace& trace) {
    before();
    return engine.run(bindings, {.trace = result.run ? &trace : nullptr});
  });
  result.seconds = timed.seconds;
  result.phases = timed.profile.phases;
  result.phases[program::Phase::control] += timed.seconds - timed.profile.seconds;
  if (result.run)
    result.run = report::summarize(engine.executable(), timed.profile, timed.trace, report::Times::measured);
}

engine::Binding bind(const ops::Operand& operand, Activations& a) {
  return {operand.variable, a.elements.data(), a.row_stride(), a.col_stride()};
}

/// Fills the inputs of a product, and clears its output.
void fill(const SpmmRequest& request, const SpmmCase& what, Activations& x, Activations& y) {
  if (what.product != ops::Product::input_gradient)
    base::RandomStream(request.seed, 0, 1).fill_symmetric(x.elements);
  if (what.product != ops::Product::forward)
    base::RandomStream(request.seed, 0, what.product == ops::Product::sddmm ? 2 : 1)
        .fill_symmetric(y.elements);
}

}  // namespace

SpmmResult HostRuns::run_product(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                                 const machine::Machine& machine, const ops::ForcedKnobs& force) const {
  const bool is_sddmm = what.product == ops::Product::sddmm;
  const ops::ProductProblem problem{.n = what.n,
                                    .type = what.precision.type,
                                    .product = what.product,
                                    .x_layout = request.layout,
                                    .y_layout = request.layout};
  const ops::HostPlan plan = ops::plan_host_product(*packed_, problem, machine, force);
  ops::HostProgram built = ops::build_host_program(packed_, problem, plan, machine);
  const engine::Engine engine(compiler::compile(std::move(built.program), machine));

  SpmmResult result = start(plan, engine.executable(), request);
  if (!result.fits) return result;
  if (request.estimate) {
    estimate(engine, {}, result);
    return result;
  }
  Activations x(matrix.pattern.cols, what.n, request.layout);
  Activations y(matrix.pattern.rows, what.n, request.layout);
  fill(request, what, x, y);
  std::array<float, 2> scalars = {1, 0};
  std::vector<float> dw(is_sddmm ? ops::packed_shape(*packed_).elements() : 0);
  void* values = is_sddmm ? static_cast<void*>(dw.data()) : const_cast<std::byte*>(packed_->values());
  const ops::ProductOperands& o = built.operands;
  std::vector<engine::Binding> bindings = {{o.values.variable, values, o.values.cols(), 1},
                                           bind(o.x, x),
                                           bind(o.y, y),
                                           {o.scalars->variable, scalars.data(), 2, 1}};
  for (const ops::WeightIndex::Binding& array : built.index)
    bindings.push_back({array.variable, const_cast<void*>(array.data), array.row_stride, 1});
  measure(
      engine, bindings, [&] { ops::update_index(*packed_, what.product); }, result);
  const Type type = what.precision.type;
  switch (what.product) {
    case ops::Product::forward: verify(request, matrix, {type, Type::f32, Type::f32}, x, y, result); break;
    case ops::Product::input_gradient:
      verify(request, sparse::transpose(matrix), {type, Type::f32, Type::f32}, y, x, result);
      break;
    case ops::Product::sddmm: {
      SparseMatrix gradient = matrix;
      std::visit([&](const auto& form) { form.unpack(dw, gradient.values); }, packed_->form);
      verify_sddmm(request, gradient, {Type::f32, Type::f32, Type::f32}, x, y, result);
    }
  }
  return result;
}

}  // namespace tessera::cli
