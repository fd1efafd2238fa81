// Products on tiled machines and their gradients, built and run by tests.
#pragma once

#include <gtest/gtest.h>
#include <tessera/io.h>

#include <array>
#include <span>
#include <vector>

#include "base/random.h"
#include "check/verification.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "kernels/common/element.h"
#include "ops/tiles/product.h"
#include "sparse/pattern.h"

namespace tessera::ops {

inline SparseMatrix random_matrix(uint32_t m, uint32_t k, uint32_t block_size, double density = 0.2,
                                  uint64_t seed = 7) {
  return generate({PatternKind::random, m, k, density, block_size, seed});
}

inline constexpr TiledNumbers kNumbers[] = {
    {Type::f32, Type::f32}, {Type::f16, Type::f16}, {Type::f16, Type::f32}};

inline std::vector<std::byte> as_type(std::span<const float> elements, Type type) {
  std::vector<std::byte> bytes(elements.size() * size_of(type));
  for (size_t i = 0; i < elements.size(); ++i)
    kernels::store_number(type, bytes.data() + i * size_of(type), elements[i]);
  return bytes;
}

inline std::vector<float> as_floats(const std::vector<std::byte>& bytes, Type type) {
  std::vector<float> elements(bytes.size() / size_of(type));
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = kernels::value_at(type, bytes.data(), i);
  return elements;
}

/// Seeded elements, rounded to the type.
inline std::vector<float> random_elements(uint64_t count, Type type, uint64_t seed) {
  std::vector<float> elements(count);
  base::RandomStream(seed).fill_symmetric(elements);
  return as_floats(as_type(elements, type), type);
}

/// A planned product, compiled.
struct Planned {
  TileProductPlan plan;
  TileProductProgram program;
  std::shared_ptr<const compiler::Executable> executable;
};

inline Planned make(const Pattern& pattern, const ProductProblem& problem, const machine::Machine& m,
                    const ForcedKnobs& force = {}, const TileProductPlan* forward = nullptr,
                    const LayoutChoices& layouts = {}) {
  Planned product;
  product.plan = plan_tile_product(pattern, problem, m, force, forward, layouts);
  product.program = build_tile_product(pattern, problem, product.plan, m);
  product.executable = compiler::compile(std::move(product.program.program), m);
  return product;
}

/// Runs a product on operands of its matrix, its n and its type, and compares what it writes with
/// float64.
class ProductRun {
 public:
  ProductRun(const SparseMatrix& matrix, const ProductProblem& problem, uint64_t seed = 3)
      : problem_(problem), w_(check::rounded(matrix, problem.type)) {
    x_ = random_elements(uint64_t{matrix.pattern.cols} * problem.n, problem.type, seed);
    y_ = random_elements(uint64_t{matrix.pattern.rows} * problem.n, problem.type, seed + 1);
  }

  check::Verification run(const Planned& product) { return compare(product.program, execute(product)); }

  /// The product's result, as stored.
  std::vector<float> execute(const Planned& product) {
    const TileProductProgram::Variables& v = product.program.variables;
    const program::Program& p = *product.executable->program;
    std::vector<std::byte> values = as_type(product.program.stored_weight(w_), problem_.type);
    std::vector<std::byte> x = as_type(product.program.stored_x(x_), problem_.type);
    std::vector<std::byte> y = as_type(product.program.stored_y(y_), problem_.type);
    std::vector<std::byte>& result = written(values, x, y);
    std::fill(result.begin(), result.end(), std::byte{0xFF});
    std::vector<engine::Binding> bindings = {{v.values, values.data(), p.variable(v.values).cols, 1},
                                             {v.x, x.data(), p.variable(v.x).cols, 1},
                                             {v.y, y.data(), p.variable(v.y).cols, 1}};
    bias_ = random_elements(problem_.product == Product::input_gradient ? w_.pattern.cols : w_.pattern.rows,
                            Type::f32, 9);
    if (problem_.bias) bindings.push_back({v.bias, bias_.data(), 1, 1});
    std::vector<engine::Binding> metadata;
    if (product.program.dynamic) {
      const DynamicWeight& dynamic = *product.program.dynamic;
      metadata.push_back({dynamic.metadata, const_cast<uint16_t*>(dynamic.encoding.metadata.data()),
                          dynamic.grid.bucket_words, 1});
      bindings.push_back(metadata[0]);
    }
    const engine::Engine engine(product.executable);
    profile_ = engine.run(bindings);
    EXPECT_EQ(profile_.cycles.at,
              engine.run(metadata, {.dry = true}).cycles.at);  // a dry run accounts what a run takes
    return as_floats(result, problem_.type);
  }

