// Products as operations of larger programs on a host.
#include <gtest/gtest.h>
#include <tessera/io.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "ops/sparse/host/spmm.h"
#include "program/program.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/numbers.h"

namespace tessera::ops {
namespace {

using program::Role;
using test::random_floats;

constexpr uint32_t kRows = 64, kCols = 48;

/// A weight in a program, and temporaries that its products take.
struct WeightInProgram {
  machine::Machine host = machine::host(2);
  program::Program program;
  Builder builder{program, host};
  std::shared_ptr<const PackedWeight> packed;
  WeightIndex index;

  explicit WeightInProgram(PackedWeight weight)
      : packed(std::make_shared<const PackedWeight>(std::move(weight))), index(packed) {}

  void add(ProductKind product) {
    const ProductProblem problem{.n = 4, .product = product};
    const PackedShape shape = packed_shape(*packed);
    build_host_product(builder, index, problem, plan_host_product(*packed, problem, host),
                       {.values = builder.temporary("values", Type::f32, shape.rows, shape.cols),
                        .x = builder.temporary("x", Type::f32, kCols, problem.n),
                        .y = builder.temporary("y", Type::f32, kRows, problem.n),
                        .bias = {},
                        .metadata = {},
                        .scalars = {}});
  }
};

PackedWeight pack(uint32_t block_size, bool is_dynamic) {
  const SparseMatrix matrix = generate({PatternKind::random, kRows, kCols, 0.3, block_size, 1});
  if (!is_dynamic) return prepack_weight(matrix, Type::f32);
  const Pattern& p = matrix.pattern;
  if (block_size > 1) return {sparse::PackedBlocks(p, Type::f32, p.blocks() + 3)};
  return {sparse::PackedElements::dynamic(p.rows, p.cols, p.blocks() + 9, Type::f32)};
}

// Products without beta do not read their result, so liveness need not preserve it.
TEST(HostProgram, WithoutBetaWhatIsWrittenIsOnlyWritten) {
  for (const uint32_t block_size : {1U, 4U, 16U})
    for (const bool is_dynamic : {false, true}) {
      WeightInProgram weight(pack(block_size, is_dynamic));
      for (ProductKind product : {ProductKind::forward, ProductKind::sddmm, ProductKind::input_gradient})
        weight.add(product);
      const bool keeps_free_slots = is_dynamic && block_size > 1;
      size_t results = 0;
      for (const program::ComputeSet& set : weight.program.compute_sets())
        for (const program::VertexGroup& group : set.groups)
          for (const program::FieldSpec& field : group.codelet->fields) {
            if (field.name != "y" && field.name != "dw") continue;
            ++results;
            const bool is_kept = field.name == "dw" && keeps_free_slots;
            EXPECT_EQ(field.access, is_kept ? program::Access::inout : program::Access::out)
                << group.codelet->name;
          }
      EXPECT_GE(results, 3U);
    }
}

// Three products of one weight: the program has its index once per order.
TEST(HostProgram, ProductsOfOneWeightShareItsIndex) {
  WeightInProgram weight(pack(8, false));
  const auto indices = [&] {
    return std::ranges::count_if(weight.program.variables(), [](const program::Variable& variable) {
      return variable.name.starts_with("W.");
    });
  };
  weight.add(ProductKind::forward);
  const auto of_forward = indices();
  weight.add(ProductKind::sddmm);
  weight.add(ProductKind::forward);
  EXPECT_EQ(indices(), of_forward);
  weight.add(ProductKind::input_gradient);
  EXPECT_GT(indices(), of_forward);
}

TEST(HostProgram, SaysWhichOperandIsWrong) {
  const machine::Machine host = machine::host(1);
  program::Program program;
  const Builder builder(program, host);
  const auto packed = std::make_shared<const PackedWeight>(
      prepack_weight(generate({PatternKind::random, 16, 24, 1.0, 8, 1}), Type::f16));
  WeightIndex index(packed);
  const PackedShape shape = packed_shape(*packed);
  const Operand values = builder.temporary("values", Type::f16, shape.rows, shape.cols);
  const Operand x = builder.temporary("x", Type::f32, 24, 4), y = builder.temporary("y", Type::f32, 16, 4);
  const auto message = [&](ProductProblem problem, const ProductOperands& operands) {
    const HostPlan plan = plan_host_product(*packed, problem, host);
    return test::error_of<UsageError>([&] { build_host_product(builder, index, problem, plan, operands); });
  };
  const ProductOperands right{.values = values, .x = x, .y = y, .bias = {}, .metadata = {}, .scalars = {}};
  ProductOperands wrong = right;
  wrong.x = y;
  EXPECT_TRUE(
      test::says(message({.n = 4}, wrong), "the operand X is 16 × 4 of f32; the operation needs 24 × 4"));
  EXPECT_TRUE(test::says(message({.n = 5}, right), "needs 24 × 5 of f32"));
  EXPECT_TRUE(test::says(message({.n = 4, .product = ProductKind::sddmm}, right), "the operand dW is"));
  EXPECT_TRUE(test::says(message({.n = 4, .bias = true}, right), "the product has a bias; pass its operand"));
  wrong = right;
  wrong.bias = y;
  EXPECT_TRUE(test::says(message({.n = 4}, wrong), "the product has no bias"));
  EXPECT_TRUE(test::says(message({.n = 4, .bias = true}, wrong), "the operand the bias is 16 × 4"));
  wrong = right;
  wrong.scalars = y;
  EXPECT_TRUE(test::says(message({.n = 4}, wrong), "the operand alpha and beta is"));
}

// beta · Y, with scalars computed by the program, and without scalars.
TEST(HostProgram, AddsToWhatWasThereWhereTheProblemSaysSo) {
  const machine::Machine host = machine::host(2);
  for (const uint32_t block_size : {1U, 8U})
    for (const bool uses_beta : {false, true}) {
      program::Program program;
      const Builder builder(program, host);
      const SparseMatrix matrix = generate({PatternKind::random, 20, 30, 0.5, block_size, 1});
      const auto packed = std::make_shared<const PackedWeight>(prepack_weight(matrix, Type::f32));
      WeightIndex index(packed);
      const PackedShape shape = packed_shape(*packed);
      const Operand values = builder.external("W", Role::input, Type::f32, shape.rows, shape.cols);
      const Operand x = builder.external("X", Role::input, Type::f32, 30, 3);
      const Operand y = builder.external("Y", uses_beta ? Role::inout : Role::output, Type::f32, 20, 3);
      const ProductProblem problem{.n = 3, .uses_beta = uses_beta};
      program.set_main(
          build_host_product(builder, index, problem, plan_host_product(*packed, problem, host),
                             {.values = values, .x = x, .y = y, .bias = {}, .metadata = {}, .scalars = {}}));
      std::vector<float> in = random_floats(90, 1), out(60, uses_beta ? 2.0F : NAN);
      const std::vector<engine::Binding> bindings = {
          {values.variable, const_cast<std::byte*>(packed->values()), values.cols(), 1},
          {x.variable, in.data(), 3, 1},
          {y.variable, out.data(), 3, 1}};
      engine::Engine(compiler::compile(program, host)).run(bindings);
      const std::vector<float> w = sparse::to_dense(matrix);
      for (size_t i = 0; i < out.size(); ++i) {
        double expected = uses_beta ? 2 : 0;
        for (size_t k = 0; k < 30; ++k) expected += double{w[i / 3 * 30 + k]} * in[k * 3 + i % 3];
        EXPECT_NEAR(out[i], expected, 1e-4) << block_size;
      }
    }
}

}  // namespace
}  // namespace tessera::ops
