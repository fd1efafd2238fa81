// Products on tiled machines and their gradients, run by tests.
#pragma once

#include <gtest/gtest.h>
#include <tessera/io.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "bound/product.h"
#include "check/verification.h"
#include "kernels/common/numbers.h"
#include "ops/expect_kept.h"
#include "ops/tiles/product.h"
#include "sparse/pattern.h"

namespace tessera::ops {

inline SparseMatrix random_matrix(uint32_t m, uint32_t k, uint32_t block_size, double density = 0.2,
                                  uint64_t seed = 7) {
  return generate({PatternKind::random, m, k, density, block_size, seed});
}

inline constexpr TiledNumbers kNumbers[] = {
    {Type::f32, Type::f32}, {Type::f16, Type::f16}, {Type::f16, Type::f32}};

/// Seeded elements, rounded to the type.
inline std::vector<float> random_elements(uint64_t count, Type type, uint64_t seed) {
  std::vector<float> elements(count);
  base::RandomStream(seed).fill_symmetric(elements);
  return kernels::as_floats(kernels::as_type(elements, type), type);
}

/// A product with synthetic values, for its plan alone.
inline bound::BoundProduct planned(const Pattern& pattern, const ProductProblem& problem,
                                   const machine::Machine& m, const ForcedKnobs& force = {},
                                   const TileProductPlan* forward = nullptr) {
  const SparseMatrix matrix{pattern, std::vector<float>(sparse::stored_values(pattern))};
  return {matrix, problem, m, force, forward};
}

/// Runs a product on operands of its matrix, its n and its type, and compares the result with float64.
class ProductRun {
 public:
  ProductRun(const SparseMatrix& matrix, const ProductProblem& problem, uint64_t seed = 3)
      : problem_(problem), w_(check::rounded(matrix, problem.type)) {
    x_ = random_elements(uint64_t{matrix.pattern.cols} * problem.n, problem.type, seed);
    y_ = random_elements(uint64_t{matrix.pattern.rows} * problem.n, problem.type, seed + 1);
    const bool is_dx = problem.product == ProductKind::input_gradient;
    bias_ = random_elements(is_dx ? w_.pattern.cols : w_.pattern.rows, Type::f32, 9);
  }

  check::Verification run(bound::BoundProduct& product) {
    const std::vector<float> found = execute(product);
    const uint32_t n = problem_.n;
    const auto of = [n](const std::vector<float>& m) { return MatrixView<const float>{m.data(), n, 1}; };
    if (problem_.product == ProductKind::sddmm)
      return check::verify_sddmm(
          {{w_.pattern, found}, of(x_), of(y_), n, problem_.type, Type::f32, problem_.partials},
          check::Extent::full, 1, 1);
    const bool is_dx = problem_.product == ProductKind::input_gradient;
    // Rounded stochastically, a number may be twice as far.
    const uint32_t roundings = product.roundings() * (problem_.rounding ? 2 : 1);
    return check::verify_product({is_dx ? sparse::transpose(w_) : w_, of(is_dx ? y_ : x_), of(found), n,
                                  problem_.type, Type::f32, problem_.partials, roundings},
                                 check::Extent::full, 1, 1);
  }

  /// The product's result: dX or Y row by row, or dW in the order of the pattern.
  std::vector<float> execute(bound::BoundProduct& product) {
    std::vector<float> x = x_;
    std::vector<float> y = y_;
    if (problem_.product == ProductKind::input_gradient) x.assign(x.size(), NAN);
    if (problem_.product == ProductKind::forward) y.assign(y.size(), NAN);
    const int64_t n = problem_.n;
    profile_ = product.run({x.data(), n, 1}, {y.data(), n, 1}, {}, problem_.bias ? bias_.data() : nullptr);
    EXPECT_EQ(profile_.cycles.at, product.estimate().cycles.at);  // a dry run has the cycles of a run
    switch (problem_.product) {
      case ProductKind::input_gradient: return x;
      case ProductKind::sddmm: return product.gradient();
      default: return y;
    }
  }

  const SparseMatrix& w() const { return w_; }
  const std::vector<float>& x() const { return x_; }
  const std::vector<float>& y() const { return y_; }
  const std::vector<float>& bias() const { return bias_; }

  /// The profile of the last run.
  const engine::Profile& profile() const { return profile_; }

 private:
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
  bound::BoundProduct product(matrix, problem, m, force);
  return ProductRun(matrix, problem).run(product);
}

/// Expects the plan's costs to equal the executable's.
inline void expect_kept(const bound::BoundProduct& product, double most_bytes = 1.05) {
  expect_kept(product.chosen(), product.executable(), product.estimate().cycles, most_bytes);
}

}  // namespace tessera::ops