  const SparseMatrix& w() const { return w_; }
  const std::vector<float>& x() const { return x_; }
  const std::vector<float>& y() const { return y_; }
  const std::vector<float>& bias() const { return bias_; }

  /// Of the last run.
  const engine::Profile& profile() const { return profile_; }

 private:
  template <class T>
  T& written(T& values, T& x, T& y) const {
    switch (problem_.product) {
      case Product::input_gradient: return x;
      case Product::sddmm: return values;
      default: return y;
    }
  }

  check::Verification compare(const TileProductProgram& program, const std::vector<float>& stored) {
    const auto n = problem_.n;
    const uint32_t roundings = program.dynamic ? program.dynamic->encoding.roundings : 1;
    const auto of = [n](const std::vector<float>& m) { return MatrixView<const float>{m.data(), n, 1}; };
    std::vector<float> found(written(w_.values, x_, y_).size(), NAN);
    switch (problem_.product) {
      case Product::input_gradient:
        program.load_x(stored, found);
        return check::verify_product({sparse::transpose(w_), of(y_), of(found), n, problem_.type, Type::f32,
                                      problem_.partials, roundings},
                                     check::Extent::full, 1, 1);
      case Product::sddmm: {
        SparseMatrix dw{w_.pattern, {}};
        program.load_weight(stored, dw);
        return check::verify_sddmm({dw, of(x_), of(y_), n, problem_.type, Type::f32, problem_.partials},
                                   check::Extent::full, 1, 1);
      }
      default:
        program.load_y(stored, found);
        return check::verify_product(
            {w_, of(x_), of(found), n, problem_.type, Type::f32, problem_.partials, roundings},
            check::Extent::full, 1, 1);
    }
  }

  ProductProblem problem_;
  engine::Profile profile_;
  SparseMatrix w_;
  std::vector<float> x_;
  std::vector<float> y_;
  std::vector<float> bias_;
};

/// Plans, compiles and runs a product, and compares it with float64.
inline check::Verification run(const SparseMatrix& matrix, const ProductProblem& problem,
                               const machine::Machine& m, const ForcedKnobs& force = {}) {
  return ProductRun(matrix, problem).run(make(matrix.pattern, problem, m, force));
}

/// Cycles by phase equal the account's; bytes are within 5 % of it, or the given tolerance, and never below.
inline void expect_kept(const Planned& product, const machine::Machine& m, double most_bytes = 1.05) {
  const engine::Profile profile = engine::Engine(product.executable).run({}, {.dry = true});
  for (size_t phase = 0; phase < program::kPhases; ++phase)
    EXPECT_NEAR(profile.cycles.at[phase], product.plan.chosen.seconds.at[phase] * m.clock_hz,
                1e-9 * profile.cycles.total())
        << name_of(static_cast<program::Phase>(phase));
  const uint64_t bytes = product.executable->memory.max_tile_bytes;
  EXPECT_LE(bytes, product.plan.chosen.max_tile_bytes);
  EXPECT_GE(most_bytes * static_cast<double>(bytes), static_cast<double>(product.plan.chosen.max_tile_bytes));
}

}  // namespace tessera::ops
