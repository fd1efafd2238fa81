// Unknown and missing operands of a structured map are refused by name; and the scratch memory of maps on
// hosts.
#include <gtest/gtest.h>

#include "ops/structured/structured.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

using test::error_of;
using test::says;

class StructuredOperandsTest : public ::testing::Test {
 protected:
  Operand operand(uint32_t rows, uint32_t cols) {
    return builder_.external("x", program::Role::inout, Type::f32, rows, cols);
  }
  StructuredOperands operands(const StructuredProblem& p) const { return external_operands(builder_, p); }
  std::string message(const StructuredProblem& p, const StructuredOperands& o) {
    return error_of<UsageError>(
        [&] { build_structured(builder_, p, plan_structured(p, builder_.machine()), o); });
  }

  machine::Machine machine_ = testing::toy_host(2);
  program::Program program_;
  Builder builder_{program_, machine_};
};

TEST_F(StructuredOperandsTest, AreAsManyAsThereAreParameters) {
  Fastfood fastfood{.inputs = 8, .outputs = 8, .permutation = {3, 1, 0, 2, 7, 6, 5, 4}};
  for (const bool gradients : {false, true}) {
    const StructuredProblem p{.structure = fastfood, .batch = 4, .type = Type::f32, .gradients = gradients};
    EXPECT_EQ(message(p, operands(p)), "(no error)");
    StructuredOperands fewer = operands(p), more = operands(p), others = operands(p);
    fewer.parameters.pop_back();
    more.parameters.push_back(operand(1, 8));
    if (gradients)
      others.parameter_gradients.pop_back();
    else
      others.parameter_gradients.push_back(operand(1, 8));
    for (const StructuredOperands& wrong : {fewer, more, others})
      EXPECT_TRUE(says(message(p, wrong), "has 3 parameters"));
  }
}

TEST_F(StructuredOperandsTest, HaveAGradientOfXOnlyWhereThereIsOne) {
  StructuredProblem p{.structure = Circulant{.size = 8}, .batch = 4, .type = Type::f32, .gradients = true};
  StructuredOperands o = operands(p);
  o.dx.reset();
  EXPECT_TRUE(says(message(p, o), "has a dx"));
  p.input_gradient = false;
  EXPECT_TRUE(
      says(message(p, operands({.structure = p.structure, .batch = 4, .type = Type::f32, .gradients = true})),
           "has no dx"));
}

TEST_F(StructuredOperandsTest, OfOneLargeGroupNeedLittleScratchMemoryBesideItsWeights) {
  constexpr uint32_t kFeatures = 4096;
  for (const bool gradients : {false, true}) {
    const StructuredProblem p{
        .structure = Kronecker{1, kFeatures, kFeatures, 1}, .batch = 4, .gradients = gradients};
    const StructuredPlan plan = plan_structured(p, builder_.machine());
    EXPECT_LT(plan.chosen.max_tile_bytes, 2 * sizeof(float) * kFeatures * kFeatures) << gradients;
  }
}

TEST_F(StructuredOperandsTest, NeedNoMoreScratchMemoryThanAVariableMayHave) {
  constexpr uint32_t kFeatures = 1U << 24;
  const StructuredProblem p{
      .structure = Butterfly{.inputs = kFeatures, .outputs = kFeatures, .complex = true},
      .batch = 1,
      .gradients = true};
  EXPECT_TRUE(says(message(p, operands(p)), "numbers of scratch memory"));
}

}  // namespace
}  // namespace tessera::ops
