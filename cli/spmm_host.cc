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
#include "ops/sparse/host/sddmm.h"
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

void HostRuns::pack(const SpmmCase& what, const SparseMatrix& matrix, const machine::Machine& machine) {
  const Type type = what.precision.type;
  if (packed_is_of_ && packed_is_of_->precision == what.precision && packed_is_of_->mode == what.mode) return;
  packed_is_of_ = std::nullopt;
  dynamic_ = std::nullopt;
  if (what.mode == Mode::dynamic_sparse) {
    dynamic_ = Weight::dynamic(matrix, matrix.pattern.blocks(), type);
    packed_ = dynamic_->storage()->packed;
  } else {
    ops::PackedWeight packed = ops::prepack_weight(matrix, type, machine.tiles);
    packed.is_dense = what.mode == Mode::dense;
    packed_ = std::make_shared<const ops::PackedWeight>(std::move(packed));
  }
  packed_is_of_ = what;
}

SpmmResult HostRuns::run(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                         const machine::Machine& machine, const ops::ForcedKnobs& force) {
  pack(what, matrix, machine);
  SpmmResult result = what.product == ops::Product::sddmm
                          ? run_gradient(request, what, matrix, machine, force)
                          : run_product(request, what, matrix, machine, force);
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

std::vector<engine::Binding> bindings_of(const std::vector<ops::SpmmVariables::Index>& index) {
  std::vector<engine::Binding> bindings;
  for (const ops::SpmmVariables::Index& array : index)
    bindings.push_back({array.variable, const_cast<void*>(array.data), array.row_stride, 1});
  return bindings;
}

engine::Binding bind(program::VariableId variable, Activations& a) {
  return {variable, a.elements.data(), a.row_stride(), a.col_stride()};
}

}  // namespace

SpmmResult HostRuns::run_product(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                                 const machine::Machine& machine, const ops::ForcedKnobs& force) const {
  const bool transpose = what.product == ops::Product::input_gradient;
  ops::SpmmProblem problem{what.n, request.layout, request.layout};
  problem.transpose = transpose;
  const ops::SpmmPlan plan = ops::plan_spmm(*packed_, problem, machine, force);
  ops::SpmmProgram built = ops::build_spmm(packed_, problem, plan, machine);
  const ops::SpmmVariables variables = built.variables;
  const engine::Engine engine(compiler::compile(std::move(built.program), machine));

  SpmmResult result = start(plan, engine.executable(), request);
  if (!result.fits) return result;
  if (request.estimate) {
    estimate(engine, {}, result);
    return result;
  }
  const Pattern& p = matrix.pattern;
  Activations x(transpose ? p.rows : p.cols, what.n, request.layout);
  Activations y(transpose ? p.cols : p.rows, what.n, request.layout);
  base::RandomStream(request.seed, 0, 1).fill_symmetric(x.elements);
  std::array<float, 2> scalars = {1, 0};
  const program::Variable& values = engine.executable().program->variable(variables.values);
  std::vector<engine::Binding> bindings = bindings_of(variables.index);
  bindings.insert(bindings.end(),
                  {{variables.values, const_cast<std::byte*>(packed_->values()), values.cols, 1},
                   bind(variables.x, x),
                   bind(variables.y, y),
                   {variables.scalars, scalars.data(), 2, 1},
                   {variables.bias, nullptr, 0, 1}});
  measure(
      engine, bindings, [&] { ops::update_index(*packed_, problem); }, result);
  const Type type = what.precision.type;
  verify(request, transpose ? sparse::transpose(matrix) : matrix, {type, Type::f32, Type::f32}, x, y, result);
  return result;
}

SpmmResult HostRuns::run_gradient(const SpmmRequest& request, const SpmmCase& what,
                                  const SparseMatrix& matrix, const machine::Machine& machine,
                                  const ops::ForcedKnobs& force) const {
  const ops::SddmmProblem problem{what.n, request.layout, request.layout};
  const ops::SddmmPlan plan = ops::plan_sddmm(*packed_, problem, machine, force);
  ops::SddmmProgram built = ops::build_sddmm(packed_, problem, plan);
  const ops::SddmmVariables variables = built.variables;
  const engine::Engine engine(compiler::compile(std::move(built.program), machine));

  SpmmResult result = start(plan, engine.executable(), request);
  if (!result.fits) return result;
  if (request.estimate) {
    estimate(engine, {}, result);
    return result;
  }
  Activations x(matrix.pattern.cols, what.n, request.layout);
  Activations dy(matrix.pattern.rows, what.n, request.layout);
  base::RandomStream(request.seed, 0, 1).fill_symmetric(x.elements);
  base::RandomStream(request.seed, 0, 2).fill_symmetric(dy.elements);
  std::array<float, 2> scalars = {1, 0};
  std::vector<float> packed(ops::packed_elements(*packed_));
  const program::Variable& dw = engine.executable().program->variable(variables.dw);
  std::vector<engine::Binding> bindings = bindings_of(variables.index);
  bindings.insert(bindings.end(), {{variables.dw, packed.data(), dw.cols, 1},
                                   bind(variables.dy, dy),
                                   bind(variables.x, x),
                                   {variables.scalars, scalars.data(), 2, 1}});
  measure(
      engine, bindings, [] {}, result);
  SparseMatrix gradient = matrix;
  std::visit([&](const auto& form) { form.unpack(packed, gradient.values); }, packed_->form);
  verify_sddmm(request, gradient, {Type::f32, Type::f32, Type::f32}, x, dy, result);
  return result;
}

}  // namespace tessera::cli
