#include "cli/spmm_tiled.h"

#include <array>

#include "base/random.h"
#include "cli/spmm_run.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "kernels/element.h"

namespace tessera::cli {
namespace {

/// Elements as a tile's memory has them.
std::vector<std::byte> as_type(std::span<const float> elements, Type type) {
  std::vector<std::byte> bytes(elements.size() * size_of(type));
  const program::FieldView view{bytes.data(), type, 1, static_cast<uint32_t>(elements.size())};
  for (size_t i = 0; i < elements.size(); ++i) kernels::set_number(view, 0, static_cast<int64_t>(i), elements[i]);
  return bytes;
}

void as_floats(std::vector<std::byte>& bytes, Type type, std::span<float> elements) {
  const program::FieldView view{bytes.data(), type, 1, static_cast<uint32_t>(elements.size())};
  for (size_t i = 0; i < elements.size(); ++i)
    elements[i] = static_cast<float>(kernels::number_at(view, 0, static_cast<int64_t>(i)));
}

}  // namespace

ops::TiledSpmmProblem tiled_problem(const SpmmRequest& request, const SpmmCase& what) {
  const Type partials = what.precision.f32_partials ? Type::f32 : what.precision.type;
  return {what.n, what.precision.type, partials, request.planner, what.mode == Mode::dense};
}

SpmmResult run_on_tiles(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                        const machine::Machine& machine, const ops::ForcedKnobs& force) {
  const Type type = what.precision.type;
  const ops::TiledSpmmProblem problem = tiled_problem(request, what);
  const ops::TiledSpmmPlan plan = ops::plan_tiled_spmm(matrix.pattern, problem, machine, force);
  ops::TiledSpmmProgram built = ops::build_tiled_spmm(matrix.pattern, problem, plan, machine);
  const engine::Engine engine(compiler::compile(std::move(built.program), machine));

  SpmmResult result = start(plan, engine.executable(), request);
  result.fits &= plan.chosen.rejected.empty();
  if (!result.fits) return result;
  estimate(engine, result);
  if (request.estimate) return result;
  Activations x(matrix.pattern.cols, what.n, Layout::row_major);
  Activations y(matrix.pattern.rows, what.n, Layout::row_major);
  base::RandomStream(request.seed, 0, 1).fill_symmetric(x.elements);
  std::vector<std::byte> x_typed = as_type(x.elements, type);
  as_floats(x_typed, type, x.elements);  // as the tiles have them
  x_typed = as_type(built.stored_x(x.elements), type);
  std::vector<std::byte> values = as_type(built.stored_weight(matrix), type);
  const auto cols_of = [&](program::VariableId id) { return int64_t{engine.executable().program->variable(id).cols}; };
  const ops::SpmmVariables& v = built.variables;
  std::vector<float> y_stored(engine.executable().program->variable(v.y).elements());
  std::vector<std::byte> y_typed(y_stored.size() * size_of(type));
  const std::array<engine::Binding, 3> bindings = {{{v.values, values.data(), cols_of(v.values), 1},
                                                    {v.x, x_typed.data(), cols_of(v.x), 1},
                                                    {v.y, y_typed.data(), cols_of(v.y), 1}}};
  engine.run(bindings);
  as_floats(y_typed, type, y_stored);
  built.load_y(y_stored, y.elements);
  verify(request, matrix, {type, problem.partials, type}, x, y, result);
  return result;
}

}  // namespace tessera::cli
