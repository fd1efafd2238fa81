#include "cli/spmm_tiled.h"

#include <chrono>

#include "base/random.h"
#include "check/verification.h"
#include "cli/spmm_run.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "kernels/common/element.h"
#include "sparse/pattern.h"

namespace tessera::cli {
namespace {

/// Elements as they lie in a tile's memory.
std::vector<std::byte> as_type(std::span<const float> elements, Type type) {
  std::vector<std::byte> bytes(elements.size() * size_of(type));
  const program::FieldView view{bytes.data(), type, 1, static_cast<uint32_t>(elements.size())};
  for (size_t i = 0; i < elements.size(); ++i)
    kernels::set_number(view, 0, static_cast<int64_t>(i), elements[i]);
  return bytes;
}

void as_floats(const std::vector<std::byte>& bytes, Type type, std::span<float> elements) {
  const program::FieldView view{const_cast<std::byte*>(bytes.data()), type, 1,
                                static_cast<uint32_t>(elements.size())};
  for (size_t i = 0; i < elements.size(); ++i)
    elements[i] = static_cast<float>(kernels::number_at(view, 0, static_cast<int64_t>(i)));
}

/// The operands of a product on tiles, as matrices and as its program stores them.
class Operands {
 public:
  Operands(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
           const ops::TileProductProgram& built)
      : product_(what.product),
        type_(what.precision.type),
        built_(built),
        w_(check::rounded(matrix, type_)),
        x_(matrix.pattern.cols, what.n, Layout::row_major),
        y_(matrix.pattern.rows, what.n, Layout::row_major) {
    base::RandomStream(request.seed, 0, 1).fill_symmetric(x_.elements);
    base::RandomStream(request.seed, 0, 2).fill_symmetric(y_.elements);
    for (Activations* given : {&x_, &y_}) as_floats(as_type(given->elements, type_), type_, given->elements);
    stored_w_ = as_type(built.stored_weight(w_), type_);
    stored_x_ = as_type(built.stored_x(x_.elements), type_);
    stored_y_ = as_type(built.stored_y(y_.elements), type_);
  }

  std::vector<engine::Binding> bindings(const program::Program& program) {
    const ops::TileProductProgram::Variables& v = built_.variables;
    const auto cols_of = [&](program::VariableId id) { return int64_t{program.variable(id).cols}; };
    return {{v.values, stored_w_.data(), cols_of(v.values), 1},
            {v.x, stored_x_.data(), cols_of(v.x), 1},
            {v.y, stored_y_.data(), cols_of(v.y), 1}};
  }

  /// Compares the result with float64.
  void verify(const SpmmRequest& request, Type partials, SpmmResult& result) {
    const Rounding types{type_, partials, type_, built_.dynamic ? built_.dynamic->encoding.roundings : 1};
    switch (product_) {
      case ops::Product::forward:
        built_.load_y(floats_of(stored_y_), y_.elements);
        return cli::verify(request, w_, types, x_, y_, result);
      case ops::Product::input_gradient:
        built_.load_x(floats_of(stored_x_), x_.elements);
        return cli::verify(request, sparse::transpose(w_), types, y_, x_, result);
      case ops::Product::sddmm:
        built_.load_weight(floats_of(stored_w_), w_);
        return verify_sddmm(request, w_, types, x_, y_, result);
    }
  }

 private:
  std::vector<float> floats_of(const std::vector<std::byte>& stored) const {
    std::vector<float> elements(stored.size() / size_of(type_));
    as_floats(stored, type_, elements);
    return elements;
  }

  ops::Product product_;
  Type type_;
  const ops::TileProductProgram& built_;
  SparseMatrix w_;
  Activations x_;
  Activations y_;
  std::vector<std::byte> stored_w_;
  std::vector<std::byte> stored_x_;
  std::vector<std::byte> stored_y_;
};

/// Where the blocks of a dynamic weight are, to be bound; nothing of others.
std::vector<engine::Binding> metadata_of(const ops::TileProductProgram& built) {
  if (!built.dynamic) return {};
  const ops::DynamicWeight& dynamic = *built.dynamic;
  return {{dynamic.metadata, const_cast<uint16_t*>(dynamic.encoding.metadata.data()),
           dynamic.grid.bucket_words, 1}};
}

}  // namespace

ops::ProductProblem tiled_problem(const SpmmRequest& request, const SpmmCase& what, uint64_t blocks) {
  ops::ProductProblem problem{what.n, what.precision.type, what.precision.type, request.planner};
  if (what.precision.f32_partials) problem.partials = Type::f32;
  problem.dense = what.mode == Mode::dense;
  problem.product = what.product;
  if (what.mode == Mode::dynamic_sparse) problem.capacity = blocks;
  return problem;
}

SpmmResult run_on_tiles(const SpmmRequest& request, const SpmmCase& what, const SparseMatrix& matrix,
                        const machine::Machine& machine, const ops::ForcedKnobs& force) {
  const ops::ProductProblem problem = tiled_problem(request, what, matrix.pattern.blocks());
  const ops::TileProductPlan plan = ops::plan_tile_product(matrix.pattern, problem, machine, force);
  ops::TileProductProgram built = ops::build_tile_product(matrix.pattern, problem, plan, machine);
  const engine::Engine engine(compiler::compile(std::move(built.program), machine));

  SpmmResult result = start(plan, engine.executable(), request);
  if (built.dynamic) {
    const auto begin = std::chrono::steady_clock::now();
    built.set_pattern(matrix.pattern);
    result.update_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    result.steps = built.dynamic->encoding.steps;
  }
  result.fits &= plan.chosen.rejected.empty();
  if (!result.fits) return result;
  const std::vector<engine::Binding> metadata = metadata_of(built);
  estimate(engine, metadata, result);
  if (request.estimate) return result;
  Operands operands(request, what, matrix, built);
  std::vector<engine::Binding> bindings = operands.bindings(*engine.executable().program);
  bindings.insert(bindings.end(), metadata.begin(), metadata.end());
  engine.run(bindings);
  operands.verify(request, problem.partials, result);
  return result;
}

}  // namespace tessera::cli
