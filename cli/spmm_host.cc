#include "cli/spmm_host.h"

#include <array>

#include "base/random.h"
#include "cli/spmm_run.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "sparse/pattern.h"

namespace tessera::cli {

SpmmResult HostRuns::run(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                         const machine::Machine& machine, const ops::ForcedKnobs& force) {
  const Type type = what.precision.type;
  if (packed_ == nullptr || packed_type_ != type) {
    ops::PackedWeight packed = ops::pack_weight(matrix, type, machine.tiles);
    packed.is_dense = what.mode == Mode::dense;
    packed_ = std::make_shared<const ops::PackedWeight>(std::move(packed));
    packed_type_ = type;
  }
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
    estimate(engine, result);
    return result;
  }
  const Pattern& p = matrix.pattern;
  Activations x(transpose ? p.rows : p.cols, what.n, request.layout);
  Activations y(transpose ? p.cols : p.rows, what.n, request.layout);
  base::RandomStream(request.seed, 0, 1).fill_symmetric(x.elements);
  std::array<float, 2> scalars = {1, 0};
  const program::Variable& values = engine.executable().program->variable(variables.values);
  std::vector<engine::Binding> bindings = {
      {variables.values, const_cast<std::byte*>(packed_->values()), values.cols, 1},
      {variables.x, x.elements.data(), x.row_stride(), x.col_stride()},
      {variables.y, y.elements.data(), y.row_stride(), y.col_stride()},
      {variables.scalars, scalars.data(), 2, 1},
      {variables.bias, nullptr, 0, 1},
  };
  for (const ops::SpmmVariables::Index& index : variables.index)
    bindings.push_back({index.variable, const_cast<void*>(index.data), index.row_stride, 1});
  const Timed timed = median_run([&](Trace& trace) {
    ops::update_index(*packed_, problem);
    return engine.run(bindings, {.trace = result.run ? &trace : nullptr});
  });
  result.seconds = timed.seconds;
  result.phases = timed.profile.phases;
  result.phases[program::Phase::control] += timed.seconds - timed.profile.seconds;
  if (result.run)
    result.run = report::summarize(engine.executable(), timed.profile, timed.trace, report::Times::measured);
  verify(request, transpose ? sparse::transpose(matrix) : matrix, {type, Type::f32, Type::f32}, x, y, result);
  return result;
}

}  // namespace tessera::cli
